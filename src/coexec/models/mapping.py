"""A mapping of a chain of layers: sets of accelerators one after the other, each with a design, layers and shardings.

Before: models/sharding.py, models/fabric.py.  After: every search.  `evaluate` prices a mapping without any table.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ..errors import DoesNotFit, InvariantError
from .engines import Accounts, nest
from .fabric import Fabric, LinkWay, Members
from .loops import Alive, WorkLayer, Workload
from .sharding import INPUT, OUTPUT, Placed, Sharding, Volumes, part, placed, right_operand, volumes
from .tables import Rules


class SetStage(NamedTuple):
    """A set of accelerators, its design, and the shardings of the layers from `first` on."""

    members: Members
    design: str
    first: int
    shardings: tuple[Sharding, ...]

    @property
    def end(self) -> int:
        """The first layer after it."""
        return self.first + len(self.shardings)


Mapping = tuple[SetStage, ...]


class LayerTime(NamedTuple):
    """Where the seconds of a layer go."""

    compute: float
    exchange: float  # rings that are not hidden, sums, halos
    moving: float  # values that come from the layer before


class Evaluation(NamedTuple):
    """What a mapping takes."""

    latency: float  # seconds of one input from the host to the result on the host
    period: float  # seconds between two results when inputs follow each other
    joules: float  # of one input alone
    layers: tuple[LayerTime, ...]
    stages: tuple[float, ...]  # seconds of each set, with what comes to it
    memory: tuple[float, ...]  # bytes that one accelerator of each set needs


def evaluate(workload: Workload, fabric: Fabric, mapping: Sequence[SetStage], rules: Rules | None = None) -> Evaluation:
    """Return what a mapping takes, part by part and accelerator by accelerator; raise InvariantError if it is none."""
    check_mapping(workload, fabric, mapping)
    pricing = _Pricing(workload, fabric, rules or Rules())
    layers: list[LayerTime] = []
    stages, memory = [], []
    for number, stage in enumerate(mapping):
        came = (
            fabric.to_host(stage.members) if not number else fabric.between(mapping[number - 1].members, stage.members)
        )
        times = pricing.stage(stage, came)
        if number == len(mapping) - 1:
            back = pricing.travel(len(workload.layers), fabric.to_host(stage.members))
            times[-1] = times[-1]._replace(moving=times[-1].moving + back)
        layers += times
        stages.append(sum(map(sum, times)))
        memory.append(pricing.memory(stage))
    latency = sum(stages)
    busy = sum(t * fabric.extra_power(s.members, s.design) for t, s in zip(stages, mapping, strict=True))
    joules = latency * fabric.idle_power() + busy
    return Evaluation(latency, max(stages), joules, tuple(layers), tuple(stages), tuple(memory))


def check_mapping(workload: Workload, fabric: Fabric, mapping: Sequence[SetStage]) -> None:
    """Raise InvariantError unless every layer is in one stage, in order, and no accelerator is in two sets."""
    at = 0
    for stage in mapping:
        if stage.first != at or not stage.shardings:
            raise InvariantError(f"a set begins with layer {stage.first} where layer {at} is next")
        at = stage.end
        if stage.design not in fabric.designs(stage.members):
            raise InvariantError(f"the set {stage.members} cannot have the design {stage.design!r}")
        if wrong := [s for s in stage.shardings if s.parts != sum(stage.members)]:
            raise InvariantError(f"{wrong[0]} has {wrong[0].parts} parts for {sum(stage.members)} accelerators")
    if at != len(workload.layers):
        raise InvariantError(f"the sets end with layer {at} of {len(workload.layers)}")
    for c, count in enumerate(fabric.all):
        if sum(stage.members[c] for stage in mapping) > count:
            raise InvariantError(f"the sets have more than the {count} accelerators of class {c}")


def overflow(workload: Workload, fabric: Fabric, mapping: Sequence[SetStage]) -> float:
    """Return by how much the fullest memory is too small, as a part of it; 0 if all fits."""
    pricing = _Pricing(workload, fabric, Rules())
    worst = 0.0
    for stage in mapping:
        has = fabric.memory(stage.members)
        worst = max(worst, pricing.memory(stage) / has - 1.0 if has > 0 else 0.0)
    return worst


def refuse_what_does_not_fit(workload: Workload, fabric: Fabric, stage: SetStage) -> None:
    """Raise DoesNotFit with the layer that needs most, if a set's memory is too small."""
    pricing = _Pricing(workload, fabric, Rules())
    needs, has = pricing.memory(stage), fabric.memory(stage.members)
    if needs <= has:
        return
    layers = range(stage.first, stage.end)
    heaviest = max(layers, key=lambda i: volumes(workload.layers[i], stage.shardings[i - stage.first]).weights)
    name = fabric.names(fabric.indices(stage.members))[0]
    raise DoesNotFit(
        f"layers {stage.first} to {stage.end - 1} of {workload.name}, of which {workload.layers[heaviest].name} is the largest,",
        name, int(needs), int(has), "shard the model over more accelerators",
    )  # fmt: skip


