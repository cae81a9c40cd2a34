"""Plans that map whole layers to accelerators, branches side by side: for unlike engines, and H2H as what others are compared with.

Before: models/h2h.py, models/unsharded.py, models/plan_tree.py.  After: models/searching.py, models/model.py.

The cost model is H2H's, repaired: a layer reads what stride and padding say, through the host unless the layer before it in
its branch ran on the same accelerator; weights that fit stay there. Each transfer takes the link's latency, too, which H2H
leaves out: the other plans of the platform pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from ..errors import PlanError
from ..plan.plan import Plan
from .engines import Accounts, EngineDesign, nest
from .fabric import Accelerator, Fabric
from .h2h import FourSteps, QueueMapping, four_steps, kept_and_fused
from .h2h_costs import WEIGHT_SHARE, CostTable, transfers
from .loops import WorkLayer, Workload
from .mapping import LayerTime
from .plan_tree import grouped_sets, holds_for, layer_plan
from .queues import check_queues
from .sharded import LayerCut
from .sharding import WHOLE
from .unsharded import search_queues
from .unsharded_bound import Relaxed, head_and_tail, relaxed

TRIALS = 8_000
"""Mappings that annealing looks at: some seconds on a core, after which the two multi-modal models are 0.2 and 1.7 % above their bounds."""
FREE_LAYERS = 4
"""Layers that may be free at once for H2H's first step, which looks at every place of all of them together."""


def unlike_engines(fabric: Fabric) -> bool:
    """Tell whether no two accelerators can have the same design: then no layer is cut, and whole layers are mapped."""
    designs = [design.name for one in fabric.accelerators for design in one.designs]
    return len(fabric.accelerators) > 1 and len(designs) == len(set(designs)) == len(fabric.accelerators)


def with_branches(workload: Workload) -> Workload:
    """Return the workload with each layer in the branch of the layer that it continues, as the lists of models have it.

    A layer that reads several others continues the first whose branch nobody continues yet; the rest of its input is
    counted in full, because a graph does not tell how much of it comes from where.
    """
    if any(layer.branch for layer in workload.layers):
        return workload
    ends: dict[int, int] = {}  # the last layer of each branch -> the branch
    found: list[WorkLayer] = []
    for i, layer in enumerate(workload.layers):
        mine = next((j for j in layer.after if j in ends), None)
        branch = ends.pop(mine) if mine is not None else 1 + max((one.branch for one in found), default=-1)
        ends[i] = branch
        found.append(replace(layer, branch=branch, fresh=layer.channels if len(layer.after) > 1 else 0))
    return Workload(workload.name, tuple(found), workload.alive, workload.notes)


def fabric_costs(workload: Workload, fabric: Fabric) -> CostTable:
    """Return what each whole layer costs on each accelerator, which has the design that does most of the model quickest."""
    columns = [_seconds(workload, one) for one in fabric.accelerators]
    slowest = max(fabric.host)
    elements = np.array([transfers(layer, repaired=True) for layer in workload.layers], float)
    moved = elements * fabric.element() * slowest.per_byte + np.where(elements > 0, slowest.latency, 0.0)
    return CostTable(
        tuple(one.name for one in fabric.accelerators), np.array(columns).T, moved[:, 0], moved[:, 1], moved[:, 2], moved[:, 3],
        tuple(one.watts for one in fabric.accelerators), tuple(_holds(one, fabric.element()) for one in fabric.accelerators),
        tuple(layer.stored for layer in workload.layers),
    )  # fmt: skip


def _seconds(workload: Workload, one: Accelerator) -> list[float]:
    def of(design: EngineDesign, layer: WorkLayer) -> float:
        accounts = Accounts(layer.stride, layer.groups, layer.kind)
        return float(design.seconds(nest(*layer.loops), accounts, one.clock)) * layer.steps

    each = [[of(design, layer) for layer in workload.layers] for design in one.designs]
    return min(each, key=lambda times: (times.count(inf), sum(t for t in times if t < inf)))


def _holds(one: Accelerator, element: int) -> int:
    return 2**62 if one.memory is None else int(one.memory * WEIGHT_SHARE / element)


def h2h_seconds(workload: Workload, fabric: Fabric) -> float:
    """Return the seconds of H2H's mapping on a platform, with a correct last step."""
    known = with_branches(workload)
    return four_mapped(known, fabric_costs(known, fabric)).moves.time


