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

    def gather(self, parts: Sequence[tuple[Box, Any]], xp: Any) -> Any:
        """Return the same from boxes inside the array and what they hold, which are apart; between them is anything."""
        made = xp.empty(self.wanted.shape, dtype=parts[0][1].dtype)
        for box, data in parts:
            for runs in product(*[self._moves(axis, box) for axis in range(box.ndim)]):
                target = tuple([slice(to, to + count) for to, _, count in runs])
                made[target] = data[tuple([slice(at, at + count) for _, at, count in runs])]
        for axis, border in enumerate(self.borders):
            if not isinstance(border, str):
                before = (slice(None),) * axis
                first, last = -self.wanted.lo[axis], self.shape[axis] - self.wanted.lo[axis]
                made[(*before, slice(0, max(first, 0)))] = border
                made[(*before, slice(last, None))] = border
        return made

    def _moves(self, axis: int, box: Box) -> list[tuple[int, int, int]]:
        """Return where along an axis rows of `box` go: position in the padded box, position in `box`, how many rows."""
        lo, hi, border = self.wanted.lo[axis], self.wanted.hi[axis], self.borders[axis]
        low, high = box.lo[axis], box.hi[axis]
        repeats = isinstance(border, str) and border not in CUT
        rows = positions_of(lo, hi, self.shape[axis], str(border)) if repeats else range(lo, hi)
        found: list[tuple[int, int, int]] = []
        for place, row in enumerate(rows):
            if low <= row < high:
                to, at, count = found[-1] if found else (0, 0, 0)
                if count and to + count == place and at + count == row - low:
                    found[-1] = (to, at, count + 1)
                else:
                    found.append((place, row - low, 1))
        return found


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
