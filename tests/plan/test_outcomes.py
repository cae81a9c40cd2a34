"""The better way to run a task is the one that was measured to be: divided or undivided."""

from __future__ import annotations

import numpy as np

import coexec as cx
from coexec.geometry import Box
from coexec.graph.command import Chunk, Command
from coexec.graph.instruction import Launch
from coexec.graph.task import Task
from coexec.machine.platform import Device, Platform
from coexec.plan.lessons import ENOUGH, PAUSE, TRY_AT, Lesson, Lessons, Outcomes, outcome_key
from coexec.plan.planned import Planned
from coexec.plan.policies import Loads
from coexec.program.variant import Variant


def run(outcomes: Outcomes, times: int, seconds: float, *, divided: bool = False) -> None:
    for _ in range(times):
        outcomes.learn("k", seconds=seconds, divided=divided)


def test_a_task_nobody_ran_is_divided_as_planned() -> None:
    assert not Outcomes().undivided("k", close=True)


def test_the_other_way_is_tried_after_a_few_divisions_if_it_may_be_close() -> None:
    outcomes = Outcomes()
    run(outcomes, TRY_AT - 1, 1.0, divided=True)
    assert not outcomes.undivided("k", close=True)
    run(outcomes, 1, 1.0, divided=True)
    assert outcomes.undivided("k", close=True) and not outcomes.undivided("k", close=False)
    run(outcomes, ENOUGH, 2.0)
    assert not outcomes.undivided("k", close=True), "it was tried, and is slower"


def test_what_is_faster_undivided_stays_whole_and_division_gets_chances_at_growing_distances() -> None:
    outcomes = Outcomes()
    run(outcomes, TRY_AT, 1.0, divided=True)
    run(outcomes, ENOUGH, 0.5)
    distances, whole = [], 0
    for _ in range(20 * PAUSE):
        if outcomes.undivided("k", close=False):
            whole += 1
            run(outcomes, 1, 0.5)
        else:
            run(outcomes, 1, 1.0, divided=True)
            distances.append(whole)
            whole = 0
    assert [d for d in distances if d] == [PAUSE - 1, 2 * PAUSE - 1, 4 * PAUSE - 1, 8 * PAUSE - 1][
        : len([d for d in distances if d])
    ]
    assert len([d for d in distances if d]) >= 3


def test_a_division_that_was_disturbed_comes_back() -> None:
    outcomes = Outcomes()
    run(outcomes, TRY_AT, 9.0, divided=True)
    run(outcomes, ENOUGH, 2.0)
    ways = []
    for _ in range(3 * PAUSE):
        whole = outcomes.undivided("k", close=False)
        ways.append(whole)
        run(outcomes, 1, 2.0 if whole else 1.0, divided=not whole)
    assert not any(ways[-PAUSE:])


def test_first_runs_are_cold_and_do_not_count() -> None:
    outcomes = Outcomes()
    run(outcomes, 1, 0.1, divided=True)
    run(outcomes, TRY_AT, 1.0, divided=True)
    run(outcomes, 1, 50.0)
    run(outcomes, ENOUGH, 0.8)
    assert outcomes.undivided("k", close=False)


def test_memory_stays_bounded() -> None:
    outcomes = Outcomes(most=4)
    for key in range(100):
        outcomes.learn(key, seconds=1.0, divided=True)
    assert len(outcomes._ways) <= 4


def test_a_way_is_tried_only_when_what_comes_out_will_be_seen() -> None:
    """A loop of queued tasks is not run undivided from end to end to learn the time of its first."""
    outcomes = Outcomes()
    for _ in range(TRY_AT):
        outcomes.learn("call", seconds=1.0, divided=True)
    assert not outcomes.undivided("call", close=True, seen=False)
    assert outcomes.undivided("call", close=True, seen=True) and not outcomes.judged("call")
    for _ in range(ENOUGH + 1):
        outcomes.learn("call", seconds=1.5, divided=False)
    assert outcomes.judged("call") and not outcomes.undivided("call", close=True, seen=True)


def test_a_task_is_judged_anew_when_its_kernel_has_other_variants() -> None:
    kernel = cx.kernel(name="k", x=cx.update)(lambda x: np.add(x, 1, out=x))
    task = Task(1, "k", kernel, None)
    before = outcome_key(task)
    kernel.variants.append(Variant("compiled", "compiled"))
    assert outcome_key(task) != before
    kernel.variants[-1].off = "it differs"
    assert outcome_key(task) == before


def test_a_run_that_was_compared_teaches_nothing_of_its_division() -> None:
    loads = Loads(Platform((Device("cpu:0", "cpu", 1),)))
    kernel = cx.kernel(name="k", x=cx.update)(lambda x: np.add(x, 1, out=x))
    step = Launch("cpu:0", Chunk("cpu:0", Box((0,), (1,))), (kernel.variants[0], None, None, None, False), ())
    for odd in (True, False):
        task = Task(1, "k", kernel, None)
        task.finished = True
        lessons = Lessons(loads.start_delays, loads.outcomes)
        command = Command(task.id, task, (step.chunk,), (), "")
        lessons.take(Planned(command, (), lesson=Lesson(outcome=(outcome_key(task), True, 0.0))))
        lessons.finished(task, step, 0.0, 1.0, odd=odd)
        assert not lessons.open
        ways = loads.outcomes._ways.get(outcome_key(task))
        assert (ways is None) == odd
