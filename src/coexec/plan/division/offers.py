"""What each device offers for one task, and what a division of the task over them costs: the one cost function.

Before: errors.py.  After: every module of plan/division/.  Knows numbers only: no task, array or kernel.

A device's seconds are a curve over the rows that it gets: monotone and piecewise linear, so that it can be asked both ways.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import inf, isfinite
from typing import NamedTuple

from ...errors import PlanError


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


MANY = 16
"""Devices from which on not everything is tried that could be: only what is likely to help."""


class Offer(NamedTuple):
    """What one device offers for this task."""

    device: str
    compute: Curve  # rows -> seconds
    granule: int = 1
    least: int = 1  # fewer rows than this are not worth giving; none at all always are
    most: int | None = None  # rows that fit into its memory
    wait: float = 0.0  # seconds until the device is free; delays its compute, not its copies
    fixed_in: float = 0.0  # seconds of input copies whatever the share, if it has one
    in_per_row: float = 0.0  # seconds per row that is not there yet
    there: tuple[int, int] = (0, 0)  # rows [lo, hi) whose inputs are in its memory already
    out_per_row: float = 0.0  # seconds per row of copying results back
    fixed_out: float = 0.0
    link: str = ""  # input copies of offers with the same link go one after the other
    priority: int = 0  # lower goes first on the link; equal ones in the order of the offers
    watts: float = 0.0  # while it copies or computes
    idle_watts: float = 0.0
    group: str = ""  # offers of one group are identical
    aside: bool = (
        True  # somebody else moves its copies while it computes; the driver of a processor does both on its cores
    )

    def input_seconds(self, low: float, high: float) -> float:
        """Return the seconds of input copies for rows [low, high), which are not empty."""
        missing = high - low
        lo, hi = self.there
        if hi > lo and low < hi and high > lo:
            missing -= min(high, hi) - max(low, lo)
        return self.fixed_in + self.in_per_row * missing

    @property
    def room(self) -> float:
        """The most rows this device may have."""
        return inf if self.most is None else self.most


class Times(NamedTuple):
    """When one device copies, computes and is done, in seconds from the start; all 0 if it does nothing."""

    input_start: float
    input_end: float
    compute_end: float
    finish: float


class Division(NamedTuple):
    """Who does which rows, and what that is predicted to take."""

    cuts: tuple[float, ...]  # device i does [cuts[i], cuts[i + 1])
    seconds: float
    times: tuple[Times, ...]
    left_out: dict[str, str]  # device -> why it does nothing
    single: dict[str, float]  # device -> seconds if it did everything; infinite if that does not fit
    sticky: bool = False  # the cuts are the previous ones

    @property
    def shares(self) -> tuple[float, ...]:
        """The rows of each device."""
        return tuple(high - low for low, high in zip(self.cuts, self.cuts[1:], strict=False))


NOTHING = Times(0.0, 0.0, 0.0, 0.0)


def finish_times(offers: Sequence[Offer], cuts: Sequence[float]) -> list[Times]:
    """Return when each device is done; the task takes as long as the last of them.

    A device's inputs wait for those ahead of it on its link (not if there is nothing to copy), its compute for its
    inputs and for the device to be free, its output for its compute. Outputs of different devices overlap freely.
    """
    times = [NOTHING] * len(offers)
    free: dict[str, float] = {}
    for i in link_order(offers):
        low, high = cuts[i], cuts[i + 1]
        if high > low:
            offer = offers[i]
            copying = offer.input_seconds(low, high)
            start = free.get(offer.link, 0.0) if offer.link and copying else 0.0
            end = start + copying
            if offer.link and copying:
                free[offer.link] = end
            computed = max(end, offer.wait) + offer.compute.seconds(high - low)
            times[i] = Times(start, end, computed, computed + offer.fixed_out + offer.out_per_row * (high - low))
    return times


def link_order(offers: Sequence[Offer]) -> Sequence[int]:
    """Return the order in which the offers use their links."""
    if any(offer.link for offer in offers):
        return sorted(range(len(offers)), key=lambda i: offers[i].priority)
    return range(len(offers))


def shared(offers: Sequence[Offer]) -> list[int]:
    """Return the offers that share a link with another one and copy anything over it, in link order."""
    users: dict[str, list[int]] = {}
    for i in link_order(offers):
        if offers[i].link and (offers[i].fixed_in or offers[i].in_per_row):
            users.setdefault(offers[i].link, []).append(i)
    return [i for together in users.values() if len(together) > 1 for i in together]


def singles(offers: Sequence[Offer], rows: int) -> dict[str, float]:
    """Return the seconds of giving everything to each device; infinite if it does not fit."""
    return {offer.device: alone(offer, rows) for offer in offers}


def alone(offer: Offer, rows: int) -> float:
    """Return the seconds of this device doing everything by itself."""
    if rows > offer.room:
        return inf
    return finish_times([offer], (0, rows))[0].finish


def joules(offers: Sequence[Offer], times: Sequence[Times]) -> float:
    """Return the energy until the last device is done; a device is busy while it copies or computes."""
    end = max((t.finish for t in times), default=0.0)
    total = 0.0
    for offer, t in zip(offers, times, strict=True):
        busy = t.finish - max(t.input_end, offer.wait) + t.input_end - t.input_start if t.finish else 0.0
        total += offer.watts * busy + offer.idle_watts * (end - busy)
    return total


def check(offers: Sequence[Offer], rows: int) -> None:
    """Raise unless the offers make sense and have room for all rows."""
    if rows < 0 or not offers:
        raise PlanError(f"{rows} rows over {len(offers)} devices cannot be divided")
    for offer in offers:
        costs = (offer.wait, offer.fixed_in, offer.in_per_row, offer.out_per_row, offer.fixed_out)
        if not (min(costs) >= 0 and sum(costs) < inf and offer.granule > 0):
            raise PlanError(
                f"the costs of {offer.device} must be finite and not negative, its granule positive: {offer}"
            )
    room = sum(offer.room for offer in offers)
    if room < rows:
        limits = ", ".join(f"{offer.device} {offer.most}" for offer in offers)
        raise PlanError(f"{rows} rows do not fit: the devices have memory for {room} ({limits}); allow another device")
