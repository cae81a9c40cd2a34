"""What every sharding of a layer costs on a set of accelerators, and what it costs to come to it from the layer before.

Before: models/sharding.py, models/fabric.py.  After: models/shortest.py, models/genetic.py.  All in arrays.

Between two layers every value that is alive lies as the layer before left its output. What the next layer reads is moved to
where that needs it; what is needed later, to how that leaves its own output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .engines import Accounts, nest
from .fabric import Fabric, LinkWay, Members
from .loops import Alive, WorkLayer, Workload
from .sharding import INPUT, OUTPUT, Placed, Sharding, placed, right_operand, shardings, volumes

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


class Rules(NamedTuple):
    """What a search may do."""

    rotate: bool = True  # shared shards
    overlap: bool = True  # rings run while parts are computed
    single: bool = False  # only one dimension of a layer is cut


USUAL = Rules()


class LayerTable(NamedTuple):
    """The shardings of one layer that are worth a look, and of each: seconds, bytes, and how its values lie."""

    shardings: tuple[Sharding, ...]
    seconds: Floats
    weights: Floats  # bytes that one accelerator keeps
    activations: Floats  # bytes of input and output at once
    order: Ints  # its shardings by how their output lies
    begins: Ints  # where in that order each placement of the output begins
    left: Ints  # number of the placement of its input, in `inputs`
    right: Ints
    out: Ints
    inputs: tuple[Placed, ...]
    rights: tuple[Placed, ...]
    outputs: tuple[Placed, ...]


class BytePrice(NamedTuple):
    """What a byte costs, in the unit of the search: of stored weights, and of inputs and outputs of layers."""

    weights: float = 0.0
    activations: float = 0.0

    def of(self, table: LayerTable) -> Floats:
        """Return what the bytes of each sharding cost."""
        return self.weights * table.weights + self.activations * table.activations


FREE = BytePrice()


class SetClass(NamedTuple):
    """All that a layer's cost depends on, of a set with a design: sets that agree share their tables."""

    parts: int
    ring: LinkWay
    kinds: tuple[int, ...]  # classes that are present
    design: str


def layer_seconds(
    sharding_volumes: Sequence[Any], compute: Floats, ring: LinkWay, element: int, *, overlap: bool
) -> Floats:
    """Return seconds of shardings from the seconds of one phase: rings, sums and halos over the set's ring."""
    columns = {name: np.array([getattr(v, name) for v in sharding_volumes], float)
               for name in ("phases", "ring", "reduced", "halo", "steps", "sum_group")}  # fmt: skip
    per = element * ring.per_byte
    more = columns["phases"] - 1
    turn = np.where(more > 0, columns["ring"] * per + ring.latency, 0.0)
    later = np.maximum(compute, turn) if overlap else compute + turn
    phases = compute + np.multiply(more, later, out=np.zeros_like(later), where=more > 0)
    sums = columns["reduced"] * per + 2 * (columns["sum_group"] - 1) * ring.latency
    halo = columns["halo"] * per + np.where(columns["halo"] > 0, ring.latency, 0.0)
    total: Floats = phases + sums + columns["steps"] * halo
    return total


def spans(shape: Sequence[int], placements: Sequence[Placed]) -> tuple[Ints, Ints]:
    """Return where each accelerator's part begins and ends: placement, accelerator, axis."""
    at = np.array([p.at for p in placements], dtype=np.int64)
    factors = np.array([p.factors for p in placements], dtype=np.int64)[:, None, :]
    size = np.array(shape, dtype=np.int64)
    begin: Ints = at * size // factors
    end: Ints = (at + 1) * size // factors
    return begin, end


def received(shape: Sequence[int], have: Sequence[Placed], need: Sequence[Placed]) -> Floats:
    """Return the elements that the busiest accelerator must be sent, from each placement to each other."""
    begin, end = spans(shape, have)
    first, last = spans(shape, need)
    shared = np.minimum(end[:, None], last[None]) - np.maximum(begin[:, None], first[None])
    kept = np.prod(np.maximum(shared, 0), axis=3)
    wanted = np.prod(last - first, axis=2)
    most: Floats = (wanted[None] - kept).max(axis=2).astype(float)
    return most


