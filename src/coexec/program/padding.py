"""What lies beyond an array's border: which positions stand for those outside, and how a body's box is completed.

Before: geometry/.  After: program/mapper.py, backend/.  `Pad.apply` alone touches values, at launch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..geometry import Box

Shape = tuple[int, ...]
REPEATING = ("wrap", "edge", "reflect")
"""Borders that show elements of the array itself."""
CUT = ("clip", "inside")
"""Borders beyond which a body sees nothing."""
Border = str | float


class Pad(NamedTuple):
    """How a body's box is completed beyond the array's border. All boxes in the view's coordinates."""

    wanted: Box  # may reach outside the array
    hull: Box  # what is read
    shape: Shape  # of the array
    borders: tuple[Border, ...]  # per axis

    def apply(self, data: Any, xp: Any) -> Any:
        """Return a new array of `wanted`'s shape from `data`, which holds `hull`: one axis after the other, as np.pad."""
        for axis, border in enumerate(self.borders):
            lo, hi, first, last = self.wanted.lo[axis], self.wanted.hi[axis], self.hull.lo[axis], self.hull.hi[axis]
            if (lo, hi) == (first, last):
                continue
            if isinstance(border, str):
                positions = positions_of(lo, hi, self.shape[axis], border)
                data = xp.take(data, xp.asarray([p - first for p in positions]), axis=axis)
                continue
            before = (slice(None),) * axis
            padded = xp.full((*data.shape[:axis], hi - lo, *data.shape[axis + 1 :]), border, dtype=data.dtype)
            padded[(*before, slice(first - lo, last - lo))] = data
            data = padded
        return data


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
    found = positions_of(lo, hi, size, border)  # clamped or folded: neighbours stay neighbours
    return [(min(found), max(found) + 1)]
