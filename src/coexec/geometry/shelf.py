"""Values by box, found by overlap: a dictionary while there are few, sorted by their first axis once there are many.

Before: geometry/box.py.  After: graph/tracker.py.  Boxes may overlap; knows nothing of what the values mean.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TypeVar

from .box import Box, overlaps

V = TypeVar("V")
FEW = 24  # boxes that are quicker looked at one by one
THIN = 8  # extent along the first axis up to which a box is found by its lower edge


class Shelf(dict[Box, V]):
    """A dictionary from boxes, none of them empty, to values that also finds those which overlap a box."""

    __slots__ = ("_reach", "_tall", "_thin")

    def __init__(self) -> None:
        super().__init__()
        self._thin: list[tuple[int, Box]] | None = None  # by lower edge; None while there are few
        self._reach = 0  # the largest extent along the first axis of a thin box
        self._tall: dict[Box, None] = {}

    def __setitem__(self, box: Box, value: V) -> None:
        if self._thin is not None and box not in self:
            self._file(self._thin, box)
        super().__setitem__(box, value)

    def take(self, box: Box) -> V:
        """Remove a box and return its value."""
        value = super().pop(box)
        thin = self._thin
        if thin is not None:
            if box in self._tall:
                del self._tall[box]
            else:
                del thin[bisect_left(thin, (box[0][0], box))]
        return value

    def meeting(self, box: Box) -> list[tuple[Box, V]]:
        """Return the boxes that overlap `box`, with their values."""
        if len(self) <= FEW:
            return _overlapping(self.items(), box)
        thin = self._thin
        if thin is None:
            thin = self._thin = []
            self._reach = 0
            self._tall = {}
            for other in self:
                self._file(thin, other)
        low, high = box[0][0], box[1][0]
        first = bisect_left(thin, (low - self._reach + 1,))
        near = [(other, self[other]) for _, other in thin[first : bisect_left(thin, (high,), first)]]
        if self._tall:
            near = [(other, self[other]) for other in self._tall] + near
        return _overlapping(near, box)

    def _file(self, thin: list[tuple[int, Box]], box: Box) -> None:
        low, high = box[0][0], box[1][0]
        if high - low <= THIN:
            insort(thin, (low, box))
            self._reach = max(self._reach, high - low)
        else:
            self._tall[box] = None


def _overlapping(entries: Iterable[tuple[Box, V]], box: Box) -> list[tuple[Box, V]]:
    """Return the entries that overlap `box`. Two dimensions are written out: one call per entry costs most of the time."""
    lo, hi = box
    if len(lo) != 2:
        return [entry for entry in entries if overlaps(entry[0], box)]
    m0, m1 = lo
    k0, k1 = hi
    if m0 >= k0 or m1 >= k1:
        return []
    return [
        entry
        for entry in entries
        if (at := entry[0][0])[0] < k0 and at[1] < k1 and (end := entry[0][1])[0] > m0 and end[1] > m1
    ]
