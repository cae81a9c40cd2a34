"""Plans of models as plans like all others, and back: a model consists of sets of accelerators, a set of layers.

Before: plan/plan.py, models/planning.py.  After: models/model.py, cli/.  Plain data in both directions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping as Mapped, Sequence
from itertools import accumulate, product

from ..errors import PlanError
from ..plan.plan import Part, Plan
from .fabric import Fabric
from .loops import WorkLayer, Workload
from .mapping import LayerTime
from .planning import ModelPlan
from .sharded import LayerCut
from .sharding import BATCH, COLUMNS, COUT, DIMS, ROWS, Rotation, Sharding, positions
from .uneven import fair_sizes

DIGITS = 12
"""Characters of a digest that a plan keeps."""
OUT = (BATCH, COUT, ROWS, COLUMNS)


def digest(*what: object) -> str:
    """Return a short name for what texts and plain values say."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:DIGITS]


def model_digest(workload: Workload) -> str:
    """Return a short name for a model's layers."""
    return digest(
        [(one.name, one.kind, tuple(one.loops), one.after, one.stride, one.groups) for one in workload.layers]
    )


def fabric_digest(fabric: Fabric) -> str:
    """Return a short name for a platform's accelerators and the ways between them."""
    kinds = [(a.name, [(d.name, d.figures) for d in a.designs], a.clock, a.memory) for a in fabric.accelerators]
    return digest(kinds, [[tuple(way) for way in row] for row in fabric.ways], [tuple(way) for way in fabric.host])


def holds_for(workload: Workload, fabric: Fabric) -> str:
    """Return what a plan of a model holds for, as text."""
    return f"model {model_digest(workload)} on platform {fabric_digest(fabric)}"


# To a plan ------------------------------------------------------------------------------------------------------------------


def as_plan(found: ModelPlan, compared: Mapped[str, float], single: Mapped[str, float]) -> Plan:
    """Return a plan of a model as a tree. `compared` are the seconds of mappings by rule, `single` of accelerators alone."""
    workload, fabric, evaluation = found.workload, found.fabric, found.evaluation
    names = list(set_names(found))
    children = tuple(_set(found, number, devices) for number, devices in enumerate(names))
    used = {name for devices in names for name in devices}
    left_out = {a.name: "the best mapping found does not need it" for a in fabric.accelerators if a.name not in used}
    seconds = evaluation.period if found.objective == "throughput" else evaluation.latency
    return Plan(
        "model", workload.name, holds_for(workload, fabric), (len(workload.layers),), (), seconds,
        joules=evaluation.joules or None, objective=found.objective, policy="sharded", single=dict(single),
        left_out=left_out, why=_why(found), limit_s=None if found.objective == "energy" else found.bound,
        children=children, latency_s=evaluation.latency, considered=dict(compared),
    )  # fmt: skip


def _why(found: ModelPlan) -> str:
    unit = "J" if found.objective == "energy" else "ms"
    scale = 1.0 if found.objective == "energy" else 1e3
    notes = "".join(f"; {note}" for note in found.notes)
    used = [i for devices in sets_used(found) for i in devices]
    if load := max((found.fabric.accelerators[i].load for i in used), default=0.0):
        notes += f"; designs are loaded once before, in {load:g} s"
    return (
        f"{len(found.mapping)} set{'s' * (len(found.mapping) != 1)} on {found.fabric.name}, {found.objective} "
        f"{found.value * scale:.4g} {unit}, no mapping of this class below {found.bound * scale:.4g} {unit} "
        f"(gap {found.gap:.2%}){notes}"
    )


def set_names(found: ModelPlan) -> Iterator[tuple[str, ...]]:
    """Yield the names of the accelerators of each set, in the order of the sets."""
    return map(found.fabric.names, sets_used(found))


def sets_used(found: ModelPlan) -> Iterator[tuple[int, ...]]:
    """Yield the accelerators of each set, in the order of the sets."""
    used = (0,) * len(found.fabric.all)
    for stage in found.mapping:
        yield found.fabric.indices(stage.members, used)
        used = tuple(a + b for a, b in zip(used, stage.members, strict=True))


def _set(found: ModelPlan, number: int, devices: tuple[str, ...]) -> Plan:
    stage = found.mapping[number]
    layers = tuple(
        _layer(found, number, index, sharding, devices) for index, sharding in enumerate(stage.shardings, stage.first)
    )
    seconds = found.evaluation.stages[number]
    needs, has = found.evaluation.memory[number], found.fabric.memory(stage.members)
    of = f" of {has / 2**20:,.0f}" if has < float("inf") else ""
    why = (
        f"{span_text(stage.first, stage.end)} on {', '.join(devices)} as {stage.design}, {seconds * 1e3:.4g} ms, "
        f"{needs / 2**20:,.1f}{of} MiB each"
    )
    return Plan("set", f"set {number}", "", (stage.first, stage.end), (), seconds, policy=stage.design, why=why,
                children=layers)  # fmt: skip


def span_text(first: int, end: int) -> str:
    """Return the name of some layers that follow each other."""
    return f"layers {first} to {end - 1}" if end - first > 1 else f"layer {first}"


