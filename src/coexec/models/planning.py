"""Plan a model for a platform: the best mapping for an objective, with a bound, within the accelerators' memories.

Before: models/shortest.py, models/pipelined.py, models/baselines.py.  After: whoever plans a model.

Where no memory is too small, the answer is exact in its class of mappings. Where one is, stored bytes get a price, which is
raised until the mapping fits; the bound is then the optimum without limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from ..errors import DoesNotFit, PlanError, unknown_name
from .fabric import Fabric, Members
from .loops import Workload
from .mapping import Evaluation, Mapping, evaluate, overflow, refuse_what_does_not_fit
from .pipelined import PipelineSearch
from .shortest import ChainSearch, by_time, candidate_sets, may_follow
from .tables import FREE, BytePrice, ChainCosts, Rules

OBJECTIVES = ("latency", "throughput", "energy")
PRICES, RAISED = 14, 8.0
"""How many prices of a byte are tried to find a mapping that fits, and by how much a price that is too low is raised."""
MIXES = (0.25, 0.5, 0.75)
"""Parts of the weight on energy between the fastest mapping and the one that needs least."""


class ModelPlan(NamedTuple):
    """A mapping, what it takes, and how good it is: no mapping of its class is below `bound`, in the objective's unit."""

    workload: Workload
    fabric: Fabric
    objective: str
    mapping: Mapping
    evaluation: Evaluation
    bound: float
    rules: Rules = Rules()
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """Seconds of latency, seconds between results, or joules."""
        return value_of(self.evaluation, self.objective)

    @property
    def gap(self) -> float:
        """How far the mapping may be from the best, as a part of the bound."""
        return max(self.value / self.bound - 1.0, 0.0) if self.bound > 0 else 0.0


def value_of(evaluation: Evaluation, objective: str) -> float:
    """Return what an objective looks at."""
    return {"latency": evaluation.latency, "throughput": evaluation.period, "energy": evaluation.joules}[objective]


def plan_model(
    workload: Workload,
    fabric: Fabric,
    objective: str = "latency",
    rules: Rules | None = None,
    stop: Callable[[], None] = lambda: None,
) -> ModelPlan:
    """Return the best plan for an objective: latency, throughput or energy. `stop` is called often, and may raise."""
    check_objective(fabric, objective)
    refuse_what_is_too_large(workload, fabric)
    costs = ChainCosts(workload, fabric, rules or Rules())
    solve = solver(costs, objective, stop)
    mapping, bound = solve(FREE)
    if overflow(workload, fabric, mapping) > 0:
        mapping = within_memory(costs, objective, solve, bound)
    evaluation = evaluate(workload, fabric, mapping, costs.rules)
    return ModelPlan(workload, fabric, objective, mapping, evaluation, bound, costs.rules, tuple(remarks(fabric)))


def check_objective(fabric: Fabric, objective: str) -> None:
    """Raise unless the objective is known, and the platform says what it needs for it."""
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES)
    if objective == "energy" and not any(a.watts for a in fabric.accelerators):
        raise PlanError(f"platform {fabric.name!r} does not say what its accelerators draw; give them `watts`")


def refuse_nothing(workload: Workload) -> None:
    """Raise PlanError if a layer computes nothing: there is nothing to map."""
    for layer in workload.layers:
        if not all(layer.loops):
            sizes = ", ".join(f"{name} {size}" for name, size in zip(layer.loops._fields, layer.loops, strict=True))
            raise PlanError(f"layer {layer.name!r} of {workload.name} has no elements ({sizes}); give sizes from 1")


def refuse_what_is_too_large(workload: Workload, fabric: Fabric) -> None:
    """Raise DoesNotFit if the parameters are more than all memories together hold."""
    has = sum(inf if a.memory is None else a.memory for a in fabric.accelerators)
    needs = workload.parameters * fabric.element()
    if needs > has:
        largest = max(workload.layers, key=lambda layer: layer.stored)
        what = f"{workload.name}, whose largest layer is {largest.name},"
        raise DoesNotFit(what, f"all of {fabric.name}", needs, int(has), "take a platform with more memory")


