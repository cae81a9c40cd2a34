"""What a pipeline comes to, worked out from its stages alone: the definition that every search is tested against.

Before: plan/pipeline/system.py, plan/pipeline/workload.py.  After: plan/pipeline/front.py.  Searches nothing.

Copies overlap with kernels, so a stage takes the longer of its kernels and of what comes in. A group that serves several
stages takes the longer of all its kernels and of all that comes in. Energy is drawn by kernels; what copies draw is not modelled. What a stage does not read travels with
the item. No pipeline is quicker than its items come. Into a mixed group each class gets its share; from one, everything counts as if it came over its slowest way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from ...errors import DoesNotFit, PlanError
from .point import Mode, Parts, PipelinePoint, PipelineStage
from .system import HOST, Port, StreamSystem, WayEnd
from .workload import StreamKernel, StreamWork

BUFFERS = 2
"""Of each value that enters or leaves a stage: one is filled while the other is worked on."""


def cut(seconds: Sequence[float], handover: Sequence[float]) -> tuple[float, list[float]]:
    """Return when all classes of a mixed group end together, and their shares; inf where one would get nothing.

    A class takes `handover` seconds and then its share of its `seconds`.
    """
    if min(seconds) <= 0.0 or max(seconds) == inf:
        return inf, [0.0] * len(seconds)
    rate = sum(1.0 / s for s in seconds)
    end = (1.0 + sum(h / s for h, s in zip(handover, seconds, strict=True))) / rate
    shares = [(end - h) / s for h, s in zip(handover, seconds, strict=True)]
    return (end, shares) if min(shares) > 0.0 else (inf, shares)


def timed(
    kernels: Sequence[StreamKernel], group: Parts, mode: Mode, system: StreamSystem
) -> tuple[float, float, tuple[float, ...]]:
    """Return seconds between two items, seconds of one item, and the shares of the group's classes."""
    handover = [system.named(name).handover for name, _ in group]
    if len(group) > 1:
        each = [sum(kernel.on(name, n) for kernel in kernels) for name, n in group]
        end, shares = cut(each, handover)
        return end, end, tuple(shares)
    name, n = group[0]
    if mode == "in turn":
        stateful = not all(kernel.replicable for kernel in kernels)
        one = inf if stateful else handover[0] + sum(kernel.on(name) for kernel in kernels)
        return one / n, one, (1.0,)
    one = handover[0] + sum(kernel.on(name, n) for kernel in kernels)
    return one, one, (1.0,)


def drawn(kernels: Sequence[StreamKernel], stage: PipelineStage, system: StreamSystem) -> float:
    """Return the joules per item that the devices of a stage draw more than while they wait. Its shares are known."""
    total = 0.0
    for (name, n), share in zip(stage.group, stage.shares, strict=True):
        c = system.named(name)
        devices, each = (1, 1.0) if stage.mode == "in turn" else (n, share if len(stage.group) > 1 else 1.0)
        computing = sum(each * kernel.on(name, devices) * kernel.active_watts(c) for kernel in kernels)
        total += devices * (c.handover * c.active_watts + computing)
    return total


def moving(
    source: PipelineStage | None, target: PipelineStage | None, size: float, system: StreamSystem, *, one: bool = False
) -> float:
    """Return the seconds between two items for what goes from one stage to the next; None is the host.

    With `one`, the seconds that one item takes: whoever takes items in turn receives and sends it over one way.
    """
    if not size or (source is not None and target is not None and source.slot == target.slot):
        return 0.0
    slowest = 0.0
    for out, sent in _ends(source):
        for into, received in _ends(target):
            share = sent if target is None else received
            for latency, per_byte in ways_between(out, into, system, one=one):
                slowest = max(slowest, latency + share * size * per_byte)
    return slowest


def ways_between(source: WayEnd, target: WayEnd, system: StreamSystem, *, one: bool) -> list[tuple[float, float]]:
    """Return seconds and seconds per byte of what items keep busy between two groups; with `one`, what one item takes."""
    if not one:
        return system.busy(source, target)
    ends = [(end.name, 1 if end.turns else end.count) for end in (source, target)]
    return [system.moved(ends[0], ends[1])]


def _ends(stage: PipelineStage | None) -> list[tuple[WayEnd, float]]:
    """Return the classes of a stage as ends of ways, and their shares."""
    if stage is None:
        return [(WayEnd(HOST), 1.0)]
    turns = stage.mode == "in turn"
    return [(WayEnd(name, n, turns), x) for (name, n), x in zip(stage.group, stage.shares, strict=True)]


def judged(workload: StreamWork, system: StreamSystem, stages: Sequence[PipelineStage]) -> PipelinePoint:
    """Return the pipeline of these stages with all its figures, or raise PlanError saying what is wrong with it."""
    position = {kernel.name: i for i, kernel in enumerate(workload.kernels)}
    done, found, active, latency = 0, [], 0.0, 0.0
    sizes: list[float] = []  # bytes that enter each stage, and those that leave the last
    previous: PipelineStage | None = None
    for stage in stages:
        kernels = [workload.kernels[position[name]] for name in stage.kernels]
        compute, one, shares = timed(kernels, stage.group, stage.mode, system)
        if compute == inf:
            raise PlanError(f"{', '.join(stage.kernels)} cannot run {stage.mode} on {told(stage.group)}")
        before = workload.alive(done)
        sizes.append(before)
        for name in stage.kernels:
            if done >> position[name] & 1 or workload.after[position[name]] & ~done:
                raise PlanError(f"{name!r} runs twice, or before what it waits for")
            done |= 1 << position[name]
        made = replace(stage, shares=shares, compute=compute)
        made = replace(
            made,
            transfer=moving(previous, made, before, system),
            memory=_memory(made, kernels, before + workload.alive(done), system),
        )
        latency += one + moving(previous, made, before, system, one=True)
        active += drawn(kernels, made, system)
        found.append(made)
        previous = made
    if done != (1 << len(workload.kernels)) - 1:
        left = [kernel.name for kernel in workload.kernels if not done >> position[kernel.name] & 1]
        raise PlanError(f"no stage runs {', '.join(left)}")
    size = workload.alive(done)
    sizes.append(size)
    result = moving(previous, None, size, system)
    latency += moving(previous, None, size, system, one=True)
    used = _used_watts(found, system)
    setup = max(setup_of(stage, workload, system) for stage in found)
    links = _links(found, sizes, system) if system.ports else 0.0
    point = PipelinePoint(tuple(found), 0.0, active, latency, system.idle_watts, used, result, setup, links)
    return replace(point, period=max(point.quickest, workload.pace))


