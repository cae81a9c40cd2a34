"""Plans for the devices here: each layer whole on one device, or cut along one dimension among several, as it was timed.

Before: models/layer_times.py, models/fabric.py, models/uneven.py.  After: models/model.py.  Knows seconds, no clock.

A layer that is cut makes as many parts as there are devices, and each costs a call. So small layers stay whole, and a model
of small layers stays on one device. The choice is a shortest path over layers; what is chosen then runs beside the best
device alone, and what was quicker is the plan: predictions know nothing of caches and of what cores share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from ..machine.platform import Platform
from ..plan.plan import Plan
from .deploying import AXES, planned
from .extract import HEAVY
from .fabric import Fabric, LinkWay, fabric
from .layer_times import LayerTimes, Run, time_layers
from .loops import Alive, WorkLayer, Workload
from .mapping import LayerTime
from .measured import narrow_devices, with_rates
from .plan_tree import grouped_sets, holds_for, layer_plan
from .planning import refuse_what_is_too_large
from .running import RunNode
from .searching import SearchProgress, Tell, budget_seconds, check_baselines
from .sharded import LayerCut
from .sharding import BATCH, COUT, DIMS, ROWS, Sharding
from .uneven import balanced
from .values import LayerGraph

ELEMENT = 4
"""Bytes of an element: devices here compute in single precision, or move twice as much in double."""
CALLS, TURNS = 10, 3
"""Calls of a candidate that follow each other, as those of a program do, and how often its turn comes; the quickest call counts.

What is learned of calls takes some of them: which thread computes, where weights lie in caches.
"""
FAR = 1.5
"""A candidate that takes so many times as long as the best one after a turn has no other turn."""
WORTH = 0.97
"""Several devices are taken if they need at most this part of the best one's time: less is noise, and costs its neighbours."""
CUT = (ROWS, COUT, BATCH)
"""The dimensions along which parts are calls with a placement, and nothing is added up."""
KINDS = ("Conv", "Gemm", "MatMul")
"""Operations that run in parts."""


class LayerChoice(NamedTuple):
    """Who does a layer: one device whole, or several their parts of one dimension. Devices by position."""

    devices: tuple[int, ...]
    dim: int  # that is cut; -1: none
    sizes: tuple[int, ...]
    seconds: float  # until the last is over, with what its calls cost

    def share(self, device: int) -> float:
        """Return the part of the layer that a device does."""
        return self.sizes[self.devices.index(device)] / sum(self.sizes) if device in self.devices else 0.0

    def reads(self, device: int) -> float:
        """Return the part of the layer's input that a device needs."""
        return 1.0 if self.dim in (-1, COUT) else self.share(device)


Choices = tuple[LayerChoice, ...]


class Chosen(NamedTuple):
    """Choices for all layers, what they are predicted to take, and each layer's seconds of moving."""

    choices: Choices
    seconds: float
    moving: tuple[float, ...]


