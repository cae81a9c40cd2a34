"""The one index of boxes: finds those that may overlap a box, in a time that depends on how many lie near it.

Before: geometry/box.py.  After: geometry/pile.py (disjoint boxes), geometry/shelf.py (boxes that may overlap).  Knows no values.

1. Boxes are filed along one axis, in drawers: a drawer has the boxes of about one length that lie in one stretch of the axis.
2. About one length means the same power of two, so each box lies in two drawers at most.
   Lengths below `shortest` count as one.
3. A search looks into the drawers of each length that the box in question reaches.
   Where that would take longer than looking at all boxes, all boxes are near.
"""

from __future__ import annotations

from .box import Box

DEARER = 3
"""Looking into a drawer takes as long as comparing so many boxes (0.25 and 0.08 us of CPU time)."""
NONE: dict[Box, None] = {}


class BoxIndex:
    """Boxes of one axis or more, none of them empty, filed by where they lie along an axis."""

    __slots__ = ("_axis", "_drawers", "_lengths", "_shortest", "_size")

    def __init__(self, axis: int = 0, shortest: int = 0) -> None:
        """Begin without boxes. `shortest` is the length, as a power of two, below which all boxes count as equally long."""
        self._axis = axis
        self._shortest = shortest
        self._drawers: dict[tuple[int, int], dict[Box, None]] = {}  # by length and place
        self._lengths: dict[int, int] = {}  # how many boxes there are of about this length
        self._size = 0

    def add(self, box: Box) -> None:
        """File a box that is not yet here."""
        low, last = box[0][self._axis], box[1][self._axis] - 1
        length = max(self._shortest, (last - low).bit_length())
        self._lengths[length] = self._lengths.get(length, 0) + 1
        self._size += 1
        for place in range(low >> length, (last >> length) + 1):
            drawer = self._drawers.get((length, place))
            if drawer is None:
                self._drawers[length, place] = {box: None}
            else:
                drawer[box] = None

    def remove(self, box: Box) -> None:
        """Forget a box that is here."""
        low, last = box[0][self._axis], box[1][self._axis] - 1
        length = max(self._shortest, (last - low).bit_length())
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]
        self._size -= 1
        for place in range(low >> length, (last >> length) + 1):
            drawer = self._drawers[length, place]
            del drawer[box]
            if not drawer:
                del self._drawers[length, place]

    def near(self, box: Box) -> dict[Box, None] | None:
        """Return the boxes whose extent along the axis overlaps that of `box`, and some others; None = look at all.

        The answer holds until a box is added or removed.
        """
        low, last = box[0][self._axis], box[1][self._axis] - 1
        ranges = [(length, low >> length, last >> length) for length in self._lengths]
        if len(ranges) == 1 and ranges[0][1] == ranges[0][2]:  # one drawer, as for rows that are written one by one
            return self._drawers.get(ranges[0][:2], NONE)
        if DEARER * sum([last - first for _, first, last in ranges]) > self._size:
            return None
        near: dict[Box, None] = {}
        for length, first, last in ranges:
            for place in range(first, last + 1):
                drawer = self._drawers.get((length, place))
                if drawer is not None:
                    near.update(drawer)
        return near
