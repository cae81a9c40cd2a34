"""What a function does with items of one kind, call by call, so that it need not be found out again for each of them.

Before: stream/item_session.py.  After: stream/following.py, stream/frames.py.  Plain data: runs nothing.

Arrays of an item have numbers on a tape, their slots. A storage that stands for one has the id `-1 - slot` while the function runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import Any, NamedTuple

import numpy as np

from ..geometry import Box
from ..program.array import Array
from ..program.call import Options
from ..program.fuse import Operation
from ..program.kernel import Kernel
from ..program.storage import Shape
from ..program.view import Cut

EXACT = frozenset({int, str, bytes, bool, type(None), type})
"""Types whose values are told apart by ==."""


def slot_of(id: int) -> int:
    """Return the slot that a storage with this id stands for; below 0 for arrays from outside."""
    return -1 - id


class Number(NamedTuple):
    """A float of a call, which may be another one for each item."""

    at: int


class TapedView:
    """How a call sees an array: of the item, or from outside. No tuple: it is a leaf of results."""

    __slots__ = ("box", "cut", "id")

    def __init__(self, id: int, box: Box, cut: Cut | None) -> None:
        self.id, self.box, self.cut = id, box, cut

    def fits(self, value: Any) -> bool:
        """Tell whether an argument is this view."""
        return (
            type(value) is Array
            and value._storage.id == self.id
            and (value._box is self.box or value._box == self.box)
            and value._cut == self.cut
        )


class TapedArray(NamedTuple):
    """An array of an item: one of its own, or one that the function makes."""

    shape: Shape
    dtype: np.dtype[Any]
    initial: Any = None  # the value of every element
    given: int = -1  # which of the arrays with contents it is that the function makes


class MadeArray(NamedTuple):
    """The function makes an array."""

    slot: int
    array: TapedArray

    def fits(self, shape: Any, dtype: Any, initial: Any, *, given: bool) -> bool:
        """Tell whether an array is made like this one."""
        mine = self.array
        return (
            mine.shape == shape
            and mine.dtype == dtype
            and (mine.given >= 0) == given
            and (mine.initial is initial or (mine.initial is not None and same_value(mine.initial, initial)))
        )


class TapedCall(NamedTuple):
    """The function makes a call."""

    kernel: Kernel
    options: Options
    arrays: tuple[TapedView, ...]  # as bound, without those that it returns
    scalars: tuple[tuple[str, Any], ...]  # a value each, or its Number
    returned: tuple[int, ...]  # slots
    body: Callable[..., Any]  # with its values from outside
    operation: Operation | None  # what a chain takes of it, if it may be part of one


class TapedOperator(NamedTuple):
    """The function calls a ufunc, from which some entries follow."""

    ufunc: np.ufunc
    operands: tuple[Any, ...]  # TapedView, Number, or a value
    result: int  # slot
    end: int  # the first entry that does not follow from it


Entry = MadeArray | TapedCall


class Tape:
    """The entries of one kind of item."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves  # arrays of the item: the first slots
        self.slots: list[TapedArray] = []
        self.entries: list[Entry] = []
        self.operators: dict[int, TapedOperator] = {}  # by the entry that they begin with
        self.outside: dict[int, Array] = {}  # arrays from outside, by id
        self.results: frozenset[int] = frozenset()  # slots that the function returns
        self.numbers = 0
        self.bytes = 0  # of an item's arrays, its own included

    def complete(self, results: frozenset[int]) -> None:
        """End the tape: these slots are results."""
        self.results = results
        self.bytes = sum([int(np.prod(a.shape, dtype=np.int64)) * a.dtype.itemsize for a in self.slots])


def same_value(a: Any, b: Any) -> bool:
    """Tell whether two values are the same bits; where that takes long to find out, no."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in EXACT:
        return bool(a == b)
    if type(a) is float:
        return bool(a.hex() == b.hex())  # 0.0 is not -0.0, and NaN is NaN
    if isinstance(a, np.generic | np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    return isinstance(a, Kernel | Options | np.dtype) and bool(a == b)


def another(context: Context | None) -> bool:
    """Tell whether what is in force now is not what is in force in a context; where that is not to be found out, yes."""
    try:
        return copy_context() != context
    except Exception:  # noqa: BLE001 - values that cannot be compared, such as arrays
        return True


def view_of(array: Array, ids: Mapping[int, int]) -> TapedView:
    """Return how a call sees an array; `ids` are what storages are called on the tape."""
    id = array._storage.id
    return TapedView(ids.get(id, id), array._box, array._cut)
