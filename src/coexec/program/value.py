"""Values: single elements as they are at one point of the program, which never change, as NumPy's numbers do not.

Before: program/array.py.  After: program/kernel.py, program/ufunc.py, driver.py.  Knows no device.

A value is not copied when it is made. It looks at its array until a call would change the element, or until nobody else
wants the array; then the runtime copies the one element first. Most values are gone or read before that.

Ranks must copy the same values at the same point of the program, and the collector runs on each of them when it likes. So among
ranks a value counts until it was read, whether or not the program still holds it, and nobody looks who else holds an array.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from operator import attrgetter, index
from sys import getrefcount
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..geometry import overlaps
from . import array as arrays
from .array import Array
from .operators import PythonOperators
from .refusals import ALWAYS_COPIED, IMMUTABLE, fixed
from .storage import Storage
from .view import extract

_new = Array.__new__
LOOKS = 4  # arrays that are looked at after a call, whether anybody but their values holds them
LENT = 64  # values of one array that may look at it among ranks, where those that nobody holds any more count as well


class Value(Array):
    """One element, as it is at the point of the program where it was asked for. Behaves like NumPy's numbers, lazily."""

    __slots__ = ("_at", "_dtype", "_session", "known")
    immutable = True

    def __init__(self, at: Array) -> None:
        self._at: Array | None = at  # where the element is now; None once it was read
        self.known: Any = None  # NumPy's number, once it was read
        self._dtype, self._session = at._storage.dtype, at._storage.session
        self._shape, self._size = (), 1
        self._small = None

    def at(self) -> Array:
        """Return the 0-d array that holds the element now. Whoever uses it later than now holds the runtime's lock."""
        at = self._at
        if at is None:
            storage = Storage(self._session, (), self._dtype, self.known)
            self._session.adopt(storage, None, borrowed=False)
            at = self._at = Array(storage, storage.box, None)
        return at

    def plain(self) -> Any:
        """Return the element as a number if it was read, else as a 0-d array."""
        return self.at() if self.known is None else self.known

    def number(self) -> Any:
        """Wait for the element; return it as NumPy's number."""
        if self.known is None:
            self.known = np.asarray(self._session.read(self))[()]
            self._at = None
        return self.known

    _storage = property(lambda self: self.at()._storage)
    _box = property(lambda self: self.at()._box)
    _cut = property(lambda self: self.at()._cut)
    _grid = property(lambda self: self.at()._grid)

    if not TYPE_CHECKING:
        dtype = property(attrgetter("_dtype"), fixed("dtype", "b = a.astype(dtype)"), doc="The element's type.")

    @property
    def runtime(self) -> Any:
        """The runtime this value belongs to."""
        return self._session

    def _view(self, key: Any) -> Array:
        """Return a view of a new array that holds this value, as NumPy does for a number."""
        return arrays.array(self)._view(key)

    def __getitem__(self, key: Any) -> Array:
        return self if isinstance(key, tuple) and not key else self._view(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(IMMUTABLE)

    def transpose(self, *axes: Any) -> Array:
        """Return this value: it has no axes."""
        return self if not axes or axes == ((),) else self._view(()).transpose(*axes)

    def copy(self) -> Array:
        """Return this value: it never changes."""
        return self

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return this value with another type."""
        return as_value(super().astype(dtype, copy=copy))

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: Any) -> Array:
        return self

    def __reduce__(self) -> Any:
        return self.number().__reduce__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Wait for this element alone."""
        if copy is False:
            raise ValueError(ALWAYS_COPIED)
        data = np.array(self.number(), dtype)
        data.flags.writeable = bool(copy)
        return data

    def item(self, *index_: Any) -> Any:
        """Wait for the element and return it as a Python scalar."""
        return self.number().item(*index_)

    def __float__(self) -> float:
        return float(self.number())

    def __int__(self) -> int:
        return int(self.number())

    def __complex__(self) -> complex:
        return complex(self.number())

    def __bool__(self) -> bool:
        return bool(self.number())

    def __index__(self) -> int:
        return index(self.number())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.number(), digits)

    def __hash__(self) -> int:  # type: ignore[override]  # as NumPy's numbers, unlike its arrays
        return hash(self.number())

    def __eq__(self, other: object) -> Any:
        return False if self._unlike(other) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return True if self._unlike(other) else super().__ne__(other)

    def __format__(self, spec: str) -> str:
        return format(self.number(), spec)

    def __str__(self) -> str:
        return str(self.number())

    def __repr__(self) -> str:
        return f"cx.Value({'' if self.known is None else f'{self.known}, '}dtype={self._dtype})"

    __pow__ = PythonOperators.__pow__  # as NumPy's scalars: no quick powers
    # `s += x` names another value from now on, as with any number.
    __iadd__ = PythonOperators.__add__
    __isub__ = PythonOperators.__sub__
    __imul__ = PythonOperators.__mul__
    __imatmul__ = PythonOperators.__matmul__
    __itruediv__ = PythonOperators.__truediv__
    __ifloordiv__ = PythonOperators.__floordiv__
    __imod__ = PythonOperators.__mod__
    __ipow__ = PythonOperators.__pow__
    __ilshift__ = PythonOperators.__lshift__
    __irshift__ = PythonOperators.__rshift__
    __iand__ = PythonOperators.__and__
    __ixor__ = PythonOperators.__xor__
    __ior__ = PythonOperators.__or__


