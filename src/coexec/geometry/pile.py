"""Many disjoint boxes with values, in the order in which they came: found by overlap, and joined with who shares a face.

Before: geometry/box_index.py.  After: geometry/region_map.py.  Knows nothing of what the values mean.

A pile gives what looking at all boxes one after the other gives, in a time that depends on how many boxes are touched.
Boxes are filed along the axis that tells most of them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Generic, TypeVar

from .box import Box, Point, overlaps, subtract
from .box_index import BoxIndex

V = TypeVar("V")


class Pile(Generic[V]):
    """Disjoint boxes, none of them empty and each of one axis or more, with a value each."""

    __slots__ = ("_by_hi", "_by_lo", "_index", "_next", "_values")

    def __init__(self, entries: Iterable[tuple[Box, V]]) -> None:
        entries = list(entries)
        self._values: dict[Box, tuple[int, V]] = {}  # in order; the numbers rise
        self._by_lo: dict[Point, Box] = {}  # disjoint boxes have corners of their own
        self._by_hi: dict[Point, Box] = {}
        self._next = 0
        ndim = entries[0][0].ndim if entries else 1
        chosen = max(range(ndim), key=lambda axis: len({box[0][axis] for box, _ in entries}))
        edges = [edge[chosen] for box, _ in entries for edge in box]
        mean = (max(edges, default=1) - min(edges, default=0)) // max(1, len(entries))
        self._index = BoxIndex(chosen, mean.bit_length())
        for box, value in entries:
            self._add(box, value)

    def __len__(self) -> int:
        return len(self._values)

    def entries(self) -> list[tuple[Box, V]]:
        """Return all boxes and their values, in order."""
        return [(box, value) for box, (_, value) in self._values.items()]

    def one_value(self) -> bool:
        """Tell whether all boxes have the same value."""
        values = iter(self._values.values())
        _, first = next(values)
        return all(value == first for _, value in values)

    def meeting(self, box: Box) -> list[tuple[Box, V]]:
        """Return the entries that overlap `box`, in order."""
        values = self._values
        found = [(*values[other], other) for other in self._near(box) if overlaps(other, box)]
        if len(found) > 1:
            found.sort(key=_number)
        return [(other, value) for _, value, other in found]

    def set(self, box: Box, value: V) -> None:
        """Give `box` a value: cut what it overlaps, join whatever can be joined."""
        hit = self.meeting(box)
        for other, _ in hit:
            self._remove(other)
        for other, old in hit:
            for piece in subtract(other, box):
                self.absorb(piece, old)
        self.absorb(box, value)

    def _near(self, box: Box) -> Iterable[Box]:
        """Return the boxes that may overlap `box`."""
        near = self._index.near(box)
        return self._values if near is None else near

    def absorb(self, box: Box, value: V) -> None:
        """Add a box, joined with those of equal value as long as the result is a box; the first ones first."""
        values = self._values
        while True:
            lo, hi = box
            first: tuple[int, Box] | None = None
            for axis, low in enumerate(lo):
                high = hi[axis]
                after = self._by_lo.get((*lo[:axis], high, *lo[axis + 1 :]))
                if after is not None and (*after[1][:axis], high, *after[1][axis + 1 :]) != hi:
                    after = None
                before = self._by_hi.get((*hi[:axis], low, *hi[axis + 1 :]))
                if before is not None and (*before[0][:axis], low, *before[0][axis + 1 :]) != lo:
                    before = None
                for other in (after, before):
                    if other is not None:
                        number, known = values[other]
                        if known == value and (first is None or number < first[0]):
                            first = (number, other)
            if first is None:
                self._add(box, value)
                return
            other = first[1]
            self._remove(other)
            box = Box(min(lo, other[0]), max(hi, other[1]))  # they differ along one axis

    def _add(self, box: Box, value: V) -> None:
        self._values[box] = (self._next, value)
        self._next += 1
        self._by_lo[box[0]] = box
        self._by_hi[box[1]] = box
        self._index.add(box)

    def _remove(self, box: Box) -> None:
        del self._values[box], self._by_lo[box[0]], self._by_hi[box[1]]
        self._index.remove(box)


_number = itemgetter(0)
