"""Schedules are legal, the bound is a bound, and both are exact where the answer is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from coexec.bench.dag.program import dependencies
from coexec.bench.dag.schedule import MeasuredCosts, arrivals, best_schedule, shortest
from tests.bench.small import PROGRAMS

CORES = ("cpu:0", "cpu:1")
BOTH = ("cpu", "opencl")


def alike(name: str, **seconds: float) -> MeasuredCosts:
    """Return costs on two cores; a kernel takes a second unless said."""
    return MeasuredCosts(
        {(label, d): seconds.get(label, 1.0) for label in PROGRAMS[name].labels() for d in CORES}, {}, CORES
    )


@pytest.mark.parametrize(
    ("name", "limit"),
    [("VEC", 2.0), ("B&S", 5.0), ("IMG", 6.0), ("ML", 6.0), ("HITS", 15.0), ("DL", 5.0)],
)
def test_kernels_of_one_second_on_two_cores_take_the_critical_path_or_half_the_work(name, limit):
    costs = alike(name)
    assert shortest(PROGRAMS[name], costs) == pytest.approx(limit)
    assert best_schedule(PROGRAMS[name], costs).seconds >= limit


def test_vec_runs_its_squares_side_by_side():
    schedule = best_schedule(PROGRAMS["VEC"], alike("VEC", K3=2.0))
    assert schedule.seconds == 3.0
    assert schedule.place["K1"] != schedule.place["K2"]


def test_a_device_that_is_much_slower_gets_nothing():
    kernels = {(f"K{j}", device): 1.0 if device == "cpu" else 100.0 for j in range(10) for device in BOTH}
    costs = MeasuredCosts(kernels, {}, BOTH)
    assert set(best_schedule(PROGRAMS["B&S"], costs).place.values()) == {"cpu"}
    assert shortest(PROGRAMS["B&S"], costs) == 10.0


def test_indivisible_kernels_are_shared_out_as_well_as_they_can_be():
    kernels = {(f"K{j}", device): 1.0 if device == "cpu" else 3.0 for j in range(10) for device in BOTH}
    costs = MeasuredCosts(kernels, {}, BOTH)
    assert shortest(PROGRAMS["B&S"], costs) == 8.0  # eight against two times three; divisible work would take 7.5


def test_moving_costs_make_a_second_memory_unattractive():
    program = PROGRAMS["VEC"]
    kernels = {(label, device): 1.0 for label in program.labels() for device in BOTH}
    free = MeasuredCosts(kernels, dict.fromkeys(program.arrays, 0.0), BOTH)
    dear = MeasuredCosts(kernels, dict.fromkeys(program.arrays, 5.0), BOTH)
    assert shortest(program, free) == 2.0
    assert shortest(program, dear) == 3.0
    assert set(best_schedule(program, dear).place.values()) == {"cpu"}


def test_what_the_host_rewrites_must_arrive_and_constants_need_not():
    image = PROGRAMS["IMG"]
    all_away = {step.label: "opencl" for step in image.steps}
    assert sorted({name for _, names in arrivals(image, all_away, "cpu") for name in names}) == ["mn", "mx"]
    vector = PROGRAMS["VEC"]
    place = {"K1": "opencl", "K2": "cpu", "K3": "cpu"}
    assert arrivals(vector, place, "cpu") == [(0, ["x"]), (1, []), (2, ["x1"])]


@settings(max_examples=20)
@given(st.data())
def test_a_schedule_keeps_every_dependency_and_never_beats_the_bound(data):
    program = PROGRAMS[data.draw(st.sampled_from(["VEC", "ML", "DL"]))]
    seconds = st.floats(0.01, 10.0)
    kernels = {(label, d): data.draw(seconds) for label in program.labels() for d in BOTH}
    moves = {name: data.draw(seconds) for name in program.arrays} if data.draw(st.booleans()) else {}
    costs = MeasuredCosts(kernels, moves, BOTH)
    schedule = best_schedule(program, costs)
    assert schedule.seconds >= shortest(program, costs) - 1e-9
    assert sorted(n for order in schedule.order.values() for n in order) == list(range(len(program.steps)))
    for order in schedule.order.values():
        for number, parents in enumerate(dependencies(program.steps)):
            if number in order:
                assert all(order.index(p) < order.index(number) for p in parents if p in order)
