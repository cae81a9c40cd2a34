"""H2H's mapping of multi-modal models in four steps, with every dependency enforced in the last one as well.

Before: models/queues.py.  After: models/unsharded.py, benchmarks.  Knows the cost table, not how it came about.

1 computation-prioritised mapping, 2 weights that stay, 3 results that stay, 4 moves of layers next to their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import ceil
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from .h2h_costs import CostTable
from .loops import KINDS, Workload
from .queues import Queues, QueueTimes, Staying, durations, replay

GRANULE = 1000
"""Elements of weights by which the knapsack counts."""
GAIN = 1e-12
"""Seconds by which a move must shorten the whole to be kept."""


class QueueMapping(NamedTuple):
    """Queues, what stays in memories, and the times that follow."""

    queues: Queues
    kept: Staying
    timed: QueueTimes

    @property
    def time(self) -> float:
        """Seconds until the last layer is over."""
        return self.timed.time


def timed_mapping(workload: Workload, costs: CostTable, queues: Queues, kept: Staying) -> QueueMapping:
    """Return queues with the times that follow from them."""
    return QueueMapping(queues, kept, replay(workload, queues, durations(workload, costs, queues, kept)))


# Step 1 ---------------------------------------------------------------------------------------------------------------------


def computation_first(workload: Workload, costs: CostTable) -> QueueMapping:
    """Place the layers that are free together, in the way that leaves the earliest last accelerator; first one wins ties."""
    layers, count = workload.layers, len(costs.names)
    nothing = Staying()
    whole = costs.compute + (costs.weights + costs.input + costs.output)[:, None]
    ready, ends = [0.0] * count, [0.0] * len(layers)
    queues: list[list[int]] = [[] for _ in costs.names]
    left = set(range(len(layers)))
    while left:
        free = [i for i in sorted(left) if not left.intersection(layers[i].after)]
        for kind in KINDS:
            group = [i for i in free if layers[i].kind == kind]
            able = [a for a in range(count) if group and whole[group[0], a] < np.inf]
            if group and not able:
                raise PlanError(f"no accelerator can run {layers[group[0]].name}, which is of kind {kind!r}")
            if group:
                chosen, places = _best_places(workload, whole, group, able, ready, ends)
                _place(workload, whole, chosen, places, ready, ends)
                for i, a in zip(chosen, places, strict=True):
                    queues[a].append(i)
                left.difference_update(chosen)
    return timed_mapping(workload, costs, tuple(map(tuple, queues)), nothing)


def _assignments(group: Sequence[int], able: Sequence[int]) -> Iterator[tuple[Sequence[int], tuple[int, ...]]]:
    """Yield every choice of layers, at most as many as there are accelerators, with every choice of places."""
    chosen = [group] if len(able) > len(group) else list(combinations(group, len(able)))
    for layers in chosen:
        for places in product(able, repeat=len(layers)):
            yield layers, places


def _best_places(
    workload: Workload, whole: np.ndarray[tuple[int, int], np.dtype[np.float64]], group: Sequence[int],
    able: Sequence[int], ready: list[float], ends: list[float],
) -> tuple[Sequence[int], tuple[int, ...]]:  # fmt: skip
    best, found = float("inf"), None
    for layers, places in _assignments(group, able):
        trial = ready.copy()
        _place(workload, whole, layers, places, trial, ends.copy())
        if max(trial) < best:
            best, found = max(trial), (layers, places)
    assert found is not None, "there is at least one assignment"
    return found


def _place(
    workload: Workload, whole: np.ndarray[tuple[int, int], np.dtype[np.float64]], layers: Sequence[int],
    places: Sequence[int], ready: list[float], ends: list[float],
) -> None:  # fmt: skip
    for i, a in zip(layers, places, strict=True):
        begin = max([ready[a], *[ends[j] for j in workload.layers[i].after]])
        ends[i] = ready[a] = begin + float(whole[i, a])


# Step 2 ---------------------------------------------------------------------------------------------------------------------


def knapsack(sizes: Sequence[int], capacity: int) -> list[int]:
    """Return which sizes to take so that their sum is largest within the capacity, counted in granules, rounded up."""
    grains, room = [ceil(size / GRANULE) for size in sizes], capacity // GRANULE
    if sum(grains) <= room:
        return list(range(len(sizes)))
    best = np.zeros(room + 1)
    taken = np.zeros((len(sizes), room + 1), bool)
    for i, (size, grain) in enumerate(zip(sizes, grains, strict=True)):
        if 0 < grain <= room:
            with_it = np.concatenate([np.full(grain, -1.0), best[:-grain] + size])
            taken[i] = with_it > best
            best = np.maximum(best, with_it)
    chosen, at = [], room
    for i in reversed(range(len(sizes))):
        if taken[i, at]:
            chosen.append(i)
            at -= grains[i]
        elif grains[i] == 0:
            chosen.append(i)
    return sorted(chosen)


def bound_weights(costs: CostTable, queues: Queues) -> frozenset[int]:
    """Return the layers whose weights stay in their accelerator's memory."""
    bound: set[int] = set()
    for a, queue in enumerate(queues):
        bound.update(queue[k] for k in knapsack([costs.stored[i] for i in queue], costs.holds[a]))
    return frozenset(bound)


