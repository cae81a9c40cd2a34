"""What scheduling cost a run, in hand-made traces with answers one can work out by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import coexec as cx
from coexec.observe.analysis.scheduling import scheduling
from coexec.observe.pictures.gantt import gantt_svg
from coexec.observe.report import summary
from coexec.observe.trace import Trace
from tests.observe.stories import Story

TWO = (("cpu:0", [0]), ("cpu:1", [1]))


def half_hidden() -> Trace:
    """Return a run of 10 s: 2 s of scheduling before anything runs, 3 s beside a kernel, 1 s between two kernels."""
    story = Story(TWO)
    first = story.task("first", 0.0, scheduling=2.0)
    second = story.task("second", 2.0, scheduling=3.0)
    third = story.task("third", 6.0, scheduling=2.0)
    story.run("kernel", "first", "cpu:0", 4.0, task=first, late=2.0)  # 2 to 6
    story.run("kernel", "second", "cpu:1", 2.0, task=second, late=3.0)  # 5 to 7
    story.run("kernel", "third", "cpu:0", 2.0, task=third, late=2.0)  # 8 to 10
    return story.trace()


def test_scheduling_beside_a_kernel_is_hidden_and_the_rest_starves_the_devices() -> None:
    found = scheduling(half_hidden())
    assert found.hidden == [(2.0, 5.0), (6.0, 7.0)]
    assert found.starved == [(0.0, 2.0), (7.0, 8.0)]
    assert (found.starvation, found.makespan, found.active) == (3.0, 10.0, 10.0)
    assert found.share == found.share_of_active == pytest.approx(0.3)


def test_time_in_which_the_program_does_something_else_is_not_starvation() -> None:
    """B66: starvation is counted only while the scheduler is busy."""
    story = Story(TWO)
    first, second = story.task("first", 0.0, scheduling=1.0), story.task("second", 8.0, scheduling=1.0)
    story.run("kernel", "first", "cpu:0", 2.0, task=first, late=1.0)  # 1 to 3
    story.run("kernel", "second", "cpu:0", 1.0, task=second, late=1.0)  # 9 to 10
    found = scheduling(story.trace())
    assert (found.starvation, found.active, found.makespan) == (2.0, 5.0, 10.0)
    assert (found.share, found.share_of_active) == (0.2, 0.4)


def test_a_copy_keeps_the_devices_from_starving() -> None:
    story = Story(TWO)
    first, second = story.task("first", 0.0, scheduling=0.0), story.task("second", 0.0, scheduling=2.0)
    story.run("copy", "x", "cpu:0", 2.0, task=first, link=("host", "cpu:0"))
    story.run("kernel", "second", "cpu:1", 1.0, task=second, late=2.0)
    assert scheduling(story.trace()).starved == []


def test_overlapping_calls_of_several_threads_count_once() -> None:
    story = Story(TWO)
    first, _ = story.task("first", 0.0, scheduling=2.0), story.task("second", 1.0, scheduling=2.0)
    story.run("kernel", "first", "cpu:0", 1.0, task=first, late=3.0)
    found = scheduling(story.trace())
    assert (found.busy, found.starvation) == ([(0.0, 3.0)], 3.0)


def test_the_scheduler_is_busy_and_idle_in_turn() -> None:
    """B48: its busy times are disjoint, so that between two of them it is idle, as before the first."""
    busy = scheduling(half_hidden()).busy
    assert busy == [(0.0, 5.0), (6.0, 8.0)]
    assert all(before[1] < after[0] for before, after in pairwise(busy))


def test_the_report_has_totals_per_task_hidden_and_starved() -> None:
    found = summary(half_hidden())["scheduling"]
    assert (found["total"], found["per_task"]) == (7.0, pytest.approx(7 / 3))
    assert (found["hidden"], found["starvation"]) == (4.0, 3.0)
    assert found["starvation_share"] == found["starvation_of_active"] == pytest.approx(0.3)


def test_an_empty_run_costs_nothing() -> None:
    found = scheduling(Trace([{"row": "header", "version": 1}]))
    assert (found.starvation, found.share, found.share_of_active) == (0.0, 0.0, 0.0)


def test_the_picture_has_a_track_for_the_scheduler() -> None:
    picture = gantt_svg(half_hidden())
    assert ">scheduling</text>" in picture
    assert "scheduling for 2.00 s: every device idle" in picture
    assert "scheduling for 3.00 s: hidden behind execution" in picture


@pytest.mark.parametrize(("devices", "virtual"), [("null:2", False), ("simulated:2", True)])
def test_runs_on_invented_devices_have_times_in_order(devices: str, virtual: bool, tmp_path: Path) -> None:
    @cx.kernel(x=cx.read, y=cx.update)
    def axpy(x, y):
        y += x

    file = tmp_path / "run.json"
    with cx.Runtime(devices=devices, trace=file, store="off"):
        x, y = cx.array(np.ones(10)), cx.zeros(10)
        for _ in range(3):
            axpy(x, y)
    trace = Trace.load(file)
    assert bool(trace.header.get("virtual")) == virtual
    assert all(0.0 <= row["ready"] <= row["start"] <= row["stop"] <= 60.0 for row in trace.ran)
    submitted = {task["id"]: task["submitted"] for task in trace.tasks}
    assert all(submitted[row["task"]] <= row["start"] for row in trace.work if row["task"] in submitted)
    report = summary(trace)
    assert report["scheduling"]["total"] > 0.0
    assert (report["scheduling"]["starvation"] == 0.0) == virtual
