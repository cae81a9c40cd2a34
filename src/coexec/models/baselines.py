"""What a search for mappings of chains is compared with: mappings by simple rules, and random ones.

Before: models/tables.py, models/shortest.py.  After: models/planning.py.  Each rule is written out, so that two people get the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate

import numpy as np

from ..errors import PlanError
from .engines import Accounts, nest
from .fabric import Fabric, Members
from .loops import WorkLayer, Workload
from .mapping import Evaluation, Mapping, SetStage, evaluate
from .sharding import CIN, COLUMNS, COUT, ROWS, Sharding, extents, volumes
from .shortest import ChainSearch
from .tables import ChainCosts, Rules

PLAIN = Rules(rotate=False, overlap=False)
"""No shared shards, nothing overlaps."""


def computation_prioritised(workload: Workload, fabric: Fabric) -> Mapping:
    """Return CP: each class of accelerators is a set, layers are cut where the products are nearest to equal.

    A set takes the design with the least computing time; each layer is cut along its longest dimension. On a platform
    of one class, the two halves are sets.
    """
    sets = halves(fabric)
    cuts = balanced_cuts([layer.macs for layer in workload.layers], len(sets))
    stages = []
    for members, (first, end) in zip(sets, cuts, strict=True):
        chosen = tuple(longest(layer, sum(members)) for layer in workload.layers[first:end])
        if chosen:
            stages.append(SetStage(members, _quickest(workload, fabric, members, first, chosen), first, chosen))
    return tuple(stages)


def halves(fabric: Fabric) -> list[Members]:
    """Return each class as a set, or two halves if all accelerators are alike."""
    whole = fabric.all
    if len(whole) > 1:
        return [tuple(n if i == c else 0 for i, n in enumerate(whole)) for c in range(len(whole))]
    return [(n,) for n in (whole[0] - whole[0] // 2, whole[0] // 2) if n]


def balanced_cuts(work: list[int], parts: int) -> list[tuple[int, int]]:
    """Return spans of layers whose work is nearest to equal: cut i is where the sum is nearest to i parts of the whole."""
    sums = [0, *accumulate(work)]
    cuts = [0]
    for i in range(1, parts):
        aim = sums[-1] * i / parts
        cuts.append(max(cuts[-1], min(range(len(sums)), key=lambda n: abs(sums[n] - aim))))
    return list(zip(cuts, [*cuts[1:], len(work)], strict=True))


def longest(layer: WorkLayer, parts: int) -> Sharding:
    """Return the cut of a layer along its longest dimension among output and input channels, rows and columns."""
    dim = max((COUT, CIN, ROWS, COLUMNS), key=lambda d: extents(layer)[d])
    return Sharding(tuple(parts if d == dim else 1 for d in range(7)))  # type: ignore[arg-type]


def _quickest(workload: Workload, fabric: Fabric, members: Members, first: int, chosen: tuple[Sharding, ...]) -> str:
    def seconds(design: str) -> float:
        total = 0.0
        for layer, sharding in zip(workload.layers[first:], chosen, strict=False):
            accounts = Accounts(layer.stride, layer.groups, layer.kind)
            loops = nest(*volumes(layer, sharding).nest)
            total += float(fabric.seconds(members, design, loops, accounts)) * layer.steps
        return total

    return min(fabric.designs(members), key=seconds)


def all_as_one(workload: Workload, fabric: Fabric) -> Mapping:
    """Return ALL8: one set of all accelerators, its best design, and for each layer the best dimension to cut."""
    costs = ChainCosts(workload, fabric, PLAIN._replace(single=True))
    return ChainSearch(costs, sets=[fabric.all]).run().mapping


def best_single(workload: Workload, fabric: Fabric) -> Mapping:
    """Return the best accelerator alone, with its best design."""
    alone = [tuple(int(i == c) for i in range(len(fabric.all))) for c in range(len(fabric.all))]
    found = []
    for members in alone:
        with suppress(PlanError):  # an engine that cannot do all kinds of layers, or has too little memory
            found.append(ChainSearch(ChainCosts(workload, fabric, PLAIN), sets=[members]).run())
    if not found:
        raise PlanError(f"no accelerator of {fabric.name!r} can do all of {workload.name} alone")
    return min(found, key=lambda one: one.cost).mapping


def equal_over_all(workload: Workload, fabric: Fabric) -> Mapping:
    """Return one set of all accelerators, each layer cut along its longest dimension, and the best design for that."""
    chosen = tuple(longest(layer, sum(fabric.all)) for layer in workload.layers)
    if not fabric.designs(fabric.all):
        raise PlanError(f"the accelerators of {fabric.name!r} have no design in common, so they are no one set")
    stages = [(SetStage(fabric.all, design, 0, chosen),) for design in fabric.designs(fabric.all)]
    return min(stages, key=lambda mapping: evaluate(workload, fabric, mapping, PLAIN).latency)


def random_chain(costs: ChainCosts, random: np.random.Generator) -> Mapping:
    """Return a random mapping: random sets, designs, cuts and shardings."""
    fabric, count = costs.fabric, len(costs.workload.layers)
    left = list(fabric.all)
    sets: list[Members] = []
    while sum(left) and len(sets) < count and (not sets or random.random() < 0.7):
        members = tuple(int(random.integers(n + 1)) for n in left)
        if any(members) and fabric.designs(members):
            sets.append(members)
            left = [a - b for a, b in zip(left, members, strict=True)]
    cuts = [0, *sorted(random.choice(np.arange(1, count), len(sets) - 1, replace=False).tolist()), count]
    stages = []
    for members, first, end in zip(sets, cuts, cuts[1:], strict=False):
        names = fabric.designs(members)
        design = names[int(random.integers(len(names)))]
        tables = [costs.table(i, members, design).shardings for i in range(first, end)]
        stages.append(SetStage(members, design, first, tuple(t[int(random.integers(len(t)))] for t in tables)))
    return tuple(stages)


def random_search(costs: ChainCosts, evaluations: int, seed: int = 0) -> tuple[Mapping, Evaluation]:
    """Return the best of so many random mappings."""
    random = np.random.default_rng(seed)
    found = [random_chain(costs, random) for _ in range(evaluations)]
    priced = [(evaluate(costs.workload, costs.fabric, mapping, costs.rules), mapping) for mapping in found]
    best = min(priced, key=lambda pair: pair[0].latency)
    return best[1], best[0]


BASELINES: dict[str, Callable[[Workload, Fabric], Mapping]] = {
    "cp": computation_prioritised,
    "all": all_as_one,
    "single": best_single,
    "equal": equal_over_all,
}
"""Mappings by rule, by the name that the command line knows."""
