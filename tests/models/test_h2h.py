"""H2H in four steps: the reference values to four digits, and schedules that a checker accepts."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from coexec.errors import InvariantError, PlanError
from coexec.models.h2h import computation_first, four_steps, knapsack, moved, timed_mapping
from coexec.models.h2h_costs import ACCELERATORS, BANDWIDTHS, cost_table
from coexec.models.loops import CONV, FC, Loops, WorkLayer, Workload
from coexec.models.multimodal import casia_surf_layers, facebag_layers
from coexec.models.queues import QueueTimes, Staying, check_queues, durations, joules, replay

REFERENCE = {  # bytes per second -> seconds after each step
    0.125e9: (1.1414, 0.7674, 0.6446, 0.2878),
    0.25e9: (0.6285, 0.4415, 0.3801, 0.2007),
    1.25e9: (0.2181, 0.1807, 0.1684, 0.1357),
}


@pytest.mark.parametrize("bandwidth", REFERENCE)
def test_the_four_steps_give_the_reference_values(bandwidth: float) -> None:
    workload = casia_surf_layers()
    found = four_steps(workload, cost_table(workload, bandwidth))
    assert tuple(round(mapped.time, 4) for mapped in found) == REFERENCE[bandwidth]


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize("model", [casia_surf_layers, facebag_layers])
def test_every_step_is_a_legal_schedule_and_none_is_slower_than_the_one_before(model, repaired, bandwidth) -> None:
    workload = model()
    costs = cost_table(workload, bandwidth, repaired=repaired)
    found = four_steps(workload, costs)
    for mapped in found:
        check_queues(workload, costs, mapped.queues, mapped.kept, mapped.timed)
    times = [mapped.time for mapped in found]
    assert times == sorted(times, reverse=True)


def test_a_schedule_that_breaks_a_dependency_is_rejected() -> None:
    workload = casia_surf_layers()
    costs = cost_table(workload, 0.125e9)
    mapped = four_steps(workload, costs).fusion
    seconds = durations(workload, costs, mapped.queues, mapped.kept)
    ready = [0.0] * len(mapped.queues)
    start = [0.0] * len(workload.layers)
    for a, queue in enumerate(mapped.queues):  # each accelerator's queue alone: what the published last step looks at
        for i in queue:
            start[i], ready[a] = ready[a], ready[a] + seconds[i]
    end = [begin + took for begin, took in zip(start, seconds, strict=True)]
    with pytest.raises(InvariantError, match=r"begins before .* is over, which it reads"):
        check_queues(workload, costs, mapped.queues, mapped.kept, QueueTimes(max(end), tuple(start), tuple(end)))


def chain(*kinds: str) -> Workload:
    loops = Loops(1, 8, 8, 8, 8, 3, 3)
    return Workload("chain", tuple(WorkLayer(f"l{i}", k, loops, (i - 1,) if i else ()) for i, k in enumerate(kinds)))


def test_two_layers_at_once_wrong_durations_and_too_many_weights_are_rejected() -> None:
    workload = chain(CONV, CONV)
    costs = cost_table(workload, 1e9, ACCELERATORS[:1])
    good = timed_mapping(workload, costs, ((0, 1),), Staying())
    check_queues(workload, costs, good.queues, good.kept, good.timed)
    with pytest.raises(InvariantError, match="must be in one queue, once"):
        check_queues(workload, costs, ((0,),), Staying(), good.timed)
    with pytest.raises(InvariantError, match="takes"):
        check_queues(workload, costs, good.queues, Staying(frozenset({0})), good.timed)
    with pytest.raises(InvariantError, match="at once"):
        check_queues(workload, costs, ((1, 0),), Staying(), good.timed)
    late = good.timed._replace(time=2 * good.time)
    with pytest.raises(InvariantError, match="the last layer is over"):
        check_queues(workload, costs, good.queues, Staying(), late)
    small = costs._replace(holds=(5,))
    kept = Staying(frozenset({0}))
    with pytest.raises(InvariantError, match="more than it holds"):
        check_queues(workload, small, good.queues, kept, timed_mapping(workload, small, good.queues, kept).timed)


def test_queues_that_wait_for_each_other_take_for_ever() -> None:
    workload = chain(CONV, CONV)
    assert replay(workload, ((1, 0),), [1.0, 1.0]).time == float("inf")
    assert replay(workload, ((0, 1),), [1.0, 2.0]) == QueueTimes(3.0, (0.0, 1.0), (1.0, 3.0))


def test_a_layer_that_no_accelerator_can_run_is_named() -> None:
    workload = chain(CONV, FC)
    with pytest.raises(PlanError, match="no accelerator can run l1"):
        computation_first(workload, cost_table(workload, 1e9, ACCELERATORS[:8]))


def test_a_layer_moves_behind_a_neighbour_of_its_kind_on_another_accelerator_only() -> None:
    workload = chain(CONV, CONV, FC)
    queues = ((0,), (1,), (2,))
    assert moved(workload, queues, 1, 0, behind=True) == ((0, 1), (), (2,))
    assert moved(workload, queues, 0, 1, behind=False) == ((), (0, 1), (2,))
    assert moved(workload, queues, 2, 1, behind=True) is None
    assert moved(workload, ((0, 1), (), (2,)), 1, 0, behind=True) is None


def test_energy_is_power_times_busy_time() -> None:
    workload = chain(CONV, CONV)
    costs = cost_table(workload, 1e9, ACCELERATORS[:2])
    assert joules(costs, ((0,), (1,)), [2.0, 3.0]) == pytest.approx(2 * 37.46 + 3 * 18.6)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 40))
def test_the_knapsack_is_the_best_of_all_choices(sizes: list[int], capacity: int) -> None:
    sizes = [1000 * size for size in sizes]
    found = knapsack(sizes, 1000 * capacity)
    every = [
        sum(sizes[i] for i in chosen)
        for n in range(len(sizes) + 1)
        for chosen in combinations(range(len(sizes)), n)
        if sum(sizes[i] for i in chosen) <= 1000 * capacity
    ]
    assert sum(sizes[i] for i in found) == max(every)
