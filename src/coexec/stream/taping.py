"""Write down on a tape what a function does with an item, while it does it.

Before: stream/tape.py, stream/item_session.py.  After: stream/tapes.py.  Changes nothing of what the function does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from ..program.array import Array, hooks
from ..program.call import Options, in_force
from ..program.fuse import Operation
from ..program.kernel import Kernel
from ..program.storage import Storage
from ..runtime import Runtime
from .item_session import ItemSession, Route, Watched
from .tape import MadeArray, Number, Tape, TapedArray, TapedCall, TapedOperator, another, slot_of, view_of

MOST_ENTRIES = 256


class Untaped(Exception):
    """Why a function is not taped."""


class Operators:
    """In the place of what computes calls on small arrays at once: looks at the operators of an item's arrays."""

    __slots__ = ("_two", "one", "plain")

    def __init__(self, called: Callable[[np.ufunc, tuple[Any, ...]], Any]) -> None:
        self.one = lambda ufunc, a: called(ufunc, (a,))
        self.plain = called
        self._two = called

    def two(self, ufunc: np.ufunc, a: Any, b: Any, swapped: bool = False) -> Any:
        """Return `ufunc(a, b)`, or `ufunc(b, a)` if swapped; None: it goes the usual way."""
        return self._two(ufunc, (b, a) if swapped else (a, b))

    def call(self, ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Leave it to the usual way."""

    def write(self, ufunc: np.ufunc, inputs: tuple[Any, ...], out: Any) -> None:
        """Leave it to the usual way."""

    def item(self, array: Any, key: Any) -> None:
        """Leave it to the usual way."""

    def set_item(self, array: Any, key: Any, value: Any) -> None:
        """Leave it to the usual way."""

    def function(self, function: Any, args: Any, kwargs: Any) -> None:
        """Leave it to the usual way."""


class Taping(ItemSession):
    """Computes an item as ever, call by call, and writes its calls down."""

    def __init__(self, runtime: Runtime, index: int, route: Route, watched: Watched, own: Sequence[Array]) -> None:
        super().__init__(runtime, index, route, watched, [array._storage for array in own])
        self.why = ""  # not empty: it cannot be taped
        self.arrays: list[Array] = []  # by slot
        self._ids: dict[int, int] = {}  # of storages, on the tape
        self._tape = Tape(len(own))
        self._operation: Operation | None = None
        self._numbers: list[tuple[float, Number]] = []  # operands of the ufunc that is being called
        self._within = False  # a ufunc
        self._hooks = Operators(self._called)
        self._context: Context | None = None
        self._before = 0  # the last array that there was
        for array in own:
            self._slot(array._storage, TapedArray(array.shape, array.dtype))
            array._small = array._storage.small = self._hooks

    def begin(self) -> None:
        """Begin: the function is about to be called."""
        self._context = copy_context()
        self._before = self.runtime._driver.scheduler.arrays.last

    def tape(self, results: Sequence[Any]) -> Tape | None:
        """Return the tape; None if there is none. `results` are the leaves of what the function returned."""
        for array in self.arrays:
            array._storage.small = None
        found = [leaf for leaf in results if isinstance(leaf, Array)]
        slots = [self._ids.get(array._storage.id, 0) for array in found]
        if not all(slots):
            self.why = "it returns an array from outside"
        if not any(isinstance(entry, TapedCall) for entry in self._tape.entries):
            self.why = "it calls nothing"
        if any(type(leaf) is not Array for leaf in found):
            self.why = "it returns a value"
        if self.why:
            return None
        self._tape.complete(frozenset([slot_of(id) for id in slots]))
        return self._tape

    def ids(self) -> dict[int, int]:
        """Return what storages are called on the tape."""
        return self._ids

    def _slot(self, storage: Storage, array: TapedArray) -> int:
        slot = len(self._tape.slots)
        self._tape.slots.append(array)
        self._ids[storage.id] = -1 - slot
        self.arrays.append(Array(storage, storage.box, None))
        return slot

    # The function's side ------------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array."""
        super().adopt(storage, data, borrowed=borrowed)
        tape = self._tape
        given = sum([a.given >= 0 for a in tape.slots]) if data is not None else -1
        array = TapedArray(storage.shape, storage.dtype, storage.initial, given)
        storage.small = self._hooks
        self._add(MadeArray(self._slot(storage, array), array))

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call."""
        operation, self._operation = self._operation, None
        result = super().submit(kernel, args, kwargs, options)
        if not self.why:
            self.why = _no_tape(kernel, options)
        if not self.why:
            self._write_down(kernel, args, kwargs, options, result, operation)
        return result

    def fuse(self, operation: Operation) -> bool:
        """Look at an operation by itself, and remember that it may be part of a chain."""
        self._operation = operation
        return False

    def read(self, array: Array) -> Any:
        """Wait for an array."""
        self.why = self.why or "it waits for values"
        return super().read(array)

    def wait(self) -> None:
        """Wait for everything."""
        self.why = self.why or "it waits"
        super().wait()

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names."""
        self.why = self.why or "it names a step"
        return super().begin_step(times)

    def _add(self, entry: MadeArray | TapedCall) -> None:
        if another(self._context):
            self.why = self.why or "it changes what is in force around its calls"
        if len(self._tape.entries) >= MOST_ENTRIES:
            self.why = self.why or "it makes many calls"
            return
        self._tape.entries.append(entry)

    def _write_down(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
        result: Any,
        operation: Operation | None,
    ) -> None:
        arrays, scalars = kernel.bind(args, kwargs)
        if any(type(array) is not Array for array in arrays) or any(isinstance(v, Array) for v in scalars.values()):
            self.why = "a call takes a value"
            return
        returned: tuple[Array, ...] = ()
        if kernel.returns.names:
            returned = result if isinstance(result, tuple) else (result,)
        slots = []
        for array in returned:
            slots.append(self._slot(array._storage, TapedArray(array.shape, array.dtype)))
            array._small = array._storage.small = self._hooks
        views = tuple([view_of(array, self._ids) for array in arrays])
        for param, view, array in zip(kernel.array_params, views, arrays, strict=False):
            if param.access.writes and slot_of(view.id) < self._tape.leaves:
                self.why = "a call writes what the function did not make"
            if view.id > self._before:
                self.why = "another thread makes arrays for it"
            if view.id >= 0:
                self._tape.outside.setdefault(view.id, Array(array._storage, array._storage.box, None))
        taped = tuple([(name, self._scalar(value)) for name, value in scalars.items()])
        self._add(TapedCall(kernel, options, views, taped, tuple(slots), kernel.body(), operation))

    def _scalar(self, value: Any) -> Any:
        """Return what a tape has of a scalar."""
        if type(value) is not float:
            return value
        for known, number in self._numbers:
            if known is value:
                return number
        if self._within:
            return value
        return self._number()

    def _number(self) -> Number:
        self._tape.numbers += 1
        return Number(self._tape.numbers - 1)

    def _called(self, ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
        """Call a ufunc as ever, and write down that entries follow from it."""
        if self._within or self.why or not all(isinstance(o, Array | float | int | np.generic) for o in operands):
            return None
        floats = [o for o in operands if type(o) is float]
        if len({id(o) for o in floats}) < len(floats):
            return None  # which of them is which is seen call by call
        begin = len(self._tape.entries)
        self._numbers = [(o, self._number()) for o in operands if type(o) is float]
        self._within = True
        try:
            result = hooks.ufunc(ufunc, "__call__", operands, {})
        finally:
            self._within = False
        found = iter([number for _, number in self._numbers])
        taped = tuple([next(found) if type(o) is float else self._operand(o) for o in operands])
        self._numbers = []
        why: str = self.why
        if type(result) is not Array:
            self.why = why or "it has values"
            return result
        slot = slot_of(self._ids.get(result._storage.id, 0))
        used = [v.at for entry in self._tape.entries[begin:] for v in _numbers(entry)]
        decides = any(number.at not in used for number in taped if type(number) is Number)  # which entries follow
        if not why and not decides and slot >= 0 and result._box is result._storage.box and result._cut is None:
            self._tape.operators[begin] = TapedOperator(ufunc, taped, slot, len(self._tape.entries))
        return result

    def _operand(self, value: Any) -> Any:
        return view_of(value, self._ids) if isinstance(value, Array) else value


def _numbers(entry: MadeArray | TapedCall) -> list[Number]:
    return [v for _, v in entry.scalars if type(v) is Number] if isinstance(entry, TapedCall) else []


def _no_tape(kernel: Kernel, options: Options) -> str:
    """Return why a call cannot be taped; "" if it can."""
    if kernel.host:
        return f"{kernel.name!r} is a host task"
    if kernel.reduces or kernel.order is not None:
        return f"{kernel.name!r} is not a body on whole arrays"
    around = in_force(options)
    if options.devices is not None or around.policy or around.priority or around.oversubscribe != 1 or not around.split:
        return f"the call of {kernel.name!r} has options"
    if not any(v.kind in ("python", "cpu") for v in kernel.variants):
        return f"{kernel.name!r} has no body for the host"
    return ""