class _Pricing:
    """Prices layers one accelerator at a time."""

    def __init__(self, workload: Workload, fabric: Fabric, rules: Rules) -> None:
        self.workload, self.fabric, self.rules = workload, fabric, rules
        self.element = fabric.element()

    def stage(self, stage: SetStage, came: LinkWay) -> list[LayerTime]:
        times = []
        before: Placed | None = None
        for i, sharding in enumerate(stage.shardings, stage.first):
            layer, ring = self.workload.layers[i], self.fabric.ring(stage.members)
            compute, exchange = self.layer(layer, sharding, stage)
            needs = (placed(layer, sharding, INPUT), right_operand(layer, sharding), placed(layer, sharding, OUTPUT))
            alive = self.workload.alive[i]
            if before is None:
                moving = self.travel(i, came) + sum(self.spread(value, needs, ring) for value in alive)
            else:
                moving = sum(self.relay(value, before, needs, ring) for value in alive)
            times.append(LayerTime(compute, exchange, moving))
            before = needs[2]
        return times

    def travel(self, cut: int, link: LinkWay) -> float:
        """Return the seconds in which everything alive goes over a link."""
        return sum(v.elements * self.element * link.per_byte + link.latency for v in self.workload.alive[cut])

    def layer(self, layer: WorkLayer, sharding: Sharding, stage: SetStage) -> tuple[float, float]:
        """Return the seconds of computing, and those of exchanging that come on top."""
        found = volumes(layer, sharding)
        accounts = Accounts(layer.stride, layer.groups, layer.kind)
        seconds = self.fabric.seconds(stage.members, stage.design, nest(*found.nest), accounts)
        phase = float(seconds) * layer.steps
        ring = self.fabric.ring(stage.members)
        exchange = self._sums(found, ring) + self._halo(found, ring)
        if found.phases > 1:
            turn = found.ring * self.element * ring.per_byte + ring.latency
            exchange += (found.phases - 1) * (max(turn - phase, 0.0) if self.rules.overlap else turn)
        return phase * found.phases, exchange

    def _sums(self, found: Volumes, ring: LinkWay) -> float:
        return found.reduced * self.element * ring.per_byte + 2 * (found.sum_group - 1) * ring.latency

    def _halo(self, found: Volumes, ring: LinkWay) -> float:
        return found.steps * (found.halo * self.element * ring.per_byte + ring.latency) if found.halo else 0.0

    def relay(self, value: Alive, before: Placed, needs: tuple[Placed, Placed, Placed], ring: LinkWay) -> float:
        """Return the seconds of moving a value that lies as the layer before left it to where this one needs it."""
        left, right, out = needs
        seconds = 0.0
        if value.left:
            seconds += self.move(value, before, left, ring)
        if value.right:
            seconds += self.move(value, before, right, ring)
        if value.later:
            seconds += min([self.move(value, have, out, ring) for have in self.sources(value, before, needs)])
        return seconds

    def sources(self, value: Alive, before: Placed | None, needs: tuple[Placed, Placed, Placed]) -> list[Placed]:
        """Return how a value lies somewhere while the layer runs."""
        found = [] if before is None else [before]
        return found + [needs[0]] * value.left + [needs[1]] * value.right

    def spread(self, value: Alive, needs: tuple[Placed, Placed, Placed], ring: LinkWay) -> float:
        """Return the seconds of making copies of a value that has come to a set, cut among its accelerators."""
        left, right, out = needs
        seconds = self.copies(value, left, ring) if value.left else 0.0
        seconds += self.copies(value, right, ring) if value.right else 0.0
        if value.later:
            read = [self.move(value, have, out, ring) for have in self.sources(value, None, needs)]
            seconds += min([self.copies(value, out, ring), *read])
        return seconds

    def copies(self, value: Alive, need: Placed, ring: LinkWay) -> float:
        sizes = [prod(hi - lo for lo, hi in box(value, need, a)) for a in range(len(need.at))]
        elements = max(sizes) * (need.copies - 1) / need.copies
        return self.send(elements, len(need.at), ring)

    def move(self, value: Alive, have: Placed, need: Placed, ring: LinkWay) -> float:
        """Return the seconds until each accelerator has its box: what it does not have comes over the ring."""
        most = 0
        for a in range(len(need.at)):
            mine, wanted = box(value, have, a), box(value, need, a)
            kept = prod(max(0, min(h1, h2) - max(l1, l2)) for (l1, h1), (l2, h2) in zip(mine, wanted, strict=True))
            most = max(most, prod(hi - lo for lo, hi in wanted) - kept)
        return self.send(most, len(need.at), ring)

    def send(self, elements: float, parts: int, ring: LinkWay) -> float:
        return elements * self.element * ring.per_byte + (parts - 1) * ring.latency if elements > 0 else 0.0

    def memory(self, stage: SetStage) -> float:
        """Return the bytes that one accelerator needs: all its weights, and the largest input and output at once."""
        found = [volumes(self.workload.layers[i], s) for i, s in enumerate(stage.shardings, stage.first)]
        return self.element * (sum(v.weights for v in found) + max(v.input + v.output for v in found))


def box(value: Alive, lies: Placed, accelerator: int) -> list[tuple[int, int]]:
    """Return the part of a value that an accelerator has."""
    return [part(size, n, i) for size, n, i in zip(value.shape, lies.factors, lies.at[accelerator], strict=True)]
