"""Regions: sets of points as disjoint boxes, in a form that only depends on the set.

Before: geometry/box.py.  After: geometry/region_map.py, program/, lower/.  Knows nothing of what lies at the points.
Normal form: slabs along axis 0, neighbours of equal cross-section joined, each cross-section normalised likewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from .box import Box, Point, bounding, covers, overlap, overlaps, subtract


class Region:
    """An immutable set of points. Equal sets are equal regions, however they were built."""

    __slots__ = ("boxes",)
    boxes: tuple[Box, ...]
    """Disjoint, non-empty, in order of their lower corners."""

    def __init__(self, boxes: Iterable[Box] = ()) -> None:
        self.boxes = _normalised(list(boxes))

    @property
    def volume(self) -> int:
        """Number of points."""
        return sum([box.volume for box in self.boxes])

    @property
    def bounding(self) -> Box | None:
        """The smallest box around the region, or None if it is empty."""
        boxes = self.boxes
        if len(boxes) < 2:
            return boxes[0] if boxes else None
        return bounding(boxes)

    def union(self, other: Region) -> Region:
        """Return the points of either."""
        mine, theirs = self.boxes, other.boxes
        if not theirs or (len(mine) == len(theirs) == 1 and covers(mine[0], theirs[0])):
            return self
        if not mine or (len(mine) == len(theirs) == 1 and covers(theirs[0], mine[0])):
            return other
        return Region(mine + theirs)

    def intersection(self, other: Region) -> Region:
        """Return the points of both."""
        found = []
        for a in self.boxes:
            for b in other.boxes:
                common = overlap(a, b)
                if common is not None:
                    found.append(common)
        return Region(found)

    def difference(self, other: Region) -> Region:
        """Return the points of this one that are not in the other."""
        left = list(self.boxes)
        for box in other.boxes:
            left = _without(left, box)
        return Region(left)

    def contains(self, box: Box) -> bool:
        """Tell whether every point of `box` is in the region; an empty box always is."""
        if len(self.boxes) == 1:
            return covers(self.boxes[0], box)
        left = [] if box.empty else [box]
        for mine in self.boxes:
            if not left:
                break
            left = _without(left, mine)
        return not left

    def overlaps(self, box: Box) -> bool:
        """Tell whether a point of `box` is in the region."""
        if len(self.boxes) == 1:
            return overlaps(self.boxes[0], box)
        return any(overlaps(mine, box) for mine in self.boxes)

    # No aliases such as `__or__ = union`: mypyc does not know them.

    def __or__(self, other: Region) -> Region:
        return self.union(other)

    def __and__(self, other: Region) -> Region:
        return self.intersection(other)

    def __sub__(self, other: Region) -> Region:
        return self.difference(other)

    def __bool__(self) -> bool:
        return bool(self.boxes)

    def __eq__(self, other: object) -> bool:
        return self.boxes == other.boxes if isinstance(other, Region) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.boxes)

    def __repr__(self) -> str:
        return "{" + " ".join([repr(box) for box in self.boxes]) + "}"


def _without(boxes: list[Box], hole: Box) -> list[Box]:
    left = []
    for box in boxes:
        left += subtract(box, hole)
    return left


def _normalised(boxes: list[Box]) -> tuple[Box, ...]:
    solid = [box for box in boxes if not box.empty]
    if len(solid) < 2:
        return tuple(solid)
    if solid[0].ndim == 0:
        return (solid[0],)
    return tuple([Box(lo, hi) for lo, hi in _slabs([(box.lo, box.hi) for box in solid])])


def _slabs(corners: list[tuple[Point, Point]]) -> list[tuple[Point, Point]]:
    """Return the normal form of a union of non-empty, possibly overlapping boxes given by their corners."""
    if len(corners) == 1:
        return corners
    if len(corners[0][0]) == 1:
        return _runs(corners)
    edges = sorted({corner[0] for pair in corners for corner in pair})
    slabs: list[tuple[int, int, list[tuple[Point, Point]]]] = []
    coming = sorted(corners, reverse=True)  # boxes above the sweep line, lowest last
    crossed: list[tuple[Point, Point]] = []  # those it crosses
    for start, stop in pairwise(edges):
        crossed = [pair for pair in crossed if pair[1][0] > start]
        while coming and coming[-1][0][0] <= start:
            crossed.append(coming.pop())
        if not crossed:
            continue
        section = _slabs([(lo[1:], hi[1:]) for lo, hi in crossed])
        if slabs and slabs[-1][1] == start and slabs[-1][2] == section:
            slabs[-1] = (slabs[-1][0], stop, section)
        else:
            slabs.append((start, stop, section))
    return [((start, *lo), (stop, *hi)) for start, stop, section in slabs for lo, hi in section]


def _runs(corners: list[tuple[Point, Point]]) -> list[tuple[Point, Point]]:
    """Join touching and overlapping intervals."""
    runs: list[tuple[Point, Point]] = []
    for lo, hi in sorted(corners):
        if runs and lo <= runs[-1][1]:
            if hi > runs[-1][1]:
                runs[-1] = (runs[-1][0], hi)
        else:
            runs.append((lo, hi))
    return runs
