"""What lies beyond an array's border: which positions stand for those outside, and how a body's box is completed.

Before: geometry/.  After: program/mapper.py, backend/.  `Pad.apply` alone touches values, at launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from ..geometry import Box

Shape = tuple[int, ...]
REPEATING = ("wrap", "edge", "reflect")
"""Borders that show elements of the array itself."""
CUT = ("clip", "inside")
"""Borders beyond which a body sees nothing."""
Border = str | float
Move = tuple[int, int, int]
"""Rows that go from one array to another: the first one's position there, its position here, and how many."""


class Pad(NamedTuple):
    """How a body's box is completed beyond the array's border. All boxes in the view's coordinates."""

    wanted: Box  # may reach outside the array
    hull: Box  # what is read
    shape: Shape  # of the array
    borders: tuple[Border, ...]  # per axis

    def apply(self, data: Any, xp: Any) -> Any:
        """Return a new array of `wanted`'s shape from `data`, which holds `hull`: one axis after the other, as np.pad."""
        for axis in range(len(self.borders)):
            data = self._padded(data, axis, xp)
        return data

    def gather(self, parts: Sequence[tuple[Box, Any]], xp: Any) -> Any:
        """Return the same from boxes inside the array and what they hold, which are apart; between them is anything."""
        wraps = [border == "wrap" for border in self.borders]
        along = [self.wanted if wrap else self.hull for wrap in wraps]
        shape = tuple([box.hi[axis] - box.lo[axis] for axis, box in enumerate(along)])
        made = xp.empty(shape, dtype=parts[0][1].dtype)
        for box, data in parts:
            moves = [self._wrapped(axis, box) if wrap else self._beside(axis, box) for axis, wrap in enumerate(wraps)]
            for runs in product(*moves):
                target = tuple([slice(to, to + count) for to, _, count in runs])
                made[target] = data[tuple([slice(at, at + count) for _, at, count in runs])]
        for axis, wrap in enumerate(wraps):
            made = made if wrap else self._padded(made, axis, xp)
        return made

    def _wrapped(self, axis: int, box: Box) -> list[Move]:
        """Return where rows of `box` go along an axis that wraps."""
        lo, hi, size = self.wanted.lo[axis], self.wanted.hi[axis], self.shape[axis]
        found = []
        for turn in range(lo // size, (hi - 1) // size + 1):
            first = max(lo, box.lo[axis] + turn * size)
            last = min(hi, box.hi[axis] + turn * size)
            if first < last:
                found.append((first - lo, first - turn * size - box.lo[axis], last - first))
        return found

    def _beside(self, axis: int, box: Box) -> list[Move]:
        """Return where rows of `box` are in the hull."""
        return [(box.lo[axis] - self.hull.lo[axis], 0, box.hi[axis] - box.lo[axis])]

    def _padded(self, data: Any, axis: int, xp: Any) -> Any:
        """Return `data`, which holds the hull along an axis, as it is wanted there."""
        lo, hi, first, last = self.wanted.lo[axis], self.wanted.hi[axis], self.hull.lo[axis], self.hull.hi[axis]
        if (lo, hi) == (first, last):
            return data
        border, size, before = self.borders[axis], self.shape[axis], (slice(None),) * axis
        shape = (*data.shape[:axis], hi - lo, *data.shape[axis + 1 :])
        if not isinstance(border, str):
            padded = xp.full(shape, border, dtype=data.dtype)
            padded[(*before, slice(first - lo, last - lo))] = data
            return padded
        padded = xp.empty(shape, dtype=data.dtype)
        inner, outer = max(lo, 0), max(lo, 0, min(hi, size))
        padded[(*before, slice(inner - lo, outer - lo))] = data[(*before, slice(inner - first, outer - first))]
        for start, stop in ((lo, min(hi, 0)), (max(lo, size), hi)):
            if start < stop:
                rows = [row - first for row in positions_of(start, stop, size, border)]
                padded[(*before, slice(start - lo, stop - lo))] = xp.take(data, xp.asarray(rows), axis=axis)
        return padded


def positions_of(lo: int, hi: int, size: int, border: str) -> list[int]:
    """Return, for each position in [lo, hi), the position inside [0, size) that stands for it."""
    if border == "wrap":
        return [p % size for p in range(lo, hi)]
    if border == "edge":
        return [min(max(p, 0), size - 1) for p in range(lo, hi)]
    period = max(1, 2 * (size - 1))  # reflect, without repeating the edge
    folded = [p % period for p in range(lo, hi)]
    return [p if p < size else period - p for p in folded]


def runs_of(lo: int, hi: int, size: int, border: str) -> list[tuple[int, int]]:
    """Return the same positions, without repeats, as disjoint ranges in order; [lo, hi) is not empty."""
    if lo >= 0 and hi <= size:
        return [(lo, hi)]
    if border == "wrap":
        if hi - lo >= size:
            return [(0, size)]
        first = lo % size
        last = first + hi - lo
        return [(first, last)] if last <= size else [(0, last - size), (first, size)]
    inside = [max(lo, 0), min(hi, size) - 1] if max(lo, 0) < min(hi, size) else []
    beyond = [*positions_of(lo, min(hi, 0), size, border), *positions_of(max(lo, size), hi, size, border)]
    found = [*inside, *beyond]  # clamped or folded: neighbours stay neighbours
    return [(min(found), max(found) + 1)]
