"""A pipeline as a Plan, the type that every planner's plans have: stages are its children, devices their parts.

Before: plan/plan.py, stream/planning.py.  After: stream/pipeline.py, cli/.  Computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..plan.pipeline import PipelinePoint, PipelineStage
from ..plan.pipeline.judge import told
from ..plan.plan import Part, Plan
from .planning import PreparedFront, stage_label


def as_plan(name: str, shapes: str, prepared: PreparedFront, point: PipelinePoint, objective: str) -> Plan:
    """Return one pipeline of a front as a plan."""
    devices = prepared.devices(point)
    source = ", ".join(sorted(prepared.sources)) or "unknown"
    stages = tuple(
        _stage(number, stage, devices[stage.slot], prepared.spread, source) for number, stage in enumerate(point.stages)
    )
    used = {device for names in devices.values() for device in names}
    everyone = [device for members in prepared.members.values() for device in members]
    singles: dict[str, float] = {}
    for class_name, single in prepared.singles().items():
        device = prepared.members[class_name][0]  # of its designs, the quickest
        singles[device] = min(single.period, singles.get(device, inf))
    return Plan(
        "pipeline",
        name,
        shapes,
        (len(prepared.names),),
        (),
        point.period,
        spread=prepared.spread,
        joules=point.energy,
        objective=objective,
        single=singles,
        left_out={device: "no pipeline with it is better" for device in everyone if device not in used},
        why=why(prepared, point, singles),
        children=stages,
        latency_s=point.latency + prepared.host,
    )


def _stage(number: int, stage: PipelineStage, devices: Sequence[str], spread: float, source: str) -> Plan:
    shares = [share / n for (_, n), share in zip(stage.group, stage.shares, strict=True) for _ in range(n)]
    if stage.mode == "in turn":
        shares = [1.0 / len(devices)] * len(devices)
    parts = tuple(
        Part(
            device,
            "",
            (0,),
            (len(stage.kernels),),
            share,
            input_s=stage.transfer,
            compute_s=stage.compute,
            finish_s=stage.seconds,
            spread=spread,
            source=source,
        )
        for device, share in zip(devices, shares, strict=True)
    )
    return Plan(
        "stage",
        stage_label(number),
        ", ".join(stage.kernels),
        (len(stage.kernels),),
        parts,
        stage.seconds,
        spread=spread,
        policy=stage.mode,
        why=f"group {stage.slot}, {told(stage.group)}",
    )


def why(prepared: PreparedFront, point: PipelinePoint, singles: dict[str, float]) -> str:
    """Return in a sentence what sets the pace of a pipeline, why it has one device only, if it has, and what a trial showed."""
    explained = max(prepared.host, point.quickest)
    trial = f"; a short stream took {point.period * 1e3:.3g} ms per item, stages and Python alone {explained * 1e3:.3g}"
    return _pace(prepared, point, singles) + (trial if point.shape in prepared.drags else "")


def _pace(prepared: PreparedFront, point: PipelinePoint, singles: dict[str, float]) -> str:
    used = {device for names in prepared.devices(point).values() for device in names}
    if prepared.host > point.quickest:
        return f"the function's own Python sets the pace, {prepared.host * 1e3:.3g} ms per item"
    slot = point.bottleneck
    if slot is None and point.links > point.result:
        return "a link that several devices or stages share sets the pace"
    if slot is None:
        return "the way of results back to the host sets the pace"
    stage = max((s for s in point.stages if s.slot == slot), key=lambda s: s.seconds)
    what = "copies into it" if stage.transfer > stage.compute else "its kernels"
    number = point.stages.index(stage)
    if len(used) == 1:
        device = next(iter(used))
        others = [f"{name} alone {seconds * 1e3:.3g} ms" for name, seconds in singles.items() if name != device]
        beside = f" ({', '.join(others)})" if others else ""
        return f"one device is best, {device}: a second stage would cost more in copies and hand-over than it saves{beside}"
    return f"{stage_label(number)} sets the pace by {what}"


def one_more(prepared: PreparedFront, point: PipelinePoint, objective: str) -> list[str]:
    """Return what one more device of each class would bring, the best first."""
    found = []
    for name in {members: name for name, members in prepared.members.items()}.values():
        better = prepared.with_one_more(name, objective).period
        what = name.removesuffix(f" as {prepared.designs.get(name, '')}")
        brings = f"{1 / better:.4g} items/s instead of {1 / point.period:.4g}"
        if better >= point.period:  # pipelines that were not tried are taken to be as slow as most of those that were
            brings = f"no more than {1 / point.period:.4g} items/s"
        found.append((better, f"one more {what}: {brings}"))
    return [line for _, line in sorted(found)]
