"""Small arrays at NumPy's speed: calls on arrays that are at home are NumPy's own, at once, under the runtime's lock.

Before: program/at_home.py, program/ufunc.py.  After: driver.py.  Knows no device.

1. An array is at home while nothing that is not over touches it, and all its elements are in one NumPy array on the host
   (program/storage.py). Most are results of such calls themselves: no stage has ever heard of them.
2. A call whose arrays are at home, and small, is NumPy's call on those arrays. Its result is at home, too. It has a
   number like any array, and nothing else: whoever comes later finds it over.
3. Any other call goes the long way, and becomes a task. Its arrays leave home when it is recorded, under the same lock.
4. What NumPy raises goes the long way with its error: bad arguments are refused there as always; else the call becomes a
   task that has failed, and what it would have written is poisoned.

So there is one order of all calls, that of the lock, and a call that goes one way or the other gives the same bits. A
call is small as long as it takes less time than a task costs. Both are measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import session
from .array import Array
from .at_home import NUMBERS
from .call import DEFAULT, placed_now
from .session import in_kernel
from .small_functions import SHORT, SmallFunctions, spread
from .ufunc import elementwise
from .value import Value, as_value, known_value

_blocks, _placed, _ndarray = session._blocks.get, placed_now.get, np.ndarray


class SmallCalls(SmallFunctions):
    """The small calls of one runtime."""

    __slots__ = ()

    def _value_calls(self) -> ValueCalls:
        return ValueCalls(self)

    # Elementwise calls --------------------------------------------------------------------------------------------------

    def two(self, ufunc: np.ufunc, a: Array, b: Any, swapped: bool = False) -> Any:  # noqa: PLR0912 - one function: calls cost more
        """Return `ufunc(a, b)`, or `ufunc(b, a)` if swapped, as an array at home; None if it must become a task."""
        blocks = _blocks() or session.program
        if not blocks or blocks[-1] is not self.owner or not self.on or in_kernel.name or _placed() is not DEFAULT:
            return None
        made = failed = None
        self._acquire()
        try:
            home = a._storage.home
            if (home is None or a._home is not home) and not self.enter(a):
                return None
            x = a._data
            dense = x is home or x.flags.c_contiguous
            size = x.size
            kind = type(b)
            if kind is Array:
                home = b._storage.home
                if b._small is not self or ((home is None or b._home is not home) and not self.enter(b)):
                    return None
                y = b._data
                if y.shape != x.shape:
                    size = spread(x.shape, y.shape)
                dense = dense and (y is home or y.flags.c_contiguous)
            elif kind in NUMBERS:
                y = b
            elif kind is Value and b.known is not None:
                y = b.known
            else:
                return None
            pace = self._paces.get(ufunc) or self._pace(ufunc)
            if size > pace.limit and not pace.takes(size):
                return None
            if swapped:
                x, y = y, x
            pace.left -= 1
            if not dense:
                result = _in_rows(ufunc, (x, y))
            elif pace.left >= 0:
                result = ufunc(x, y)
            else:
                result = self._timed(pace, ufunc, size, ufunc, x, y)
            made = self.made(result) if type(result) is _ndarray else known_value(result, self.owner, self.values)
        except Exception as error:  # noqa: BLE001 - told where every error of a call is
            failed = error
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        return made if failed is None else _failed(ufunc, (b, a) if swapped else (a, b), None, failed)

    def one(self, ufunc: np.ufunc, a: Array) -> Any:
        """Return `ufunc(a)` as an array at home; None if it must become a task."""
        blocks = _blocks() or session.program
        if not blocks or blocks[-1] is not self.owner or not self.on or in_kernel.name or _placed() is not DEFAULT:
            return None
        made = failed = None
        self._acquire()
        try:
            home = a._storage.home
            if (home is None or a._home is not home) and not self.enter(a):
                return None
            x = a._data
            pace = self._paces.get(ufunc) or self._pace(ufunc)
            size = x.size
            if size > pace.limit and not pace.takes(size):
                return None
            pace.left -= 1
            if x is not home and not x.flags.c_contiguous:
                result = _in_rows(ufunc, (x,))
            elif pace.left >= 0:
                result = ufunc(x)
            else:
                result = self._timed(pace, ufunc, size, ufunc, x)
            made = self.made(result) if type(result) is _ndarray else known_value(result, self.owner, self.values)
        except Exception as error:  # noqa: BLE001 - told where every error of a call is
            failed = error
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        return made if failed is None else _failed(ufunc, (a,), None, failed)

    def plain(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        """Return `ufunc(*inputs)` as an array at home; None if it must become a task."""
        if ufunc is np.matmul:
            return self._short(ufunc, SHORT[ufunc], inputs, {})
        if len(inputs) == 2:
            a, b = inputs
            return self.two(ufunc, a, b) if type(a) is Array else self.two(ufunc, b, a, True)
        return self.one(ufunc, inputs[0]) if len(inputs) == 1 else None

    def call(self, ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return `ufunc(*inputs, out=...)`; None if it must become a task."""
        out = options.get("out", ())
        return self.write(ufunc, inputs, out[0]) if len(out) == len(options) == 1 else None

    def write(self, ufunc: np.ufunc, inputs: tuple[Any, ...], out: Any) -> Any:
        """Return `out` with `ufunc(*inputs)` in it; None if that must become a task."""
        if type(out) is not Array or not self.is_open_here():
            return None
        failed = None
        self._acquire()
        try:
            target = self._writable(out)
            taken = None if target is None else self._taken(inputs)
            if target is None or taken is None:
                return None
            pace = self._paces.get(ufunc) or self._pace(ufunc)
            size = target.size
            if size > pace.limit and not pace.takes(size):
                return None
            pace.left -= 1
            if pace.left >= 0:
                ufunc(*taken, out=target)
            else:
                self._timed(pace, ufunc, size, ufunc, *taken, out=target)
        except Exception as error:  # noqa: BLE001 - told where every error of a call is
            failed = error
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        return out if failed is None else _failed(ufunc, inputs, out, failed)

    def _taken(self, inputs: tuple[Any, ...]) -> list[Any] | None:
        """Return the operands as NumPy takes them; None if some are not at hand. Locked."""
        taken = []
        for value in inputs:
            kind = type(value)
            if kind is Array:
                home = value._storage.home
                absent = home is None or value._home is not home
                if value._small is not self or (absent and not self.enter(value)):
                    return None
                taken.append(value._data)
            elif kind in NUMBERS:
                taken.append(value)
            elif kind is Value and value.known is not None:
                taken.append(value.known)
            else:
                return None
        return taken