def with_weights(workload: Workload, costs: CostTable, mapped: QueueMapping) -> QueueMapping:
    """Keep as many weights as fit; the order stays."""
    return timed_mapping(workload, costs, mapped.queues, Staying(bound_weights(costs, mapped.queues)))


# Steps 3 and 4 --------------------------------------------------------------------------------------------------------------


def with_fusion(workload: Workload, costs: CostTable, mapped: QueueMapping) -> QueueMapping:
    """Leave results where the next layer of the branch finds them; the order stays."""
    return timed_mapping(workload, costs, mapped.queues, mapped.kept._replace(fused=True))


def kept_and_fused(workload: Workload, costs: CostTable, queues: Queues) -> QueueMapping:
    """Return queues with steps 2 and 3 applied."""
    return timed_mapping(workload, costs, queues, Staying(bound_weights(costs, queues), fused=True))


def moved_next_to_neighbours(
    workload: Workload, costs: CostTable, mapped: QueueMapping, sweeps: int = 1000
) -> QueueMapping:
    """Move layers behind a predecessor or before a successor as long as the whole gets shorter."""
    order, readers = kahn_order(workload), workload.readers()
    best = mapped
    for _ in range(sweeps):
        before = best.time
        for i in order:
            for neighbour, behind in [
                *[(j, True) for j in workload.layers[i].after],
                *[(j, False) for j in readers[i]],
            ]:
                queues = moved(workload, best.queues, i, neighbour, behind=behind)
                if queues is not None:
                    trial = kept_and_fused(workload, costs, queues)
                    if trial.time < best.time - GAIN:
                        best = trial
        if best.time >= before:
            break
    return best


def moved(workload: Workload, queues: Queues, layer: int, neighbour: int, *, behind: bool) -> Queues | None:
    """Return the queues with a layer right behind or before a neighbour's place; None if it is there or cannot run there."""
    if workload.layers[layer].kind != workload.layers[neighbour].kind:
        return None
    target = next(a for a, queue in enumerate(queues) if neighbour in queue)
    if layer in queues[target]:
        return None
    changed = [tuple(i for i in queue if i != layer) for queue in queues]
    at = changed[target].index(neighbour) + behind
    changed[target] = (*changed[target][:at], layer, *changed[target][at:])
    return tuple(changed)


def kahn_order(workload: Workload) -> list[int]:
    """Return the layers in topological order, first in, first out."""
    readers, missing = workload.readers(), [len(layer.after) for layer in workload.layers]
    ready = [i for i, count in enumerate(missing) if not count]
    for i in ready:
        for j in readers[i]:
            missing[j] -= 1
            if not missing[j]:
                ready.append(j)
    return ready


class FourSteps(NamedTuple):
    """What H2H has after each of its steps."""

    computation: QueueMapping
    weights: QueueMapping
    fusion: QueueMapping
    moves: QueueMapping


def four_steps(workload: Workload, costs: CostTable) -> FourSteps:
    """Return what H2H has after each of its steps, the last one repeated until no move helps."""
    first = computation_first(workload, costs)
    second = with_weights(workload, costs, first)
    third = with_fusion(workload, costs, second)
    return FourSteps(first, second, third, moved_next_to_neighbours(workload, costs, third))
