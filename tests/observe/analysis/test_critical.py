"""The longest chain through what ran."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.observe.report import critical_path
from coexec.observe.trace import Trace
from tests.observe.stories import Story


def test_the_longer_of_two_branches_is_the_critical_one() -> None:
    story = Story()
    root = story.run("kernel", "root", "cpu:0", 1.0)
    short = story.run("kernel", "short", "cpu:0", 1.0, needs=(root,))
    long = story.run("kernel", "long", "cpu:1", 3.0, after=(root,))
    story.run("kernel", "join", "cpu:0", 1.0, needs=(short, long))
    path = critical_path(story.trace())
    assert path.length == 5.0
    assert [row["name"] for row in path.steps] == ["root", "long", "join"]


def test_an_instruction_without_a_record_still_orders_others() -> None:
    story = Story()
    first = story.run("kernel", "a", "cpu:0", 1.0)
    horizon = {"row": "instruction", "id": 50, "kind": "horizon", "device": "", "needs": [], "after": [first]}
    last = {"row": "instruction", "id": 51, "kind": "kernel", "device": "cpu:1", "needs": [], "after": [50]}
    ran = {"row": "ran", "id": 51, "kind": "kernel", "name": "b", "device": "cpu:1", "start": 1.0, "stop": 3.0}
    path = critical_path(Trace([*story.rows, horizon, last, ran]))
    assert path.length == 3.0 and [row["name"] for row in path.steps] == ["a", "b"]


def test_nothing_ran() -> None:
    assert critical_path(Trace([])) == (0.0, [])


@given(st.lists(st.tuples(st.integers(1, 9), st.sets(st.integers(0, 11), max_size=3)), max_size=12))
def test_it_is_the_longest_of_all_paths(shape: list[tuple[int, set[int]]]) -> None:
    story = Story()
    best: list[float] = []
    for number, (seconds, edges) in enumerate(shape):
        before = [e for e in edges if e < number]
        story.run("kernel", "k", "cpu:0", float(seconds), lane=number, needs=tuple(e + 1 for e in before))
        best.append(seconds + max((best[e] for e in before), default=0))
    path = critical_path(story.trace())
    assert path.length == pytest.approx(max(best, default=0))
    assert sum(row["stop"] - row["start"] for row in path.steps) == pytest.approx(path.length)


def test_numbers_may_run_against_the_edges_where_ranks_send_each_other_messages() -> None:
    story = Story()
    late = story.run("kernel", "late", "cpu:0", 1.0)
    early = story.run("kernel", "early", "cpu:1", 3.0)
    row = next(row for row in story.rows if row["row"] == "instruction" and row["id"] == late)
    ran = next(row for row in story.rows if row["row"] == "ran" and row["id"] == late)
    row["needs"] = [early]
    ran |= {"start": 3.0, "stop": 4.0}
    path = critical_path(story.trace())
    assert (path.length, [row["name"] for row in path.steps]) == (4.0, ["early", "late"])
