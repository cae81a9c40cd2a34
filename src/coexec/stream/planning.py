"""From a recorded function to a front of pipelines on a runtime's devices, and from one of them to where calls go.

Before: stream/estimates.py, plan/pipeline/.  After: stream/pipeline.py.  Runs nothing but what must be measured first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import Any

import numpy as np

from ..errors import ArgumentError, PlanError, ProgramError, unknown_name
from ..machine.platform import Platform
from ..plan.pipeline import (
    PipelineFront,
    PipelinePoint,
    PipelineStage,
    StreamSystem,
    StreamWork,
    judged,
    plan_on_class,
    plan_pipeline,
)
from ..plan.pipeline.front import OBJECTIVES
from ..plan.pipeline.judge import setup_of
from ..plan.pipeline.platforms import Classes, classes_of, worthwhile
from ..plan.pipeline.point import Shape
from ..program import session
from ..program.placement import Placement
from ..runtime import Runtime
from .estimates import Estimated, estimate
from .item import Function, driver_of
from .item_session import Route, StagePlace
from .recording import RecordedItem, record
from .trees import result_arrays

MEASURED = (
    3  # times that a function runs on each class of devices of which something is unknown: the first one compiles
)
MOST_MORE = (
    5  # times more, one by one: the planner of a call may be about to try what it has never seen, such as pieces
)


Drags = Mapping[Shape, float]
"""How many times longer items of short streams took than stages and Python alone explain, by pipeline."""


def check_limits(objective: str, **limits: Any) -> None:
    """Raise unless a plan can be asked for with this objective and these limits, which are numbers above 0 or None."""
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, list(OBJECTIVES))
    for name, value in limits.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ArgumentError(f"{name}={value!r}; give a number above 0")


@dataclass(frozen=True)
class PreparedFront:
    """A front, and what is needed to deploy one of its pipelines. Holds no array."""

    front: PipelineFront
    work: StreamWork
    system: StreamSystem
    members: Mapping[str, tuple[str, ...]]  # devices of each class
    kernels: tuple[str, ...]  # of the calls that are placed, in the order of the program
    names: tuple[str, ...]  # the same calls as the work names them
    lines: tuple[str, ...]  # and where they are made
    reads: int  # waits inside the function
    state_line: str  # where it writes a constant; "" if it has no state
    spread: float
    sources: frozenset[str]
    size: float  # bytes of an item and of everything that is computed from it
    designs: Mapping[str, str] = field(default_factory=dict)  # of the classes that stand for devices with a design
    most_latency: float = inf  # seconds that an item may take
    limited: frozenset[str] = frozenset()  # devices that do certain operations only, and so no chains of them
    drags: Drags = field(default_factory=dict)  # of the pipelines that were tried

    def route(self, point: PipelinePoint, loaded: Mapping[str, str] | None = None) -> Route:
        """Return where each call goes under a pipeline, if devices have these designs now."""
        stage_of = {name: number for number, stage in enumerate(point.stages) for name in stage.kernels}
        devices = self.devices(point, loaded)
        places = tuple(
            StagePlace.of(
                stage_label(number),
                _placement(devices[stage.slot], stage.mode),
                fuses=self.limited.isdisjoint(devices[stage.slot]),
                copies=not all(self.system.at_home(name) for name, _ in stage.group),
            )
            for number, stage in enumerate(point.stages)
        )
        return Route(self.kernels, tuple([stage_of[name] for name in self.names]), places)

    def devices(self, point: PipelinePoint, loaded: Mapping[str, str] | None = None) -> dict[int, tuple[str, ...]]:
        """Return the devices of each group of a pipeline, by slot. Those that have the group's design already come first.

        Of the others, those come first whose design no group of this pipeline needs.
        """
        return {
            slot: tuple([device for part in parts.values() for device in part])
            for slot, parts in self._parts(point, loaded or {}).items()
        }

    def _parts(self, point: PipelinePoint, loaded: Mapping[str, str]) -> dict[int, dict[str, list[str]]]:
        """Return the devices of each group of a pipeline, by slot and class."""
        groups = {stage.slot: stage.group for stage in point.stages}
        wanted = {self.designs[name] for group in groups.values() for name, _ in group if name in self.designs}
        taken: set[str] = set()
        found: dict[int, dict[str, list[str]]] = {}
        for slot, group in groups.items():
            for name, count in group:
                design = self.designs.get(name)
                free = [d for d in self.members[name] if d not in taken and (not design or loaded.get(d) == design)]
                found.setdefault(slot, {})[name] = free[:count]
                taken.update(free[:count])
        for slot, group in groups.items():
            for name, count in group:
                free = [d for d in self.members[name] if d not in taken]
                free.sort(key=lambda d: loaded.get(d) in wanted)
                more = free[: count - len(found[slot][name])]
                found[slot][name] += more
                taken.update(more)
        return found

    def configured(self, point: PipelinePoint, loaded: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the design of each device that has one under a pipeline, if devices have these designs now."""
        found: dict[str, str] = {}
        for parts in self._parts(point, loaded or {}).values():
            for name, devices in parts.items():
                if name in self.designs:
                    found |= dict.fromkeys(devices, self.designs[name])
        return found

    def setup(self, point: PipelinePoint, loaded: Mapping[str, str] | None = None) -> float:
        """Return the seconds before a pipeline can begin: weights, and designs where devices have others now."""
        parts, slowest = self._parts(point, loaded or {}), 0.0
        for stage in point.stages:
            there = {
                name
                for name, devices in parts[stage.slot].items()
                if name in self.designs and all((loaded or {}).get(device) == self.designs[name] for device in devices)
            }
            slowest = max(slowest, setup_of(stage, self.work, self.system, there))
        return slowest

    @property
    def host(self) -> float:
        """Seconds per item that the function itself keeps the program busy."""
        return self.work.pace

    def paced(self, host: float) -> PreparedFront:
        """Return the same, if the function itself takes so many seconds for each item, whatever the devices do."""
        paced = replace(self, work=replace(self.work, pace=host))
        allowed = [p for p in paced.singles().values() if p.latency <= self.most_latency]
        return replace(paced, front=self.front.paced(host, allowed))

    def tried(self, drags: Drags) -> PreparedFront:
        """Return the same, if streams by some pipelines were seen to take so many times longer than their figures say.

        Kernels on two cores share caches, memory and Python's lock, and launching them takes time: what that comes to is measured.
        """
        if not drags:
            return self
        seen = replace(self, drags=drags)
        known = [p for shape in drags if (p := self._of(shape)) is not None and p.latency <= self.most_latency]
        return replace(seen, front=self.front.timed(lambda p: seen.as_tried(p).period, known))

    def _of(self, shape: Shape) -> PipelinePoint | None:
        """Return the pipeline that places everything so; None if there is none, as items are of another kind."""
        try:
            return judged(self.work, self.system, [PipelineStage(*stage) for stage in shape])
        except (PlanError, KeyError):
            return None

    def as_tried(self, point: PipelinePoint) -> PipelinePoint:
        """Return a pipeline with the period that a stream has, as far as streams were tried; others are as slow as most of those."""
        if not self.drags:
            return point
        drag = self.drags.get(point.shape)
        explained = max(point.quickest, self.work.pace)
        return replace(point, period=explained * (median(self.drags.values()) if drag is None else drag))

    def singles(self) -> dict[str, PipelinePoint]:
        """Return the pipelines of one stage on one device, by class; those that cannot be are left out."""
        found = {}
        names = tuple([kernel.name for kernel in self.work.kernels])
        for c in self.system.classes:
            stage = PipelineStage(_in_order(self.work, names), ((c.name, 1),), "alone", 0)
            try:
                found[c.name] = self.as_tried(judged(self.work, self.system, [stage]))
            except PlanError:
                continue
        return found

    def one_class(self, objective: str) -> dict[str, PipelinePoint]:
        """Return the best pipelines that use one class of devices only, by class. The others wait, and draw idle power."""
        found = {}
        for c in self.system.classes:
            try:
                found[c.name] = self.as_tried(plan_on_class(self.work, self.system, c.name, objective))
            except PlanError:
                continue
        return found

    def with_one_more(self, name: str, objective: str) -> PipelinePoint:
        """Return the best pipeline if there were one more device of a class, which can have any of its designs."""
        alike = [other for other, members in self.members.items() if members == self.members[name]]
        classes = tuple([replace(c, count=c.count + 1) if c.name in alike else c for c in self.system.classes])
        return self.as_tried(
            plan_pipeline(self.work, replace(self.system, classes=classes), error=0.01).choose(objective)
        )


