"""The path a run really took: from its last completion back to its beginning, without holes, each step with a reason."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coexec.observe.analysis.bottleneck import as_data, parts, sentence
from coexec.observe.analysis.path import GAPS, LAUNCH, PROGRAM, SCHEDULING, PathStretch, path_taken
from coexec.observe.trace import Trace
from tests.observe.stories import Story, heat

PAIR: tuple[tuple[str, list[int]], ...] = (("cpu:0", [0]), ("gpu:0", []))


def simulated(story: Story) -> Trace:
    story.rows[0] |= {"virtual": True}
    return story.trace()


def short(steps: list[PathStretch]) -> list[tuple[float, str, str, str]]:
    return [(step.seconds, step.kind, step.name, step.why) for step in steps]


def without_holes(trace: Trace, steps: list[PathStretch]) -> None:
    assert all(one.stop == pytest.approx(other.start, abs=1e-8) for one, other in pairwise(steps))
    assert sum(step.seconds for step in steps) == pytest.approx(trace.window[1] - trace.window[0])


def test_a_chain_is_its_own_path_and_says_what_needed_what() -> None:
    story = Story(PAIR)
    task = story.task("use")
    make = story.run("kernel", "make", "cpu:0", 3.0, task=story.task("make"))
    copy = story.run("copy", "x", "gpu:0", 2.0, lane=1, task=task, needs=(make,), link=("host", "gpu:0"))
    story.run("kernel", "use", "gpu:0", 1.0, task=task, needs=(copy,))
    story.run("kernel", "aside", "cpu:0", 0.5, lane=1, task=story.task("aside"))
    steps = path_taken(story.trace())
    assert short(steps) == [
        (3.0, "kernel", "make", "its result was needed"),
        (2.0, "copy", "host -> gpu:0", "its result was needed"),
        (1.0, "kernel", "use", "it was the last to end"),
    ]
    without_holes(story.trace(), steps)


def test_a_busy_lane_is_on_the_path_although_nothing_of_it_was_needed() -> None:
    story = Story(PAIR)
    story.run("kernel", "first", "cpu:0", 2.0, task=story.task("first"))
    story.run("kernel", "second", "cpu:0", 1.0, task=story.task("second"))
    assert short(path_taken(story.trace())) == [
        (2.0, "kernel", "first", "its lane was busy with it"),
        (1.0, "kernel", "second", "it was the last to end"),
    ]


def full(at_once: int) -> Trace:
    """Return two kernels on two lanes of a device, the second after the first for no reason that edges tell."""
    story = Story(PAIR)
    story.rows[0]["devices"][1]["concurrent"] = at_once
    story.run("kernel", "first", "gpu:0", 2.0, lane=0, task=story.task("first"))
    story.run("kernel", "second", "gpu:0", 1.0, lane=1, task=story.task("second"), late=2.0)
    return story.trace()


def test_a_full_device_is_on_the_path_and_one_with_room_is_not() -> None:
    assert [step.kind for step in path_taken(full(1))] == ["kernel", "kernel"]
    assert path_taken(full(1))[0].why == "its device was busy with it"
    assert [step.kind for step in path_taken(full(2))] == [SCHEDULING, "kernel"]


def test_what_is_ready_and_does_not_start_is_launching_and_before_that_scheduling() -> None:
    story = Story(PAIR)
    story.rows[0]["devices"][1]["launch_s"] = 0.25
    story.run("kernel", "a", "gpu:0", 1.0, task=story.task("a"), late=1.0)
    assert [(step.seconds, step.kind) for step in path_taken(story.trace())] == [
        (0.75, SCHEDULING),
        (0.25, LAUNCH),
        (1.0, "kernel"),
    ]


def test_the_program_is_on_the_path_back_to_what_it_waited_for() -> None:
    story = Story(PAIR)
    first = story.task("first")
    story.run("kernel", "first", "cpu:0", 2.0, task=first)
    story.wait(0.5, 2.25, "float(x)")
    story.rows[-1]["task"] = first
    story.run("kernel", "second", "gpu:0", 1.0, task=story.task("second", submitted=3.0, scheduling=0.0))
    steps = path_taken(story.trace())
    assert short(steps) == [
        (2.0, "kernel", "first", "the program waited for it (float(x))"),
        (0.25, SCHEDULING, "", "the program had not been told"),
        (0.75, PROGRAM, "", "the program had not submitted it"),
        (1.0, "kernel", "second", "it was the last to end"),
    ]
    without_holes(story.trace(), steps)


def test_in_virtual_time_what_the_program_takes_is_scheduling() -> None:
    story = Story(PAIR)
    story.task("before")
    story.run("kernel", "a", "cpu:0", 1.0, task=story.task("a", submitted=3.0))
    assert [step.kind for step in path_taken(simulated(story))] == [SCHEDULING, "kernel"]
    assert [step.kind for step in path_taken(story.trace())] == [SCHEDULING, "kernel"]  # the header is now virtual
    story.rows[0]["virtual"] = False
    assert {step.kind for step in path_taken(story.trace())} == {SCHEDULING, PROGRAM, "kernel"}


def two_copies() -> Story:
    story = Story((("gpu:0", []), ("gpu:1", [])))
    for name in ("gpu:0", "gpu:1"):
        story.rows.append({"row": "link", "from": "host", "to": name, "name": "pcie", "shared": ["host>pcie"]})
        task = story.task(name)
        copy = story.run("copy", "x", name, 2.0, lane=1, task=task, link=("host", name))
        story.run("kernel", "use", name, 1.0, task=task, needs=(copy,))
    return story


def test_a_copy_says_over_what_it_went_and_with_how_many_it_shared_that() -> None:
    steps = path_taken(two_copies().trace())
    assert steps[0].name == "host -> gpu:1 over pcie"
    assert steps[0].others == pytest.approx(1.0)


def test_copies_on_separate_wires_share_nothing() -> None:
    story = two_copies()
    for row in story.rows:
        if row["row"] == "link":
            row["shared"] = [row["to"]]
    assert path_taken(story.trace())[0].others == 0.0


def test_the_bottleneck_is_the_longest_part_and_comes_with_a_remedy() -> None:
    found = parts(path_taken(two_copies().trace()))
    assert [(part.text, part.count, part.seconds) for part in found] == [
        ("copies over pcie", 1, 2.0),
        ("kernel use", 1, 1.0),
    ]
    assert sentence(found) == (
        "67% of the critical path is copies over pcie, shared with 1 other on average; 33% kernel use. "
        "A faster link, or less to copy, would make the run shorter."
    )
    assert sentence([]) == ""


def test_long_paths_are_listed_from_both_ends() -> None:
    story = Story(PAIR)
    task = story.task("a")
    for _ in range(50):
        story.run("kernel", "a", "cpu:0", 1.0, task=task)
    data = as_data(path_taken(story.trace()), 3)
    assert (data["steps"]["count"], data["seconds"]) == (50, 50.0)
    assert [step["start"] for step in data["steps"]["shown"]] == [0.0, 1.0, 2.0, 47.0, 48.0, 49.0]


@pytest.mark.parametrize("seed", range(5))
def test_any_run_has_a_path_without_holes_that_is_no_shorter_than_its_kernels_on_it(seed: int) -> None:
    trace = heat(40, seed)
    steps = path_taken(trace)
    without_holes(trace, steps)
    assert {step.kind for step in steps} <= {"kernel", "copy", "reduce", *GAPS}
    assert [step.id for step in steps if step.id is not None] == sorted({s.id for s in steps if s.id is not None})


def test_things_that_took_no_time_do_not_wait_for_each_other_in_a_circle() -> None:
    story = Story(PAIR)
    make = story.run("kernel", "make", "cpu:0", 3.0, task=story.task("make"))
    task = story.task("sums")
    ends = [story.run("reduce", "sum", "gpu:0", 0.0, lane=lane, task=task, needs=(make,)) for lane in (0, 1)]
    story.run("kernel", "use", "gpu:0", 1.0, task=story.task("use"), needs=tuple(ends))
    assert [(step.seconds, step.name) for step in path_taken(story.trace())] == [(3.0, "make"), (1.0, "use")]


def test_a_trace_without_work_has_no_path() -> None:
    assert path_taken(Story().trace()) == []