@dataclass(frozen=True)
class ChainCosts:
    """Costs of a workload on a fabric, worked out when they are asked for and then kept."""

    workload: Workload
    fabric: Fabric
    rules: Rules = USUAL

    @cached_property
    def element(self) -> int:
        """Bytes of an element."""
        return self.fabric.element()

    @cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    def set_class(self, members: Members, design: str) -> SetClass:
        """Return what the costs of a set with a design depend on."""
        key = ("class", members, design)
        if key not in self._known:
            speeds = {self._speed(c) for c, n in enumerate(members) if n}
            self._known[key] = SetClass(sum(members), self.fabric.ring(members), tuple(sorted(speeds)), design)
        found: SetClass = self._known[key]
        return found

    def _speed(self, c: int) -> int:
        """Return the first class whose accelerators compute as those of class `c` do."""
        accelerators = self.fabric.accelerators
        mine = accelerators[self.fabric.classes[c][0]]
        for other, group in enumerate(self.fabric.classes):
            its = accelerators[group[0]]
            if (mine.clock, [(d.name, d.figures) for d in mine.designs]) == (
                its.clock,
                [(d.name, d.figures) for d in its.designs],
            ):
                return other
        return c

    def _layer_key(self, index: int) -> Any:
        layer = self.workload.layers[index]
        return layer.kind, layer.loops, layer.stride, layer.groups, layer.inputs, layer.stored, layer.steps

    def table(self, index: int, members: Members, design: str) -> LayerTable:
        """Return the shardings of a layer on a set."""
        key = ("table", self._layer_key(index), self.set_class(members, design))
        if key not in self._known:
            self._known[key] = self._table(self.workload.layers[index], members, design)
        found: LayerTable = self._known[key]
        return found

    def _table(self, layer: WorkLayer, members: Members, design: str) -> LayerTable:
        ways = shardings(layer, sum(members), rotate=self.rules.rotate)
        if self.rules.single:
            ways = [way for way in ways if sum(n > 1 for n in way.factors) <= 1] or ways
        found = [volumes(layer, way) for way in ways]
        loops = nest(*np.array([v.nest for v in found], float).T)
        compute = self.fabric.seconds(members, design, loops, Accounts(layer.stride, layer.groups, layer.kind))
        compute = np.broadcast_to(compute, (len(ways),)) * layer.steps
        seconds = layer_seconds(found, compute, self.fabric.ring(members), self.element, overlap=self.rules.overlap)
        weights = np.array([v.weights for v in found], float) * self.element
        activations = np.array([v.input + v.output for v in found], float) * self.element
        lies = [(placed(layer, w, INPUT), right_operand(layer, w), placed(layer, w, OUTPUT)) for w in ways]
        keep = worth_a_look(lies, seconds, weights)
        columns = [numbered([lies[k][column] for k in keep]) for column in range(3)]
        order = np.argsort(columns[2][0], kind="stable")
        begins = np.searchsorted(columns[2][0][order], np.arange(len(columns[2][1])))
        return LayerTable(
            tuple(ways[k] for k in keep), seconds[keep], weights[keep], activations[keep], order, begins,
            columns[0][0], columns[1][0], columns[2][0], columns[0][1], columns[1][1], columns[2][1],
        )  # fmt: skip

    def seconds_of(self, elements: Floats, members: Members) -> Floats:
        """Return the time of moving values within a set, from the elements that the busiest accelerator is sent."""
        ring = self.fabric.ring(members)
        return elements * (self.element * ring.per_byte) + np.where(
            elements > 0, (sum(members) - 1) * ring.latency, 0.0
        )

    def stay(self, index: int, members: Members, design: str) -> Floats:
        """Return the seconds of a layer and of moving what it needs: how values lay before, its sharding."""
        alive = self.workload.alive[index]
        key = ("stay", self._layer_key(index), self._layer_key(index - 1), alive, self.set_class(members, design))
        if key not in self._known:
            before = self.table(index - 1, members, design).outputs
            self._known[key] = self._stay(alive, before, self.table(index, members, design), members)
        found: Floats = self._known[key]
        return found

    def _stay(self, alive: Sequence[Alive], before: Sequence[Placed], table: LayerTable, members: Members) -> Floats:
        cost = np.broadcast_to(table.seconds, (len(before), len(table.shardings))).copy()
        for value in alive:
            if value.left:
                cost += self._move(value, before, table.inputs, members)[:, table.left]
            if value.right:
                cost += self._move(value, before, table.rights, members)[:, table.right]
            if value.later:
                direct = self._move(value, before, table.outputs, members)[:, table.out]
                cost += np.minimum(direct, self._later(value, table, members)[None, :])
        return cost

    def _later(self, value: Alive, table: LayerTable, members: Members) -> Floats:
        """Return what it costs to bring a value from where the layer read it to where it must be later; infinite if it did not."""
        found = np.full(len(table.shardings), np.inf)
        if value.left:
            found = self._move(value, table.inputs, table.outputs, members)[table.left, table.out]
        if value.right:
            found = np.minimum(found, self._move(value, table.rights, table.outputs, members)[table.right, table.out])
        return found

    def _move(self, value: Alive, have: Sequence[Placed], need: Sequence[Placed], members: Members) -> Floats:
        key = ("move", value.shape, tuple(have), tuple(need))
        if key not in self._known:
            self._known[key] = received(value.shape, have, need)
        return self.seconds_of(self._known[key], members)

    def arrive(self, index: int, members: Members, design: str) -> Floats:
        """Return the seconds of a layer on a set that everything alive has just come to, without the way there.

        Values come cut among all accelerators; where copies are needed, a ring makes them.
        """
        alive = self.workload.alive[index]
        key = ("arrive", self._layer_key(index), alive, self.set_class(members, design))
        if key not in self._known:
            self._known[key] = self._arrive(alive, self.table(index, members, design), members)
        found: Floats = self._known[key]
        return found

    def _arrive(self, alive: Sequence[Alive], table: LayerTable, members: Members) -> Floats:
        cost = table.seconds.copy()
        for value in alive:
            read = np.zeros(len(table.shardings))
            if value.left:
                read += self._spread(value, table.inputs, members)[table.left]
            if value.right:
                read += self._spread(value, table.rights, members)[table.right]
            cost += read
            if value.later:
                alone = self._spread(value, table.outputs, members)[table.out]
                cost += np.minimum(alone, self._later(value, table, members))
        return cost

    def _spread(self, value: Alive, need: Sequence[Placed], members: Members) -> Floats:
        begin, end = spans(value.shape, need)
        boxes = np.prod(end - begin, axis=2).max(axis=1)
        copies = np.array([p.copies for p in need], float)
        return self.seconds_of(boxes * (copies - 1) / copies, members)

    def way(self, index: int, link: LinkWay) -> float:
        """Return the seconds in which everything alive before a layer travels over a link."""
        return sum(v.elements * self.element * link.per_byte + link.latency for v in self.workload.alive[index])