def _placement(devices: tuple[str, ...], mode: str) -> Placement:
    return Placement(devices, replicas=len(devices) if mode == "in turn" else 1)


def stage_label(number: int) -> str:
    """Return what a stage is called in traces and reports."""
    return f"stage {number}"


def _in_order(work: StreamWork, names: Sequence[str]) -> tuple[str, ...]:
    del work
    return tuple(names)  # the program's own order keeps to what waits for what


def prepare(
    runtime: Runtime,
    recorded: RecordedItem,
    *,
    devices: Sequence[str] | None = None,
    memory: float | None = None,
    latency: float | None = None,
    mixed: bool = False,
    again: Any = None,
) -> PreparedFront:
    """Return the front for a recorded function on a runtime's devices that are not lost. Raises if nothing fits.

    What its own Python takes is not in it: `paced` adds that.
    `again(device)` runs the function on one device, so that what is unknown of it is measured.
    """
    driver = driver_of(runtime)
    classes = _classes(runtime.platform, devices, driver.scheduler.lost, memory)
    members = classes.members
    found = estimate(runtime, recorded, members, classes.designs)
    for times in (MEASURED, *[1] * MOST_MORE):
        if not found.unknown or again is None:
            break
        for name in dict.fromkeys(name for _, name in found.unknown):
            for _ in range(times):
                again(members[name][0])
        driver.wait("measuring a stream's stages")
        found = estimate(runtime, recorded, members, classes.designs)
    if again is not None and any(not kernel.seconds for kernel in found.work.kernels):
        _raise_own_failure(runtime, recorded)
    work = _known(found, recorded)
    classes = worthwhile(classes, work)
    members = classes.members
    third: float | bool = latency if latency is not None else False
    front = plan_pipeline(work, classes.system, latency=third, mixed=mixed)
    placed = [number for number, call in enumerate(recorded.calls) if not call.kernel.host]
    return PreparedFront(
        front,
        work,
        classes.system,
        members,
        tuple([recorded.calls[number].kernel.name for number in placed]),
        tuple([recorded.names[number] for number in placed]),
        tuple([recorded.calls[number].line for number in placed]),
        recorded.reads,
        recorded.state_line,
        found.spread,
        found.sources,
        sum(value.bytes for value in work.values),
        classes.designs,
        inf if latency is None else latency,
        frozenset([device.name for device in runtime.platform.devices if device.ops]),
    )