def _links(stages: Sequence[PipelineStage], sizes: Sequence[float], system: StreamSystem) -> float:
    """Return the seconds per item of the busiest thing that ways of several devices share: all bytes that pass it.

    Groups have the devices of a class in order: the first one of the stages the first ones.
    """
    members = _members(stages, system)
    carried: dict[str, float] = {}
    ends: list[PipelineStage | None] = [None, *stages, None]
    for source, target, size in zip(ends, ends[1:], sizes, strict=False):
        if not size or (source is not None and target is not None and source.slot == target.slot):
            continue
        for out, sent in _ends(source):
            for into, received in _ends(target):
                if not system.through_host(out.name, into.name):
                    continue
                for stage, end, way, share in ((source, out, 1, sent), (target, into, 0, received)):
                    for port in members.get((stage.slot, end.name), ()) if stage is not None else ():
                        for name in port[way]:
                            carried[name] = carried.get(name, 0.0) + share * size / end.count
    return max([size / system.limits[name] for name, size in carried.items()], default=0.0)


def _members(stages: Sequence[PipelineStage], system: StreamSystem) -> dict[tuple[int, str], tuple[Port, ...]]:
    """Return the ports of the devices of each group and class."""
    taken: dict[str, int] = {}
    found: dict[tuple[int, str], tuple[Port, ...]] = {}
    for stage in stages:
        for name, n in stage.group:
            if (stage.slot, name) in found or name not in system.ports:
                continue
            silicon = system.named(name).budget or name  # one device under several designs is taken once
            first = taken.get(silicon, 0)
            taken[silicon] = first + n
            found[stage.slot, name] = system.ports[name][first : first + n]
    return found


def told(group: Parts) -> str:
    """Return a group as text."""
    return " + ".join(f"{n} {name}" for name, n in group)


def _memory(
    stage: PipelineStage, kernels: Sequence[StreamKernel], ends: float, system: StreamSystem
) -> tuple[float, ...]:
    """Return the bytes on each device of a stage, by class, or raise if one cannot hold them."""
    weights, workspace = sum(k.weights for k in kernels), sum(k.workspace for k in kernels)
    found = []
    for (name, n), share in zip(stage.group, stage.shares, strict=True):
        part = share / n if stage.mode == "divided" else 1.0
        found.append(weights + part * (workspace + BUFFERS * ends))
        if found[-1] > (has := system.named(name).memory):
            what = f"a stage of {', '.join(stage.kernels)} on {told(stage.group)}"
            raise DoesNotFit(what, name, int(found[-1]), int(has), "cut it into more stages")
    return tuple(found)


def _used_watts(stages: Sequence[PipelineStage], system: StreamSystem) -> float:
    """Return the idle watts of the devices in use, or raise where they are too many or too full."""
    groups: dict[int, Parts] = {}
    full: dict[tuple[int, str], float] = {}
    for stage in stages:
        if groups.setdefault(stage.slot, stage.group) != stage.group:
            raise PlanError(f"slot {stage.slot} is both {told(groups[stage.slot])} and {told(stage.group)}")
        for (name, _), size in zip(stage.group, stage.memory, strict=True):
            full[stage.slot, name] = full.get((stage.slot, name), 0.0) + size
    devices = [part for group in groups.values() for part in group]
    for c in system.classes:
        if (wanted := sum(n for name, n in devices if name == c.name)) > c.count:
            raise PlanError(f"the stages use {wanted} devices of class {c.name!r}, which has {c.count}")
    for budget, units in system.budgets.items():
        owners = {c.name: c.units for c in system.classes if (c.budget or c.name) == budget}
        if (wanted := sum(n * owners[name] for name, n in devices if name in owners)) > units:
            raise PlanError(f"the stages use {wanted} units of {budget!r}, of which there are {units}")
    for (slot, name), needs in full.items():
        if needs > (has := system.named(name).memory):
            raise DoesNotFit(f"all stages on {told(groups[slot])}", name, int(needs), int(has), "use more groups")
    return sum(n * system.named(name).idle_watts for name, n in devices)


def setup_of(stage: PipelineStage, workload: StreamWork, system: StreamSystem, loaded: Collection[str] = ()) -> float:
    """Return the seconds before a stage can begin: its design, and its weights from the host to each device.

    Classes in `loaded` have their designs already.
    """
    names = set(stage.kernels)
    weights = sum(kernel.weights for kernel in workload.kernels if kernel.name in names)
    slowest = 0.0
    for name, n in stage.group:
        latency, per_byte = system.moved((HOST, 1), (name, n))
        load = 0.0 if name in loaded else system.named(name).load
        slowest = max(slowest, load + (latency + n * weights * per_byte if weights else 0.0))
    return slowest
