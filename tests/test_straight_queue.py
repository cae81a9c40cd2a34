"""A call that goes straight to a queue leaves what the general way leaves: numbers, places, edges, records, failures and contents."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.driver import Driver
from coexec.graph.shape import SameCall
from coexec.graph.task import Task
from coexec.straight import StatesMet
from coexec.straight_queue import QueuedCall
from tests.test_straight import Seen, add, described, grow, instruction, mix, one_of, refuse, scale, short

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
PROGRAMS, BLOCKS = 24, 12


@cx.kernel(split=0, y=cx.update)
def gate(y: Any) -> None:
    y += 0


def counted(driver: Driver) -> list[str]:
    """Return the names of the calls that go straight to a queue from now on."""
    names: list[str] = []
    assert driver._queue is not None
    go = driver._queue._go

    def count(task: Task, same: SameCall, known: QueuedCall, seen: StatesMet) -> None:
        names.append(task.name)
        go(task, same, known, seen)

    driver._queue._go = count  # type: ignore[method-assign]
    return names


def queued_calls(draw: random.Random, arrays: list[Any], *, may_fail: bool) -> list[Any]:
    """Make some calls on whole arrays and on parts; return their tasks."""
    made = []
    for _ in range(draw.randint(1, 9)):
        x, y, z = draw.sample(arrays[1:], 3)
        way = draw.randrange(10 if may_fail else 9)
        if way < 4:
            made.append(add(x, y))
        elif way < 6:
            made.append(mix(x, y, z))
        elif way < 8:
            made.append(grow(y))
        elif way < 9:
            made.append(add(x[1:5], y[2:6]))
        else:
            made.append(refuse(y, draw.choice((-1e9, 1e9, 1e9, 1e9))))
    return made


def tried(act: Callable[[], Any]) -> Any:
    """Return what something returns: a task, or a text that says what it was; or what it raises."""
    try:
        result = act()
    except Exception as error:
        return type(error).__name__, str(error)
    return result if isinstance(result, Task) else repr(result)


def became(seed: int, *, straight: bool, inline: bool) -> tuple[list[Any], list[str]]:
    """Return what a random program becomes, and which of its calls went straight to a queue."""
    draw = random.Random(seed)
    found: list[Any] = []
    may_fail = draw.random() < 0.5  # on two cores, what fails first depends on threads
    devices = "cpu:0" if may_fail else "cpu:0,cpu:1"
    with cx.Runtime(devices, replay=False, inline=inline, diagnostics="off", store="off") as runtime:
        driver, seen = runtime._driver, Seen()
        driver.pump.observe(seen)
        names = counted(driver)
        if not straight:
            driver._queue = None
        arrays: list[Any] = [cx.asarray(np.arange(8.0)), *[cx.array(np.arange(8.0) + n) for n in range(4)]]
        extra = [cx.array(np.array(1.5))]
        for _ in range(BLOCKS):
            # Loads, and with them places, depend on nothing but the calls: within a block, nothing is over before all are made.
            with driver.lock, driver.executor.standing_still():
                driver.scheduler.plan._runs_inline = False
                found.append(
                    gate(arrays[-1])
                )  # something is under way, so the caller runs nothing of what follows itself
                driver.scheduler.plan._runs_inline = inline
                found += queued_calls(draw, arrays, may_fail=may_fail)
            driver.wait()
            if may_fail:
                found.append(tried(one_of(draw, arrays, extra)))
                driver.wait()
        found = [described(task) | {"call": ""} if isinstance(task, Task) else task for task in found]
        found += [tried(array.__array__) for array in arrays]
        scheduler = driver.scheduler
        found.append((scheduler.link.graph.last, scheduler.lowering.emitter.last, scheduler.counts, scheduler.live()))
        found.append((dict(scheduler.plan.loads.tasks), dict(scheduler.plan.loads.seconds)))
        arrays.clear()
        extra.clear()
        driver.unseen()
    # An idle core takes over what was issued to another, and two of them end in any order.
    ran = sorted([(*one[:2], *one[3:]) for one in map(instruction, seen.records)], key=lambda one: one[0])
    return [*found, *ran], names


@pytest.mark.parametrize("inline", [False, True])
def test_random_programs_become_the_same_in_both_ways(monkeypatch: pytest.MonkeyPatch, inline: bool) -> None:
    short(monkeypatch)
    straight = 0
    for seed in range(PROGRAMS):
        found, names = became(seed, straight=True, inline=inline)
        expected, none = became(seed, straight=False, inline=inline)
        assert found == expected, f"seed {seed}"
        assert not none
        straight += len(names)
    assert straight > 5 * PROGRAMS  # else nothing was compared


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A runtime that analyses every call and sends it to a queue."""
    short(monkeypatch)
    with cx.Runtime("cpu:0", replay=False, inline=False, diagnostics="off", store="off") as opened:
        yield opened


def test_a_call_knows_the_line_of_the_program_and_its_context(runtime: cx.Runtime) -> None:
    x, y = cx.array(np.ones(8)), cx.array(np.ones(8))
    lines = set()
    for _ in range(4):
        task, line = add(x, y), sys._getframe().f_lineno
        lines.add((task.call, task.line - line))
    assert lines == {(__file__, 0)}
    names = counted(runtime._driver)
    with np.errstate(over="raise"), runtime._driver.lock:  # so that it is not over yet
        task = add(x, y)
        assert task.context is not None
        assert task.context.run(lambda: np.geterr()["over"]) == "raise"
    assert names == ["add"]
    np.testing.assert_array_equal(np.asarray(y), 6.0)


def test_a_kernel_that_can_be_cut_is_planned_in_the_general_way(runtime: cx.Runtime) -> None:
    y = cx.array(np.ones(8))
    names = counted(runtime._driver)
    for _ in range(4):
        scale(y, 2.0)
    assert names == []
    np.testing.assert_array_equal(np.asarray(y), 16.0)


def test_another_variant_a_failure_and_another_size_take_the_general_way(runtime: cx.Runtime) -> None:
    x, y = cx.array(np.ones(8)), cx.array(np.ones(8))
    for _ in range(3):
        add(x, y)
    names = counted(runtime._driver)
    add(x, y)
    assert names == ["add"]
    add.variant(lambda x, y: np.add(x, y, out=y), name="other")
    try:
        add(x, y)
        assert names == ["add"]
    finally:
        add.variants.pop()
    add(x, cx.array(np.ones(8)))
    assert names == ["add"]
    failed = refuse(y, -1e9)
    assert isinstance(failed.exception(), ValueError)
    add(x, y)
    assert names == ["add"]
    with pytest.raises(ValueError, match="too large"):
        np.asarray(y)


@pytest.mark.parametrize(
    "options", [{"replay": True}, {"replay": False, "debug": True}, {"replay": False, "sync": True}]
)
def test_who_replays_or_looks_closely_sends_nothing_straight_to_a_queue(options: dict[str, Any]) -> None:
    with cx.Runtime("cpu:0", store="off", **options) as runtime:
        assert runtime._driver._queue is None
