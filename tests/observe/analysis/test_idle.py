"""Each kind of idleness, made by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coexec.observe.analysis.idle import (
    COPY,
    DEPENDENCY,
    END,
    LAUNCHING,
    NOTHING,
    SCHEDULING,
    SHARED,
    Idle,
    idle,
    idle_by_cause,
)
from coexec.observe.trace import Trace
from tests.observe.stories import Story, heat

PAIR = (("cpu:0", [0]), ("cpu:1", [1]))


def test_a_device_that_gets_its_work_late_had_nothing_submitted() -> None:
    story = Story(PAIR)
    story.run("kernel", "a", "cpu:0", 5.0, task=story.task("a"))
    story.run("kernel", "b", "cpu:1", 1.0, task=story.task("b", submitted=4.0))
    assert idle(story.trace())["cpu:1"] == [Idle(0.0, 4.0, NOTHING, "")]


def test_nothing_submitted_names_what_the_program_waited_in() -> None:
    story = Story(PAIR)
    story.run("kernel", "a", "cpu:0", 5.0, task=story.task("a"))
    story.run("kernel", "b", "cpu:1", 1.0, task=story.task("b", submitted=4.0))
    story.wait(0.5, 4.0, "float(x)")
    assert idle(story.trace())["cpu:1"] == [Idle(0.0, 4.0, NOTHING, "program in float(x)")]


def test_a_dependency_elsewhere_is_named_by_its_task() -> None:
    story = Story(PAIR)
    first = story.run("kernel", "make", "cpu:0", 3.0, task=story.task("make"))
    story.run("kernel", "use", "cpu:1", 1.0, task=story.task("use"), needs=(first,))
    found = idle(story.trace())
    assert found["cpu:1"] == [Idle(0.0, 3.0, DEPENDENCY, "T1 make")]
    assert found["cpu:0"] == [Idle(3.0, 4.0, END, "")]


def test_waiting_for_a_copy_and_for_what_it_copies_are_told_apart() -> None:
    story = Story((("cpu:0", []), ("gpu:0", []), ("dma:0", [])))
    make = story.run("kernel", "make", "cpu:0", 3.0, task=story.task("make"))
    task = story.task("use")
    copy = story.run("copy", "x", "dma:0", 2.0, task=task, needs=(make,), link=("host", "gpu:0"))
    story.run("kernel", "use", "gpu:0", 1.0, task=task, needs=(copy,))
    assert idle(story.trace())["gpu:0"] == [
        Idle(0.0, 3.0, DEPENDENCY, "T1 make"),
        Idle(3.0, 5.0, COPY, "host -> gpu:0"),
    ]


def test_a_copy_on_the_devices_own_lane_is_waiting_for_a_copy() -> None:
    story = Story((("gpu:0", []),))
    task = story.task("use")
    copy = story.run("copy", "x", "gpu:0", 2.0, lane=1, task=task, link=("host", "gpu:0"))
    story.run("kernel", "use", "gpu:0", 1.0, task=task, needs=(copy,))
    assert idle(story.trace())["gpu:0"] == [Idle(0.0, 2.0, COPY, "host -> gpu:0")]


def test_ready_work_that_does_not_start_is_scheduling() -> None:
    story = Story(PAIR)
    story.run("kernel", "a", "cpu:0", 1.0, task=story.task("a"), late=0.25)
    assert idle(story.trace())["cpu:0"] == [Idle(0.0, 0.25, SCHEDULING, "")]


def test_the_wide_device_and_the_cores_exclude_each_other() -> None:
    story = Story((("cpu:0", [0]), ("cpu:1", [1]), ("cpu:all", [0, 1])))
    first = story.run("kernel", "a", "cpu:all", 2.0, task=story.task("a"))
    task = story.task("b")
    for device in ("cpu:0", "cpu:1"):
        story.run("kernel", "b", device, 1.0, task=task, needs=(first,))
    found = idle(story.trace())
    assert found["cpu:0"] == found["cpu:1"] == [Idle(0.0, 2.0, SHARED, "cpu:all")]
    assert found["cpu:all"] == [Idle(2.0, 3.0, SHARED, "cpu:0")]


def test_a_device_never_used_had_nothing_submitted() -> None:
    story = Story(PAIR)
    story.run("kernel", "a", "cpu:0", 2.0, task=story.task("a"))
    assert idle(story.trace())["cpu:1"] == [Idle(0.0, 2.0, NOTHING, "")]


def test_what_waits_behind_a_task_submitted_later_is_still_a_dependency() -> None:
    story = Story(PAIR)
    slow = story.run("kernel", "slow", "cpu:0", 6.0, task=story.task("slow"))
    blocked, quick = story.task("blocked"), story.task("quick", submitted=2.0)
    story.run("kernel", "quick", "cpu:1", 1.0, task=quick)
    story.run("kernel", "blocked", "cpu:1", 1.0, task=blocked, needs=(slow,))
    assert idle(story.trace())["cpu:1"] == [
        Idle(0.0, 2.0, DEPENDENCY, "T1 slow"),
        Idle(3.0, 6.0, DEPENDENCY, "T1 slow"),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_busy_and_idle_time_fill_the_run_exactly_and_never_overlap(seed: int) -> None:
    trace = heat(12, seed)
    start, stop = trace.window
    for device, stretches in idle(trace).items():
        kernels = [(r["start"], r["stop"]) for r in trace.work if r["device"] == device and r["kind"] != "copy"]
        parts = sorted([*((s.start, s.stop) for s in stretches), *kernels])
        assert parts[0][0] == start
        assert all(a[1] == pytest.approx(b[0], abs=1e-12) for a, b in pairwise(parts))
        assert parts[-1][1] == pytest.approx(stop)
        assert sum(idle_by_cause(stretches).values()) == pytest.approx(sum(s.stop - s.start for s in stretches))


def test_what_was_ready_before_it_was_submitted_had_not_been_submitted() -> None:
    story = Story(PAIR)
    story.run("kernel", "a", "cpu:0", 3.0, task=story.task("a"))
    story.run("kernel", "b", "cpu:1", 1.0, task=story.task("b", submitted=2.0), late=0.5)
    story.rows[-1]["ready"] = 0.0
    assert idle(story.trace())["cpu:1"] == [Idle(0.0, 2.0, NOTHING, ""), Idle(2.0, 2.5, SCHEDULING, "")]


def test_records_without_task_or_ready_time_are_no_obstacle() -> None:
    rows = [
        {"row": "header", "version": 1},
        {"row": "ran", "id": 1, "kind": "kernel", "device": "cpu:0", "start": 1.0, "stop": 2.0},
        {"row": "ran", "id": 2, "kind": "kernel", "device": "cpu:0", "start": 3.0, "stop": 4.0},
    ]
    assert idle(Trace(rows))["cpu:0"] == [Idle(2.0, 3.0, NOTHING, "")]


def test_a_launch_takes_its_time_before_the_kernel_and_is_no_scheduling() -> None:
    story = Story((("gpu:0", []),))
    story.rows[0]["devices"][0]["launch_s"] = 0.25
    story.run("kernel", "a", "gpu:0", 1.0, task=story.task("a"), late=1.0)
    assert idle(story.trace())["gpu:0"] == [Idle(0.0, 0.75, SCHEDULING, ""), Idle(0.75, 1.0, LAUNCHING, "")]
