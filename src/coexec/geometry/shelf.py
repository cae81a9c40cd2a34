"""Values by box, found by overlap: a plain dictionary while there are few, sorted by their first axis once there are many.

Before: geometry/box.py.  After: graph/tracker.py.  Boxes may overlap; knows nothing of what the values mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import TypeVar

from .box import Box, overlaps

V = TypeVar("V")
FEW = 24  # boxes that are quicker looked at one by one
THIN = 8  # extent along the first axis up to which a box is found by its lower edge


class Shelf(dict[Box, V]):
    """A dictionary from boxes, none of them empty, to values that also finds those which overlap a box."""

    __slots__ = ("_lows", "_reach", "_tall", "_thin")

    def __init__(self, entries: Mapping[Box, V]) -> None:
        super().__init__(entries)
        self._lows: list[int] = []  # the lower edges of the thin boxes
        self._thin: list[Box] = []  # in order
        self._reach = 0  # the largest extent along the first axis of a thin box
        self._tall: dict[Box, None] = {}
        for box in entries:
            self._file(box)

    def __setitem__(self, box: Box, value: V) -> None:
        if box not in self:
            self._file(box)
        super().__setitem__(box, value)

    def __delitem__(self, box: Box) -> None:
        super().__delitem__(box)
        if box in self._tall:
            del self._tall[box]
        else:
            at = self._place(box)
            del self._lows[at], self._thin[at]

    def near(self, box: Box) -> list[tuple[Box, V]]:
        """Return the entries whose extent along the first axis overlaps that of `box`, and some others."""
        first = bisect_left(self._lows, box[0][0] - self._reach + 1)
        found = [(other, self[other]) for other in self._thin[first : bisect_left(self._lows, box[1][0], first)]]
        return [(other, self[other]) for other in self._tall] + found if self._tall else found

    def _place(self, box: Box) -> int:
        """Return where among the thin boxes `box` is, or belongs."""
        low = box[0][0]
        first = bisect_left(self._lows, low)
        return bisect_left(self._thin, box, first, bisect_right(self._lows, low, first))

    def _file(self, box: Box) -> None:
        low, high = box[0][0], box[1][0]
        if high - low <= THIN:
            at = self._place(box)
            self._lows.insert(at, low)
            self._thin.insert(at, box)
            self._reach = max(self._reach, high - low)
        else:
            self._tall[box] = None


def shelved(entries: dict[Box, V]) -> dict[Box, V]:
    """Return the same entries, as a shelf if there are many."""
    return entries if len(entries) <= FEW or type(entries) is Shelf else Shelf(entries)


def meeting(entries: dict[Box, V], box: Box) -> list[tuple[Box, V]]:
    """Return the entries that overlap `box`, none of which is empty. Hot: two dimensions are written out."""
    some: Iterable[tuple[Box, V]] = entries.near(box) if type(entries) is Shelf else entries.items()
    lo, hi = box
    if len(lo) != 2:
        return [entry for entry in some if overlaps(entry[0], box)]
    m0, m1 = lo
    k0, k1 = hi
    if m0 >= k0 or m1 >= k1:
        return []
    return [
        entry
        for entry in some
        if (at := entry[0][0])[0] < k0 and at[1] < k1 and (end := entry[0][1])[0] > m0 and end[1] > m1
    ]
