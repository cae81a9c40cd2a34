"""Arrays that a sequence of calls writes anew whenever it is repeated: they are kept from one time to the next.

Before: program/storage.py.  After: program/array.py, models/running.py.  Knows no device, and no call.

A call on an array that is known costs less than on a new one: nothing is allocated, registered and dropped, and what was found
out about the last call on it holds. Whoever repeats calls says so by `KeptArrays.again`, and by `KeptArrays.part` which of them come next: `empty`
then gives the arrays that this part had the time before, one after another, as long as shapes and types are the same. Their
elements have no defined value, as ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .array import Array

MOST_BYTES = 1 << 24
"""Bytes that are kept of one sequence: 16 MiB. What needs more takes much longer than it takes to make its arrays."""
Make = Callable[[Any, Any], "Array"]


class ArrayMaking(threading.local):
    """Tells how the present thread comes by new arrays without contents."""

    give: Callable[[Any, Any, Make], Array] | None = None  # None: they are made


making = ArrayMaking()


class KeptEntry(NamedTuple):
    """An array that a part asks for."""

    shape: Any
    dtype: np.dtype[Any]
    array: Array | None  # None: it is made anew each time

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return 0 if self.array is None else prod(self.shape) * self.dtype.itemsize


class KeptArrays:
    """The arrays of one sequence of calls. One thread at a time may repeat it."""

    def __init__(self) -> None:
        self._parts: dict[int, list[KeptEntry]] = {}
        self._entries: list[KeptEntry] = []  # of the present part
        self._next = 0  # which of them comes next
        self._bytes = 0
        self.given = 0  # how many arrays were given again so far

    @contextmanager
    def again(self) -> Iterator[None]:
        """Give the arrays of the time before to the calls of the block. What raises leaves nothing to keep."""
        self.part(0)
        before, making.give = making.give, self._give
        try:
            yield
        except BaseException:
            self._parts, self._bytes = {}, 0
            raise
        finally:
            making.give = before

    def part(self, number: int) -> None:
        """Begin with a part of the sequence: what other parts ask for, or do not ask for, makes no difference to it."""
        self._entries = self._parts.setdefault(number, [])
        self._next = 0

    def leave(self, arrays: Iterable[Array]) -> None:
        """Keep none of what shares memory with these arrays: somebody else has them now."""
        storages = {id(array._storage) for array in arrays}
        for entries in self._parts.values():
            for position, entry in enumerate(entries):
                if entry.array is not None and id(entry.array._storage) in storages:
                    self._bytes -= entry.size
                    entries[position] = KeptEntry(entry.shape, entry.dtype, None)

    def _give(self, shape: Any, dtype: Any, make: Make) -> Array:
        """Return the next array of the present part."""
        kind: np.dtype[Any] = np.dtype(dtype)
        wanted = shape if type(shape) is tuple else tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        entries, position = self._entries, self._next
        self._next += 1
        if position < len(entries):
            entry = entries[position]
            if entry.array is not None and entry.shape == wanted and entry.dtype == kind:
                self.given += 1
                return entry.array
            self._bytes -= entry.size
        made = make(shape, dtype)  # raises if it is no shape
        entry = KeptEntry(made.shape, kind, made)
        if self._bytes + entry.size > MOST_BYTES:
            entry = KeptEntry(made.shape, kind, None)
        self._bytes += entry.size
        entries[position : position + 1] = [entry]
        return made
