"""NumPy's functions that are small calls: what NumPy computes for them, with the bits that tasks have.

Before: program/at_home.py.  After: program/small.py, which makes the calls.  Knows NumPy only.

Functions that choose or move elements (np.where, np.concatenate) give the same bits however an array lies in memory. Those that
add up are taken only for arrays without gaps in C order, which is how tasks see them. A call with an option that is not listed
here becomes a task, and so does one that NumPy would refuse or warn about.

A call that is made at once may be as large as it takes less processor time than a task costs (`CallPace`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

from .array import Array
from .at_home import MOST, NUMBERS, AtHome, ComeHome, Interrupts, LastNumber
from .value import known_value

EVERY = 64
"""Calls of one function of which one is timed, and told to the trace: the clocks take as long as a call."""
FIRST, LEAST = 1 << 12, 1 << 6
"""Elements of a small call: before any was timed, and however slow it is."""
STEP = 4
"""How much larger calls are tried, once those of the present size take less than this fraction of a task's cost."""
SLOW = 4
"""Timed calls in a row that took longer than a task costs, until smaller ones only are taken: on a busy machine some do."""
AGAIN = 256
"""Calls beyond the limit of which one is made all the same, to see whether the limit still holds."""


class CallPace:
    """How large a call of one function may be, in elements."""

    __slots__ = ("left", "limit", "refused", "slow", "stands")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # negative: no call of it is small
        self.left = 0  # calls until one is timed
        self.stands = 1  # calls that the next timed one stands for
        self.slow = 0  # calls in a row that took longer than a task costs
        self.refused = 0  # calls that were larger

    def takes(self, size: int) -> bool:
        """Tell whether a call may be made though it is larger than the limit."""
        if size > MOST or self.limit < 0:
            return False
        self.refused += 1
        if self.refused % AGAIN:
            return False
        self.left = 0  # it is timed
        return True

    def learn(self, size: int, seconds: float, task: float) -> None:
        """Note how much processor time a call took, where a task costs `task` seconds."""
        if seconds > task:
            self.slow += 1
            if self.slow >= SLOW:
                self.limit = max(LEAST, min(self.limit, size // 2))
        else:
            self.slow = 0
            self.limit = max(self.limit, min(MOST, size * STEP if seconds * STEP < task else size))


TASK = 50e-6
"""Seconds that a task costs the program, until some were measured."""
SHARE = 0.125
"""How much the newest task counts in the mean of what tasks cost."""
MEASURED = 64
"""Tasks that are measured: their cost depends on the machine, not on the program's progress."""
Data = np.ndarray[Any, Any]
Record = Callable[[str, float, float, int], None]
PLAIN = "?bBhHiIlLqQefd"
"""Types that an array may be turned into: real numbers of the machine's own byte order, by NumPy's letters."""
ONE = frozenset({"axis", "keepdims"})
NONE: frozenset[str] = frozenset()
ONE_THREAD = 1 << 18
"""Multiplications of a product of matrices up to which OpenBLAS uses one thread, as tasks do: 64 x 64 x 64."""


class Short(NamedTuple):
    """A function as a small call."""

    compute: Callable[..., Any]  # takes NumPy arrays where the program gave its own
    size: (
        Callable[[Sequence[Data]], int] | None
    )  # how many elements the call is about, by its arrays; None = its one array's
    arrays: int = 1  # how many of its first arguments are arrays; 0: the first one is a sequence of arrays
    most: int = 1  # arguments that may be given by position: none of them is an output
    options: frozenset[str] = NONE  # that may be given by keyword
    types: str | None = PLAIN + "FD"  # of elements, by NumPy's letters; None = all
    dense: bool = False  # its bits may depend on how an array lies in memory
    number: bool = True  # a result without axes is a number, not an array


def spread(*shapes: tuple[int, ...]) -> int:
    """Return how many elements shapes have together; too many for a small call if they do not fit."""
    try:
        return prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return MOST + 1


def _joined(arrays: Sequence[Data]) -> int:
    """Return the size of a call that copies: four elements take as long as a computed one."""
    return sum([array.size for array in arrays]) // 4


def _broadcast(arrays: Sequence[Data]) -> int:
    return spread(*[array.shape for array in arrays])


def _product(arrays: Sequence[Data]) -> int:
    """Return the size of a product of matrices, which is that of its largest array; too large if OpenBLAS would use threads."""
    x, y = arrays
    rows = x.size // x.shape[-1] if x.ndim else 1
    columns = y.shape[-1] if y.ndim > 1 else 1
    return max(x.size, y.size, rows * columns) if x.size * columns <= ONE_THREAD else MOST + 1


def _astype(x: Data, dtype: Any, copy: bool = True) -> Any:
    """Return x with another type; None if that is not a plain one, or nothing would be copied."""
    wanted = np.dtype(dtype)
    return x.astype(wanted, order="C") if copy is True and wanted.char in PLAIN and wanted.isnative else None


def _norm(x: Data, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the root of the sum of squares, as tasks compute it; np.linalg.norm calls a dot product."""
    reduce: Any = np.add.reduce
    return np.sqrt(reduce(np.square(x), axis, None, None, keepdims))


def _reduction(ufunc: np.ufunc) -> Short:
    """Return a reduction of an array that is one block."""
    reduce: Any = ufunc.reduce

    def compute(x: Data, axis: Any = None, *, keepdims: Any = False) -> Any:
        return reduce(x, axis, None, None, keepdims) if type(keepdims) is bool else None

    return Short(compute, None, 1, 2, ONE, None, dense=True)


REAL = PLAIN.replace("e", "")  # half precision is added up in other types by tasks
SHORT: dict[Any, Short] = {
    np.sum: _reduction(np.add),
    np.prod: _reduction(np.multiply),
    np.max: _reduction(np.maximum),
    np.min: _reduction(np.minimum),
    np.any: _reduction(np.logical_or),
    np.all: _reduction(np.logical_and),
    np.copy: Short(lambda x: x.copy(order="C"), None, number=False),
    np.astype: Short(_astype, None, 1, 2, frozenset({"copy"}), PLAIN, number=False),
    np.where: Short(np.where, _broadcast, 3, 3, number=False),
    np.argmax: Short(np.argmax, None, 1, 2, ONE, PLAIN),
    np.argmin: Short(np.argmin, None, 1, 2, ONE, PLAIN),
    np.count_nonzero: Short(np.count_nonzero, None, 1, 2, ONE),
    np.mean: Short(np.mean, None, 1, 2, ONE, REAL, dense=True),
    np.var: Short(np.var, None, 1, 2, ONE, REAL, dense=True),
    np.std: Short(np.std, None, 1, 2, ONE, REAL, dense=True),
    np.linalg.norm: Short(_norm, None, 1, 1, ONE, "fd", dense=True),
    np.matmul: Short(np.matmul, _product, 2, 2, types=REAL, dense=True),
    np.dot: Short(np.dot, _product, 2, 2, types=REAL, dense=True),
    np.outer: Short(np.outer, lambda arrays: prod([array.size for array in arrays]), 2, 2, number=False),
    np.concatenate: Short(np.concatenate, _joined, 0, 2, frozenset({"axis"}), number=False),
    np.stack: Short(np.stack, _joined, 0, 2, frozenset({"axis"}), number=False),
    np.vstack: Short(np.vstack, _joined, 0, number=False),
    np.hstack: Short(np.hstack, _joined, 0, number=False),
}
"""The functions that may be small calls."""
_ndarray = np.ndarray


class SmallFunctions(AtHome):
    """The small calls of one runtime that are functions, and how large a call may be."""

    __slots__ = ("_measured", "_paces", "_record", "learns", "task")

    def __init__(
        self,
        owner: Any,
        lock: Any,
        births: LastNumber,
        interrupts: Interrupts,
        come_home: ComeHome,
        record: Record | None,
    ) -> None:
        """Begin. `record` is told of the calls that are timed: name, start and stop in seconds, and how many they stand for."""
        super().__init__(owner, lock, births, interrupts, come_home)
        self.task = TASK  # seconds that a task costs
        self._record = record
        self.learns = True  # what tasks cost is still being measured
        self._measured = 0
        self._paces: dict[Any, CallPace] = {}

    # What is measured ---------------------------------------------------------------------------------------------------

    def learn(self, seconds: float) -> None:
        """Note what a task cost the program. Locked."""
        if self.learns and seconds > 0.0:
            self._measured += 1
            self.learns = self._measured < MEASURED
            self.task += SHARE * (seconds - self.task)

    def _pace(self, function: Any) -> CallPace:
        """Return the pace of a function that is called for the first time."""
        fits = function in SHORT or (
            function.nout == 1 and function.signature is None and any("O" not in types for types in function.types)
        )
        pace = self._paces[function] = CallPace(FIRST if fits else -1)
        return pace

    def _timed(
        self, pace: CallPace, function: Any, size: int, call: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Make a call and learn from it."""
        calls, pace.stands, pace.left = pace.stands, EVERY, EVERY - 1
        start, begun = perf_counter(), thread_time()
        result = call(*args, **options)
        pace.learn(size, thread_time() - begun, self.task)
        if self._record is not None:
            self._record(function.__name__, start, perf_counter(), calls)
        return result

    # NumPy's functions ----------------------------------------------------------------------------------------------------

    def function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what one of NumPy's functions gives, if it is one for small arrays; else None."""
        short = SHORT.get(function)
        return None if short is None else self._short(function, short, args, kwargs)

    def _short(self, function: Any, short: Short, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a function gives; None if it must become a task, or is an error."""
        if not self.is_open_here() or not kwargs.keys() <= short.options:
            return None
        self._acquire()
        try:
            arrays: list[Any] = []
            taken = self._given_to(short, args, arrays)
            if taken is None:
                return None
            pace = self._paces.get(function) or self._pace(function)
            size = arrays[0].size if short.size is None else short.size(arrays)
            if size > pace.limit and not pace.takes(size):
                return None
            pace.left -= 1
            if pace.left >= 0:
                result = short.compute(*taken, **kwargs)
            else:
                result = self._timed(pace, function, size, short.compute, *taken, **kwargs)
            if type(result) is _ndarray:
                made: Any = self.made(result if result.flags.c_contiguous else result.copy())
            elif result is None:
                return None
            else:
                made = known_value(result, self.owner, self.values) if short.number else self.made(np.asarray(result))
        except Exception:  # noqa: BLE001 - the long way tells it; nothing was changed
            return None
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        return made

    def _given_to(self, short: Short, args: tuple[Any, ...], arrays: list[Any]) -> list[Any] | None:
        """Return the arguments with NumPy arrays for ours, which `arrays` gets as well; None for a task. Locked."""
        count = short.arrays
        if len(args) > short.most or len(args) < count:
            return None
        taken: list[Any] = []
        for value in (args[:count] if len(args) > count else args) if count else args[0]:
            if type(value) is not Array:
                if count != 3 or type(value) not in NUMBERS:  # np.where chooses numbers, too
                    return None
                taken.append(value)
                continue
            home = value._storage.home
            if value._small is not self or ((home is None or value._home is not home) and not self.enter(value)):
                return None
            x = value._data
            if not x.size or (short.dense and not x.flags.c_contiguous):
                return None
            if short.types is not None and x.dtype.char not in short.types:
                return None
            taken.append(x)
            arrays.append(x)
        if not count:
            return [taken, *args[1:]]
        return taken if len(args) == count else [*taken, *args[count:]]
