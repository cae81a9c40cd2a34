"""Search for a plan within a budget: mappings by rule first, then the exact search, and what was found so far if time is up.

Before: models/planning.py, models/baselines.py.  After: models/model.py.  The clock is an argument.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

from ..errors import ConfigError, PlanError, unknown_name
from ..plan.plan import Plan
from .baselines import BASELINES, best_single
from .fabric import Fabric
from .loops import Workload
from .mapping import Mapping, evaluate, overflow
from .plan_tree import as_plan
from .planning import ModelPlan, check_objective, least_seconds, plan_model, refuse_what_is_too_large, value_of
from .queue_plans import TRIALS, h2h_seconds, plan_queues, unlike_engines
from .tables import Rules

H2H = "h2h"
"""The baseline that maps whole layers, in its own model of costs, with the accelerators and the host's links of the platform."""
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "": 1.0}


class SearchProgress(NamedTuple):
    """How far a search is: the best value so far, what no mapping is below, mappings that were priced, seconds."""

    what: str
    best: float | None
    bound: float
    evaluations: int
    seconds: float


Tell = Callable[[SearchProgress], None]


class TimeUp(Exception):
    """The budget is used up."""


def budget_seconds(budget: str | float) -> float:
    """Read "30s", "500ms", "2min" or a number of seconds."""
    if isinstance(budget, int | float) and not isinstance(budget, bool):
        found: float | None = float(budget)
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|)\s*", str(budget))
        found = None if match is None else float(match.group(1)) * UNITS[match.group(2)]
    if found is None or not found > 0.0:
        raise ConfigError(f"budget {budget!r} is no time; give seconds, or a text such as '30s', '500ms' or '2min'")
    return found


class ModelSearch:
    """One search. Mappings by rule are its seeds, so that it is never worse than any of them."""

    def __init__(
        self, workload: Workload, fabric: Fabric, objective: str, budget: float, tell: Tell | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.workload, self.fabric, self.objective, self.tell, self.clock = workload, fabric, objective, tell, clock
        self.begun = clock()
        self.end = self.begun + budget
        self.bound = 0.0
        self.evaluations = 0
        self.best: ModelPlan | None = None
        self.compared: dict[str, float] = {}

    def run(self, baselines: Sequence[str]) -> Plan:
        """Return the best plan that was found in time."""
        check_objective(self.fabric, self.objective)
        if not self.workload.layers:
            raise PlanError(f"{self.workload.name} has no layer with sums, so there is nothing to plan")
        refuse_what_is_too_large(self.workload, self.fabric)
        self.bound = 0.0 if self.objective == "energy" else self.simple_bound()
        try:
            for name in baselines:
                self.by_rule(name)
                self.check()
            rules = Rules(rotate=False, overlap=False, single=True) if self.fabric.fair else Rules()
            found = plan_model(self.workload, self.fabric, self.objective, rules, stop=self.check)
            if self.best is None or found.value <= self.best.value:
                self.best = found
            else:
                self.best = self.best._replace(bound=min(found.bound, self.best.value))
            self.note("exact search")
        except TimeUp:
            if self.best is None:
                raise PlanError(f"no mapping of {self.workload.name} was found in time; give a larger budget") from None
            late = "the budget ended before the exact search did"
            self.best = self.best._replace(bound=self.bound, notes=(*self.best.notes, late))
        return as_plan(self.best, self.compared, self.alone())

    def simple_bound(self) -> float:
        """Return a bound that needs no search: each layer at its quickest; a stream has all accelerators for it."""
        least = least_seconds(self.workload, self.fabric)
        return least / len(self.fabric.accelerators) if self.objective == "throughput" else least

    def plain_rules(self, name: str) -> Rules:
        """Return the rules that a mapping is priced by: those by rule overlap nothing."""
        del name
        return Rules(rotate=False, overlap=False)

    def by_rule(self, name: str) -> None:
        """Price a mapping by rule, if the accelerators can do it. H2H's is none of a chain, so it is no seed."""
        if name == H2H:
            if self.objective == "latency":
                self.compared[name] = h2h_seconds(self.workload, self.fabric)
            return
        try:
            mapping = BASELINES[name](self.workload, self.fabric)
        except PlanError:  # unlike engines are no one set
            return
        self.look_at(name, mapping, self.plain_rules(name))

    def look_at(self, name: str, mapping: Mapping, rules: Rules) -> None:
        """Price a mapping, and keep it if it fits and is the best."""
        evaluation = evaluate(self.workload, self.fabric, mapping, rules)
        self.evaluations += 1
        if not isfinite(value_of(evaluation, self.objective)):
            return  # an engine cannot do what the rule gives it
        self.compared[name] = value_of(evaluation, self.objective)
        if overflow(self.workload, self.fabric, mapping) > 0:
            return
        found = ModelPlan(self.workload, self.fabric, self.objective, mapping, evaluation, self.bound, rules)
        if self.best is None or found.value < self.best.value:
            self.best = found
        self.note(name)

    def alone(self) -> dict[str, float]:
        """Return the seconds of the best accelerator alone."""
        if "single" not in self.compared or self.objective == "energy":
            return {}
        stage = best_single(self.workload, self.fabric)[0]
        return {self.fabric.names(self.fabric.indices(stage.members))[0]: self.compared["single"]}

    def check(self) -> None:
        """Raise if time is up."""
        self.evaluations += 1
        if self.clock() > self.end:
            raise TimeUp

    def note(self, what: str) -> None:
        """Tell how far the search is."""
        if self.tell is not None:
            best = None if self.best is None else self.best.value
            self.tell(SearchProgress(what, best, self.bound, self.evaluations, self.clock() - self.begun))


def check_baselines(names: Sequence[str]) -> None:
    """Raise unless every name is that of a mapping by rule."""
    for name in names:
        if name not in (*BASELINES, H2H):
            raise unknown_name("baseline", name, [*BASELINES, H2H])


def search_plan(
    workload: Workload, fabric: Fabric, objective: str = "latency", budget: str | float = "30s",
    baselines: Sequence[str] = tuple(BASELINES), tell: Tell | None = None,
) -> Plan:  # fmt: skip
    """Return the best plan of a model that is found within a budget, compared with mappings by rule."""
    check_baselines(baselines)
    seconds = budget_seconds(budget)
    if objective == "latency" and workload.layers and unlike_engines(fabric):
        end = time.monotonic() + seconds
        found = plan_queues(workload, fabric, [*baselines, H2H], seconds / 2, lambda: time.monotonic() > end)
        if tell is not None:
            tell(
                SearchProgress(
                    "annealing", found.seconds, found.limit_s or 0.0, TRIALS, time.monotonic() - end + seconds
                )
            )
        return found
    return ModelSearch(workload, fabric, objective, seconds, tell).run(baselines)