def _layer(found: ModelPlan, number: int, index: int, sharding: Sharding, devices: tuple[str, ...]) -> Plan:
    layer, stage = found.workload.layers[index], found.mapping[number]
    times: LayerTime = found.evaluation.layers[index]
    sizes = fair_sizes(found.fabric, layer, sharding, stage.members, stage.design)
    why = (
        f"{sharding}, {sum(times) * 1e3:.4g} ms: computing {times.compute * 1e3:.4g}, exchange "
        f"{times.exchange * 1e3:.4g}, moving {times.moving * 1e3:.4g}"
    )
    begin = sum(map(sum, found.evaluation.layers[:index]))
    return layer_plan(LayerCut(layer, sharding, devices, sizes), times, stage.design, why, begin)


def layer_plan(cut: LayerCut, times: LayerTime, design: str, why: str, begin: float) -> Plan:
    """Return how a layer is cut as a plan: what it takes, the design of its accelerators, and why it is so.

    `begin` is when it begins, in seconds since the model began.
    """
    layer, sharding = cut.layer, cut.sharding
    cuts = {DIMS[d]: parts for d, parts in enumerate(cut.sizes) if len(parts) > 1}
    rotates = "" if sharding.rotation is None else str(sharding.rotation)
    parts = tuple(_parts(cut, design, times, begin))
    space = tuple(layer.loops[d] for d in OUT)
    return Plan("layer", layer.name, "", space, parts, sum(times), policy=str(sharding), why=why, cuts=cuts,
                rotates=rotates)  # fmt: skip


def _parts(cut: LayerCut, design: str, times: LayerTime, begin: float) -> Iterator[Part]:
    """Yield what each accelerator does: its box of the output, and its share of the products."""
    layer, sizes = cut.layer, cut.sizes
    ends = [list(accumulate(parts)) for parts in sizes]
    for device, at in zip(cut.devices, positions(cut.sharding.factors), strict=True):
        spans = [(ends[d][i] - sizes[d][i], ends[d][i]) for d, i in enumerate(at)]
        share = 1.0
        for (lo, hi), size in zip(spans, layer.loops, strict=True):
            share *= (hi - lo) / size
        yield Part(
            device, design, tuple(spans[d][0] for d in OUT), tuple(spans[d][1] for d in OUT), share,
            input_s=times.moving, compute_s=times.compute, output_s=times.exchange, finish_s=begin + sum(times),
            source="model",
        )  # fmt: skip


def grouped_sets(cuts: Sequence[LayerCut], layers: Sequence[Plan], policy: str) -> Iterator[Plan]:
    """Yield layers that follow each other on the same devices, as sets."""
    first, number = 0, 0
    for end in range(1, len(cuts) + 1):
        if end < len(cuts) and cuts[end].devices == cuts[first].devices:
            continue
        seconds = sum(layer.seconds or 0.0 for layer in layers[first:end])
        why = f"{span_text(first, end)} on {', '.join(cuts[first].devices)}, {seconds * 1e3:.4g} ms"
        yield Plan("set", f"set {number}", "", (first, end), (), seconds, policy=policy, why=why,
                   children=tuple(layers[first:end]))  # fmt: skip
        first, number = end, number + 1


# From a plan ----------------------------------------------------------------------------------------------------------------


def cuts_of(plan: Plan, workload: Workload) -> list[LayerCut]:
    """Return how each layer of a model is cut by a plan; raise PlanError if the plan is for another model or damaged."""
    if plan.kind != "model":
        raise PlanError(f"{plan.name!r} is a plan of a {plan.kind}, not of a model; make one with model.plan(...)")
    mine = model_digest(workload)
    if not plan.shapes.startswith(f"model {mine} "):
        raise PlanError(
            f"the plan is for another model than {workload.name}: it holds for {plan.shapes!r}, and this is model {mine}; "
            "plan this model anew"
        )
    layers = [layer for group in plan.children for layer in group.children]
    if [layer.name for layer in layers] != [layer.name for layer in workload.layers]:
        raise PlanError(f"the plan of {workload.name} does not name its layers in order; make it anew")
    return [_cut(node, layer) for node, layer in zip(layers, workload.layers, strict=True)]


def _cut(node: Plan, layer: WorkLayer) -> LayerCut:
    unknown = sorted(set(node.cuts) - set(DIMS))
    sizes = tuple(tuple(node.cuts.get(name, (size,))) for name, size in zip(DIMS, layer.loops, strict=True))
    factors = tuple(len(parts) for parts in sizes)
    devices = tuple(part.device for part in node.parts)
    wrong = [name for name, parts, size in zip(DIMS, sizes, layer.loops, strict=True) if sum(parts) != size]
    if unknown or wrong or len(list(product(*map(range, factors)))) != len(devices):
        raise PlanError(
            f"the plan of layer {layer.name!r} does not fit it ({node.policy}); make it anew with model.plan"
        )
    return LayerCut(layer, Sharding(factors, _rotation(node.rotates)), devices, sizes)  # type: ignore[arg-type]


def _rotation(text: str) -> Rotation | None:
    if not text:
        return None
    tensor, _, dim = text.partition(" by ")
    if tensor not in ("input", "weights") or dim not in DIMS:
        raise PlanError(f"{text!r} is nothing that goes around a ring; make the plan anew with model.plan")
    return Rotation(tensor, DIMS.index(dim))


def check_platform(plan: Plan, workload: Workload, fabrics: Sequence[Fabric]) -> None:
    """Raise PlanError if a plan was made for another platform than these, which are one platform seen in different ways."""
    if plan.shapes not in (holds := [holds_for(workload, fabric) for fabric in fabrics]):
        raise PlanError(
            f"the plan was made for another platform or model ({plan.shapes}) than {fabrics[0].name} ({holds[0]}); plan anew"
        )
