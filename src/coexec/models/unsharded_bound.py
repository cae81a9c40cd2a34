"""A lower bound for unsharded mappings of models whose branches join once, as a mixed-integer program for HiGHS.

Before: models/queues.py, plan/division/milp.py.  After: models/unsharded.py.  Knows numbers only.

All layers before the join are over before it begins, so the time is at least that of the head plus that of the tail. The
head takes at least as long as the work of each accelerator and as each branch; the tail, a chain, as the sum of its layers.
A layer saves its transfers only if its neighbour is on the same accelerator; waiting and order are ignored.
"""

from __future__ import annotations

import itertools
from math import inf
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from .h2h_costs import CostTable
from .loops import Workload
from .queues import next_in_branch


class HeadTail(NamedTuple):
    """The layers before the join, and the chain from the join on."""

    head: tuple[int, ...]
    tail: tuple[int, ...]


class Relaxed(NamedTuple):
    """What HiGHS found: no mapping is faster than `bound` seconds; `places` is the accelerator of each layer."""

    bound: float
    places: tuple[int, ...]


def head_and_tail(workload: Workload) -> HeadTail:
    """Return where the branches join; raise PlanError if what comes after is no chain that needs everything before."""
    count = len(workload.layers)
    ancestors: list[set[int]] = []
    for layer in workload.layers:
        ancestors.append(set(layer.after).union(*(ancestors[j] for j in layer.after)))
    first = count - 1
    while first > 0 and workload.layers[first].after == (first - 1,):
        first -= 1
    while first < count and len(ancestors[first]) < first:
        first += 1
    if first == count:
        raise PlanError(
            f"the branches of {workload.name} do not join in one chain, for which alone there is this bound"
        )
    return HeadTail(tuple(range(first)), tuple(range(first, count)))


def relaxed(workload: Workload, costs: CostTable, seconds: float = 30.0) -> Relaxed:
    """Return the bound and the mapping that attains it if nobody ever waits; within `seconds` of search."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    program = _Rows(workload, costs)
    objective = np.zeros(program.variables)
    objective[[program.head, program.tail]] = 1.0
    rows, columns, values, lower, upper = program.table()
    matrix = csr_matrix((values, (rows, columns)), shape=(len(lower), program.variables))
    whole = np.zeros(program.variables)
    whole[: program.places] = 1
    limits = np.full(program.variables, inf)
    limits[: program.head] = 1.0
    limits[program.forbidden] = 0.0
    found = milp(
        objective, constraints=LinearConstraint(matrix, lower, upper), integrality=whole, bounds=Bounds(0.0, limits),
        options={"time_limit": seconds, "mip_rel_gap": 1e-6},
    )  # fmt: skip
    if found.x is None:
        raise PlanError(f"HiGHS found no mapping of {workload.name} within {seconds:g} s: {found.message}")
    chosen = found.x[: program.places].reshape(len(workload.layers), -1)
    bound = found.mip_dual_bound if found.mip_dual_bound is not None else found.fun
    return Relaxed(float(bound), tuple(int(a) for a in chosen.argmax(axis=1)))


class _Rows:
    """Variables: layer on accelerator; layer and the next of its branch both on it; seconds of head and tail."""

    def __init__(self, workload: Workload, costs: CostTable) -> None:
        self.workload, self.costs = workload, costs
        self.following = next_in_branch(workload)
        layers, accelerators = costs.compute.shape
        self.places = layers * accelerators
        self.head, self.tail = 2 * self.places, 2 * self.places + 1
        self.variables = 2 * self.places + 2
        impossible = np.flatnonzero(~np.isfinite(costs.compute).ravel())
        self.forbidden = np.concatenate([impossible, impossible + self.places])
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def place(self, layer: int, accelerator: int) -> int:
        return layer * self.costs.compute.shape[1] + accelerator

    def both(self, layer: int, accelerator: int) -> int:
        return self.places + self.place(layer, accelerator)

    def work(self, layers: tuple[int, ...], accelerator: int) -> dict[int, float]:
        """Return the seconds that some layers take on an accelerator, as a sum of variables."""
        terms: dict[int, float] = {}
        before = {j: i for i, j in enumerate(self.following) if j >= 0}
        for i in layers:
            if not np.isfinite(self.costs.compute[i, accelerator]):
                continue
            moved = self.costs.input[i] + self.costs.output[i]
            terms[self.place(i, accelerator)] = float(self.costs.compute[i, accelerator] + moved)
            if self.following[i] >= 0:
                both = self.both(i, accelerator)
                terms[both] = terms.get(both, 0.0) - float(self.costs.output[i])
            if i in before:
                both = self.both(before[i], accelerator)
                terms[both] = terms.get(both, 0.0) - float(self.costs.input[i] - self.costs.rest[i])
        return terms

    def at_most(self, terms: dict[int, float], variable: int) -> None:
        self.rows.append(({**{k: -v for k, v in terms.items()}, variable: 1.0}, 0.0, inf))

    def table(self) -> tuple[list[int], list[int], list[float], list[float], list[float]]:
        """Return all rows as coordinates, values and limits."""
        split, accelerators = head_and_tail(self.workload), range(self.costs.compute.shape[1])
        for i in range(len(self.workload.layers)):
            self.rows.append(({self.place(i, a): 1.0 for a in accelerators}, 1.0, 1.0))
            for a in accelerators:
                self.rows.append(({self.place(i, a): 1.0, self.both(i, a): -1.0}, 0.0, inf))
                if self.following[i] >= 0:
                    self.rows.append(({self.place(self.following[i], a): 1.0, self.both(i, a): -1.0}, 0.0, inf))
        for a in accelerators:
            self.at_most(self.work(split.head, a), self.head)
        for chain in self.branches(split.head):
            self.at_most(self.everywhere(chain), self.head)
        self.at_most(self.everywhere(split.tail), self.tail)
        cells = [(r, c, v) for r, (terms, _, _) in enumerate(self.rows) for c, v in terms.items()]
        rows, columns, values = (list(column) for column in zip(*cells, strict=True))
        return rows, columns, values, [row[1] for row in self.rows], [row[2] for row in self.rows]

    def everywhere(self, layers: tuple[int, ...]) -> dict[int, float]:
        """Return the seconds that some layers take one after the other, wherever they are."""
        terms: dict[int, float] = {}
        for a in range(self.costs.compute.shape[1]):
            terms.update(self.work(layers, a))
        return terms

    def branches(self, head: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the branches of the head in which each layer waits for the one before it."""
        found: dict[int, list[int]] = {}
        for i in head:
            found.setdefault(self.workload.layers[i].branch, []).append(i)
        return [
            tuple(b)
            for b in found.values()
            if all(o in self.workload.layers[n].after for o, n in itertools.pairwise(b))
        ]
