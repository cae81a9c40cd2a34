"""Values by box, found by overlap: a plain dictionary while there are few, with an index once there are many.

Before: geometry/box_index.py.  After: graph/tracker.py.  Boxes may overlap; knows nothing of what the values mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from .box import Box, overlaps
from .box_index import BoxIndex

V = TypeVar("V")
FEW = 24  # boxes that are quicker looked at one by one


class Shelf(dict[Box, V]):
    """A dictionary from boxes, none of them empty, to values that also finds those which overlap a box.

    What it finds comes in the order of the dictionary. A shelf that is filled anew with the same entries in the same order then
    answers alike, which replay relies on; the index answers in an order that depends on all that was ever filed.
    """

    __slots__ = ("_filed", "_index", "_numbers")

    def __init__(self, entries: Mapping[Box, V]) -> None:
        super().__init__(entries)
        self._index = BoxIndex()  # along the first axis: rows are what programs divide arrays into
        self._numbers: dict[Box, int] = {box: number for number, box in enumerate(entries)}  # in their order
        self._filed = len(entries)
        for box in entries:
            self._index.add(box)

    def __setitem__(self, box: Box, value: V) -> None:
        if box not in self:
            self._index.add(box)
            self._numbers[box] = self._filed
            self._filed += 1
        super().__setitem__(box, value)

    def __delitem__(self, box: Box) -> None:
        super().__delitem__(box)
        self._index.remove(box)
        del self._numbers[box]

    def near(self, box: Box) -> Iterable[tuple[Box, V]]:
        """Return the entries that may overlap `box`, in no order."""
        near = self._index.near(box)
        return self.items() if near is None else [(other, self[other]) for other in near]

    def number(self, entry: tuple[Box, V]) -> int:
        """Return what tells which of two entries is the first."""
        return self._numbers[entry[0]]


def shelved(entries: dict[Box, V]) -> dict[Box, V]:
    """Return the same entries, as a shelf if there are many."""
    return entries if len(entries) <= FEW or type(entries) is Shelf else Shelf(entries)


def meeting(entries: dict[Box, V], box: Box) -> list[tuple[Box, V]]:
    """Return the entries that overlap `box`, none of which is empty. Hot: two dimensions are written out."""
    some: Iterable[tuple[Box, V]] = entries.near(box) if type(entries) is Shelf else entries.items()
    lo, hi = box
    if len(lo) != 2:
        found = [entry for entry in some if overlaps(entry[0], box)]
    else:
        m0, m1 = lo
        k0, k1 = hi
        if m0 >= k0 or m1 >= k1:
            return []
        found = [
            entry
            for entry in some
            if (at := entry[0][0])[0] < k0 and at[1] < k1 and (end := entry[0][1])[0] > m0 and end[1] > m1
        ]
    if len(found) > 1 and type(entries) is Shelf:
        found.sort(key=entries.number)
    return found
