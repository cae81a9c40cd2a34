"""A monotone piecewise-linear curve from rows to seconds, and back.

Before: nothing.  After: plan/offer.py, plan/divide.py.  Knows no device and no task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import inf, isfinite

from ..errors import PlanError


class Curve:
    """Seconds by rows through given points, exact at them; beyond the last point its last slope goes on.

    The first point is at 0 rows: what a launch costs before any row is done. Seconds never fall.
    """

    __slots__ = ("xs", "ys")

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        if len(xs) != len(ys) or len(xs) < 2:
            raise PlanError(f"a curve needs two or more points, got {len(xs)} rows and {len(ys)} seconds")
        if xs[0] != 0 or any(a >= b for a, b in pairwise(xs)):
            raise PlanError(f"the rows of a curve start at 0 and rise, got {list(xs)}")
        if not (isfinite(ys[-1]) and ys[0] >= 0) or any(not a <= b for a, b in pairwise(ys)):
            raise PlanError(f"the seconds of a curve are finite, not negative and never fall, got {list(ys)}")
        self.xs = list(xs)
        self.ys = list(ys)

    @classmethod
    def line(cls, per_row: float, fixed: float = 0.0) -> Curve:
        """Return the straight line `fixed + per_row * rows`."""
        return cls((0, 1), (fixed, fixed + per_row))

    @classmethod
    def through(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """Return a curve through (rows, seconds); where seconds fall it stays level, and it is drawn back to 0 rows."""
        known = sorted(points)
        xs = [x for x, _ in known]
        ys = list(accumulate((y for _, y in known), max))
        if xs and xs[0] > 0:
            slope = (ys[1] - ys[0]) / (xs[1] - xs[0]) if len(xs) > 1 else 0.0
            xs.insert(0, 0)
            ys.insert(0, max(0.0, ys[0] - slope * xs[1]))
        return cls(xs, ys)

    def seconds(self, rows: float) -> float:
        """Return the seconds that `rows` take."""
        xs = self.xs
        i = bisect_right(xs, rows)
        last = len(xs) - 1
        i = min(i, last)
        low = xs[i - 1]
        y = self.ys
        return y[i - 1] + (y[i] - y[i - 1]) * (rows - low) / (xs[i] - low)

    def rows_within(self, seconds: float) -> float:
        """Return the most rows that take at most `seconds`; infinite where more rows cost nothing."""
        ys = self.ys
        i = bisect_right(ys, seconds)
        if i == 0:
            return 0.0
        xs = self.xs
        last = len(ys) - 1
        if i > last:
            i = last
            if ys[i] <= ys[i - 1]:
                return inf
        low = ys[i - 1]
        return xs[i - 1] + (xs[i] - xs[i - 1]) * (seconds - low) / (ys[i] - low)

    def plus(self, per_row: float) -> Curve:
        """Return this curve with `per_row` more seconds for every row."""
        if not per_row:
            return self
        curve = Curve.__new__(Curve)  # what was checked once need not be again
        curve.xs = self.xs
        curve.ys = [y + per_row * x for x, y in zip(self.xs, self.ys, strict=True)]
        return curve

    @property
    def convex(self) -> bool:
        """Whether every further row costs at least what the one before did."""
        slopes = self.slopes()
        return all(b >= a - 1e-9 * abs(a) for a, b in pairwise(slopes))

    def slopes(self) -> list[float]:
        """Return the seconds per row between the points."""
        xs, ys = self.xs, self.ys
        return [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(len(xs) - 1)]

    def __repr__(self) -> str:
        return f"Curve({self.xs!r}, {self.ys!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.xs == other.xs and self.ys == other.ys

    def __hash__(self) -> int:
        return hash((tuple(self.xs), tuple(self.ys)))


def sizes(rows: int, points: int) -> list[int]:
    """Return about `points` sizes from 1 to `rows` at equal ratios."""
    steps = max(2, points) - 1
    rows = max(1, rows)
    return sorted({round(rows ** (i / steps)) for i in range(steps)} | {rows})
