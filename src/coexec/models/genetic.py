"""The two-level genetic search of MARS, for comparison with the exact one and for what that cannot do.

Before: models/tables.py.  After: models/planning.py.  Deterministic for a seed; the best mapping never gets worse.

Level 1 evolves the sets, a score per design for each, and the cuts between their layers. Level 2, for each set and its
layers, evolves a number per loop dimension and layer: of all shardings that one is taken whose cuts the numbers favour most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .fabric import Members
from .mapping import Mapping, SetStage
from .sharding import CIN, COLUMNS, COUT, DIMS, ROWS, Sharding
from .shortest import candidate_sets
from .tables import ChainCosts, Floats, LayerTable

SIGMA = 0.15
"""Standard deviation of a mutation of a number between 0 and 1."""
TOURNAMENT = 3
PENALTY = 10.0
"""A mapping that needs more memory than there is costs so many times its overflow more."""


class GeneticEffort(NamedTuple):
    """How much to try: individuals and generations of both levels."""

    population: int = 12
    generations: int = 10
    inner_population: int = 16
    inner_generations: int = 12


USUAL = GeneticEffort()


@dataclass(frozen=True)
class Outline:
    """An individual of level 1."""

    sets: tuple[Members, ...]
    scores: Floats  # set, design
    cuts: Floats  # one less than sets, sorted, between 0 and 1


class InnerBest(NamedTuple):
    """What level 2 found for a set and its layers."""

    seconds: float
    bytes: float
    shardings: tuple[Sharding, ...]


@dataclass
class GeneticSearch:
    """Evolves mappings of a chain for latency. `history` is the best latency after each generation."""

    costs: ChainCosts
    seed: int = 0
    effort: GeneticEffort = USUAL
    evaluations: int = 0
    history: list[float] = field(default_factory=list)
    best: Mapping = ()
    best_cost: float = inf
    _inner: dict[Any, InnerBest] = field(default_factory=dict)

    def run(self, stop: Callable[[], None] = lambda: None) -> Mapping:
        """Return the best mapping that fits; () if none does."""
        self.random = np.random.default_rng(self.seed)
        self.sets = candidate_sets(self.costs.fabric)
        self.names = sorted({d for members in self.sets for d in self.costs.fabric.designs(members)})
        present = [self.seeded(members) for members in self.sets]
        present += [self.outline() for _ in range(self.effort.population)]
        fitness = [self.fitness(one) for one in present]
        for _ in range(self.effort.generations):
            stop()
            order = np.argsort(fitness, kind="stable")[: self.effort.population]
            present, fitness = [present[i] for i in order], [fitness[i] for i in order]
            children = [self.child(present, fitness) for _ in range(self.effort.population)]
            present += children
            fitness += [self.fitness(child) for child in children]
            self.history.append(self.best_cost)
        return self.best

    # Level 1 ------------------------------------------------------------------------------------------------------------

    def seeded(self, members: Members) -> Outline:
        """Return one set for all layers, with scores from the computing time of each design."""
        found = self.costs.fabric.designs(members)
        layers = range(len(self.costs.workload.layers))
        times = {d: sum(float(self.costs.table(i, members, d).seconds.min()) for i in layers) for d in found}
        least = min(times.values())
        scores = [[least / times[name] if name in times else 0.0 for name in self.names]]
        return Outline((members,), np.array(scores), np.empty(0))

    def outline(self) -> Outline:
        """Return a random individual: random sets of accelerators that are left."""
        left = self.costs.fabric.all
        sets: list[Members] = []
        most = len(self.costs.workload.layers)
        while any(left) and len(sets) < most and (not sets or self.random.random() < 0.6):
            fitting = [m for m in self.sets if all(a <= b for a, b in zip(m, left, strict=True))]
            if not fitting:
                break
            sets.append(fitting[int(self.random.integers(len(fitting)))])
            left = tuple(a - b for a, b in zip(left, sets[-1], strict=True))
        cuts = np.sort(self.random.random(len(sets) - 1))
        return Outline(tuple(sets), self.random.random((len(sets), len(self.names))), cuts)

    def child(self, parents: list[Outline], fitness: list[float]) -> Outline:
        """Return a mixture of two individuals with the same number of sets, or one of them, changed a little."""
        one, other = (parents[self.chosen(fitness)] for _ in range(2))
        if self.random.random() < 0.2:
            return self.outline()
        scores, cuts = one.scores, one.cuts
        if len(one.sets) == len(other.sets):
            mask = self.random.random(scores.shape) < 0.5
            scores = np.where(mask, scores, other.scores)
            cuts = np.sort(np.where(self.random.random(cuts.shape) < 0.5, cuts, other.cuts))
        scores = np.clip(scores + self.random.normal(0, SIGMA, scores.shape), 0, 1)
        cuts = np.sort(np.clip(cuts + self.random.normal(0, SIGMA, cuts.shape), 0, 1))
        return Outline(one.sets, scores, cuts)

    def chosen(self, fitness: list[float]) -> int:
        """Return the best of a few individuals drawn at random."""
        drawn = self.random.integers(len(fitness), size=TOURNAMENT)
        return int(min(drawn, key=lambda i: (fitness[i], i)))

    def spans(self, outline: Outline) -> list[tuple[int, int]]:
        """Return the layers of each set; a set without layers is left out later."""
        count = len(self.costs.workload.layers)
        cuts = [0, *(round(c * count) for c in outline.cuts), count]
        return list(itertools.pairwise(cuts))

    def fitness(self, outline: Outline) -> float:
        """Return the latency of an individual, made worse by what does not fit; remember the best that fits."""
        fabric, stages, total, over = self.costs.fabric, [], 0.0, 0.0
        before: Members | None = None
        for members, scores, (first, end) in zip(outline.sets, outline.scores, self.spans(outline), strict=True):
            if first == end:
                continue
            allowed = fabric.designs(members)
            design = max(allowed, key=lambda name: scores[self.names.index(name)])
            link = fabric.to_host(members) if before is None else fabric.between(before, members)
            found = self.inner(first, end, members, design)
            total += found.seconds + self.costs.way(first, link)
            over = max(over, found.bytes / fabric.memory(members) - 1.0)
            stages.append(SetStage(members, design, first, found.shardings))
            before = members
        assert before is not None, "some set has layers"
        total += self.costs.way(len(self.costs.workload.layers), fabric.to_host(before))
        if over <= 0 and total < self.best_cost:
            self.best, self.best_cost = tuple(stages), total
        return total * (1 + PENALTY * over) if over > 0 else total

    # Level 2 ------------------------------------------------------------------------------------------------------------

    def inner(self, first: int, end: int, members: Members, design: str) -> InnerBest:
        """Return the best shardings found for layers on a set; sets that compute alike share the answer."""
        key = (first, end, self.costs.set_class(members, design), self.costs.fabric.memory(members))
        if key not in self._inner:
            self._inner[key] = self._evolve(first, end, members, design)
        return self._inner[key]

    def _evolve(self, first: int, end: int, members: Members, design: str) -> InnerBest:
        tables = [self.costs.table(i, members, design) for i in range(first, end)]
        favours = [favoured(table) for table in tables]
        size = (self.effort.inner_population, end - first, 2 * len(DIMS))
        genes = self.random.random(size)
        for dim in (COUT, CIN, ROWS, COLUMNS)[: len(genes)]:  # begin with one dimension cut in all layers
            genes[dim - COUT], genes[dim - COUT, :, dim] = 0.2, 0.9
        cost, chosen = self._price(genes, first, members, design, tables, favours)
        for _ in range(self.effort.inner_generations if sum(members) > 1 else 0):
            drawn = self.random.integers(len(genes), size=(2, len(genes), TOURNAMENT))
            winners = np.take_along_axis(drawn, cost[drawn].argmin(axis=2)[:, :, None], axis=2)[:, :, 0]
            layers = self.random.random((len(genes), end - first, 1)) < 0.5
            children = np.where(layers, genes[winners[0]], genes[winners[1]])
            changed = self.random.random(children.shape) < 0.2
            children = np.clip(children + changed * self.random.normal(0, SIGMA, children.shape), 0, 1)
            price, picked = self._price(children, first, members, design, tables, favours)
            genes, cost = np.concatenate([genes, children]), np.concatenate([cost, price])
            chosen = np.concatenate([chosen, picked])
            keep = np.argsort(cost, kind="stable")[: self.effort.inner_population]
            genes, cost, chosen = genes[keep], cost[keep], chosen[keep]
        best = chosen[int(cost.argmin())]
        seconds, stored = self._sum(best[None, :], first, members, design, tables)
        return InnerBest(
            float(seconds[0]), float(stored[0]), tuple(t.shardings[k] for t, k in zip(tables, best, strict=True))
        )

    def _price(
        self, genes: Floats, first: int, members: Members, design: str, tables: list[LayerTable], favours: list[Floats]
    ) -> tuple[Floats, np.ndarray[Any, Any]]:
        chosen = np.stack([(genes[:, i] @ favour.T).argmax(axis=1) for i, favour in enumerate(favours)], axis=1)
        self.evaluations += len(genes)
        seconds, stored = self._sum(chosen, first, members, design, tables)
        over = np.maximum(stored / self.costs.fabric.memory(members) - 1.0, 0.0)
        return seconds * (1 + PENALTY * over), chosen

    def _sum(
        self, chosen: np.ndarray[Any, Any], first: int, members: Members, design: str, tables: list[LayerTable]
    ) -> tuple[Floats, Floats]:
        """Return seconds and bytes of many choices of shardings for the same layers."""
        seconds = self.costs.arrive(first, members, design)[chosen[:, 0]]
        stored = tables[0].weights[chosen[:, 0]]
        most = tables[0].activations[chosen[:, 0]]
        for i in range(1, len(tables)):
            step = self.costs.stay(first + i, members, design)
            seconds = seconds + step[tables[i - 1].out[chosen[:, i - 1]], chosen[:, i]]
            stored = stored + tables[i].weights[chosen[:, i]]
            most = np.maximum(most, tables[i].activations[chosen[:, i]])
        return seconds, stored + most


def favoured(table: LayerTable) -> Floats:
    """Return how much each number of a layer's genes favours each sharding: its cuts, and what rotates."""
    found = np.zeros((len(table.shardings), 2 * len(DIMS)))
    for k, sharding in enumerate(table.shardings):
        found[k, : len(DIMS)] = np.sqrt(np.log2(sharding.factors))  # two cuts by 2 may win over one by 4
        if sharding.rotation is not None:
            found[k, len(DIMS) + sharding.rotation.dim] = 1.0
            found[k, : len(DIMS)] -= 0.5 / len(
                DIMS
            )  # a rotation pays if its number is above what the others are on average
    return found