def by_output(table: LayerTable, cost: Floats) -> tuple[Floats, Ints]:
    """Return for each row of costs by sharding the least for each placement of the output, and the sharding that has it."""
    ordered = cost[:, table.order]
    least = np.minimum.reduceat(ordered, table.begins, axis=1)
    lengths = np.diff(np.append(table.begins, len(table.order)))
    first = np.where(ordered == np.repeat(least, lengths, axis=1), np.arange(len(table.order)), len(table.order))
    return least, table.order[np.minimum.reduceat(first, table.begins, axis=1)]


def worth_a_look(lies: Sequence[tuple[Placed, ...]], seconds: Floats, weights: Floats) -> list[int]:
    """Return which shardings are not beaten in seconds and bytes by another one with the same placements."""
    groups: dict[tuple[Placed, ...], list[int]] = {}
    for k in sorted(range(len(lies)), key=lambda k: (seconds[k], weights[k], k)):
        group = groups.setdefault(lies[k], [])
        if not group or weights[k] < weights[group[-1]]:
            group.append(k)
    return sorted(k for group in groups.values() for k in group)


def numbered(placements: Sequence[Placed]) -> tuple[Ints, tuple[Placed, ...]]:
    """Return each placement's number among the different ones, and those."""
    known: dict[Placed, int] = {}
    numbers = [known.setdefault(p, len(known)) for p in placements]
    return np.array(numbers, dtype=np.int64), tuple(known)
