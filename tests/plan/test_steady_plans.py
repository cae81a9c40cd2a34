"""Plans that depend on the call alone: the next calls of its shape are planned in the same way, whatever comes before them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.bench.schedule import square_free
from coexec.graph.call import describe
from coexec.graph.task import Task
from coexec.plan import planner as module
from coexec.plan.candidate import never_within
from coexec.plan.decisions import LOOK_AGAIN
from coexec.predict.features import work_of
from coexec.program.call import DEFAULT
from tests.inside import planner_of

FIRST, LAST = LOOK_AGAIN


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.update)
def blur(x: Any, y: Any) -> None:
    y += (x[:-2] + x[1:-1] + x[2:]) / 3


@cx.kernel(split=0, x=cx.update)
def add_one(x: Any) -> None:
    x += 1


def planned_calls(runtime: cx.Runtime, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the numbers of the tasks noted that the planner looks at."""
    planner = planner_of(runtime)
    seen: list[int] = []
    plan = planner.plan

    def noted(task: Any, **options: Any) -> Any:
        seen.append(task.id)
        return plan(task, **options)

    monkeypatch.setattr(planner, "plan", noted)
    return seen


def described(runtime: cx.Runtime, x: cx.Array) -> Task:
    """Return the task of a call."""
    return describe(add_one, [x], {}, DEFAULT, runtime)


def unrepeated(calls: int, sets: list[Any]) -> None:
    """Call a kernel on three sets of arrays, in an order that never repeats itself."""
    for number in islice(square_free(), calls):
        blur(*sets[number])


def test_a_program_that_does_not_repeat_itself_is_planned_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    with cx.Runtime("null:4", policy="even") as runtime:
        sets = [(cx.zeros((512, 256)), cx.zeros((512, 256))) for _ in range(3)]
        seen = planned_calls(runtime, monkeypatch)
        unrepeated(600, sets)
        looked = [task - seen[0] for task in seen]
        assert looked[:5] == [0, FIRST + 1, 3 * FIRST + 2, 7 * FIRST + 3, 15 * FIRST + 4]
        assert len(looked) <= 5 + 600 // LAST


def test_what_is_adopted_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with cx.Runtime("null:2", policy="even") as runtime:
        sets = [(cx.zeros((512, 256)), cx.zeros((512, 256))) for _ in range(3)]
        unrepeated(30, sets)
        seen = planned_calls(runtime, monkeypatch)
        unrepeated(3, sets)
        assert seen == []
        runtime.follow(blur.plan(*sets[0]))
        seen.clear()
        unrepeated(3, sets)
        assert seen != []


def test_calls_that_might_be_quick_where_their_data_is_are_planned_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNKNOWN_BYTES", 0)
    with cx.Runtime("cpu:0,cpu:1", policy="even", inline=False, store="off") as runtime:
        x = cx.zeros(4096)
        for _ in range(3):
            add_one(x).result()
        runtime._driver.pump.drain()
        planner = planner_of(runtime)
        candidates = planner._candidates.of(add_one, None)[0]
        work = work_of(described(runtime, x))
        known = [c.model.seconds(work) for c in candidates]
        assert any(seconds is not None for seconds in known)
        assert not never_within(10.0, candidates, work)
        assert never_within(0.0, candidates, work)
        np.testing.assert_array_equal(np.asarray(x), 3.0)