class HerePlanner:
    """Chooses who does each layer of a model."""

    def __init__(self, graph: LayerGraph, workload: Workload, fabric: Fabric, times: LayerTimes) -> None:
        self.graph, self.workload, self.fabric, self.times = graph, workload, fabric, times
        heavy = [node for node in graph.operations if node.kind in HEAVY]
        self._divisible = [
            node.kind in KINDS and (node.kind != "Conv" or len(graph.types[node.outputs[0]].shape) - 2 <= AXES)
            for node in heavy
        ]

    # What can be chosen -----------------------------------------------------------------------------------------------

    def whole(self, layer: int, device: int) -> LayerChoice:
        """Return a layer whole on a device."""
        return LayerChoice((device,), -1, (1,), self.times.seconds[device][layer])

    def options(self, layer: int) -> list[LayerChoice]:
        """Return all that can be chosen for a layer."""
        devices = range(len(self.times.devices))
        found = [self.whole(layer, device) for device in devices]
        if not self._divisible[layer]:
            return found
        by_speed = sorted(devices, key=lambda d: self.times.work(d, layer))
        for count in range(2, len(by_speed) + 1):
            found += self._cuts(layer, tuple(sorted(by_speed[:count])))
        return found

    def _cuts(self, layer: int, devices: tuple[int, ...]) -> Iterator[LayerChoice]:
        """Yield the ways to cut a layer along one dimension such that all finish together and nobody has nothing."""
        one: WorkLayer = self.workload.layers[layer]
        for dim in CUT:
            total = one.loops[dim]
            unit = total // one.groups if dim == COUT and one.groups > 1 else 1
            if unit * len(devices) > total:
                continue
            work = [self.times.work(d, layer) * unit / total for d in devices]
            counts = balanced(total // unit, [_proportional(seconds) for seconds in work])
            if all(counts):
                calls = self.times.call * self.times.calls[layer] * len(devices)
                last = max(n * seconds for n, seconds in zip(counts, work, strict=True))
                yield LayerChoice(devices, dim, tuple(n * unit for n in counts), last + calls)

    # What it costs to come from one to the next -----------------------------------------------------------------------

    def moving(self, layer: int, before: LayerChoice | None, after: LayerChoice | None) -> float:
        """Return the seconds in which what is alive before a layer comes to where it is needed; None stands for the host."""
        return sum(self._moved(value, before, after) for value in self.workload.alive[layer])

    def _moved(self, value: Alive, before: LayerChoice | None, after: LayerChoice | None) -> float:
        size = value.elements * ELEMENT
        if after is None:
            assert before is not None, "a model has a layer"
            return max(_sent(size * before.share(d), self.fabric.host[d]) for d in before.devices)
        if before is None:
            return max(_sent(size * after.reads(d), self.fabric.host[d]) for d in after.devices)
        along = before.dim == after.dim and before.devices == after.devices and after.dim not in (-1, COUT)
        slowest = 0.0
        for device in after.devices:
            has, needs = before.share(device), after.reads(device)
            lacks = max(0.0, needs - has) if along else needs * (1.0 - has)
            ways = [self.fabric.ways[other][device] for other in before.devices if other != device]
            slowest = max(slowest, max((_sent(size * lacks, way) for way in ways), default=0.0))
        return slowest

    # The choice -------------------------------------------------------------------------------------------------------

    def best(self) -> Chosen:
        """Return the choices with the least predicted latency."""
        paths: list[tuple[float, Choices]] = []
        for layer in range(len(self.workload.layers)):
            following: list[tuple[float, Choices]] = []
            for option in self.options(layer):
                if not layer:
                    following.append((option.seconds + self.moving(0, None, option), (option,)))
                    continue
                cost, path = min(
                    ((cost + self.moving(layer, path[-1], option), path) for cost, path in paths), key=_first
                )
                following.append((cost + option.seconds, (*path, option)))
            paths = following
        count = len(self.workload.layers)
        _, path = min(((cost + self.moving(count, path[-1], None), path) for cost, path in paths), key=_first)
        return self.priced(path)

    def alone(self, device: int) -> Chosen:
        """Return the choice of one device for everything."""
        return self.priced(tuple(self.whole(layer, device) for layer in range(len(self.workload.layers))))

    def priced(self, choices: Choices) -> Chosen:
        """Return choices with what they are predicted to take."""
        moving = [
            self.moving(layer, choices[layer - 1] if layer else None, choice) for layer, choice in enumerate(choices)
        ]
        moving[-1] += self.moving(len(choices), choices[-1], None)
        return Chosen(choices, sum(choice.seconds for choice in choices) + sum(moving), tuple(moving))

    def bound(self) -> float:
        """Return what no choice is below: every layer at its quickest, and nothing moves."""
        return sum(min(o.seconds for o in self.options(layer)) for layer in range(len(self.workload.layers)))

    def cuts(self, choices: Choices) -> list[LayerCut]:
        """Return choices as cuts that can be run."""
        return [self._cut(layer, choice) for layer, choice in zip(self.workload.layers, choices, strict=True)]

    def _cut(self, layer: WorkLayer, choice: LayerChoice) -> LayerCut:
        sizes = tuple(choice.sizes if dim == choice.dim else (size,) for dim, size in enumerate(layer.loops))
        factors = tuple(len(parts) for parts in sizes)
        return LayerCut(layer, Sharding(factors), tuple(self.times.devices[d] for d in choice.devices), sizes)  # type: ignore[arg-type]


def _first(entry: tuple[float, object]) -> float:
    return entry[0]


def _proportional(seconds: float) -> Callable[[int], float]:
    return lambda count: count * seconds


def _sent(size: float, way: LinkWay) -> float:
    return size * way.per_byte + way.latency if size > 0 else 0.0


# What runs decides ----------------------------------------------------------------------------------------------------------


def tried(run: Run, ways: Sequence[RunNode], clock: Callable[[], float], until: float) -> list[float]:
    """Return the seconds of each way to run a model, from the call until its results are read; they take turns.

    Each runs twice at least, of which the first is not counted; more while the clock is before `until`.
    """
    best = [inf] * len(ways)
    for turn in range(TURNS):
        for at in [at for at, least in enumerate(best) if least <= FAR * min(best)]:
            for number in range(CALLS):
                begun = clock()
                results = run(ways[at])
                for result in results if isinstance(results, tuple) else (results,):
                    np.asarray(result)
                if not turn and not number:
                    continue
                best[at] = min(best[at], clock() - begun)
                if clock() > until:
                    break
        if clock() > until:
            break
    return best


def plan_for_devices(
    graph: LayerGraph, workload: Workload, platform: Platform, run: Run, budget: str | float, baselines: Sequence[str],
    tell: Tell | None, clock: Callable[[], float] = time.perf_counter,
) -> Plan:  # fmt: skip
    """Return the plan of a model for real devices, on which `run` runs it; half of the budget is for timing its layers."""
    check_baselines(baselines)
    begun, seconds = clock(), budget_seconds(budget)
    if not workload.layers:
        raise PlanError(f"{workload.name} has no layer with sums, so there is nothing to plan")
    names = [device.name for device in narrow_devices(platform)]
    times = time_layers(graph, run, names, clock, begun + seconds / 2)
    rates = {name: 2.0 * workload.macs / times.total(at) for at, name in enumerate(names)}
    found = fabric(with_rates(platform, rates), every=True)
    refuse_what_is_too_large(workload, found)
    planner = HerePlanner(graph, workload, found, times)
    if tell is not None:
        tell(SearchProgress("layers timed", None, planner.bound(), len(names) * len(workload.layers), clock() - begun))
    plan = chosen_plan(planner, run, clock, begun + seconds)
    if tell is not None:
        tell(SearchProgress("plans tried", plan.seconds, plan.limit_s or 0.0, len(plan.considered), clock() - begun))
    return plan


def chosen_plan(planner: HerePlanner, run: Run, clock: Callable[[], float], until: float) -> Plan:
    """Return what is predicted to be best, or the best device alone if that runs quicker.

    A device alone does the model in one call, which its layers' times say little of: so the best one of each kind is tried.
    """
    names = planner.times.devices
    alone = [planner.alone(d) for d in range(len(names))]
    kinds: dict[str, int] = {}
    for d in sorted(range(len(names)), key=lambda d: alone[d].seconds):
        kinds.setdefault(names[d].partition(":")[0], d)
    singles = [alone[d] for d in kinds.values()]
    found = planner.best()
    cut = all(found.choices != one.choices for one in singles)
    candidates = singles + [found] * cut
    ways = [planned(planner.graph, planner.cuts(one.choices)) for one in candidates]
    took = tried(run, ways, clock, until)
    best = min(range(len(singles)), key=took.__getitem__)
    compared = {"single": took[best]} | ({"cut": took[-1]} if cut else {})
    if cut and took[-1] <= WORTH * took[best]:
        best = len(took) - 1
    predicted = {name: alone[d].seconds for d, name in enumerate(names)}
    return _tree(planner, candidates[best], took[best], compared, predicted)


def _tree(
    planner: HerePlanner, chosen: Chosen, took: float, compared: dict[str, float], alone: dict[str, float]
) -> Plan:  # fmt: skip
    """Return the choices as a plan. Predictions are scaled to what the whole took when it was tried."""
    scale = took / chosen.seconds if chosen.seconds > 0 else 1.0
    cuts = planner.cuts(chosen.choices)
    layers: list[Plan] = []
    for cut, choice, moving in zip(cuts, chosen.choices, chosen.moving, strict=True):
        times = LayerTime(choice.seconds * scale, 0.0, moving * scale)
        why = f"{_in_words(choice, planner.times.devices)}, {sum(times) * 1e3:.4g} ms"
        layers.append(layer_plan(cut, times, "measured", why, sum(layer.seconds or 0.0 for layer in layers)))
    sets = list(grouped_sets(cuts, layers, "measured"))
    used = {device for cut in cuts for device in cut.devices}
    why_not = "the model is not quicker with it"
    bound = min(planner.bound() * scale, took)
    why = (
        f"{len(sets)} set{'s' * (len(sets) != 1)} on {planner.fabric.name}, latency {took * 1e3:.4g} ms as tried, nothing of this "
        f"class is predicted below {bound * 1e3:.4g} ms"
    )
    return Plan(
        "model", planner.workload.name, holds_for(planner.workload, planner.fabric), (len(cuts),), (), took,
        objective="latency", policy="sharded", single={name: s * scale for name, s in alone.items()},
        left_out={name: why_not for name in planner.times.devices if name not in used}, why=why, limit_s=bound,
        children=tuple(sets), latency_s=took, considered=compared,
    )  # fmt: skip


def _in_words(choice: LayerChoice, devices: Sequence[str]) -> str:
    if choice.dim < 0:
        return f"whole on {devices[choice.devices[0]]}"
    return f"{DIMS[choice.dim]} in parts of {', '.join(map(str, choice.sizes))}"
