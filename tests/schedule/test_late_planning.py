"""Calls are planned when devices need them: what is adopted or measured meanwhile counts for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coexec as cx
from coexec.graph.instruction import Launch
from coexec.schedule.plan import LEAST, STEPS
from tests.backend.simulated_parts import opened, platform

TWO = """
[[memory]]
name = "host"
bandwidth = 50e9

[[memory]]
name = "gpu"
count = 2
capacity = "4 GB"
bandwidth = 500e9

[[device]]
name = "gpu"
kind = "gpu"
count = 2
memory = "gpu"
flops = 1e9
bandwidth = 500e9

[[link]]
from = "host"
to = "gpu"
bandwidth = 16e9
latency = 5e-6
"""
CALLS = 60


@cx.kernel(split=0, y=cx.update, flops=lambda y: 1e4 * y.size)
def slow(y):
    """Take 10 ms for 1,000 points on a device of 1 Gflop/s."""
    y += 1


def devices(runtime: cx.Runtime) -> list[tuple[str, ...]]:
    """Have the devices of every task of `slow` noted, in the order in which their parts are over."""
    found: dict[int, list[str]] = {}
    before = runtime._driver.executor.on_finished

    def note(ran):
        if type(ran.instruction.step) is Launch and ran.instruction.task.name == "slow":
            found.setdefault(ran.instruction.task.id, []).append(ran.device)
        before(ran)

    runtime._driver.executor.on_finished = note
    runtime.wait()
    return [tuple(sorted(names)) for _, names in sorted(found.items())]


def test_a_program_that_runs_ahead_has_few_of_its_calls_planned() -> None:
    with opened(TWO) as runtime:
        y = cx.zeros(2000)
        for _ in range(4):
            slow(y)
        cx.wait()
        for _ in range(CALLS):
            slow(y)
        waiting = runtime._driver.scheduler.plan.waiting
        assert CALLS - 8 <= waiting < CALLS
        cx.wait()
        assert not runtime._driver.scheduler.plan.waiting


def test_who_reads_something_else_does_not_wait_for_what_is_planned_later() -> None:
    with opened(TWO, execute=True) as runtime:
        y, z = cx.zeros(2000), cx.array(np.arange(3.0))
        for _ in range(4):
            slow(y)
        cx.wait()
        tasks = [slow(y) for _ in range(CALLS)]
        assert runtime._driver.scheduler.plan.waiting
        np.testing.assert_array_equal(np.asarray(z), np.arange(3.0))
        assert not tasks[-1].done()
        np.testing.assert_array_equal(np.asarray(y), np.full(2000, 4.0 + CALLS))


def test_a_plan_that_is_adopted_is_in_force_within_two_steps() -> None:
    with opened(TWO) as runtime:
        y = cx.zeros(2000)
        for _ in range(8):
            slow(y)
        cx.wait()
        alone = slow.using(devices="gpu:1").plan(y)
        for _ in range(CALLS):
            slow(y)
        planned = CALLS - runtime._driver.scheduler.plan.waiting
        runtime.follow(alone)
        ran = devices(runtime)
        assert ran[:planned] == [("gpu:0", "gpu:1")] * planned
        assert ran[planned:] == [("gpu:1",)] * (CALLS - planned)
        assert planned <= STEPS + LEAST  # a step is one call


@pytest.mark.parametrize("calls", [2, 4, 6, 9])
def test_a_plan_is_in_force_two_steps_after_it_was_adopted_however_many_calls_a_step_has(calls: int) -> None:
    with opened(TWO) as runtime:
        arrays = [cx.zeros(2000) for _ in range(calls)]
        for _ in range(8):
            for y in arrays:
                slow(y)
        cx.wait()
        alone = slow.using(devices="gpu:1").plan(arrays[0])
        for _ in range(12):
            for y in arrays:
                slow(y)
        planned = 12 * calls - runtime._driver.scheduler.plan.waiting
        runtime.follow(alone)
        ran = devices(runtime)
        assert ran[planned:] == [("gpu:1",)] * (12 * calls - planned)
        assert planned <= STEPS * calls + max(1, LEAST - STEPS * calls)  # the next call looks whether there is enough


def test_everything_is_planned_when_the_program_flushes_or_waits_for_one_task() -> None:
    with opened(TWO) as runtime:
        y = cx.zeros(2000)
        for _ in range(4):
            slow(y)
        cx.wait()
        tasks = [slow(y) for _ in range(CALLS)]
        plan = runtime._driver.scheduler.plan
        tasks[20].result()
        assert 0 < plan.waiting < CALLS - 20
        cx.flush()
        assert not plan.waiting


def test_a_call_that_nobody_can_run_is_refused_at_once_however_far_the_program_is_ahead() -> None:
    with opened(TWO) as runtime:
        y = cx.zeros(2000)
        for _ in range(4):
            slow(y)
        cx.wait()
        for _ in range(CALLS):
            slow(y)
        assert runtime._driver.scheduler.plan.waiting
        with pytest.raises(cx.CoexecError, match="gpu:9"):
            slow.using(devices="gpu:9")(y)


def test_calls_that_are_planned_late_are_in_the_trace_with_their_reasons(tmp_path: Path) -> None:
    with cx.Runtime(platform=platform(TWO), trace=tmp_path / "trace.json", store="off") as runtime:
        y = cx.zeros(2000)
        for _ in range(CALLS):
            slow(y)
        assert runtime._driver.scheduler.plan.waiting
    trace = cx.Trace.load(tmp_path / "trace.json")
    rows = [task for task in trace.tasks if task["name"] == "slow"]
    assert len(rows) == CALLS
    assert all(row["why"] for row in rows)
