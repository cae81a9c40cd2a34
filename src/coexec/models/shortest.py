"""The best mapping of a chain of layers, exactly: a shortest path over (layer, sets used, present set, design, placement).

Before: models/tables.py.  After: models/planning.py.  Knows costs that add up along the chain, and what they are weighed by.

While one set works, the others wait, so the latency of one input is a sum, and so is its energy. The class of mappings:
contiguous layers per set, one design per set, equal parts, one placement for all values alive between two layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, prod
from operator import add
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from .engines import Accounts, nest
from .fabric import Fabric, LinkWay, Members
from .mapping import Mapping, SetStage
from .sharding import Sharding
from .tables import FREE, BytePrice, ChainCosts, Floats, Ints, by_output

MOST_PAIRS = 4096
"""Pairs of used and present sets up to which sets may follow each other; beyond, one set does all layers."""

Weigh = Callable[[Members, str], float]
"""What a second of a set with a design counts."""
LEAST = 1e-30
"""What a second counts at least: none that never ends may be free."""
Key = tuple[int, str]  # number of the present set, its design
WayKey = tuple[int, float]  # number of the set that is come to, what its seconds count


class Shortest(NamedTuple):
    """A mapping and the weighed seconds that it takes."""

    mapping: Mapping
    cost: float


class PathStep(NamedTuple):
    """How each state of a set with a design was reached: by what is used, and how the layer's output lies.

    `before` is the placement before; -1 where the set is new.
    """

    chosen: Ints
    before: Ints


class WaysIn(NamedTuple):
    """The best way to come to a set, by what is used then: weighed seconds, and from where; set -1 = from the host."""

    cost: Floats
    source: Ints  # set
    design: Ints
    placement: Ints


def by_time(members: Members, design: str) -> float:
    """Weigh every second alike."""
    del members, design
    return 1.0


class ChainSearch:
    """The shortest path, layer by layer; all that differ only in what is used before are one row of an array."""

    def __init__(
        self, costs: ChainCosts, weigh: Weigh = by_time, price: BytePrice = FREE, sets: Sequence[Members] = ()
    ) -> None:
        self.costs, self.fabric, self.price = costs, costs.fabric, price
        self.sets = list(sets) or candidate_sets(self.fabric)
        self.memory = [self.fabric.memory(members) for members in self.sets]
        self.designs = [self.fabric.designs(members) for members in self.sets]
        self.weights: dict[Key, float] = {
            (s, design): max(weigh(members, design), LEAST)
            for s, members in enumerate(self.sets)
            for design in self.designs[s]
        }
        self.follow = may_follow(self.fabric)
        used = [(0,) * len(self.fabric.all), *(self.fabric.sets() if self.follow else self.sets)]
        number = {members: i for i, members in enumerate(used)}
        self.used = used
        # joined[s][u]: the number of what is used when set s joins u, or -1
        self.joined = [[number.get(tuple(map(add, u, s)), -1) for u in used] for s in self.sets]
        self._links: dict[tuple[int, int], LinkWay] = {}
        self.steps: list[dict[Key, PathStep]] = []
        self.ways: list[dict[WayKey, WaysIn]] = []

    def run(self, stop: Callable[[], None] = lambda: None) -> Shortest:
        """Return the mapping with the least weighed time; raise PlanError if there is none. `stop` may raise."""
        count = len(self.costs.workload.layers)
        if not count:
            raise PlanError(f"{self.costs.workload.name} has no layer with sums, so there is nothing to map")
        states: dict[Key, Floats] = {}
        for index in range(count):
            stop()
            states = self._layer(index, states)
        best = inf
        end: tuple[Key, int] | None = None
        for (s, design), cost in states.items():
            back = self.costs.way(count, self.fabric.to_host(self.sets[s])) * self.weights[s, design]
            if cost.min() + back < best:
                best, end = float(cost.min() + back), ((s, design), int(cost.argmin()))
        if end is None:
            name, whole = self.fabric.name, self.costs.workload.name
            raise PlanError(
                f"no set of accelerators of {name!r} can do all of {whole} within its memory; take a platform with more, or other designs"
            )
        return Shortest(self._traced(end[0], *divmod(end[1], states[end[0]].shape[1])), best)

    def _layer(self, index: int, states: dict[Key, Floats]) -> dict[Key, Floats]:
        """Return the least cost of every state after a layer: by set and design, by what is used, by placement."""
        found: dict[Key, Floats] = {}
        self.steps.append({})
        self.ways.append(self._ways(index, states) if states else self._from_host())
        for s, members in enumerate(self.sets):
            for design in self.designs[s]:
                weight = self.weights[s, design]
                enter = self.costs.arrive(index, members, design) * weight
                cost = self.ways[index][s, weight].cost[:, None] + enter[None, :]
                before = np.full(cost.shape, -1)
                if (s, design) in states:
                    step = self.costs.stay(index, members, design) * weight
                    stay = states[s, design][:, :, None] + step[None]
                    least = stay.argmin(axis=1)
                    stayed = np.take_along_axis(stay, least[:, None, :], axis=1)[:, 0, :]
                    before = np.where(stayed <= cost, least, before)
                    cost = np.minimum(stayed, cost)
                found[s, design] = self._by_output(index, s, design, cost, before)
        return found

    def _by_output(self, index: int, s: int, design: str, cost: Floats, before: Ints) -> Floats:
        """Return the least cost by placement of the output, and note the sharding that has it."""
        table = self.costs.table(index, self.sets[s], design)
        fits = table.activations + table.weights <= self.memory[s]
        cost = np.where(fits, cost + self.price.of(table), inf)
        least, chosen = by_output(table, cost)
        self.steps[index][s, design] = PathStep(chosen, np.take_along_axis(before, chosen, axis=1))
        return least

    def _from_host(self) -> dict[WayKey, WaysIn]:
        found = {}
        for s, weight in self._targets():
            ways = found[s, weight] = self._no_way()
            ways.cost[self.joined[s][0]] = self.costs.way(0, self.fabric.to_host(self.sets[s])) * weight
        return found

    def _targets(self) -> Iterable[WayKey]:
        """Return the sets that can be come to; one more than once if its designs count unlike."""
        return dict.fromkeys((s, weight) for (s, _), weight in self.weights.items())

    def _no_way(self) -> WaysIn:
        count = len(self.used)
        return WaysIn(np.full(count, inf), *(np.full(count, -1) for _ in range(3)))

    def _ways(self, index: int, states: dict[Key, Floats]) -> dict[WayKey, WaysIn]:
        """Return the best way to every set of accelerators that are left, by what is used then."""
        if not self.follow:
            return {target: self._no_way() for target in self._targets()}
        ends = [self._ends(s, states) for s in range(len(self.sets))]
        travel: dict[LinkWay, float] = {}
        found = {}
        for s, weight in self._targets():
            ways, joined = self._no_way(), np.array(self.joined[s])
            free = np.flatnonzero(joined >= 0)
            target = joined[free]
            for other in range(len(self.sets)):
                link = self.between(other, s)
                if link not in travel:
                    travel[link] = self.costs.way(index, link)
                cost = ends[other].cost[free] + travel[link] * weight
                better = cost < ways.cost[target]
                to = target[better]
                ways.cost[to], ways.source[to] = cost[better], other
                ways.design[to] = ends[other].design[free][better]
                ways.placement[to] = ends[other].placement[free][better]
            found[s, weight] = ways
        return found

    def between(self, one: int, other: int) -> LinkWay:
        """Return the way from one set to another."""
        if (one, other) not in self._links:
            self._links[one, other] = self.fabric.between(self.sets[one], self.sets[other])
        return self._links[one, other]

    def _ends(self, s: int, states: dict[Key, Floats]) -> WaysIn:
        """Return the least cost of ending in a set, by what is used, over all designs and placements."""
        ends = self._no_way()
        for d, design in enumerate(self.designs[s]):
            cost = states[s, design]
            placement = cost.argmin(axis=1)
            least = cost[np.arange(len(cost)), placement]
            better = least < ends.cost
            ends.cost[better], ends.source[better] = least[better], s
            ends.design[better], ends.placement[better] = d, placement[better]
        return ends

    def _traced(self, key: Key, used: int, placement: int) -> Mapping:
        """Return the mapping that ends in a state, found backwards."""
        stages: list[SetStage] = []
        shardings: list[Sharding] = []
        for index in reversed(range(len(self.steps))):
            (s, design), step = key, self.steps[index][key]
            members = self.sets[s]
            shardings.append(self.costs.table(index, members, design).shardings[step.chosen[used, placement]])
            before = int(step.before[used, placement])
            if before >= 0:
                placement = before
                continue
            stages.append(SetStage(members, design, index, tuple(reversed(shardings))))
            shardings = []
            if index:
                ways = self.ways[index][s, self.weights[s, design]]
                source, placement = int(ways.source[used]), int(ways.placement[used])
                key = (source, self.designs[source][int(ways.design[used])])
                used = self.joined[s].index(used)
        return tuple(reversed(stages))


def may_follow(fabric: Fabric) -> bool:
    """Tell whether there are few enough sets to let them follow each other."""
    return prod(n + 1 for n in fabric.all) ** 2 <= MOST_PAIRS


def candidate_sets(fabric: Fabric) -> list[Members]:
    """Return the sets to look at: all of them, or of many unlike accelerators each alone and the fastest ones together."""
    if may_follow(fabric):
        return [members for members in fabric.sets() if fabric.designs(members)]
    one = nest(1, 64, 64, 14, 14, 3, 3)

    def speed(c: int) -> float:
        members = tuple(int(i == c) for i in range(len(fabric.all)))
        return min(float(fabric.seconds(members, design, one, Accounts())) for design in fabric.designs(members))

    order = sorted(range(len(fabric.all)), key=speed)
    found = [tuple(int(i == c) for i in range(len(fabric.all))) for c in order]
    found += [tuple(n if i in order[:k] else 0 for i, n in enumerate(fabric.all)) for k in range(1, len(order) + 1)]
    return [members for members in dict.fromkeys(found) if fabric.designs(members)]
