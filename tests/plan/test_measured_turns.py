"""What counts as a turn of a step, and how long it took: whichever call ends it, and whatever the program does in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.bench.plan.program import ArrayMaker
from coexec.graph.task import Task
from coexec.plan.candidate import known_ones, one_per_device
from coexec.plan.steps.account import MEASURED, Measured, PlanAccount, TurnClock
from coexec.plan.steps.planner import NEWS, StepPlanner
from coexec.plan.steps.trials import Measuring
from tests.plan.test_step_choice import heavy, machine_of, smooth
from tests.plan.test_steps import doubled


def task(number: int, submitted: float = 0.0, *, starved: bool = False) -> Task:
    made = Task(number, "call", None, None)
    made.submitted, made.starved = submitted, starved
    return made


def test_time_for_which_nothing_is_under_way_is_no_part_of_a_turn() -> None:
    measuring, now = Measuring(real=True, middle=True), 0.0
    for number in range(12):
        now += 0.5  # the program does something else
        call = task(number, now, starved=True)
        measuring.called(call)
        measuring.ends_turn(call, 2)
        measuring.finished(call, now + 0.01)
        now += 0.02
        measuring.finished(call, now)
    assert measuring.seconds == pytest.approx(0.02)


def test_time_for_which_a_call_waits_behind_others_is() -> None:
    measuring, now = Measuring(real=True, middle=True), 0.0
    for number in range(12):
        call = task(number, now + 0.5)
        measuring.called(call)
        measuring.ends_turn(call, 1)
        now += 0.52
        measuring.finished(call, now)
    assert measuring.seconds == pytest.approx(0.52)


def test_one_long_turn_is_enough_where_no_data_is_on_its_way() -> None:
    for settled, needed in ((True, 2), (False, 3)):  # ends of turns: one more if the first pays for the way
        clock, ends = TurnClock(middle=True), 0
        clock.begin(settled=settled)
        while clock.seconds is None:
            ends += 1
            clock.ended(0.05 * ends)
        assert ends == needed
        assert clock.seconds == pytest.approx(0.05)


def test_a_turn_in_which_kernels_are_built_is_no_measurement() -> None:
    clock, now = TurnClock(middle=True), 0.0
    clock.begin(new=True)
    for took in (0.05, 1.0, 0.04):  # of the plan before; with what is built once; as it will be
        assert clock.seconds is None and clock.first is None
        clock.ended(now := now + took)
    assert clock.first == pytest.approx(0.04)


def test_short_turns_are_not_decided_upon_before_there_are_a_few() -> None:
    clock, ends = TurnClock(middle=True), 0
    clock.begin(settled=True)
    while clock.seconds is None:
        ends += 1
        clock.ended(1e-3 * ends)
    assert ends == MEASURED + 1


def test_what_a_program_does_in_between_is_no_time_that_planning_or_trials_could_spend() -> None:
    with cx.Runtime("cpu:0,cpu:1", store="off", diagnostics="off") as runtime:
        steps: Any = runtime._driver.scheduler.plan.steps
        steps._computed(1.0, 3.0)
        assert steps._elapsed() == pytest.approx(2.0)
        steps._measuring.idle(1.5)
        assert steps._elapsed() == pytest.approx(0.5)


def test_one_turn_that_was_disturbed_does_not_count_for_all() -> None:
    found = {}
    for middle in (False, True):
        clock, now = TurnClock(middle=middle), 0.0
        clock.begin()
        for turn in range(3 + MEASURED):
            now += 1.0 if turn == 6 else 0.01
            clock.ended(now)
        assert clock.seconds is not None
        found[middle] = clock.seconds
    assert found[True] == pytest.approx(0.01)
    assert found[False] > 0.1


def test_what_was_measured_of_a_step_is_remembered_when_it_comes_again() -> None:
    remembered = Measured()
    first, second, apart = [PlanAccount(("gpu:0",), [], None, {"gpu:0": 1.0}) for _ in range(3)]
    remembered.begin("one")
    first.measured = 0.25
    remembered.note(first)
    remembered.begin("other")
    remembered.recall(apart, 7)
    assert apart.measured is None
    remembered.begin("one")
    remembered.recall(second, 7)
    assert (second.measured, second.left_at) == (0.25, 7)
    remembered.drop([("gpu:0",)])
    remembered.recall(apart, 7)
    assert apart.measured is None


def test_a_turn_is_over_although_its_last_call_ran_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    honest = StepPlanner._turn

    def turn(self: StepPlanner, repeats: Any, number: int) -> None:
        turns.append(number)
        honest(self, repeats, number)

    monkeypatch.setattr(StepPlanner, "_turn", turn)
    monkeypatch.setattr("coexec.plan.planned.CHEAP", 5e-4)  # seconds: the small one is below on any machine
    small, large = np.arange(64.0), np.arange(2e6)
    with cx.Runtime("cpu:0,cpu:1", store="off", diagnostics="off") as runtime:
        x, a, y, b = cx.array(small), cx.array(small), cx.array(large), cx.array(large)
        for _ in range(20):
            doubled.using(devices="cpu:1")(y, b)
            runtime.wait()
            doubled.using(devices="cpu:0")(x, a)  # nothing else is going on: its caller does it
        assert np.array_equal(np.asarray(a), 2 * small) and np.array_equal(np.asarray(b), 2 * large)
    assert len(turns) > 10


def test_a_number_that_is_set_now_and_then_is_no_other_step() -> None:
    platform = machine_of(1, [(2e12, 400e9)], 12e9)
    with cx.Runtime("cpu:0,gpu:0", platform=platform, store="off", diagnostics="off") as runtime:
        given = ArrayMaker(runtime._driver)
        a, b, number = given(1000, 1000), given(1000, 1000), given(4)
        for turn in range(30):
            if turn % 3:
                number[...] = 0.0
            heavy(a, b)
            smooth(b, a)
        runtime.wait()
        steps: Any = runtime._driver.scheduler.plan.steps
        assert steps._period == 2 and len(steps._step.calls) == 2 and steps._broken == 0


def test_a_step_is_planned_once_a_whole_turn_has_passed_since_a_variant_came_on() -> None:
    platform = machine_of(1, [(2e12, 400e9)], 12e9)
    with cx.Runtime("cpu:0,gpu:0", platform=platform, store="off", diagnostics="off") as runtime:
        given = ArrayMaker(runtime._driver)
        a, b = given(1000, 1000), given(1000, 1000)
        steps: Any = runtime._driver.scheduler.plan.steps
        planned = []
        for turn in range(10):
            heavy(a, b)
            if turn == 5:
                steps._candidates.forget()  # as whoever compiles bodies does
            smooth(b, a)
            planned.append(steps._step is not None)
            if turn == 5:
                assert steps.unplanned == NEWS and steps._counting  # what a turn takes is known when it is planned
            assert not (steps._counting and planned[-1])
    assert planned[4:] == [True, False, True, True, True, True]


@pytest.mark.parametrize("at", range(5))
def test_turns_end_where_the_step_was_found_whichever_call_that_was(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    aligned: list[bool] = []
    honest = StepPlanner._decide

    def decide(self: StepPlanner, moment: Any, step: Any) -> None:
        if step.exact:
            aligned.append(self._watch.ended(step))
        honest(self, moment, step)

    monkeypatch.setattr(StepPlanner, "_decide", decide)
    with cx.Runtime("cpu:0,cpu:1", store="off", diagnostics="off") as runtime:
        pairs = [(cx.array(np.arange(n)), cx.array(np.arange(n))) for n in (2e5, 3e5, 4e5, 5e5, 6e5)]
        steps: Any = runtime._driver.scheduler.plan.steps
        for turn in range(40):
            for number, (x, y) in enumerate(pairs):
                if turn in (0, 9) and number == at:
                    steps._forget()  # as if it became known only now how quick the devices are
                doubled(x, y)
        runtime.wait()
        assert all(np.array_equal(np.asarray(y), 2 * np.asarray(x)) for x, y in pairs)
    assert aligned and all(aligned)


def test_plans_are_made_with_variants_of_which_something_is_known() -> None:
    def candidate(device: str, variant: str, seconds: float | None) -> Any:
        model = SimpleNamespace(seconds=lambda _: seconds)
        return SimpleNamespace(name=device, variant=SimpleNamespace(name=variant), model=model)

    found = [candidate("cpu:0", "python", 2.0), candidate("cpu:0", "compiled", None), candidate("gpu:0", "only", None)]
    work: Any = object()
    assert [c.variant.name for c in known_ones(found, work)] == ["python", "only"]
    assert [c.variant.name for c in one_per_device(found, work)] == [
        "compiled",
        "only",
    ]  # a call tries what is not known
    found[1] = candidate("cpu:0", "compiled", 1.0)
    assert [c.variant.name for c in known_ones(found, work)] == ["compiled", "only"]
