"""Plan a pipeline: find every partition into stages and groups of devices that is worth having.

Before: plan/pipeline/consecutive.py, plan/pipeline/shared.py.  After: what runs streams.  The one entrance to the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from ...errors import ArgumentError, PlanError
from .consecutive import ConsecutiveSearch
from .downsets import DownSets, ways_through
from .front import OBJECTIVES, PipelineFront, best
from .groups import DeviceGroup, Room, groups_of
from .judge import judged
from .labels import Aim, lowest_latency
from .pareto import kept
from .point import PipelinePoint, PipelineStage
from .shared import SharedSearch, slots_of
from .system import HOST, StreamSystem
from .tables import StageTables, columns_of
from .workload import StreamWork

SHARED_EFFORT = 4000
"""Possible stages times choices of groups, up to which groups that serve several stages are looked at unasked: a second."""
EXACT_EFFORT = {False: 30_000, True: 1_500}
"""Possible stages times groups, up to which a search is exact unasked; with latency as third criterion. Seconds of work."""
ERROR = 0.01
"""By how much a search may miss the best, as a fraction, where it is larger than that."""


@dataclass
class _Search:
    """What one call of `plan_pipeline` was asked for, and what it has found so far."""

    workload: StreamWork
    system: StreamSystem
    room: Room
    groups: list[DeviceGroup]
    latency: bool
    most_latency: float
    used: bool
    error: float | None
    shared: bool | None
    points: list[PipelinePoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    worst: float = 0.0
    shared_error: float = 0.0
    left_out: bool = False  # groups that serve several stages were not looked at

    @property
    def uneven(self) -> bool:
        """Whether kernels draw unlike watts, so that the mode with the shorter period need not be the one that draws less."""
        return any(kernel.watts for kernel in self.workload.kernels)

    @property
    def apart(self) -> bool:
        """Whether ways take time whatever they carry, which devices in turn share and parts of an item do not."""
        return any(hop.latency for hop in self.system.hops.values())

    def along(self, ways: DownSets) -> None:
        """Add the pipelines of one order of the kernels, or of all."""
        columns = columns_of(self.groups, apart=self.latency or self.uneven or self.apart)
        tables = StageTables(self.workload, self.system, ways, columns, latency=self.latency)
        error = self.error
        if error is None:
            large = len(tables.source) * len(tables.columns) > EXACT_EFFORT[self.latency]
            error = ERROR if large else 0.0
        self.worst = max(self.worst, error)
        width = error * lowest_latency(tables) / (2 * len(self.workload.kernels) + 1) if self.latency else 0.0
        aim = Aim(self.latency, self.most_latency, error, width)
        for whole in self._worth(ConsecutiveSearch(tables, self.room, aim).run()):
            self._add(tables, whole.steps, range(len(whole.steps)))
        if self.shared is not False and len(self.groups) > 1:
            self._add_shared(ways)

    def _add_shared(self, ways: DownSets) -> None:
        """Add the pipelines whose groups serve several stages."""
        finite = any(c.memory < inf for c in self.system.classes)
        pure = [group for group in self.groups if len(group.parts) == 1]
        columns = columns_of(pure, apart=self.latency or finite or self.uneven or self.apart)
        tables = StageTables(self.workload, self.system, ways, columns, latency=self.latency)
        choices = slots_of(tables, self.room, all_idle=not self.used)
        effort = len(tables.source) * len(choices)
        if self.shared is None and effort > SHARED_EFFORT:
            self.left_out = True
            return
        aim = Aim(self.latency, self.most_latency)
        for slots in choices:
            known = best(self.points, latency=self.latency, used=self.used, active=True)
            fit = [p for p in known if not self.used or p.used_watts <= slots.idle_watts]
            periods, active = np.array([p.period for p in fit]), np.array([p.active for p in fit])
            search = SharedSearch(tables, slots, aim, (periods, np.minimum.accumulate(active)))
            for whole in self._worth(search.run()):
                self._add(tables, whole.steps, whole.slots)
            self.shared_error = max(self.shared_error, search.error)

    def _worth(self, found: Sequence[Any]) -> list[Any]:
        """Return those pipelines of a search that no other dominates in what counts."""
        if not found:
            return []
        figures = ["period", "active", *(["latency"] if self.latency else []), *(["idle_watts"] if self.used else [])]
        columns = [np.array([getattr(whole, name) for whole in found]) for name in figures]
        return [found[i] for i in kept(columns)]

    def _add(self, tables: StageTables, steps: Sequence[tuple[int, int]], slots: Sequence[int]) -> None:
        """Add a pipeline that a search has found, with its figures worked out anew from its stages."""
        number = {slot: i for i, slot in enumerate(dict.fromkeys(slots))}
        stages = []
        for (row, at), slot in zip(steps, slots, strict=True):
            column = tables.columns[at]
            mode = column.modes[int(tables.mode[row, at])]
            stages.append(PipelineStage(self._kernels(tables, row), column.group.parts, mode, number[slot]))
        self.points.append(judged(self.workload, self.system, stages))

    def _kernels(self, tables: StageTables, row: int) -> tuple[str, ...]:
        """Return the kernels of a stage in an order in which they can run."""
        done = tables.ways.sets[int(tables.source[row])]
        left = tables.ways.sets[int(tables.target[row])] & ~done
        found = []
        while left:
            for i, before in enumerate(self.workload.after):
                if left >> i & 1 and not before & ~done:
                    found.append(self.workload.kernels[i].name)
                    done |= 1 << i
                    left &= ~(1 << i)
        return tuple(found)


def plan_pipeline(
    workload: StreamWork,
    system: StreamSystem,
    *,
    latency: float | bool = False,
    mixed: bool = False,
    shared: bool | None = None,
    idle: str = "all",
    error: float | None = None,
    seed: int = 0,
) -> PipelineFront:
    """Return the front of pipelines: every partition into stages and groups that is worth having.

    `latency` keeps that as a third criterion; a number is also a limit in seconds. `mixed` allows stages shared by
    unlike devices. `shared` looks at groups that serve several stages (None: where that takes about a second). `idle`
    says whose idle power counts, that of "all" devices or of those "used". `error` is by how much period, energy and
    latency may miss the best, as a fraction; 0 is exact, None is exact where that takes seconds. `seed` decides which
    orders of the kernels are tried where there are too many.
    """
    if idle not in ("all", "used"):
        raise ArgumentError(f"idle={idle!r}; say whose idle power counts, 'all' or 'used'")
    if error is not None and not 0.0 <= error < inf:
        raise ArgumentError(f"error={error!r}; give a fraction from 0, e.g. 0.01")
    limit = inf if isinstance(latency, bool) else float(latency)
    if not limit > 0.0:
        raise ArgumentError(f"latency={latency!r}; give seconds above 0, or True for no limit")
    room = Room(system)
    groups = groups_of(system, room, mixed=mixed)
    third = latency is not False
    search = _Search(workload, system, room, groups, third, limit, idle == "used", error, shared)
    ways, every = ways_through(workload, seed)
    for way in ways:
        search.along(way)
    if not search.points:
        raise _impossible(workload, system, limit)
    wide = best(search.points, latency=third, used=search.used, active=True)
    points = best(search.points, latency=third, used=search.used)
    if search.left_out:
        search.notes.append(
            "groups that serve several stages were left out, as they are many; shared=True looks at them"
        )
    if any(p.links > max(*p.busy.values(), p.result) for p in wide):
        search.notes.append(
            "a link that several stages share sets the pace of some pipelines; each way was looked at by itself in the search"
        )
    if not every:
        search.notes.append(f"{len(ways)} orders of the kernels were tried, of more than can be searched")
    return PipelineFront(
        points,
        wide,
        search.worst,
        None if every else len(ways),
        shared is not False and not search.left_out,
        search.shared_error,
        tuple(search.notes),
        latency=third,
        used=search.used,
    )


def plan_on_class(
    workload: StreamWork, system: StreamSystem, name: str, objective: str, *, shared: bool | None = None
) -> PipelinePoint:
    """Return the best pipeline on one class of devices. The others only wait, so their idle power counts as in any other."""
    hops = {pair: hop for pair, hop in system.hops.items() if set(pair) <= {name, HOST}}
    alone = plan_pipeline(workload, StreamSystem((system.named(name),), hops), shared=shared)
    return min([judged(workload, system, p.stages) for p in alone.wide], key=OBJECTIVES[objective])


def _impossible(workload: StreamWork, system: StreamSystem, limit: float) -> PlanError:
    """Return the error for a workload that no pipeline can run, saying why as far as one kernel shows it."""
    names = [c.name for c in system.classes]
    for kernel in workload.kernels:
        if not any(kernel.on(name) < inf for name in names):
            on = ", ".join(kernel.seconds) or "nothing"
            return PlanError(f"kernel {kernel.name!r} runs on {on}, and the system has {', '.join(names)}; add a class")
    bound = f" within {limit:g} s of latency" if limit < inf else ""
    return PlanError(
        f"no pipeline of {len(workload.kernels)} kernels fits{bound}: too little memory for every partition, or too few "
        "devices for stages that exclude each other; allow more memory, devices or latency"
    )