def four_mapped(workload: Workload, costs: CostTable) -> FourSteps:
    """Return H2H's mapping; raise PlanError if more layers are free at once than its first step can look at."""
    if (most := _free_at_once(workload)) > FREE_LAYERS:
        raise PlanError(
            f"{most} layers of {workload.name} can begin at once, and H2H looks at every place of all of them; "
            f"it is compared with where there are {FREE_LAYERS} at most"
        )
    return four_steps(workload, costs)


def _free_at_once(workload: Workload) -> int:
    """Return how many layers have the same number of layers before them at most."""
    depth: list[int] = []
    for layer in workload.layers:
        depth.append(1 + max((depth[j] for j in layer.after), default=0))
    return max(depth.count(d) for d in set(depth))


def plan_queues(
    workload: Workload, fabric: Fabric, baselines: Sequence[str], seconds: float, stop: Callable[[], bool]
) -> Plan:  # fmt: skip
    """Return the best mapping of whole layers that annealing finds from H2H's and from the relaxed one, as a plan."""
    workload = with_branches(workload)
    costs = fabric_costs(workload, fabric)
    steps = four_mapped(workload, costs)
    bound = _bound(workload, costs, steps.moves, seconds)
    found, looked = search_queues(workload, costs, bound.places, TRIALS, stop=stop)
    check_queues(workload, costs, found.queues, found.kept, found.timed)
    known = {"h2h": steps.moves.time, "cp": steps.computation.time}
    alone = _alone(workload, costs)
    if alone:
        known["single"] = min(alone.values())
    return _tree(workload, fabric, found, bound.bound, looked, {n: known[n] for n in baselines if n in known}, alone)


def _bound(workload: Workload, costs: CostTable, mapped: QueueMapping, seconds: float) -> Relaxed:
    """Return what no mapping is below, and places to begin with: relaxed where branches join once, else the longest path."""
    places = [0] * len(workload.layers)
    for accelerator, queue in enumerate(mapped.queues):
        for layer in queue:
            places[layer] = accelerator
    ends: list[float] = []
    for one, least in zip(workload.layers, costs.compute.min(axis=1), strict=True):
        ends.append(float(least) + max((ends[j] for j in one.after), default=0.0))
    try:
        head_and_tail(workload)
        return relaxed(workload, costs, seconds)
    except PlanError:
        return Relaxed(max(ends), tuple(places))


def _alone(workload: Workload, costs: CostTable) -> dict[str, float]:
    """Return the seconds of each accelerator that can do everything, alone."""
    found = {}
    everything = tuple(range(len(workload.layers)))
    for a, name in enumerate(costs.names):
        if np.isfinite(costs.compute[:, a]).all():
            queues = tuple(everything if b == a else () for b in range(len(costs.names)))
            found[name] = kept_and_fused(workload, costs, queues).time
    return found


def _tree(
    workload: Workload, fabric: Fabric, found: QueueMapping, bound: float, looked: int, compared: dict[str, float],
    alone: dict[str, float],
) -> Plan:  # fmt: skip
    place = {layer: a for a, queue in enumerate(found.queues) for layer in queue}
    cuts, layers = [], []
    for i, layer in enumerate(workload.layers):
        one = fabric.accelerators[place[i]]
        cuts.append(LayerCut(layer, WHOLE, (one.name,), tuple((size,) for size in layer.loops)))
        begin, end = found.timed.start[i], found.timed.end[i]
        why = f"whole on {one.name} from {begin * 1e3:.4g} to {end * 1e3:.4g} ms"
        layers.append(layer_plan(cuts[-1], LayerTime(end - begin, 0.0, 0.0), one.designs[0].name, why, begin))
    gap = max(found.time / bound - 1.0, 0.0) if bound > 0 else 0.0
    used = {cut.devices[0] for cut in cuts}
    why = (
        f"whole layers on {len(used)} of {len(fabric.accelerators)} accelerators of {fabric.name}, latency "
        f"{found.time * 1e3:.4g} ms, no mapping of this class below {bound * 1e3:.4g} ms (gap {gap:.2%}), {looked} mappings"
    )
    return Plan(
        "model", workload.name, holds_for(workload, fabric), (len(layers),), (), found.time, objective="latency",
        policy="unsharded", single=alone, why=why, limit_s=min(bound, found.time),
        left_out={a.name: "the best mapping found does not need it" for a in fabric.accelerators if a.name not in used},
        children=tuple(grouped_sets(cuts, layers, "whole layers")), latency_s=found.time, considered=compared,
    )  # fmt: skip
