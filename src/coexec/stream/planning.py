"""From a recorded function to a front of pipelines on a runtime's devices, and from one of them to where calls go.

Before: stream/estimates.py, plan/pipeline/.  After: stream/pipeline.py.  Runs nothing but what must be measured first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import PlanError, ProgramError
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
from ..plan.pipeline.platforms import Classes, classes_of
from ..program.placement import Placement
from ..runtime import Runtime
from .estimates import Estimated, estimate
from .item import Function, driver_of
from .item_session import Route, StagePlace
from .recording import Recorded, record

MEASURED = (
    3  # times that a function runs on each class of devices of which something is unknown: the first one compiles
)


@dataclass(frozen=True)
class Prepared:
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

    def route(self, point: PipelinePoint) -> Route:
        """Return where each call goes under a pipeline."""
        stage_of = {name: number for number, stage in enumerate(point.stages) for name in stage.kernels}
        devices = self.devices(point)
        places = tuple(
            StagePlace(stage_label(number), _placement(devices[stage.slot], stage.mode))
            for number, stage in enumerate(point.stages)
        )
        return Route(self.kernels, tuple([stage_of[name] for name in self.names]), places)

    def devices(self, point: PipelinePoint) -> dict[int, tuple[str, ...]]:
        """Return the devices of each group of a pipeline, by slot."""
        taken: dict[str, int] = {}
        found: dict[int, tuple[str, ...]] = {}
        for stage in point.stages:
            if stage.slot in found:
                continue
            names: list[str] = []
            for name, count in stage.group:
                begin = taken.get(name, 0)
                names += self.members[name][begin : begin + count]
                taken[name] = begin + count
            found[stage.slot] = tuple(names)
        return found

    @property
    def host(self) -> float:
        """Seconds per item that the function itself keeps the program busy."""
        return self.work.pace

    def paced(self, host: float) -> Prepared:
        """Return the same, if the function itself takes so many seconds for each item, whatever the devices do."""
        return replace(self, front=self.front.paced(host), work=replace(self.work, pace=host))

    def singles(self) -> dict[str, PipelinePoint]:
        """Return the pipelines of one stage on one device, by class; those that cannot be are left out."""
        found = {}
        names = tuple([kernel.name for kernel in self.work.kernels])
        for c in self.system.classes:
            stage = PipelineStage(_in_order(self.work, names), ((c.name, 1),), "alone", 0)
            try:
                found[c.name] = judged(self.work, self.system, [stage])
            except PlanError:
                continue
        return found

    def one_class(self, objective: str) -> dict[str, PipelinePoint]:
        """Return the best pipelines that use one class of devices only, by class. The others wait, and draw idle power."""
        found = {}
        for c in self.system.classes:
            try:
                found[c.name] = plan_on_class(self.work, self.system, c.name, objective)
            except PlanError:
                continue
        return found

    def with_one_more(self, name: str, objective: str) -> PipelinePoint:
        """Return the best pipeline if there were one more device of a class."""
        classes = tuple([replace(c, count=c.count + 1) if c.name == name else c for c in self.system.classes])
        return plan_pipeline(self.work, StreamSystem(classes, self.system.hops), error=0.01).choose(objective)


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
    recorded: Recorded,
    *,
    devices: Sequence[str] | None = None,
    memory: float | None = None,
    latency: float | None = None,
    mixed: bool = False,
    again: Any = None,
) -> Prepared:
    """Return the front for a recorded function on a runtime's devices that are not lost. Raises if nothing fits.

    What its own Python takes is not in it: `paced` adds that.
    `again(device)` runs the function on one device, so that what is unknown of it is measured.
    """
    driver = driver_of(runtime)
    classes = _classes(runtime.platform, devices, driver.scheduler.lost, memory)
    members = classes.members
    found = estimate(runtime, recorded, members)
    if found.unknown and again is not None:
        for name in dict.fromkeys(name for _, name in found.unknown):
            for _ in range(MEASURED):
                again(members[name][0])
        driver.wait("measuring a stream's stages")
        found = estimate(runtime, recorded, members)
    work = _known(found, recorded)
    third: float | bool = latency if latency is not None else False
    front = plan_pipeline(work, classes.system, latency=third, mixed=mixed)
    placed = [number for number, call in enumerate(recorded.calls) if not call.kernel.host]
    return Prepared(
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
    return Classes(StreamSystem(limited, found.system.hops), found.members)


def _known(found: Estimated, recorded: Recorded) -> StreamWork:
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
    runtime: Runtime, function: Function, constants: Mapping[str, Any], sample: Any, recorded: Recorded, device: str
) -> None:
    """Run a recorded function once with all its calls on one device, as far as that can run them."""
    kernels = tuple([call.kernel.name for call in recorded.calls if not call.kernel.host])
    route = Route(kernels, (0,) * len(kernels), (StagePlace("", Placement(device)),))
    record(runtime, function, constants, sample, route)


__all__ = ["Prepared", "prepare", "record_on", "stage_label"]