def _classes(
    platform: Platform, devices: Sequence[str] | None, lost: Mapping[str, str], memory: float | None
) -> Classes:
    names = [device.name for device in platform.devices] if devices is None else list(devices)
    left = [name for name in names if name not in lost]
    if not left:
        raise ProgramError(f"no device is left: {', '.join(f'{name} ({lost[name]})' for name in names)}")
    found = classes_of(platform, left)
    if memory is None:
        return found
    limited = tuple([replace(c, memory=min(c.memory, float(memory))) for c in found.system.classes])
    return found._replace(system=replace(found.system, classes=limited))


def _raise_own_failure(runtime: Runtime, recorded: RecordedItem) -> None:
    """Raise why the sample has no result, if its own calls failed: nothing is learnt of the speed of calls that fail."""
    if driver_of(runtime).parts.simulation is None:
        with session.within(runtime):
            for array in result_arrays(recorded.result):
                np.asarray(array)


def _known(found: Estimated, recorded: RecordedItem) -> StreamWork:
    """Return the work, or raise if some call has no known seconds anywhere."""
    for kernel in found.work.kernels:
        if not kernel.seconds:
            number = recorded.names.index(kernel.name)
            call = recorded.calls[number]
            classes = [name for call_name, name in found.unknown if call_name == kernel.name]
            why = f"nothing is known of its speed on {', '.join(classes)}" if classes else "no device can run it"
            raise PlanError(
                f"{call.line}: kernel {call.kernel.name!r} cannot be placed: {why}; run `coexec calibrate`, allow other "
                "devices, or give the platform's devices rates"
            )
    return found.work


def record_on(
    runtime: Runtime, function: Function, constants: Mapping[str, Any], sample: Any, recorded: RecordedItem, device: str
) -> None:
    """Run a recorded function once with all its calls on one device, as far as that can run them."""
    kernels = tuple([call.kernel.name for call in recorded.calls if not call.kernel.host])
    route = Route(kernels, (0,) * len(kernels), (StagePlace.of("", Placement(device)),))
    record(runtime, function, constants, sample, route)


__all__ = ["PreparedFront", "prepare", "record_on", "stage_label"]
