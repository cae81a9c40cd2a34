"""A straight call leaves what the general way leaves: numbers, edges, records, handles, failures and contents."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Ran
from coexec.driver import Driver
from coexec.graph.instruction import Launch
from coexec.graph.task import Task
from coexec.predict.model import KernelModel
from coexec.program.kernel import Kernel
from tests.holding import closed_gate, pass_gate

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
FACTOR = 3.0
PROGRAMS, CALLS = 30, 70


@cx.kernel(x=cx.read, y=cx.update)
def add(x: Any, y: Any) -> None:
    y += x


@cx.kernel(x=cx.read, y=cx.read, z=cx.write)
def mix(x: Any, y: Any, z: Any) -> None:
    z[...] = x - y


@cx.kernel(split=0, y=cx.update)
def scale(y: Any, by: Any) -> None:
    y *= by


@cx.kernel(y=cx.update)
def grow(y: Any) -> None:
    y += FACTOR


@cx.kernel(y=cx.update)
def refuse(y: Any, limit: Any) -> None:
    if y.flat[0] > limit:
        raise ValueError("too large")
    y += 1


@cx.kernel(y=cx.write)
def interrupted(y: Any, when: Any) -> None:
    if when:
        raise KeyboardInterrupt
    y[...] = 1


@cx.kernel(y=cx.update)
def gated(y: Any) -> None:
    pass_gate("straight")
    y += 1


class Seen:
    """Takes what ran."""

    def __init__(self) -> None:
        self.records: list[Ran] = []

    def ran(self, records: Sequence[Ran]) -> None:
        self.records += records


def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call be predicted to be short, whatever this machine takes for it."""
    monkeypatch.setattr(KernelModel, "seconds", lambda self, work, *, together=False: 1e-6)


def counted(driver: Driver) -> list[str]:
    """Return the names of the straight calls from now on."""
    names: list[str] = []
    assert driver._straight is not None
    run = driver._straight.run

    def count(kernel: Kernel, args: tuple[Any, ...], small: Any) -> Task | None:
        task = run(kernel, args, small)
        if task is not None:
            task.call, task.line = "", 0  # one frame more than there is
            names.append(kernel.name)
        return task

    driver._straight.run = count  # type: ignore[method-assign]
    return names


def described(task: Task) -> dict[str, Any]:
    """Return what is noted of a task, but for times and for what each run has of its own."""
    own = {
        "_owner",
        "kernel",
        "submitted",
        "scheduling",
        "studied",
        "same",
        "failure",
        "told",
        "context",
        "waiters",
        "key",
        "line",
    }
    failure = task.failure
    return {name: value for name, value in vars(task).items() if name not in own} | {
        "failure": None if failure is None else (type(failure).__name__, str(failure), type(failure.__cause__)),
        "shapes of the key": repr(task.key),
        "same": task.same is not None,
    }


def instruction(ran: Ran) -> tuple[Any, ...]:
    """Return what is noted of an instruction that ran, but for times."""
    node, step = ran.instruction, ran.instruction.step
    what: tuple[Any, ...] = ()
    if isinstance(step, Launch):
        bindings = [(b.name, b.allocation and b.allocation.id, b.box, b.cut, b.writes) for b in step.bindings]
        what = (step.chunk, bindings, step.priority, step.predicted, step.body.name, step.together)
    error = None if ran.error is None else (type(ran.error).__name__, str(ran.error))
    whose = None if node.task is None else node.task.id
    return node.id, step.kind, ran.device, whose, node.needs, node.after, what, error


def one_of(draw: random.Random, arrays: list[Any], extra: list[Any]) -> Callable[[], Any]:
    """Return something that a program may do next: mostly calls on whole arrays."""
    x, y, z = draw.sample(arrays[1:], 3)
    borrowed = arrays[0]
    number = draw.randrange(100)
    ways: list[tuple[int, Callable[[], Any]]] = [
        (30, lambda: add(x, y)),
        (45, lambda: mix(x, y, z)),
        (58, lambda: scale(y, draw.choice((0.5, 2, np.float32(0.25))))),
        (66, lambda: grow(y)),
        (72, lambda: add(x[1:5], y[2:6])),
        (75, lambda: add(x, x)),
        (78, lambda: refuse(y, 1e3)),
        (79, lambda: refuse(y, -1e9)),
        (84, lambda: np.asarray(y)),
        (86, lambda: np.add(x, y, out=z)),
        (88, lambda: scale(y, extra[0])),
        (90, lambda: extra.append(cx.array(np.ones(6)))),
        (92, lambda: extra.pop() if len(extra) > 1 else None),
        (94, lambda: add(extra[-1], y[:6]) if extra[-1].shape else None),
        (96, lambda: add(borrowed, y)),
        (97, lambda: add(y, borrowed)),
        (98, lambda: scale.using(priority=1)(y, 2)),
    ]
    return next((act for limit, act in ways if number < limit), cx.wait)


