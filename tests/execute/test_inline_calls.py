"""Short calls on known arrays run at once, and are no different from any other call."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, NestedCallError
from coexec.execute import inline_calls
from tests.holding import closed_gate, pass_gate
from tests.inside import planner_of

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(x=cx.read, y=cx.update)
def add(x: Any, y: Any) -> None:
    y += x


@cx.kernel(y=cx.update)
def scale(y: Any, a: Any) -> None:
    y *= a


@cx.kernel(x=cx.update)
def gated(x: Any) -> None:
    pass_gate("at once")
    x += 1


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[cx.Runtime]:
    """A runtime that finds every call short, however busy this machine is."""
    monkeypatch.setattr("coexec.plan.planned.CHEAP", 10.0)
    monkeypatch.setattr(inline_calls, "LONG", 10.0)
    with cx.Runtime("cpu:0", diagnostics="off") as opened:
        yield opened


def recorded(runtime: cx.Runtime) -> int:
    """Return how many tasks there have been in the graph."""
    return runtime._driver.scheduler.link.graph.last


def make_known(runtime: cx.Runtime, *args: Any, kernel: Any = add) -> None:
    """Call a kernel until a call leaves no task."""
    for _ in range(12):
        before = recorded(runtime)
        kernel(*args)
        if recorded(runtime) == before:
            return
        cx.wait()
    raise AssertionError("the call did not become known")


def test_a_call_becomes_known_and_leaves_no_task(runtime: cx.Runtime) -> None:
    x, y = cx.array(np.ones(8)), cx.zeros(8)
    make_known(runtime, x, y)
    value, before = float(y[0]), recorded(runtime)
    for _ in range(100):
        task = add(x, y)
    assert recorded(runtime) == before
    assert task.done() and task.exception() is None and task.wait() and not task.cancel()
    assert "add" in repr(task) and "done" in repr(task)
    np.testing.assert_array_equal(np.asarray(y), value + 100)


def test_scalars_of_any_type_are_those_of_the_call(runtime: cx.Runtime) -> None:
    y = cx.ones(8)
    make_known(runtime, y, 1.0, kernel=scale)
    for a in (2.0, 3, np.float64(0.5), True):
        scale(y, a)
    np.testing.assert_array_equal(np.asarray(y), 3.0)
    s = cx.array(np.array(4.0))
    scale(y, s)  # an array: not at once
    np.testing.assert_array_equal(np.asarray(y), 12.0)
    with pytest.raises(ArgumentError):
        scale(y, [1, 2])


def test_another_view_or_array_is_another_call(runtime: cx.Runtime) -> None:
    x, y, z = cx.array(np.ones(8)), cx.zeros(8), cx.zeros(8)
    make_known(runtime, x, y)
    y[...] = 0
    add(x, z)
    add(x[:4], y[4:])
    add(x[::2], y[:4])
    add(y, y)
    np.testing.assert_array_equal(np.asarray(z), 1.0)
    np.testing.assert_array_equal(np.asarray(y), 2.0)
    with pytest.raises(ArgumentError):
        add(np.ones(8), y)


def test_a_value_from_outside_is_that_of_the_call(runtime: cx.Runtime) -> None:
    factor = 2.0

    @cx.kernel(y=cx.update)
    def grow(y: Any) -> None:
        y *= factor

    y = cx.ones(4)
    make_known(runtime, y, kernel=grow)
    before = float(y[0])
    factor = 3.0
    grow(y)
    assert float(y[0]) == 3 * before


def test_a_body_that_raises_becomes_a_failed_task_with_its_line(runtime: cx.Runtime) -> None:
    @cx.kernel(y=cx.update)
    def picky(y: Any, a: Any) -> None:
        y += a
        if a < 0:
            raise ValueError("no negative numbers")

    y, z = cx.zeros(4), cx.zeros(4)
    make_known(runtime, y, 1.0, kernel=picky)
    task = picky(y, -1.0)
    line = test_a_body_that_raises_becomes_a_failed_task_with_its_line.__code__.co_firstlineno + 9
    error = task.exception()
    assert isinstance(error, ValueError) and isinstance(error, cx.TaskFailed)
    assert task.id > 0 and f"T{task.id} picky failed on cpu:0" in str(error)
    assert f"{__file__}:{line}" in str(error) and task.line == line
    add(y, z)
    with pytest.raises(ValueError, match="no negative numbers"):
        np.asarray(z)
    y[...] = 5
    picky(y, 1.0)
    np.testing.assert_array_equal(np.asarray(y), 6.0)


def test_a_body_that_raises_runs_once(runtime: cx.Runtime) -> None:
    calls = []

    def count() -> None:
        calls.append(1)

    @cx.kernel(y=cx.update)
    def counted(y: Any, a: Any) -> None:
        count()
        if a < 0:
            raise ValueError("no")

    y = cx.zeros(4)
    make_known(runtime, y, 1.0, kernel=counted)
    planner_of(runtime)._candidates.forget()  # whatever the planner would say now
    before = len(calls)
    assert counted(y, -1.0).exception() is not None
    assert len(calls) == before + 1


def test_an_interrupt_of_a_body_reaches_the_program(runtime: cx.Runtime) -> None:
    @cx.kernel(y=cx.update)
    def interrupted(y: Any, a: Any) -> None:
        if a < 0:
            raise KeyboardInterrupt

    y = cx.zeros(4)
    make_known(runtime, y, 1.0, kernel=interrupted)
    with pytest.raises(KeyboardInterrupt):
        interrupted(y, -1.0)
    y[...] = 1
    np.testing.assert_array_equal(np.asarray(y), 1.0)


def test_what_numpy_does_about_errors_holds(runtime: cx.Runtime) -> None:
    y = cx.zeros(4)

    @cx.kernel(y=cx.update)
    def divide(y: Any) -> None:
        np.divide(1.0, np.zeros_like(y), out=y)

    with np.errstate(all="ignore"):
        make_known(runtime, y, kernel=divide)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            divide(y)
    with np.errstate(divide="raise", invalid="raise"):
        assert isinstance(divide(y).exception(), FloatingPointError)


def test_a_returned_value_is_refused(runtime: cx.Runtime) -> None:
    @cx.kernel(y=cx.update)
    def sometimes(y: Any, a: Any) -> Any:
        return y if a < 0 else None

    y = cx.zeros(4)
    make_known(runtime, y, 1.0, kernel=sometimes)
    assert isinstance(sometimes(y, -1.0).exception(), cx.TaskFailed)


def test_a_kernel_cannot_be_called_from_a_body(runtime: cx.Runtime) -> None:
    x, y = cx.ones(4), cx.zeros(4)
    make_known(runtime, x, y)

    def other() -> None:
        add(x, y)

    @cx.kernel(z=cx.update)
    def nested(z: Any, a: Any) -> None:
        if a < 0:
            other()

    z = cx.zeros(4)
    make_known(runtime, z, 1.0, kernel=nested)
    assert isinstance(nested(z, -1.0).exception(), NestedCallError)


def test_work_that_is_pending_comes_first(runtime: cx.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = cx.ones(4), cx.zeros(4)
    make_known(runtime, x, y)
    y[...] = 0
    cx.wait()
    monkeypatch.setattr("coexec.plan.planned.CHEAP", 0.0)
    with closed_gate("at once") as gate:
        gated(x)
        gate.wait_for_arrival()
        later = add(x, y)
        assert not later.done() and later.id > 0
        gate.open.set()
    np.testing.assert_array_equal(np.asarray(y), 2.0)


def test_memory_of_dropped_arrays_is_not_kept(runtime: cx.Runtime) -> None:
    x, y = cx.ones(1000), cx.zeros(1000)
    make_known(runtime, x, y)
    (known,) = [k for k in x._storage.known.values() if isinstance(k, inline_calls.KnownCall)]
    seen = weakref.ref(known.values[1])
    del known, y
    cx.wait()
    gc.collect()
    assert seen() is None
    assert not x._storage.known and not runtime._driver.pump.inline_calls._uses  # type: ignore[union-attr]


def test_a_known_call_that_others_took_the_place_of_is_forgotten(runtime: cx.Runtime) -> None:
    x, y, z = cx.ones(4), cx.zeros(4), cx.zeros(4)
    make_known(runtime, x, y)
    make_known(runtime, x, z)
    assert set(runtime._driver.pump.inline_calls._uses) == {x._storage.id, z._storage.id}  # type: ignore[union-attr]


def test_a_body_that_becomes_slow_goes_back_to_the_planner(
    runtime: cx.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = cx.ones(4), cx.zeros(4)
    make_known(runtime, x, y)
    before = recorded(runtime)
    monkeypatch.setattr(inline_calls, "LONG", 0.0)
    add(x, y)  # the last one at once
    assert recorded(runtime) == before
    add(x, y)
    assert recorded(runtime) == before + 1
