"""The pipelines worth having, and the choice among them: by throughput, energy, latency, or under a limit of watts.

Before: plan/pipeline/point.py.  After: plan/pipeline/planning.py.  Searches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from ...errors import PlanError, unknown_name
from .pareto import kept
from .point import PipelinePoint

SAME = 1e-9
"""Relative difference of figures that only rounding can have made."""

CALM = 0.5
"""Part of the time from item to item in which devices are done with one: they keep up easily, and more of them bring nothing."""


def _calm(p: PipelinePoint) -> float:
    """Return how many devices a pipeline uses, if these keep up with its items easily; else more than any does."""
    return float(p.devices) if p.quickest <= CALM * p.period else inf


OBJECTIVES: dict[str, Callable[[PipelinePoint], tuple[float, ...]]] = {
    "throughput": lambda p: (p.period, _calm(p), p.quickest, p.energy, p.latency),
    "energy": lambda p: (p.energy, p.period, p.latency),
    "latency": lambda p: (p.latency, p.period, p.energy),
    "balanced": lambda p: (p.energy * p.period, p.period, p.latency),
}
"""What is to be small, and what decides between equals. Balanced: energy times period.

Where items come slowly all pipelines have one period. Then as few devices are used as keep up easily: each more would only be woken
more often. If none do, the one whose devices are quickest gains if items come sooner after all.
"""


@dataclass(frozen=True)
class PipelineFront:
    """Pipelines of which none is at least as good as another in everything, and how far they can be relied on.

    `points` are compared by period and energy (and latency, if it was asked for), the quickest first. `wide` has those
    too that are worth having only under a limit of watts: compared by period and active energy.
    """

    points: tuple[PipelinePoint, ...]
    wide: tuple[PipelinePoint, ...]
    error: float = 0.0  # by how much period, energy and latency may miss the best, as a fraction; 0 = exact
    orders: int | None = None  # orders of the kernels that were tried; None = all that there are
    shared: bool = True  # groups that serve several stages were looked at
    shared_error: float = 0.0  # as `error`, for those
    notes: tuple[str, ...] = field(default=())  # what was not looked at, in words
    latency: bool = False  # whether pipelines are compared by latency, too
    used: bool = False  # whether idle power counts of the devices in use only

    def choose(self, objective: str = "throughput", *, power: float | None = None) -> PipelinePoint:
        """Return the best pipeline for an objective; with `power`, of at most so many watts on average.

        A pipeline above the limit is slowed down until it meets it, and compared there.
        """
        if objective not in OBJECTIVES:
            raise unknown_name("objective", objective, list(OBJECTIVES))
        points = self.points if power is None else self.throttled(power)
        return min(points, key=OBJECTIVES[objective])

    def throttled(self, power: float) -> tuple[PipelinePoint, ...]:
        """Return the front under a limit of watts on average, each pipeline as slow as it must be."""
        idle = self.wide[0].idle_watts
        if not power > idle:
            raise PlanError(
                f"power={power:g} W: the devices draw {idle:g} W while they wait; allow more, or use fewer devices"
            )
        slowed = [replace(p, period=max(p.period, p.active / (power - idle))) for p in self.wide]
        return best(slowed, latency=self.latency, used=self.used, throttled=True)

    def paced(self, pace: float, also: Sequence[PipelinePoint] = ()) -> PipelineFront:
        """Return the front for items that come no quicker than every `pace` seconds, which devices spend waiting.

        Of the pipelines in `also` the best for throughput is kept beside the others, if it keeps up easily.
        """
        slowed = tuple([replace(p, period=max(p.period, pace)) for p in self.wide])
        points = best(slowed, latency=self.latency, used=self.used)
        key = OBJECTIVES["throughput"]
        calm = [replace(p, period=pace) for p in also if p.quickest <= CALM * pace]
        if calm and key(chosen := min(calm, key=key)) < min(map(key, points)):
            points = (*[p for p in points if p.stages != chosen.stages], chosen)
        return replace(self, points=points, wide=slowed)

    def timed(self, seconds: Callable[[PipelinePoint], float], also: Sequence[PipelinePoint] = ()) -> PipelineFront:
        """Return the front if items of each pipeline follow each other every `seconds(pipeline)`, whatever its stages promise.

        The pipelines in `also` are looked at beside those of the front.
        """
        known = {p.shape: p for p in (*also, *self.wide, *self.points)}
        wide = tuple([replace(p, period=seconds(p)) for p in known.values()])
        return replace(self, points=best(wide, latency=self.latency, used=self.used, throttled=True), wide=wide)

    def as_dict(self) -> dict[str, Any]:
        """Return the front as JSON-ready data."""
        told = ("error", "orders", "shared", "shared_error", "notes")
        return {"points": [p.as_dict() for p in self.points], **{name: getattr(self, name) for name in told}}


def best(
    points: Sequence[PipelinePoint],
    *,
    latency: bool = False,
    used: bool = False,
    active: bool = False,
    throttled: bool = False,
) -> tuple[PipelinePoint, ...]:
    """Return those that no other dominates, the quickest first; of equal ones the first.

    They are compared by the least period that their devices allow and by energy, and with `latency` by that too. `used`: idle power of the devices in use
    only. `active`: instead of energy, by active energy (and idle power, if it depends on the pipeline). `throttled`: by
    the period that they are slowed down to.
    """
    if not points:
        return ()

    def figures(p: PipelinePoint) -> tuple[float, ...]:
        energy = p.active if active else p.energy_used if used else p.energy
        watts = (p.used_watts,) if active and used else ()
        return (p.period if throttled else p.quickest, energy, *watts, *((p.latency,) if latency else ()))

    columns = [rounded(column) for column in zip(*map(figures, points), strict=True)]
    return tuple(points[i] for i in kept(columns))


def rounded(values: Sequence[float]) -> Any:
    """Return values in which those that only rounding tells apart are equal: each as the least of its neighbours."""
    given = np.asarray(values, dtype=np.float64)
    order = np.argsort(given)
    ranked = given[order]
    new = np.ones(len(given), dtype=bool)
    new[1:] = ranked[1:] > ranked[:-1] * (1.0 + SAME)
    result = np.empty_like(given)
    result[order] = ranked[new][np.cumsum(new) - 1]
    return result