def became(seed: int, *, straight: bool) -> tuple[list[Any], list[str]]:
    """Return what a random program becomes, and which of its calls were straight."""
    draw = random.Random(seed)
    found: list[Any] = []
    with cx.Runtime(
        "cpu:0,cpu:1", replay=False, diagnostics="off", store="off", horizon=draw.choice((8, 512))
    ) as runtime:
        driver, seen = runtime._driver, Seen()
        driver.pump.observe(seen)
        names = counted(driver)
        if not straight:
            driver._straight = None
        arrays: list[Any] = [cx.asarray(np.arange(8.0)), *[cx.array(np.arange(8.0) + n) for n in range(4)]]
        extra = [cx.array(np.array(1.5))]
        for _ in range(CALLS):
            try:
                found.append(one_of(draw, arrays, extra)())
            except Exception as error:
                found.append((type(error).__name__, str(error)))
            if isinstance(found[-1], Task):
                found[-1].wait()
                found[-1] = described(found[-1]) | {"call": ""}
            elif isinstance(found[-1], np.ndarray):
                found[-1] = found[-1].tolist()
            elif isinstance(found[-1], cx.Array):
                found[-1] = "an array"
        for array in arrays:
            try:
                found.append(np.asarray(array).tolist())
            except Exception as error:
                found.append((type(error).__name__, str(error)))
        scheduler = driver.scheduler
        found.append((scheduler.link.graph.last, scheduler.lowering.emitter.last, scheduler.counts, scheduler.live()))
        del array
        arrays.clear()
        extra.clear()
        driver.unseen()
    return [*found, *map(instruction, seen.records)], names


def test_random_programs_become_the_same_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    short(monkeypatch)
    straight = 0
    for seed in range(PROGRAMS):
        found, names = became(seed, straight=True)
        expected, none = became(seed, straight=False)
        assert found == expected, f"seed {seed}"
        assert not none
        straight += len(names)
    assert straight > 5 * PROGRAMS  # else nothing was compared


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A runtime that analyses every call and finds it short."""
    short(monkeypatch)
    with cx.Runtime("cpu:0", replay=False, diagnostics="off", store="off") as opened:
        yield opened


def test_a_call_knows_the_line_of_the_program(runtime: cx.Runtime) -> None:
    x, y = cx.array(np.ones(8)), cx.array(np.ones(8))
    lines = set()
    for _ in range(4):
        task, line = add(x, y), sys._getframe().f_lineno
        lines.add((task.call, task.line - line))
    assert lines == {(__file__, 0)}
    names = counted(runtime._driver)
    add(x, y)
    assert names == ["add"]


def test_values_from_outside_are_those_of_the_call(runtime: cx.Runtime) -> None:
    y = cx.array(np.zeros(8))
    step = 1.0

    @cx.kernel(y=cx.update)
    def climb(y: Any) -> None:
        y += step

    for _ in range(3):
        climb(y)
    names = counted(runtime._driver)
    step = 10.0
    climb(y)
    assert names == ["climb"]
    np.testing.assert_array_equal(np.asarray(y), 13.0)


def test_what_is_under_way_or_failed_or_new_takes_the_general_way(runtime: cx.Runtime) -> None:
    x, y = cx.array(np.ones(8)), cx.array(np.ones(8))
    for _ in range(3):
        add(x, y)
    names = counted(runtime._driver)
    with closed_gate("straight") as gate:
        held = gated.using(devices="cpu:0", split=False)
        z = cx.array(np.ones(8))
        runtime._driver._straight, kept = None, runtime._driver._straight
        runtime._driver.scheduler.plan._runs_inline = False  # on its device, so that it is under way
        held(z)
        runtime._driver.scheduler.plan._runs_inline = True
        runtime._driver._straight = kept
        gate.wait_for_arrival()
        add(x, y)
        assert names == []
    cx.wait()
    add(x, y)
    assert names == ["add"]
    add.variant(lambda x, y: np.add(x, y, out=y), name="other")
    try:
        add(x, y)
        assert names == ["add"]
    finally:
        add.variants.pop()
    failed = refuse(y, -1e9)
    assert isinstance(failed.exception(), ValueError)
    names.clear()
    add(x, x.copy())
    assert names == []
    with pytest.raises(ValueError, match="too large"):
        np.asarray(y)


def test_another_runtime_that_calls_the_same_kernel_meanwhile_is_not_in_the_way(runtime: cx.Runtime) -> None:
    x, y = cx.array(np.ones(8)), cx.array(np.ones(8))
    for _ in range(3):
        add(x, y)
    names = counted(runtime._driver)
    with cx.Runtime("cpu:0", replay=False, diagnostics="off", store="off"):
        other = cx.array(np.ones(8))
        add(cx.array(np.ones(8)), other)
        np.testing.assert_array_equal(np.asarray(other), 2.0)
        del other
    add(x, y)
    assert names == ["add"]
    np.testing.assert_array_equal(np.asarray(y), 5.0)


def test_an_interrupt_in_a_body_reaches_the_program(runtime: cx.Runtime) -> None:
    y = cx.array(np.ones(8))
    for _ in range(3):
        interrupted(y, 0)
    names = counted(runtime._driver)
    interrupted(y, 0)
    assert names == ["interrupted"]
    with pytest.raises(KeyboardInterrupt):
        interrupted(y, 1)
    interrupted(y, 0)  # what it would have written is overwritten
    np.testing.assert_array_equal(np.asarray(y), 1.0)


@pytest.mark.parametrize(
    "options", [{"replay": True}, {"replay": False, "debug": True}, {"replay": False, "inline": False}]
)
def test_who_replays_or_looks_closely_has_no_straight_calls(options: dict[str, Any]) -> None:
    with cx.Runtime("cpu:0", store="off", **options) as runtime:
        assert runtime._driver._straight is None
