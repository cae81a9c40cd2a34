"""Searches over chains: equal to enumeration, below no bound, monotone in bandwidth, within memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import DoesNotFit, InvariantError, PlanError, UnknownName
from coexec.machine.platform import Platform
from coexec.models import catalogue
from coexec.models.baselines import BASELINES, PLAIN, balanced_cuts, random_chain, random_search
from coexec.models.fabric import Fabric, LinkWay, fabric
from coexec.models.genetic import GeneticEffort, GeneticSearch
from coexec.models.loops import CONV, Workload
from coexec.models.mapping import Mapping, SetStage, check_mapping, evaluate, overflow
from coexec.models.pipelined import PipelineSearch
from coexec.models.planning import front, least_seconds, plan_model
from coexec.models.sharding import WHOLE
from coexec.models.shortest import ChainSearch
from coexec.models.tables import ChainCosts, Rules
from tests.models.chains import every_chain_mapping, small_chain, small_fabric

CASES = [(0, False, (2,)), (1, True, (2,)), (2, False, (1, 1)), (3, True, (1, 1)), (4, False, (2, 1))]


@pytest.mark.parametrize(("seed", "shortcut", "groups"), CASES)
def test_latency_period_and_energy_are_the_least_of_all_mappings(seed, shortcut, groups) -> None:
    two = sum(groups) > 2
    workload = small_chain(seed, 2 if two else 3, shortcut=shortcut)
    platform = small_fabric(groups, latency=1e-7 * seed)
    rules = Rules(rotate=not two)
    found = [
        evaluate(workload, platform, m, rules) for m in every_chain_mapping(workload, platform, rotate=rules.rotate)
    ]
    least = [min(e[i] for e in found) for i in range(3)]
    plans = [plan_model(workload, platform, name, rules) for name in ("latency", "throughput", "energy")]
    assert [plan.value for plan in plans] == pytest.approx(least, rel=1e-12)
    assert all(plan.gap <= 1e-12 for plan in plans)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_six_layers_on_three_accelerators_are_mapped_as_well_as_enumeration_does(seed: int) -> None:
    workload, platform = small_chain(seed, 6, shortcut=True), small_fabric((2, 1))
    single = Rules(rotate=False, single=True)
    costs = ChainCosts(workload, platform, single)
    best = min(
        evaluate(workload, platform, m, single).latency
        for m in every_chain_mapping(workload, platform, rotate=False)
        if all(sum(n > 1 for n in s.factors) <= 1 for stage in m for s in stage.shardings)
    )
    assert ChainSearch(costs).run().cost == pytest.approx(best, rel=1e-12)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
def test_no_random_mapping_is_below_the_search_or_its_bounds(seed: int) -> None:
    workload, platform = small_chain(seed % 7, 4, shortcut=bool(seed % 2)), small_fabric()
    costs = ChainCosts(workload, platform)
    latency, period = ChainSearch(costs).run().cost, PipelineSearch(costs).run()[1]
    found = evaluate(workload, platform, random_chain(costs, np.random.default_rng(seed)))
    assert found.latency >= latency * (1 - 1e-12) >= least_seconds(workload, platform) * (1 - 1e-9)
    assert found.period >= period * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_tables_of_the_search_price_a_mapping_as_the_evaluation_does(seed: int) -> None:
    workload, platform = small_chain(seed, 4, shortcut=True), small_fabric(latency=3e-8)
    for rules in (Rules(), Rules(overlap=False), PLAIN):
        costs = ChainCosts(workload, platform, rules)
        found = ChainSearch(costs).run()
        assert evaluate(workload, platform, found.mapping, rules).latency == pytest.approx(found.cost, rel=1e-12)
        mapping, period = PipelineSearch(costs).run()
        assert evaluate(workload, platform, mapping, rules).period == pytest.approx(period, rel=1e-12)


def scaled(platform: Fabric, factor: float) -> Fabric:
    def slower(link: LinkWay) -> LinkWay:
        return LinkWay(link.per_byte * factor, link.latency)

    ways = tuple(tuple(map(slower, row)) for row in platform.ways)
    return Fabric(platform.name, platform.accelerators, ways, tuple(map(slower, platform.host)))


def test_more_bandwidth_is_never_slower_and_tends_to_the_best_computing_and_less_to_one_accelerator() -> None:
    workload, platform = small_chain(5, 4), small_fabric((2,))
    times = [ChainSearch(ChainCosts(workload, scaled(platform, 2.0**-k))).run().cost for k in range(-4, 8)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(times))
    free = scaled(platform, 0.0)
    assert ChainSearch(ChainCosts(workload, free)).run().cost == pytest.approx(sum_of_best(workload, free))
    slow = ChainSearch(ChainCosts(workload, scaled(platform, 1e9))).run().mapping
    assert [sum(stage.members) for stage in slow] == [1]


def sum_of_best(workload: Workload, platform: Fabric) -> float:
    costs = ChainCosts(workload, platform)
    ends = [ChainSearch(costs, sets=[m]).run().cost for m in platform.sets()]
    return min(ends)


def test_overlap_and_rotation_never_make_a_model_slower() -> None:
    workload, platform = small_chain(6, 4), small_fabric()
    rules = [PLAIN, Rules(rotate=True, overlap=False), Rules()]
    times = [ChainSearch(ChainCosts(workload, platform, r)).run().cost for r in rules]
    assert times == sorted(times, reverse=True)


# Memory ---------------------------------------------------------------------------------------------------------------------


def test_a_mapping_that_does_not_fit_is_never_returned_and_what_fits_is_near_the_best_that_does() -> None:
    workload = small_chain(1, 3)
    free = plan_model(workload, small_fabric((2,)))
    need = int(max(free.evaluation.memory))
    tight = small_fabric((2,), memory=need - 1)
    plan = plan_model(workload, tight)
    assert overflow(workload, tight, plan.mapping) == 0
    best = min(
        evaluate(workload, tight, m).latency
        for m in every_chain_mapping(workload, tight)
        if overflow(workload, tight, m) <= 0
    )
    assert plan.bound <= best <= plan.value
    assert plan.value <= best * 1.25


def test_a_model_that_fits_nowhere_is_refused_with_the_sizes() -> None:
    workload = small_chain(1, 3)
    with pytest.raises(DoesNotFit, match=r"chain1, whose largest layer is l\d, needs .* in memory 'all of small'"):
        plan_model(workload, small_fabric((1,), memory=10))
    least = max(evaluate(workload, small_fabric((1,)), ((SetStage((1,), "rows", 0, (WHOLE,) * 3)),)).memory)
    with pytest.raises(DoesNotFit, match=r"layers 0 to 2 of chain1, of which .* is the largest"):
        plan_model(workload, small_fabric((1,), memory=int(least) - 2))


# What is no mapping -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ((SetStage((1, 0), "rows", 1, (WHOLE,) * 2),), "begins with layer 1 where layer 0"),
        ((SetStage((1, 0), "rows", 0, (WHOLE,) * 2),), "end with layer 2 of 3"),
        ((SetStage((1, 0), "odd", 0, (WHOLE,) * 3),), "cannot have the design 'odd'"),
        ((SetStage((2, 0), "rows", 0, (WHOLE,) * 3),), "1 parts for 2 accelerators"),
        ((SetStage((0, 1), "rows", 0, (WHOLE,)), SetStage((0, 1), "rows", 1, (WHOLE,) * 2)), "more than the 1 acc"),
    ],
)
def test_a_wrong_mapping_is_rejected(mapping: Mapping, message: str) -> None:
    with pytest.raises(InvariantError, match=message):
        check_mapping(small_chain(0, 3), small_fabric(), mapping)


def test_wrong_objectives_and_platforms_without_watts_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'latency'"):
        plan_model(small_chain(0), small_fabric(), "latencies")
    with pytest.raises(PlanError, match="does not say what its accelerators draw"):
        plan_model(small_chain(0), small_fabric(watts=(0.0, 0.0)), "energy")
    with pytest.raises(PlanError, match="no layer with sums"):
        plan_model(Workload("empty", ()), small_fabric())


# Baselines and the genetic search -----------------------------------------------------------------------------------------------


def test_layers_are_cut_where_the_work_is_nearest_to_half() -> None:
    assert balanced_cuts([5, 1, 1, 3], 2) == [(0, 1), (1, 4)]
    assert balanced_cuts([1, 1, 1], 3) == [(0, 1), (1, 2), (2, 3)]
    assert balanced_cuts([1], 2) == [(0, 0), (0, 1)] or balanced_cuts([1], 2) == [(0, 1), (1, 1)]


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_a_mapping_and_no_better_than_the_search(name: str) -> None:
    for seed in range(3):
        workload, platform = small_chain(seed, 5), small_fabric((2, 2))
        mapping = BASELINES[name](workload, platform)
        assert (
            evaluate(workload, platform, mapping, PLAIN).latency
            >= ChainSearch(ChainCosts(workload, platform)).run().cost
        )


def test_the_genetic_search_repeats_exactly_never_gets_worse_and_beats_random_mappings() -> None:
    workload, platform = small_chain(2, 12), small_fabric((2, 2))
    effort = GeneticEffort(4, 3, 8, 6)
    searches = [GeneticSearch(ChainCosts(workload, platform), seed=3, effort=effort) for _ in range(2)]
    found = [search.run() for search in searches]
    assert found[0] == found[1] and searches[0].history == searches[1].history
    assert searches[0].history == sorted(searches[0].history, reverse=True)
    latency = evaluate(workload, platform, found[0]).latency
    assert latency == pytest.approx(searches[0].best_cost, rel=1e-12)
    assert ChainSearch(ChainCosts(workload, platform)).run().cost <= latency * (1 + 1e-12)
    assert latency <= random_search(ChainCosts(workload, platform), 200, seed=3)[1].latency


@pytest.mark.slow
def test_the_genetic_search_beats_as_many_random_mappings_as_it_looked_at() -> None:
    workload, platform = small_chain(2, 12), small_fabric((2, 2))
    search = GeneticSearch(ChainCosts(workload, platform), seed=3, effort=GeneticEffort(4, 3, 8, 6))
    search.run()
    found = random_search(ChainCosts(workload, platform), search.evaluations, seed=3)
    assert search.best_cost <= found[1].latency


def test_the_genetic_search_returns_nothing_that_does_not_fit() -> None:
    workload = small_chain(1, 3)
    need = int(max(plan_model(workload, small_fabric((2,))).evaluation.memory))
    tight = small_fabric((2,), memory=need - 1)
    found = GeneticSearch(ChainCosts(workload, tight), effort=GeneticEffort(6, 3, 8, 4)).run()
    assert overflow(workload, tight, found) <= 0


def test_a_front_has_no_plan_that_another_one_beats_in_everything() -> None:
    plans = front(small_chain(3, 4), small_fabric((2, 2)))
    values = [plan.evaluation[:3] for plan in plans]
    assert len(values) >= 2
    for one in values:
        assert not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in values)


# Known networks on eight FPGAs ----------------------------------------------------------------------------------------------------

EIGHT = {"alexnet": (3.376, 2.521, 2.383), "vgg16": (31.572, 11.079, 9.671)}  # CP, ALL8, search: milliseconds
EIGHT_SLOW = {
    "resnet34": (12.422, 11.403, 5.422),
    "resnet101": (48.836, 24.494, 14.444),
    "wide_resnet50_2": (55.718, 29.653, 16.992),
}


def on_eight(name: str) -> tuple[float, ...]:
    platform = fabric(Platform.load("f1.16xlarge"))
    workload = catalogue.layers(name).only(CONV)
    rules = [evaluate(workload, platform, BASELINES[b](workload, platform), PLAIN).latency for b in ("cp", "all")]
    plan = plan_model(workload, platform)
    assert plan.gap <= 1e-9
    return tuple(round(seconds * 1e3, 3) for seconds in (*rules, plan.value))


@pytest.mark.parametrize("name", EIGHT)
def test_a_network_on_eight_fpgas_takes_what_it_took(name: str) -> None:
    assert on_eight(name) == EIGHT[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", EIGHT_SLOW)
def test_a_large_network_on_eight_fpgas_takes_what_it_took(name: str) -> None:
    assert on_eight(name) == EIGHT_SLOW[name]