def remarks(fabric: Fabric) -> Iterator[str]:
    """Yield what a reader of the plan should know."""
    if not may_follow(fabric):
        yield "there are too many unlike accelerators to let sets follow each other: one set does all layers"


Solve = Callable[[BytePrice], tuple[Mapping, float]]


def solver(costs: ChainCosts, objective: str, stop: Callable[[], None]) -> Solve:
    """Return a function that finds the best mapping where bytes have a price."""
    if objective == "throughput":
        return lambda price: PipelineSearch(costs, price).run(stop)

    def energy(members: Members, design: str) -> float:
        return costs.fabric.idle_power() + costs.fabric.extra_power(members, design)

    def shortest(price: BytePrice) -> tuple[Mapping, float]:
        found = ChainSearch(costs, by_time if objective == "latency" else energy, price).run(stop)
        return found.mapping, found.cost

    return shortest


def within_memory(costs: ChainCosts, objective: str, solve: Solve, bound: float) -> Mapping:
    """Return a mapping that fits, near the best: the price of a byte is raised until one does, then lowered again.

    Once with a price on stored weights alone, once with one on activations as well.
    """
    workload, fabric = costs.workload, costs.fabric
    begin = bound / max(workload.parameters * costs.element, 1)
    best, value = None, inf
    for both in (0.0, 1.0):
        low, high = 0.0, inf
        price = begin
        for _ in range(PRICES):
            mapping, _ = solve(BytePrice(price, both * price))
            if overflow(workload, fabric, mapping) > 0:
                low = price
            else:
                high = price
                found = value_of(evaluate(workload, fabric, mapping, costs.rules), objective)
                best, value = (mapping, found) if found < value else (best, value)
            price = RAISED * low if high == inf else (low + high) / 2
    if best is None:
        for stage in mapping:
            refuse_what_does_not_fit(workload, fabric, stage)
    assert best is not None, "a mapping without a stage that does not fit is one that fits"
    return best


def front(workload: Workload, fabric: Fabric, rules: Rules | None = None) -> list[ModelPlan]:
    """Return plans of which none is better than another in latency, period and energy at once; the quickest first."""
    objectives = [name for name in OBJECTIVES if name != "energy" or any(a.watts for a in fabric.accelerators)]
    plans = [plan_model(workload, fabric, objective, rules) for objective in objectives]
    if "energy" in objectives:
        plans += list(_mixed(plans[0], plans[-1]))
    found: list[ModelPlan] = []
    for plan in sorted(plans, key=lambda p: p.evaluation[:3]):
        if not any(all(a <= b for a, b in zip(o.evaluation[:3], plan.evaluation[:3], strict=True)) for o in found):
            found.append(plan)
    return found


def _mixed(fast: ModelPlan, thrifty: ModelPlan) -> Iterator[ModelPlan]:
    """Yield plans for weights between latency and energy, where they fit."""
    costs, fabric = ChainCosts(fast.workload, fast.fabric, fast.rules), fast.fabric
    scale = fast.evaluation.latency / max(thrifty.evaluation.joules, 1e-30)
    for part in MIXES:

        def weigh(members: Members, design: str, part: float = part) -> float:
            return (1 - part) + part * scale * (fabric.idle_power() + fabric.extra_power(members, design))

        mapping = ChainSearch(costs, weigh).run().mapping
        if overflow(fast.workload, fabric, mapping) <= 0:
            evaluation = evaluate(fast.workload, fabric, mapping, fast.rules)
            yield fast._replace(mapping=mapping, evaluation=evaluation)


def least_seconds(workload: Workload, fabric: Fabric) -> float:
    """Return a bound for mappings on the sets that are looked at: every layer at its quickest, and nothing moves."""
    costs = ChainCosts(workload, fabric)
    sets = candidate_sets(fabric)
    total = 0.0
    for index in range(len(workload.layers)):
        total += min(float(costs.table(index, m, d).seconds.min()) for m in sets for d in fabric.designs(m))
    return total