class ValueCalls:
    """The small calls on values whose numbers are known: they are NumPy's calls on those numbers."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: SmallCalls) -> None:
        self._arrays = arrays

    def two(self, ufunc: np.ufunc, a: Value, b: Any, swapped: bool = False) -> Any:
        """Return `ufunc(a, b)`, or `ufunc(b, a)` if swapped; None if it must become a task, or is an error."""
        kind = type(b)
        if kind is Value:
            b = b.known
            kind = type(b)
        arrays = self._arrays
        if kind is Array:
            return arrays.two(ufunc, b, a, not swapped) if b._small is arrays and ufunc is not np.matmul else None
        if kind not in NUMBERS or in_kernel.name or not arrays.on or ufunc.nout != 1:
            return None
        try:
            result = ufunc(b, a.known) if swapped else ufunc(a.known, b)
        except Exception:  # noqa: BLE001 - NumPy raises it again where every error is told
            return None
        return known_value(result, arrays.owner, self)

    def one(self, ufunc: np.ufunc, a: Value) -> Any:
        """Return `ufunc(a)`; None if it must become a task, or is an error."""
        arrays = self._arrays
        if in_kernel.name or not arrays.on or ufunc.nout != 1:
            return None
        try:
            return known_value(ufunc(a.known), arrays.owner, self)
        except Exception:  # noqa: BLE001 - NumPy raises it again where every error is told
            return None

    def plain(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        """Return `ufunc(*inputs)` for a value that is among them; None if it must become a task."""
        if len(inputs) == 1:
            return self.one(ufunc, inputs[0])
        if len(inputs) > 2:
            return None
        a, b = inputs
        return self.two(ufunc, a, b) if type(a) is Value and a._small is self else self.two(ufunc, b, a, True)

    def call(self, ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return `ufunc(*inputs, out=...)` for a value that is among the inputs; None if it must become a task."""
        return self._arrays.call(ufunc, inputs, options)

    def function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave NumPy's other functions of a value to the long way."""


def _in_rows(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """Return `ufunc(*inputs)` in a new array whose rows lie one behind the other, as those of every array do.

    Left alone, NumPy would follow the order of its inputs, and so might use another loop than a task does.
    """
    kinds = [x.dtype if isinstance(x, np.ndarray | np.generic) else type(x) for x in inputs]
    kinds = [np.dtype(bool) if kind is bool else kind for kind in kinds]
    dtype = ufunc.resolve_dtypes((*kinds, None))[-1]
    shape = np.broadcast_shapes(*(np.shape(x) for x in inputs))
    out = ufunc(*inputs, out=np.empty(shape, dtype))
    return out if shape else out[()]


def _failed(ufunc: np.ufunc, inputs: tuple[Any, ...], out: Array | None, error: Exception) -> Any:
    """Refuse a call for what is wrong with its arguments; else record that it has failed, and return its result."""
    taken = [value.known if type(value) is Value else value for value in inputs]
    return as_value(elementwise(ufunc, taken, [out], failed=error)[0], (out,))