def element(view: Array) -> Value:
    """Return the element that a 0-d view shows, as it is at this point of the program."""
    storage = view._storage
    value = Value(view)
    lending = getattr(storage.session, "lending", None)
    if lending is not None:
        lending.lend(storage, value)
    return value


def known_value(number: Any, runtime: Any, small: Any = None) -> Value:
    """Return a number as a value whose element is known. `small` makes calls on it at once."""
    value = _new(Value)
    value._at = None
    value.known = number
    value._dtype = number.dtype
    value._session = runtime
    value._shape = ()
    value._size = 1
    value._small = small
    return value


def as_value(result: Any, given: Iterable[Any] = ()) -> Any:
    """Return a new array without axes as a value. Arrays with axes, and outputs that the program has `given`, stay arrays."""
    if type(result) is not Array or result.shape or any(result is known for known in given):
        return result
    return Value(result)


@cache
def valued(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose new 0-d results are values, as NumPy's are numbers."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return as_value(function(*args, **kwargs), (*args, *kwargs.values()))

    return call


class Lending:
    """The values of one runtime that still look at arrays which others may change."""

    def __init__(self, owner: Any, copy: Callable[[Array, Array], Any], *, alone: bool = True) -> None:
        self._owner = owner
        self._alone = alone  # there is no other rank
        self._copy = copy  # records a task that copies one element
        self.lenders: deque[ref[Storage]] = deque()
        self._looks = LOOKS
        self.lent = False  # whether any value has looked at an array so far

    def lend(self, storage: Storage, value: Value) -> None:
        """Note that a value looks at an array. Takes no lock: it comes before or after the call that changes it."""
        if storage.borrowed and not self._owner.closed:  # its owner may change it once no task is pending
            self._part(value)
            return
        lent, key = storage.lent, id(value)
        self.lent = True
        if not self._alone:
            self._lend_to_all(storage, value)
            return
        if not storage.watched:
            storage.watched = True
            self.lenders.append(ref(storage))
        lent[key] = ref(value, lambda _: lent.pop(key, None))

    def _lend_to_all(self, storage: Storage, value: Value) -> None:
        """Note that a value looks at an array until it is read, even if nobody holds it any more; copy the oldest of many."""
        lent = storage.lent
        if len(lent) >= LENT:
            for known in _alive(storage):
                if known._at is None or known._at._storage is not storage:  # it was read or copied
                    del lent[id(known)]
            if len(lent) >= LENT:
                self._part(next(iter(lent.values()))())
        lent[id(value)] = lambda: value

    def keep(self, kernel: Any, given: Sequence[Array]) -> None:
        """Copy every value that a call would change. Locked, from here until the call is recorded."""
        for param, array in zip(kernel.array_params, given, strict=False):
            if array._storage.lent and param.access.writes:
                for value in looking_at(array):
                    self._part(value)

    def settled(
        self, kernel: Any, given: Sequence[Array], scalars: dict[str, Any], *, read: bool = False
    ) -> tuple[list[Array], dict[str, Any]]:
        """Return a call's arguments with arrays in the place of values. Locked like `keep`, unless `read`."""
        if not read:
            self.keep(kernel, given)
        changed = {name: v.at() if type(v) is Value else v for name, v in scalars.items()}
        return [array.at() if type(array) is Value else array for array in given], changed

    def let_go(self) -> None:
        """Copy values whose arrays nobody else holds, some at a time. Locked; the copies are calls that end here, too."""
        looks, self._looks = self._looks, 0
        try:
            for _ in range(min(looks, len(self.lenders))):
                self._look_at(self.lenders.popleft())
        finally:
            self._looks = looks

    def _look_at(self, known: ref[Storage]) -> None:
        """Copy the values of an array if nobody else holds it; else look at it again some time."""
        storage = known()
        if storage is None:
            return
        storage.watched = False
        if not (values := _alive(storage)):
            return
        looking = [value for value in values if value._at is not None and value._at._storage is storage]
        if getrefcount(storage) - 2 > len(looking):  # this name and the argument are no handles
            storage.watched = True
            self.lenders.append(known)
            return
        for value in looking:
            self._part(value)

    def _part(self, value: Value) -> None:
        """Give a value a copy of its element, of its own."""
        source = value.at()
        storage = Storage(self._owner, (), value.dtype)
        self._owner.adopt(storage, None, borrowed=False)
        own = Array(storage, storage.box, None)
        self._copy(source, own)
        value._at = own
        source._storage.lent.pop(id(value), None)


def looking_at(array: Array) -> list[Value]:
    """Return the values of elements of an array or a view."""
    box = array._box
    return [v for v in _alive(array._storage) if v._at is not None and overlaps(v._at._box, box)]


def _alive(storage: Storage) -> list[Value]:
    return [value for known in list(storage.lent.values()) if (value := known()) is not None]


def numbers_known(storage: Storage, home: np.ndarray[Any, Any]) -> None:
    """Let every value that looks at an array know its number: nothing is pending on it, and `home` has its elements."""
    for value in _alive(storage):
        at = value._at
        if at is not None and at._storage is storage and value.known is None:
            value.known = extract(home, (0,) * home.ndim, at._box, at._cut)[()]
            value._at = None
    storage.lent.clear()
