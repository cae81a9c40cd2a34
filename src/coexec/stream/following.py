"""Follow a function along its tape: as long as it does what is on it, its calls cost a comparison each.

Before: stream/tape.py.  After: stream/tapes.py.  Computes nothing: stream/frames.py does, later and on another thread.

The function gets arrays that stand for those of its item, the same ones for each item. Whatever it does with them passes by here.
As soon as it does anything else than what is on the tape, all of its calls so far are made for real, and it goes on as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from ..in_front import InFront
from ..ops.csr import CSR
from ..program import session
from ..program.array import Array
from ..program.call import Options, placed_now
from ..program.fuse import Operation
from ..program.kept_arrays import making
from ..program.kernel import Kernel
from ..program.storage import Storage
from ..program.value import Value
from ..runtime import Runtime
from .item_session import SEEN, ItemSession, Route, Watched
from .tape import MadeArray, Number, Tape, TapedCall, TapedView, another, same_value, slot_of
from .trees import mapped

_blocks = session._blocks
ONE = next(getrefcount(storage) for storage in {0: Storage(None, (), np.dtype(bool))}.values())
"""References to a storage that nobody has but a dictionary of ours."""


class Followed(NamedTuple):
    """What a function did, as far as it is not on its tape."""

    result: Any  # what it returned, with views of the tape in the place of its arrays
    given: list[Any]  # arrays with contents that it made
    numbers: list[float]


class Follower(InFront):
    """Stands before a runtime while a function computes items of one kind."""

    def __init__(self, runtime: Runtime, tape: Tape) -> None:
        super().__init__(runtime)
        self._tape = tape
        self._entries: list[Any] = [*tape.entries, None]
        self._operators = [tape.operators.get(at) for at in range(len(self._entries))]
        self._real: ItemSession | None = None  # it does something else than what is on the tape
        self._at = 0
        self._numbers: list[float] = [0.0] * tape.numbers
        self._given: list[Any] = []
        self._made: dict[int, Storage] = {}  # by slot: arrays that came by themselves
        self._context: Context | None = None
        self._route, self._watched, self._index = Route(), Watched(frozenset()), 0
        self._data: Sequence[Any] = ()
        self._before: Any = None
        self._handles = [self._stand_in(slot) for slot in range(len(tape.slots))]

    def _stand_in(self, slot: int) -> Array:
        array = self._tape.slots[slot]
        storage = Storage(self, array.shape, array.dtype, array.initial)
        storage.id, storage.small = -1 - slot, self
        return Array(storage, storage.box, None)

    def _held(self) -> list[int]:
        """Return how often each array is referred to."""
        return [getrefcount(h) for h in self._handles] + [getrefcount(h._storage) for h in self._handles]

    @property
    def left(self) -> bool:
        """Whether the function did something else, so that this cannot follow it again."""
        return self._real is not None

    @property
    def leaves(self) -> list[Array]:
        """What stands for the arrays of the item."""
        return self._handles[: self._tape.leaves]

    def session(self) -> ItemSession | None:
        """Return the session in which the function's calls were made for real, if they were."""
        return self._real

    def follow(
        self,
        function: Callable[..., Any],
        item: Any,
        constants: Mapping[str, Any],
        data: Sequence[Any],
        place: tuple[int, Route, Watched],
    ) -> Followed | Any:
        """Call a function on an item, whose arrays are stood in for and have these `data`; return what it did, or its result.

        Only if it has done what is on the tape, it is the former: nothing is recorded then.
        """
        self._at, self._given, self._data = 0, [], data
        self._index, self._route, self._watched = place
        self._before, making.give = making.give, self._give
        blocks, placed = _blocks.set((*_blocks.get(), self)), placed_now.set(SEEN)
        self._context = copy_context()
        held = self._held()
        try:
            box = [function(item, **constants)]
            return self._end(box, held) if self._real is None else box.pop()
        except BaseException:
            self.leave()  # whoever holds its arrays now finds them as ever
            raise
        finally:
            making.give = self._before
            placed_now.reset(placed)
            _blocks.reset(blocks)
            self._made = {}

    def _end(self, box: list[Any], held: list[int]) -> Followed | Any:
        """Return what the function did, if all of it is on the tape; else its result, for real.

        `held` is how often its arrays were referred to before: whoever holds on to one expects it to be real.
        """
        result = box.pop()
        if self._entries[self._at] is not None:
            self.leave()
            return result
        seen = self._seen(result) if type(result) is Array else mapped(result, self._seen)
        del result
        if self._real is None and (self._held() != held or any(getrefcount(s) > ONE for s in self._made.values())):
            self.leave()
        if self._real is None:
            return Followed(seen, self._given, self._numbers.copy())
        return mapped(seen, self._handle)

    def _seen(self, leaf: Any) -> Any:
        """Return a leaf of the result as the tape knows it."""
        kind = type(leaf)
        if kind is Array and self._real is None:
            id = leaf._storage.id
            if slot_of(id) in self._tape.results:
                return TapedView(id, leaf._box, leaf._cut)
            self.leave()
        elif kind is CSR or kind is Value:
            self.leave()
        return leaf

    # What the function does ---------------------------------------------------------------------------------------------

    def _operator(self, ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
        at = self._at
        operator = self._operators[at]
        if operator is None or operator.ufunc is not ufunc or len(operands) != len(operator.operands):
            return None
        if self._real is not None or another(self._context):
            return None
        for value, taped in zip(operands, operator.operands):  # noqa: B905 - equally long, and this is hot
            kind = type(taped)
            if kind is TapedView:
                if type(value) is not Array:
                    return None
                box = taped.box
                if value._storage.id != taped.id or (value._box is not box and value._box != box):
                    return None
                if value._cut is not taped.cut and value._cut != taped.cut:
                    return None
            elif kind is Number:
                if type(value) is not float:
                    return None
                self._numbers[taped.at] = value
            elif not same_value(taped, value):
                return None
        self._at = operator.end
        return self._handles[operator.result]

    def two(self, ufunc: np.ufunc, a: Any, b: Any, swapped: bool = False) -> Any:
        """Return what stands for `ufunc(a, b)`, or `ufunc(b, a)` if swapped; None: it goes the usual way."""
        return self._operator(ufunc, (b, a) if swapped else (a, b))

    def one(self, ufunc: np.ufunc, a: Any) -> Any:
        """Return what stands for `ufunc(a)`; None: it goes the usual way."""
        return self._operator(ufunc, (a,))

    def plain(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        """Return what stands for `ufunc(*inputs)`; None: it goes the usual way."""
        return self._operator(ufunc, inputs)

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

    def _give(self, shape: Any, dtype: Any, make: Callable[[Any, Any], Array]) -> Array:
        """Return an array without contents."""
        entry = self._entries[self._at]
        if self._real is None and type(entry) is MadeArray and entry.fits(shape, dtype, None, given=False):
            self._at += 1
            return self._handles[entry.slot]
        return make(shape, dtype)

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Take a new array."""
        entry = self._entries[self._at]
        fits = type(entry) is MadeArray and self._real is None
        if not fits or not entry.fits(storage.shape, storage.dtype, storage.initial, given=data is not None):
            self.leave().adopt(storage, data, borrowed=borrowed)
            return
        if data is not None:
            self._given.append(np.array(data, order="C"))
        storage.id, storage.session, storage.small = -1 - entry.slot, self, self
        self._made[entry.slot] = storage
        self._at += 1

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Take a call."""
        entry = self._entries[self._at]
        if type(entry) is not TapedCall or not self._same(entry, kernel, args, kwargs, options):
            return self.leave().submit(kernel, args, kwargs, options)
        self._at += 1
        if not entry.returned:
            return None
        made = tuple([self._handles[slot] for slot in entry.returned])
        return made[0] if kernel.returns.single else made

    def _same(
        self, entry: TapedCall, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> bool:
        if self._real is not None or entry.kernel is not kernel or entry.options != options:
            return False
        if another(self._context) or (not kernel.captures_nothing and kernel.body() is not entry.body):
            return False
        arrays, scalars = kernel.bind(args, kwargs)
        for array, view in zip(arrays, entry.arrays, strict=True):
            if not view.fits(array):
                return False
        for name, taped in entry.scalars:
            value = scalars[name]
            if type(taped) is Number:
                if type(value) is not float:
                    return False
                self._numbers[taped.at] = value
            elif not same_value(taped, value):
                return False
        return True

    def fuse(self, operation: Operation) -> bool:
        """Take an operation."""
        if self._real is not None:
            return self._real.fuse(operation)
        self.submit(operation.kernel, operation.arguments, {}, placed_now.get())
        return True

    # The way back -------------------------------------------------------------------------------------------------------

    def leave(self) -> ItemSession:
        """Make for real what was only followed so far; return the session in which the function goes on."""
        if self._real is not None:
            return self._real
        making.give = self._before
        runtime = self.runtime
        leaves = self.leaves
        for handle, data in zip(leaves, self._data, strict=True):
            handle._storage.session = runtime
            runtime.adopt(handle._storage, data, borrowed=False)
        real = ItemSession(runtime, self._index, self._route, self._watched, [h._storage for h in leaves])
        self._real = real  # from here on nothing is followed
        given = iter(self._given)
        for entry in self._tape.entries[: self._at]:
            if isinstance(entry, MadeArray):
                storage = self._storage(-1 - entry.slot)
                real.adopt(storage, next(given) if entry.array.given >= 0 else None, borrowed=False)
            else:
                self._again(real, entry)
        for handle in self._handles:
            handle._small = handle._storage.small if handle._storage.id > 0 else None
        return real

    def _again(self, real: ItemSession, call: TapedCall) -> None:
        arrays = [Array(self._storage(view.id), view.box, view.cut) for view in call.arrays]
        scalars = {n: self._numbers[v.at] if isinstance(v, Number) else v for n, v in call.scalars}
        returned = tuple([self._handles[slot] for slot in call.returned])
        for array in returned:
            real.adopt(array._storage, None, borrowed=False)
        real.record(call.kernel, arrays, scalars, call.options, returned)

    def _storage(self, id: int) -> Storage:
        """Return the storage that the tape calls so."""
        if id >= 0:
            return self._tape.outside[id]._storage
        slot = slot_of(id)
        return self._made.get(slot) or self._handles[slot]._storage

    def _handle(self, leaf: Any) -> Any:
        """Return a leaf of the result as the function gave it."""
        return Array(self._storage(leaf.id), leaf.box, leaf.cut) if type(leaf) is TapedView else leaf

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Return the Plan of a call."""
        return self.leave().plan(kernel, args, kwargs, options)

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names."""
        return self.leave().begin_step(times)

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a step that the program names."""
        return self.leave().end_step(begun, left=left)

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements."""
        return self.leave().read(array)

    def wait(self) -> None:
        """Wait for everything."""
        self.leave().wait()

    def flush(self) -> None:
        """Begin with everything so far."""
        self.leave().flush()
