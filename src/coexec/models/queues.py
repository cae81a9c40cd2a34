"""Unsharded mappings: one queue of layers per accelerator, when each layer runs, and a checker that trusts nobody.

Before: models/loops.py, models/h2h_costs.py.  After: models/h2h.py, models/unsharded.py.  Knows no search.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import inf, isclose
from typing import NamedTuple

from ..errors import InvariantError
from .h2h_costs import CostTable
from .loops import Workload

Queues = tuple[tuple[int, ...], ...]  # per accelerator: layers in the order in which they run


class QueueTimes(NamedTuple):
    """When each layer runs, in seconds. `time` is infinite if the queues wait for each other in a circle."""

    time: float
    start: tuple[float, ...]
    end: tuple[float, ...]


class Staying(NamedTuple):
    """Which layers' weights stay in their accelerator's memory, and whether neighbours hand results over there."""

    bound: frozenset[int] = frozenset()
    fused: bool = False


def fused_with_next(workload: Workload, queues: Queues) -> list[tuple[int, int]]:
    """Return pairs of layers, one behind the other in a queue, of which the second is the next layer of the same branch."""
    following = next_in_branch(workload)
    return [(one, other) for queue in queues for one, other in itertools.pairwise(queue) if following[one] == other]


def next_in_branch(workload: Workload) -> list[int]:
    """Return the next layer of each layer's branch, or -1."""
    found = [-1] * len(workload.layers)
    last: dict[int, int] = {}
    for i, layer in enumerate(workload.layers):
        if layer.branch in last:
            found[last[layer.branch]] = i
        last[layer.branch] = i
    return found


def durations(workload: Workload, costs: CostTable, queues: Queues, kept: Staying) -> list[float]:
    """Return the seconds of each layer where it runs, with what it moves over the link to the host."""
    skip_in, skip_out = set(), set()
    if kept.fused:
        for one, other in fused_with_next(workload, queues):
            skip_out.add(one)
            skip_in.add(other)
    seconds = [0.0] * len(workload.layers)
    for accelerator, queue in enumerate(queues):
        for i in queue:
            time = costs.compute[i, accelerator]
            time += 0.0 if i in kept.bound else costs.weights[i]
            time += costs.rest[i] if i in skip_in else costs.input[i]
            time += 0.0 if i in skip_out else costs.output[i]
            seconds[i] = float(time)
    return seconds


def replay(workload: Workload, queues: Queues, seconds: Sequence[float]) -> QueueTimes:
    """Run every queue in order: a layer begins when its accelerator is free and all layers that it reads are over."""
    count = len(workload.layers)
    start, end = [inf] * count, [inf] * count
    heads, ready = [0] * len(queues), [0.0] * len(queues)
    over = [False] * count
    moved = True
    while moved:
        moved = False
        for accelerator, queue in enumerate(queues):
            while heads[accelerator] < len(queue):
                i = queue[heads[accelerator]]
                if not all(over[j] for j in workload.layers[i].after):
                    break
                start[i] = max([ready[accelerator], *[end[j] for j in workload.layers[i].after]])
                end[i] = ready[accelerator] = start[i] + seconds[i]
                over[i] = moved = True
                heads[accelerator] += 1
    return QueueTimes(max(end, default=0.0), tuple(start), tuple(end))


def check_queues(workload: Workload, costs: CostTable, queues: Queues, kept: Staying, timed: QueueTimes) -> None:
    """Raise InvariantError unless the times are possible: every dependency, one layer at a time, durations, memory."""
    placed = sorted(i for queue in queues for i in queue)
    if placed != list(range(len(workload.layers))):
        raise InvariantError(f"each layer of {workload.name} must be in one queue, once")
    seconds = durations(workload, costs, queues, kept)
    for i, layer in enumerate(workload.layers):
        if not isclose(timed.end[i] - timed.start[i], seconds[i], rel_tol=1e-9, abs_tol=1e-12):
            raise InvariantError(f"{layer.name} takes {seconds[i]} s, not {timed.end[i] - timed.start[i]} s")
        for j in layer.after:
            if timed.start[i] < timed.end[j] - 1e-12:
                raise InvariantError(f"{layer.name} begins before {workload.layers[j].name} is over, which it reads")
    for accelerator, queue in enumerate(queues):
        name = costs.names[accelerator]
        for one, other in itertools.pairwise(queue):
            if timed.start[other] < timed.end[one] - 1e-12:
                raise InvariantError(f"{name} runs layers {one} and {other} at once")
        if sum(costs.stored[i] for i in queue if i in kept.bound) > costs.holds[accelerator]:
            raise InvariantError(f"the weights kept on {name} are more than it holds")
    if not isclose(timed.time, max(timed.end), rel_tol=1e-12):
        raise InvariantError(f"the last layer is over at {max(timed.end)} s, not at {timed.time} s")


def joules(costs: CostTable, queues: Queues, seconds: Sequence[float]) -> float:
    """Return the energy of accelerators while they work on their layers, as H2H counts it: without idle power."""
    return sum(costs.watts[a] * sum(seconds[i] for i in queue) for a, queue in enumerate(queues))
