"""Search for unsharded mappings of multi-modal models: annealing over queues, from H2H's mapping and the relaxed one.

Before: models/h2h.py, models/unsharded_bound.py.  After: models/planning.py.  Deterministic for a seed and a number of trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product
from math import exp, inf, log

import numpy as np

from .h2h import QueueMapping, four_steps, kahn_order, kept_and_fused
from .h2h_costs import CostTable
from .loops import Workload
from .queues import Queues, next_in_branch

HOT, COLD = 0.02, 0.0002
"""Temperatures at the beginning and the end of an annealing, as parts of the best time so far."""
MEAN_RUN = 4
"""Layers of a branch that a move takes along, on average."""


def in_order(workload: Workload, places: Sequence[int], accelerators: int) -> Queues:
    """Return queues for given places: layers in the order in which their inputs come, branch after branch."""
    queues: list[list[int]] = [[] for _ in range(accelerators)]
    for i in kahn_order(workload):
        queues[places[i]].append(i)
    return tuple(map(tuple, queues))


def branch_by_branch(workload: Workload, places: Sequence[int], accelerators: int) -> Queues:
    """Return queues for given places in which layers of one branch stay together."""
    queues: list[list[int]] = [[] for _ in range(accelerators)]
    for i in range(len(workload.layers)):
        queues[places[i]].append(i)
    return tuple(map(tuple, queues))


class QueueSearch:
    """Anneals queues. `best` never gets worse; `trials` counts the mappings that were looked at."""

    def __init__(self, workload: Workload, costs: CostTable, seed: int = 0) -> None:
        self.workload, self.costs = workload, costs
        self.trials = 0
        self.best: QueueMapping | None = None
        self._random = np.random.default_rng(seed)
        self._following = next_in_branch(workload)
        self._able = [np.flatnonzero(np.isfinite(row)).tolist() for row in costs.compute]

    def look_at(self, queues: Queues) -> QueueMapping:
        """Return a mapping with its times, and remember it if it is the best."""
        found = kept_and_fused(self.workload, self.costs, queues)
        self.trials += 1
        if self.best is None or found.time < self.best.time:
            self.best = found
        return found

    def anneal(self, start: Queues, trials: int, stop: Callable[[], bool] | None = None) -> None:
        """Look at `trials` more mappings, beginning with `start`; `stop` ends it early."""
        present = self.look_at(start)
        for trial in range(trials):
            if stop is not None and trial % 64 == 0 and stop():
                return
            heat = HOT * (COLD / HOT) ** (trial / trials)
            found = self.look_at(self.neighbour(present.queues))
            worse = found.time - present.time
            if worse <= 0 or (worse < inf and self._random.random() < exp(-worse / (heat * present.time))):
                present = found

    def neighbour(self, queues: Queues) -> Queues:
        """Return queues with a run of one branch's layers moved to another place."""
        random, count = self._random, len(self.workload.layers)
        run = [int(random.integers(count))]
        length = 1 + int(log(1.0 - random.random()) / log(1.0 - 1.0 / MEAN_RUN))
        while len(run) < length and self._following[run[-1]] >= 0:
            run.append(self._following[run[-1]])
        able = [a for a in self._able[run[0]] if all(a in self._able[i] for i in run)] or self._able[run[0]]
        if not all(able[0] in self._able[i] for i in run):
            run = run[:1]
        target = able[int(random.integers(len(able)))]
        taken = set(run)
        changed = [
            tuple(i for i in queue if i not in taken) if taken.intersection(queue) else queue for queue in queues
        ]
        at = self._position(changed[target], run)
        changed[target] = (*changed[target][:at], *run, *changed[target][at:])
        return tuple(changed)

    def _position(self, queue: tuple[int, ...], run: Sequence[int]) -> int:
        """Return where in a queue to insert a run: behind what it continues, before what continues it, or anywhere."""
        before = [i for i, j in enumerate(self._following) if j == run[0]]
        if before and before[0] in queue and self._random.random() < 0.8:
            return queue.index(before[0]) + 1
        after = self._following[run[-1]]
        if after in queue and self._random.random() < 0.8:
            return queue.index(after)
        return int(self._random.integers(len(queue) + 1))


def search_queues(
    workload: Workload, costs: CostTable, places: Sequence[int] | None = None, trials: int = 20_000, seed: int = 0,
    stop: Callable[[], bool] | None = None,
) -> tuple[QueueMapping, int]:  # fmt: skip
    """Return the best mapping found and how many were looked at. `places` is the relaxed mapping, if it is known."""
    search = QueueSearch(workload, costs, seed)
    accelerators = len(costs.names)
    seeds = [mapped.queues for mapped in four_steps(workload, costs)]
    if places is not None:
        seeds += [branch_by_branch(workload, places, accelerators), in_order(workload, places, accelerators)]
    found = sorted((search.look_at(queues) for queues in dict.fromkeys(seeds)), key=lambda mapped: mapped.time)
    good = [mapped for mapped in found if mapped.time < inf][:3]
    for mapped in good:
        search.anneal(mapped.queues, trials // len(good), stop)
    assert search.best is not None, "seeds were looked at"
    return search.best, search.trials


# Every mapping, for small cases -----------------------------------------------------------------------------------------------


def every_mapping(workload: Workload, accelerators: int) -> Iterator[Queues]:
    """Yield every way to distribute layers over queues, in every order: for tests with a few layers."""
    count = len(workload.layers)
    for places in product(range(accelerators), repeat=count):
        groups = [[i for i in range(count) if places[i] == a] for a in range(accelerators)]
        yield from product(*(permutations(group) for group in groups))


def random_mapping(workload: Workload, costs: CostTable, random: np.random.Generator) -> Queues:
    """Return a random mapping that can run: random places, layers in a random order of their dependencies."""
    layers, order, left = workload.layers, [], set(range(len(workload.layers)))
    while left:
        free = [i for i in sorted(left) if not left.intersection(layers[i].after)]
        order.append(free[int(random.integers(len(free)))])
        left.discard(order[-1])
    queues: list[list[int]] = [[] for _ in costs.names]
    for i in order:
        queues[int(random.choice(np.flatnonzero(np.isfinite(costs.compute[i]))))].append(i)
    return tuple(map(tuple, queues))
