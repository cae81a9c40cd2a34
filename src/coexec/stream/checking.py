"""What a pipeline comes to when its items really pass through the simulator: copies meet on links, buffers are finite.

Before: stream/planning.py, backend/simulated/.  After: stream/pipeline.py.  Knows seconds and bytes; not what is computed.

The planner works out period and latency of a pipeline from its stages alone, each way by itself. Here its items run on the virtual
clock of the same platform, a kernel for each stage, so that everything else is what the scheduler and the simulator make of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..backend.simulated.costs import NOTHING
from ..backend.simulated.durations import Durations, Timed
from ..backend.simulated.opening import machine_of
from ..graph.instruction import IfComputed, Launch
from ..machine.platform import Platform
from ..plan.pipeline import PipelinePoint
from ..program import session
from ..program.access import read, write
from ..program.array import asarray, empty
from ..program.call import placed
from ..program.kernel import kernel
from ..runtime import Runtime
from .deployment import under_way
from .item import driver_of
from .planning import PreparedFront

ROWS = 840  # of each array: any number of devices up to eight has equal parts
ROUNDS = 20  # times that every item under way is replaced
FILLED = 8  # rounds that do not count: stages fill, and what has come too early is computed
EMPTYING = 2  # rounds at the end that do not count either


@dataclass(frozen=True)
class PlanCheck:
    """A pipeline as the planner promises it, and as it came out in simulation. Seconds; whoever feeds items takes none."""

    period: float
    simulated_period: float
    latency: float
    simulated_latency: float

    @property
    def error(self) -> float:
        """By how much the simulation's period exceeds the promise, as a fraction."""
        return self.simulated_period / self.period - 1.0

    def as_dict(self) -> dict[str, float]:
        """Return it as JSON-ready data."""
        return {**asdict(self), "error": self.error}

    def told(self) -> str:
        """Return it as a sentence."""
        return (
            f"simulated: {self.simulated_period * 1e3:.4g} ms per item where the plan says {self.period * 1e3:.4g} "
            f"({self.error:+.1%}), latency {self.simulated_latency * 1e3:.4g} ms where it says {self.latency * 1e3:.4g}"
        )


@kernel(split=0, over=(ROWS,), x=read, y=write)
def stage_of_items(x: Any, y: Any, seconds: float, least: float) -> None:
    """Stand for all kernels of a stage. Takes `seconds` for all rows, at least `least`; computes nothing."""


class _AsPlanned(Durations):
    """Kernels take the seconds that they are given; copies what the platform's links allow."""

    by_peaks = False

    def _kernel(self, task: Any, step: Launch) -> Timed:
        rows = step.chunk.box.hi[0] - step.chunk.box.lo[0]
        return Timed(max(task.scalars["least"], task.scalars["seconds"] * rows / ROWS), "given")


class _Stage(NamedTuple):
    """A stage to simulate."""

    placement: Any
    seconds: float  # of a whole item on one of its devices, if an n-th of it takes an n-th of that
    least: float  # of any part: unlike devices that share items end together
    result: int  # bytes of each row of what it hands on


def check(prepared: PreparedFront, point: PipelinePoint, platform: Platform) -> PlanCheck:
    """Return what a pipeline comes to in simulation, on its own platform."""
    quiet = replace(platform, devices=tuple([replace(device, launch=None, ops=()) for device in platform.devices]))
    law = _AsPlanned(quiet)
    machine = machine_of(quiet, law, NOTHING)
    with Runtime(machine=machine, trace="", store="off", diagnostics="off", lookahead="none") as runtime:
        ends = _streamed(runtime, prepared, point)
    return PlanCheck(point.quickest, _period(ends), point.latency, ends[0])


def _period(ends: list[float]) -> float:
    """Return the seconds between two results while all stages are full: results of devices in turn come in bunches, so rounds are compared."""
    each = len(ends) // ROUNDS
    early, late = (sum(ends[each * number : each * (number + 1)]) / each for number in (FILLED, ROUNDS - EMPTYING))
    return (late - early) / (each * (ROUNDS - EMPTYING - FILLED))


def _streamed(runtime: Runtime, prepared: PreparedFront, point: PipelinePoint) -> list[float]:
    """Return when the result of each item is on the host; nothing computes it, and nothing feeds it but the window."""
    route = prepared.route(point)
    stages, done = [], 0
    position = {each.name: number for number, each in enumerate(prepared.work.kernels)}
    first = _row(prepared.work.alive(0))
    for stage, place in zip(point.stages, route.places, strict=True):
        done |= sum([1 << position[name] for name in stage.kernels])
        alike = len(stage.group) == 1
        seconds, least = (stage.compute * stage.devices, 0.0) if alike else (0.0, stage.compute)
        stages.append(_Stage(place.placement, seconds, least, _row(prepared.work.alive(done))))
    most = under_way(route)
    driver, clock = driver_of(runtime), driver_of(runtime).recorder.clock
    given, waiting, ends = np.empty((ROWS, first), np.uint8), deque[Any](), []
    with session.within(runtime):
        for item in range(most * ROUNDS):
            if len(waiting) == most or item == 1:  # the first one passes alone: its latency is the pipeline's
                driver.wait_because(waiting.popleft(), "stream")
                ends.append(clock())
            x = asarray(given)
            for one in stages:
                y = empty((ROWS, one.result), np.uint8)
                with placed(one.placement, item=item):
                    stage_of_items(x, y, one.seconds, one.least)
                x = y
            waiting.append(driver.begin_read(x, box=IfComputed())[0])
            runtime.flush()
        while waiting:
            driver.wait_because(waiting.popleft(), "stream")
            ends.append(clock())
    return ends


def _row(size: float) -> int:
    """Return the bytes of a row of an array of about so many bytes, at least one."""
    return max(1, round(size / ROWS))


__all__ = ["PlanCheck", "check"]
