"""What a decision teaches: the planner returns it, the table has it while the task is under way, and the task has none of it."""

from __future__ import annotations

import pytest

import coexec as cx
from coexec.geometry import Box
from coexec.graph.command import Chunk, Command
from coexec.graph.instruction import Launch
from coexec.graph.task import Task
from coexec.plan.lessons import GUESS, MOST, NOTHING, USUAL, Lesson, Lessons, Outcomes, StartDelays
from coexec.plan.planned import Planned
from coexec.program.variant import Variant
from tests.plan.planning import Planning

CHUNK = Chunk("cpu:0", Box((0,), (1,)))
WATCHED = Lesson(inputs=(("cpu:0", 1e-3),), outcome=("k", True, 0.5))


@cx.kernel(split=0, x=cx.read, y=cx.write)
def double(x: cx.Array, y: cx.Array) -> None:
    y[...] = 2 * x


def table(*lessons: Lesson) -> tuple[Lessons, list[Task]]:
    """Return a table that has taken the lessons of tasks 1, 2 and so on, and the tasks."""
    made = Lessons(StartDelays(), Outcomes())
    tasks = [Task(number, "k", None, None) for number in range(1, len(lessons) + 1)]
    for task, lesson in zip(tasks, lessons, strict=True):
        made.take(Planned(Command(task.id, task, (CHUNK,), (), ""), (), lesson=lesson))
    return made, tasks


def launch(*, more: bool | None = None) -> Launch:
    """Return a kernel of a task."""
    return Launch("cpu:0", CHUNK, (Variant("v", "cpu"), None, None, None, False), (), more=more)


def test_a_device_teaches_once_how_late_it_begins_and_the_task_how_long_it_takes() -> None:
    lessons, (task,) = table(WATCHED)
    lessons.finished(task, launch(), 3e-3, 1.0)
    assert lessons._start_delays.of("cpu:0") == pytest.approx(2e-3)
    assert task.id in lessons.open and not lessons._outcomes._ways
    task.finished = True
    lessons.finished(task, launch(), 4e-3, 2.0)
    assert lessons._start_delays.of("cpu:0") == pytest.approx(2e-3), "its second part waited for the first"
    assert list(lessons._outcomes._ways["k"].divided) == [2.5]
    assert not lessons.open


def test_a_task_that_is_computed_in_rounds_teaches_nothing_of_its_division() -> None:
    lessons, (task,) = table(WATCHED)
    lessons.finished(task, launch(more=False), 3e-3, 1.0)
    assert not lessons.open and lessons._start_delays.of("cpu:0") == USUAL and not lessons._outcomes._ways


def test_a_task_that_fails_teaches_nothing_of_its_division() -> None:
    lessons, (task,) = table(WATCHED)
    task.finished, task.failure = True, ValueError()
    lessons.finished(task, launch(), 3e-3, 1.0)
    assert not lessons.open and not lessons._outcomes._ways


def test_tables_hold_the_last_ones_only() -> None:
    lessons, _ = table(*[GUESS, WATCHED] * (MOST + 1))
    assert list(lessons.guesses) == [2 * i + 1 for i in range(1, MOST + 1)]
    assert list(lessons.open) == [2 * i + 2 for i in range(1, MOST + 1)]


def test_a_planner_returns_what_it_decides_and_writes_none_of_it_to_the_task() -> None:
    planning = Planning(2)
    x, y = planning.on_host(250_000), planning.on_host(250_000)
    task = planning.task(double, x, y)
    before = dict(vars(task))
    planned = planning.planner.plan(task)
    assert planned.lesson is GUESS and len(planned.command.chunks) == 2
    assert {name for name, value in vars(task).items() if before.get(name) is not value} <= {"space", "shapes"}


def test_a_measured_division_is_watched_unless_it_is_cut_again() -> None:
    planning = Planning(2)
    x, y = planning.on_host(250_000), planning.on_host(250_000)
    planning.teach(double, (x, y), {"dev:0": 1e8, "dev:1": 1e8})
    again = planning.plan(double, x, y, oversubscribe=2)
    assert len(again.command.chunks) == 4 and again.lesson.without_times() == NOTHING == again.lesson
    for device, share in zip([c.device for c in again.command.chunks], again.shares, strict=True):
        planning.planner.loads.remove(device, share.seconds)
    assert planning.planner.loads.idle
    lesson = planning.plan(double, x, y).lesson
    assert lesson.outcome is not None and lesson.outcome[1] and not lesson.guess
    assert {device for device, _ in lesson.inputs} == {"dev:0", "dev:1"}
    assert planning.plan(double, x, y).lesson is NOTHING, "something else is going on"


def test_a_task_that_is_planned_as_one_like_it_was_teaches_when_devices_begin_and_nothing_else() -> None:
    lessons, (task,) = table(NOTHING)
    assert not lessons.open
    lessons.watch(task.id, (("cpu:0", 1e-3),))
    task.finished = True
    lessons.finished(task, launch(), 3e-3, 1.0)
    assert lessons._start_delays.of("cpu:0") == pytest.approx(2e-3)
    assert not lessons.open and not lessons._outcomes._ways
    for number in range(MOST + 5):
        lessons.watch(number, ())
    assert len(lessons.open) == MOST
