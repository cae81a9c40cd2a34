"""Searches for mappings: typical networks on an F1-like machine, multi-modal ones in H2H's model.

Before: models/.  After: bench/dnn/harness.py.  Every mapping is priced again by the checker of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import process_time
from typing import Any

from ...machine.platform import Platform
from ...models.baselines import PLAIN, all_as_one, computation_prioritised
from ...models.catalogue import layers
from ...models.fabric import Fabric, fabric
from ...models.genetic import USUAL, GeneticEffort, GeneticSearch
from ...models.h2h import four_steps
from ...models.h2h_costs import BANDWIDTHS, cost_table
from ...models.loops import CONV, Workload
from ...models.mapping import evaluate
from ...models.planning import ModelPlan, plan_model
from ...models.queues import check_queues
from ...models.tables import ChainCosts
from ...models.unsharded import search_queues
from ...models.unsharded_bound import relaxed

TYPICAL = ("alexnet", "vgg16", "resnet34", "resnet101", "wide_resnet50_2")
MULTIMODAL = ("casia_surf", "facebag")
PLATFORM = "f1.16xlarge"
TRIALS = {True: 4_000, False: 30_000}
"""Mappings that annealing looks at, quick or not."""
MILP_SECONDS = 240.0
"""Wall seconds for the bound; it needs 1 to 3 on a free core, and a bound that was stopped early is not tight."""
GENETIC = {True: GeneticEffort(), False: GeneticEffort(24, 40, 32, 24)}
"""How much the genetic search tries: two to five times the processor time of the exact one, if not quick."""
Case = dict[str, Any]
Progress = Callable[[str], None]


def typical_cases(quick: bool, progress: Progress, only: Sequence[str] = TYPICAL) -> Iterator[Case]:
    """Yield the exact optimum of typical networks against computation-prioritised mapping and all eight as one set."""
    machine = fabric(Platform.load(PLATFORM))
    for name in [one for one in (TYPICAL[:3] if quick else TYPICAL) if one in only]:
        progress(f"{name} on {PLATFORM}")
        yield typical_case(layers(name).only(CONV), machine, GENETIC[quick])


def typical_case(workload: Workload, machine: Fabric, effort: GeneticEffort = USUAL) -> Case:
    """Return one network's case: the exact search, the baselines, and the genetic search of MARS as comparison."""
    cp = evaluate(workload, machine, computation_prioritised(workload, machine), PLAIN).latency
    every = evaluate(workload, machine, all_as_one(workload, machine), PLAIN).latency
    begun, asked = process_time(), [0]

    def count() -> None:
        asked[0] += 1

    plan = plan_model(workload, machine, "latency", stop=count)
    took = process_time() - begun
    latency = evaluate(workload, machine, plan.mapping, plan.rules).latency
    return {
        "network": workload.name, "platform": machine.name, "bandwidth": None, "latency_s": latency, "baseline_s": cp,
        "reduction": 1 - latency / cp, "all8_s": every, "reduction_all8": 1 - latency / every, "bound_s": plan.bound,
        "gap": latency / plan.bound - 1, "seconds": took, "evaluations": asked[0], "baseline": "cp",
        "class": "contiguous sets, equal parts", "cost_model": "designs and links of the platform",
        "genetic": genetic(workload, machine, plan, effort),
    }  # fmt: skip


def genetic(workload: Workload, machine: Fabric, exact: ModelPlan, effort: GeneticEffort) -> Case:
    """Return what the genetic search finds by the rules of the exact one, and how far that is from its optimum."""
    begun = process_time()
    search = GeneticSearch(ChainCosts(workload, machine, exact.rules), seed=0, effort=effort)
    found = search.run()
    took = process_time() - begun
    latency = evaluate(workload, machine, found, exact.rules).latency
    return {"latency_s": latency, "gap": latency / exact.bound - 1, "evaluations": search.evaluations, "seconds": took}


def multimodal_cases(quick: bool, progress: Progress, only: Sequence[str] = MULTIMODAL) -> Iterator[Case]:
    """Yield unsharded mappings of multi-modal models against H2H with a correct last step, in H2H's own model."""
    for name in [one for one in MULTIMODAL if one in only]:
        for bandwidth in BANDWIDTHS[::4] if quick else BANDWIDTHS:
            progress(f"{name} at {bandwidth / 1e9:g} GB/s")
            yield multimodal_case(layers(name), bandwidth, TRIALS[quick])


def multimodal_case(workload: Workload, bandwidth: float, trials: int) -> Case:
    """Return one model's case at one bandwidth."""
    costs = cost_table(workload, bandwidth)
    h2h = four_steps(workload, costs).moves
    check_queues(workload, costs, h2h.queues, h2h.kept, h2h.timed)
    begun = process_time()
    bound = relaxed(workload, costs, MILP_SECONDS)
    found, looked = search_queues(workload, costs, bound.places, trials)
    took = process_time() - begun
    check_queues(workload, costs, found.queues, found.kept, found.timed)
    return {
        "network": workload.name, "platform": "h2h", "bandwidth": bandwidth, "latency_s": found.time,
        "baseline_s": h2h.time, "reduction": 1 - found.time / h2h.time, "bound_s": bound.bound,
        "gap": found.time / bound.bound - 1, "seconds": took, "evaluations": looked, "baseline": "h2h",
        "class": "unsharded", "cost_model": "H2H as coded",
    }  # fmt: skip
