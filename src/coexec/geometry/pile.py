"""Many disjoint boxes with values, in the order in which they came: found by overlap, and joined with who shares a face.

Before: geometry/box.py.  After: geometry/region_map.py.  Knows nothing of what the values mean.

Gives what looking at all boxes one after the other gives, in a time that depends on how many boxes are touched. Boxes of
about one length along an axis (up to a power of two) are filed by where they lie along it: each is in two drawers at most.
Those much shorter than the axis divided by their number count as one length.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Generic, TypeVar

from .box import Box, Point, overlaps, subtract

V = TypeVar("V")


class Pile(Generic[V]):
    """Disjoint boxes, none of them empty and each of one axis or more, with a value each."""

    __slots__ = ("_axis", "_by_hi", "_by_lo", "_drawers", "_lengths", "_next", "_shortest", "_values")

    def __init__(self, entries: Iterable[tuple[Box, V]]) -> None:
        entries = list(entries)
        self._values: dict[Box, tuple[int, V]] = {}  # in order; the numbers rise
        self._by_lo: dict[Point, Box] = {}  # disjoint boxes have corners of their own
        self._by_hi: dict[Point, Box] = {}
        self._drawers: dict[tuple[int, int], dict[Box, None]] = {}
        self._lengths: dict[int, int] = {}  # how many boxes there are of about this length
        self._next = 0
        ndim = entries[0][0].ndim if entries else 1
        self._axis = max(range(ndim), key=lambda axis: len({box[0][axis] for box, _ in entries}))
        edges = [edge[self._axis] for box, _ in entries for edge in box]
        self._shortest = ((max(edges, default=1) - min(edges, default=0)) // max(1, len(entries))).bit_length()
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
        """Return the boxes whose extent along the axis may overlap that of `box`."""
        low, last = box[0][self._axis], box[1][self._axis] - 1
        ranges = [(length, low >> length, last >> length) for length in self._lengths]
        if sum([last - first for _, first, last in ranges]) > len(self._values):
            return self._values
        near: dict[Box, None] = {}
        for length, first, last in ranges:
            for place in range(first, last + 1):
                drawer = self._drawers.get((length, place))
                if drawer:
                    near.update(drawer)
        return near

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
        low, last = box[0][self._axis], box[1][self._axis] - 1
        length = max(self._shortest, (last - low).bit_length())
        self._lengths[length] = self._lengths.get(length, 0) + 1
        for place in range(low >> length, (last >> length) + 1):
            self._drawers.setdefault((length, place), {})[box] = None

    def _remove(self, box: Box) -> None:
        del self._values[box], self._by_lo[box[0]], self._by_hi[box[1]]
        low, last = box[0][self._axis], box[1][self._axis] - 1
        length = max(self._shortest, (last - low).bit_length())
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]
        for place in range(low >> length, (last >> length) + 1):
            drawer = self._drawers[length, place]
            del drawer[box]
            if not drawer:
                del self._drawers[length, place]


_number = itemgetter(0)
