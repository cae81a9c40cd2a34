"""Unsharded mappings: the bound is below every mapping, the search finds the optimum of small cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import PlanError
from coexec.models.h2h import four_steps, kept_and_fused
from coexec.models.h2h_costs import CostTable, cost_table
from coexec.models.loops import CONV, Loops, WorkLayer, Workload
from coexec.models.multimodal import casia_surf_layers
from coexec.models.queues import check_queues
from coexec.models.unsharded import every_mapping, random_mapping, search_queues
from coexec.models.unsharded_bound import head_and_tail, relaxed


def joined(lengths: tuple[int, ...], tail: int) -> Workload:
    """Return branches of some lengths that join in a tail, which continues the first one."""
    loops, ends = Loops(1, 1, 1, 1, 1), []
    layers: list[WorkLayer] = []
    for branch, length in enumerate(lengths):
        for position in range(length):
            after = (len(layers) - 1,) if position else ()
            layers.append(WorkLayer(f"b{branch}.{position}", CONV, loops, after, branch=branch))
        ends.append(len(layers) - 1)
    for position in range(tail):
        layers.append(WorkLayer(f"t{position}", CONV, loops, (len(layers) - 1,) if position else tuple(ends)))
    return Workload("joined", tuple(layers))


def random_costs(layers: int, accelerators: int, seed: int) -> CostTable:
    random = np.random.default_rng(seed)
    columns = [random.integers(0, 5, layers).astype(float) for _ in range(2)]
    return CostTable(
        tuple(f"a{i}" for i in range(accelerators)),
        random.integers(1, 10, (layers, accelerators)).astype(float),
        np.zeros(layers), columns[0], np.zeros(layers), columns[1],
        (1.0,) * accelerators, (10**9,) * accelerators, (1,) * layers,
    )  # fmt: skip


def optimum(workload: Workload, costs: CostTable) -> float:
    return min(kept_and_fused(workload, costs, queues).time for queues in every_mapping(workload, len(costs.names)))


SMALL = [((2, 1), 1, 2), ((1, 1, 1), 2, 2), ((2, 2), 1, 2), ((1, 1), 1, 3)]


@pytest.mark.parametrize(("lengths", "tail", "accelerators"), SMALL)
def test_the_bound_is_below_and_the_search_at_the_best_of_all_mappings(lengths, tail, accelerators) -> None:
    workload = joined(lengths, tail)
    for seed in range(3):
        costs = random_costs(len(workload.layers), accelerators, seed)
        best = optimum(workload, costs)
        found = relaxed(workload, costs)
        assert found.bound <= best + 1e-9
        mapped, trials = search_queues(workload, costs, found.places, 1200, seed)
        check_queues(workload, costs, mapped.queues, mapped.kept, mapped.timed)
        assert mapped.time == pytest.approx(best)
        assert trials <= 1210


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_no_random_mapping_is_below_the_bound(seed: int) -> None:
    workload = joined((3, 2), 2)
    costs = random_costs(len(workload.layers), 3, seed % 5)
    bound = relaxed(workload, costs).bound
    queues = random_mapping(workload, costs, np.random.default_rng(seed))
    mapped = kept_and_fused(workload, costs, queues)
    check_queues(workload, costs, mapped.queues, mapped.kept, mapped.timed)
    assert mapped.time >= bound - 1e-9


def test_the_search_repeats_exactly_and_is_never_worse_than_its_seeds() -> None:
    workload = casia_surf_layers()
    costs = cost_table(workload, 0.5e9)
    found = [search_queues(workload, costs, None, 300, seed=7)[0] for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].time <= min(mapped.time for mapped in four_steps(workload, costs))


def test_branches_that_never_join_have_no_such_bound() -> None:
    loops = Loops(1, 1, 1, 1, 1)
    apart = Workload("apart", (WorkLayer("a", CONV, loops), WorkLayer("b", CONV, loops, branch=1)))
    with pytest.raises(PlanError, match="do not join in one chain"):
        head_and_tail(apart)
    assert head_and_tail(casia_surf_layers()) == (tuple(range(36)), tuple(range(36, 44)))


REACH = {0.125e9: (0.1415, 0.01), 0.25e9: (0.1346, 0.03), 1.25e9: (0.1179, 0.08)}


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", REACH)
def test_mappings_of_casia_surf_come_near_the_bound(bandwidth: float) -> None:
    workload = casia_surf_layers()
    costs = cost_table(workload, bandwidth)
    bound, gap = REACH[bandwidth]
    found = relaxed(workload, costs)
    assert found.bound == pytest.approx(bound, rel=1e-3)
    mapped, _ = search_queues(workload, costs, found.places, 30_000)
    check_queues(workload, costs, mapped.queues, mapped.kept, mapped.timed)
    assert mapped.time <= (1 + gap) * found.bound
