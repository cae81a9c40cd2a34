"""Arrays that are at home: their handles, views and values, and assignments to them, all at once.

Before: program/array.py, program/value.py.  After: program/small.py.  Knows no device; whoever drives a runtime says when an
array may come home (program/storage.py says what that means).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from . import session
from .array import Array
from .call import DEFAULT, placed_now
from .refusals import check_swap
from .session import in_kernel
from .storage import HomeStorage, Storage
from .value import Value, known_value
from .view import extract

MOST = 1 << 15
"""Elements of the largest small call, however quick: a sum of more has several blocks, and chains of operators begin there."""
KINDS = frozenset("biufc")
"""Kinds of elements that arrays at home may have: those whose single elements are numbers."""
NUMBERS = frozenset(
    {
        bool, int, float, complex, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
        np.float16, np.float32, np.float64, np.complex64, np.complex128,
    }
)  # fmt: skip
"""What an operand may be beside an array: numbers, which are taken by value."""
INDICES = frozenset({int, slice, type(None), type(...), np.int64, np.int32})
"""What an index may consist of: what names places, and never changes."""
EXACT = frozenset({(float, "d"), (int, "d"), (int, "l"), (bool, "?"), (np.float64, "d"), (np.int64, "l")})
"""Numbers that are assigned to elements of a type as they are."""
_array, _storage, _ndarray = Array.__new__, HomeStorage.__new__, np.ndarray
_blocks, _placed = session._blocks.get, placed_now.get
ComeHome = Callable[[Storage], np.ndarray[Any, Any] | None]


class LastNumber(Protocol):
    """Knows the number of the last array that was made."""

    last: int


class Interrupts(Protocol):
    """Says whether the program was interrupted while the lock was held."""

    pending: BaseException | None

    def check(self) -> None:
        """Raise it."""


class AtHome:
    """The arrays of one runtime that are at home."""

    __slots__ = ("_acquire", "_births", "_come_home", "_interrupts", "_release", "on", "owner", "values")

    def __init__(self, owner: Any, lock: Any, births: LastNumber, interrupts: Interrupts, come_home: ComeHome) -> None:
        """Begin. `come_home` returns where an array is if nothing is pending on it."""
        self.on = True  # until the runtime is closed, or this process turns out to be a forked child
        self.owner = owner
        self.values: Any = self._value_calls()
        self._births, self._interrupts, self._come_home = births, interrupts, come_home
        self._acquire, self._release = lock.acquire, lock.release  # a `with` block takes twice as long

    def _value_calls(self) -> Any:
        """Return what makes calls on values whose numbers are known; None if nobody does."""
        return None

    def is_open_here(self) -> bool:
        """Tell whether a call that is made now may be small. The quickest calls write this out (program/small.py)."""
        blocks = _blocks() or session.program
        return bool(blocks and blocks[-1] is self.owner and self.on and not in_kernel.name and _placed() is DEFAULT)

    def made(self, data: np.ndarray[Any, Any]) -> Array:
        """Return a new array that is at home in `data`, which nobody else has. Locked."""
        births = self._births
        storage = _storage(HomeStorage)
        births.last = storage.id = births.last + 1
        storage.home = data
        storage.small = self
        storage.state = None
        array = _array(Array)
        array._storage = storage
        array._small = self
        array._home = array._data = data
        array._parent = None
        return array

    def enter(self, array: Array) -> bool:
        """Have the elements of a handle at hand; False if its array is not at home and cannot come. Locked."""
        storage = array._storage
        home = storage.home
        if home is None:
            home = self._come_home(storage)
            if home is None:
                return False
            storage.home = home
        whole = array._box is storage.box and array._cut is None
        array._data = home if whole else extract(home, (0,) * home.ndim, array._box, array._cut)
        array._home = home
        return True

    def snapshot(self, array: Array) -> np.ndarray[Any, Any] | None:
        """Return a copy of a small array as it is now, read-only; None if it is large or not at home."""
        if type(array) is not Array or array._size > MOST or array._small is not self or not self.on:
            return None
        self._acquire()
        try:
            home = array._storage.home
            if (home is None or array._home is not home) and not self.enter(array):
                return None
            copy = np.array(array._data, order="C")
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        copy.flags.writeable = False
        return copy

    def _writable(self, array: Array) -> np.ndarray[Any, Any] | None:
        """Return the elements of a handle, to be changed; None if they cannot be. Locked."""
        storage = array._storage
        home = storage.home
        if home is None or array._home is not home:
            if array._small is not self or not self.enter(array):
                return None
            home = array._home
        if storage.lent or not home.flags.writeable:
            return None  # values are copied first, and so is what was borrowed
        data: np.ndarray[Any, Any] = array._data
        return data

    # Views and values -----------------------------------------------------------------------------------------------------

    def item(self, array: Array, key: Any) -> Any:
        """Return the view or the value that `key` names; None if it must be worked out, or is an error."""
        kind = type(key)
        if kind not in INDICES and (kind is not tuple or not INDICES.issuperset(map(type, key))):
            return None
        if not self.on or in_kernel.name:
            return None
        self._acquire()
        try:
            home = array._storage.home
            if home is None or array._home is not home:
                if not self.enter(array):
                    return None
                home = array._home
            data = array._data[key]
        except IndexError:
            return None
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        if type(data) is not _ndarray:
            return known_value(data, self.owner, self.values)
        if not data.size:
            return None  # which elements it is beside is worked out
        parent = array._parent
        if parent is not None and parent._parent is not None:
            array._box  # noqa: B018 - works it out: views of views of views would go on for ever
        view = _array(Array)
        view._storage = array._storage
        view._small = self
        view._home = home
        view._data = data
        view._parent = array
        view._key = key
        return view

    # Assignments ----------------------------------------------------------------------------------------------------------

    def set_item(self, array: Array, key: Any, value: Any) -> bool:
        """Assign `value` to what `key` names; False if that must become a task, or is an error."""
        kind = type(key)
        if kind not in INDICES and (kind is not tuple or not INDICES.issuperset(map(type, key))):
            return False
        if type(value) is Array and value._parent is array and type(value._key) is kind and value._key == key:
            return True  # `a[s] += v` has already changed the elements in place
        if not self.on or in_kernel.name or placed_now.get() is not DEFAULT:
            return False
        self._acquire()
        try:
            data = self._writable(array)
            given = None if data is None else self._given(array, value, data.dtype)
            if data is None or given is None:
                return False
            if kind is not int or data.ndim != 1:
                part = data[key]
                if type(part) is _ndarray:
                    if part.size > MOST:
                        return False
                    data, key = part, ...
            data[key] = given
        except (IndexError, ValueError, TypeError, ArithmeticError, Warning):
            return False  # the long way tells it, and assigns the same elements again
        finally:
            self._release()
        if self._interrupts.pending is not None:
            self._interrupts.check()
        return True

    def _given(self, array: Array, value: Any, dtype: np.dtype[Any]) -> Any:
        """Return what NumPy is to assign for `value`; None if that must become a task. Locked."""
        kind = type(value)
        element = kind is Value
        if element:
            value = value.known
            kind = type(value)
        if (kind, dtype.char) in EXACT:
            return value
        if kind in NUMBERS:
            plain = np.asarray(value)
            if plain.dtype.kind not in "biuf" and dtype.kind != "c":
                return None
            if element:
                return plain.astype(dtype)  # as an element of an array, which it may be for a task
            return value if isinstance(value, np.generic) else np.asarray(value, dtype)
        if kind is not Array or value._small is not self:
            return None
        home = value._storage.home
        if (home is None or value._home is not home) and not self.enter(value):
            return None
        data = value._data
        if data.dtype.kind == "c" and dtype.kind != "c":
            return None
        if value._storage is array._storage:
            check_swap(sys._getframe(3))
            return data.copy()  # NumPy does not always read first what it is about to overwrite
        return data


def owned(data: np.ndarray[Any, Any], runtime: Any) -> Array:
    """Return a new array of a runtime of one rank that is at home in `data`: numbers that nobody else has, and that are not copied."""
    storage = Storage(runtime, data.shape, data.dtype)
    runtime.adopt_at_home(storage, data)
    return Array(storage, storage.box, None)
