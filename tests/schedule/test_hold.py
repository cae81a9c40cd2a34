"""Lookahead in a live runtime: what lets held calls go, and where their errors go. Devices have memories of their own."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ConfigError, PlanError
from coexec.observe.trace import Trace
from tests.devices import MIXED
from tests.holding import PATIENCE, closed_gate, pass_gate, until

SIZE = 1000
MODES = ("auto", "none", "infinite")

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(x=cx.update)
def add_one(x):
    x += 1


add_one.opencl("x(i) += 1;")


@cx.kernel(x=cx.update)
def stop(x):
    pass_gate("stop")
    x += 1


@cx.kernel(split=0, u=cx.read(cx.halo(1)), out=cx.write)
def smooth(u, out):
    out[...] = u[: out.shape[0]]


def opened(mode: str = "infinite", devices: str = "opencl:0", **options: Any) -> cx.Runtime:
    return cx.Runtime(devices, lookahead=mode, memory={"opencl:0": "own"} if "opencl" in devices else None, **options)


def held(runtime: cx.Runtime) -> tuple[Any, Any, Any]:
    """Return an array, and two tasks that are held back, each on a larger part of it."""
    x = cx.array(np.zeros(SIZE))
    first, second = add_one(x[: SIZE // 2]), add_one(x[: SIZE // 2 + 1])
    assert len(runtime._driver.scheduler.hold) == 2
    return x, first, second


def check(x: Any) -> None:
    values = np.asarray(x)
    assert values[0] == 2.0 and values[SIZE // 2] == 1.0 and values[-1] == 0.0


# Let go -----------------------------------------------------------------------------------------------------------------


def test_when_the_program_pauses_what_is_held_runs() -> None:
    with opened("auto") as runtime:
        with runtime._driver.lock:  # no moment is long enough for the thread
            x, _, second = held(runtime)
        until(lambda: not runtime._driver.scheduler.hold.holding)
        until(second.done)
        check(x)


def test_a_pause_does_not_let_infinite_go() -> None:
    with opened() as runtime:
        x, first, _ = held(runtime)
        assert not [t for t in threading.enumerate() if t.name == "coexec-lookahead"]
        assert not first.done()
        check(x)


def test_while_devices_are_busy_a_pause_lets_nothing_go_but_the_last_time() -> None:
    with opened("infinite", MIXED) as runtime, closed_gate("stop") as gate:
        y = cx.zeros(3)
        task = stop.using(devices="cpu:0")(y)
        gate.wait_for_arrival()
        x = cx.array(np.zeros(SIZE))
        add_one.using(devices="opencl:0")(x[:10])
        with runtime._driver.lock:
            for last in (False, True):
                assert runtime._driver.pump.let_go(last) is last
                assert runtime._driver.scheduler.hold.holding is not last
        gate.open.set()
        task.result(PATIENCE)
        assert x[9].item() == 1.0


def test_reads_waits_flushes_and_waits_for_a_task_let_go() -> None:
    with opened() as runtime:
        for let_go in (runtime.flush, cx.flush, runtime.wait, lambda: np.asarray(cx.zeros(3))):
            x, _, _ = held(runtime)
            let_go()
            assert not runtime._driver.scheduler.hold.holding
            check(x)
        x, first, second = held(runtime)
        first.result(PATIENCE)
        assert len(runtime._driver.scheduler.hold) == 1 and not second.done()  # what is behind it stays
        check(x)


def test_a_runtime_that_ends_computes_what_it_holds_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    for mode in MODES:
        with opened(mode):
            x = cx.array(np.zeros(SIZE))
            add_one(x[:10])
        assert np.asarray(x)[9] == 1.0
    assert set(threading.enumerate()) <= before


def test_a_held_task_is_cancelled_without_running() -> None:
    with opened() as runtime:
        x, first, second = held(runtime)
        assert second.cancel()
        first.result(PATIENCE)
        with pytest.raises(cx.TaskCancelled):
            np.asarray(x)
        runtime.cancel_pending("test")


def test_leaving_with_an_error_cancels_what_is_held() -> None:
    with pytest.raises(KeyError), opened() as runtime:
        _, first, second = held(runtime)
        raise KeyError
    assert first.exception() is not None and second.exception() is not None


def test_a_task_handed_out_on_demand_comes_after_what_is_held() -> None:
    @cx.kernel(split=0, y=cx.update)
    def increment(y):
        y += 1

    increment.opencl("y(i) += 1;")
    with opened("infinite", MIXED) as runtime:
        x = cx.array(np.zeros(4 * SIZE))
        add_one.using(devices="opencl:0")(x[:10])
        assert runtime._driver.scheduler.hold.holding
        for _ in range(3):
            increment.using(devices="cpu:0,opencl:0", policy="dynamic")(x)
        values = np.asarray(x)
        assert values[0] == 4.0 and values[-1] == 3.0


@pytest.mark.parametrize("options", [{"sync": True}, {"lookahead": "none"}], ids=str)
def test_nothing_is_held_where_each_call_is_to_run_at_once(options) -> None:
    with cx.Runtime("opencl:0", memory={"opencl:0": "own"}, **options) as runtime:
        x = cx.array(np.zeros(SIZE))
        add_one(x[:10])
        assert not runtime._driver.scheduler.hold.holding
        assert x[9].item() == 1.0


def test_nothing_is_held_on_cores_and_no_thread_is_started() -> None:
    with cx.Runtime("cpu:0") as runtime:
        add_one(cx.zeros(SIZE)[:10])
        assert runtime._driver.scheduler.hold.off and not runtime._driver.scheduler.hold.holding
        assert not [t for t in threading.enumerate() if t.name == "coexec-lookahead"]


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ConfigError, match="infinite"):
        cx.Runtime("cpu:0", lookahead="infinit")


# Order and bounds ---------------------------------------------------------------------------------------------------------


def test_infinite_survives_ten_times_the_run_ahead() -> None:
    with opened("infinite", "null:2", horizon=16) as runtime:
        x = cx.array(np.zeros(SIZE))
        for task in range(10 * 2 * 16):
            add_one.using(devices="null:1")(x[: task + 1])
            assert len(runtime._driver.scheduler.hold) <= 2 * 17
        cx.wait()
        assert not runtime._driver.scheduler.hold.holding


def test_an_array_dropped_while_its_calls_are_held_is_freed_after_them() -> None:
    with opened() as runtime:
        x, _, _ = held(runtime)
        state = x._storage.state
        del x
        gc.collect()
        runtime.wait()
        runtime.wait()  # the task let go of its arrays when it was lowered
        assert state.id not in runtime._driver.scheduler.lowering.states()
        assert state.all_backings() == []


@pytest.mark.parametrize("count", [2, 4])
def test_a_stencil_makes_two_allocations_per_device(tmp_path, count) -> None:
    path = tmp_path / "t.json"
    devices = ",".join(f"null:{i}" for i in range(count))
    with opened("auto", f"null:{count}", policy="even", trace=path) as runtime:
        u, v = cx.array(np.zeros((1 << 15, 4))), cx.zeros((1 << 15, 4))
        with runtime._driver.lock:  # no moment is long enough for the thread
            for _ in range(30):
                smooth.using(devices=devices)(u, v)
                u, v = v, u
            assert not runtime._driver.scheduler.hold.holding
        cx.wait()
    trace = Trace.load(path)
    parts = [i for i in trace.instructions if i["kind"] == "alloc" and i["bytes"] < 8 * 4 << 15]  # the host has wholes
    assert len(parts) == 2 * count
    assert not [i for i in trace.instructions if i.get("reason") == "resize"]


# What goes wrong ----------------------------------------------------------------------------------------------------------


def test_a_held_call_that_cannot_be_lowered_fails_its_task_and_poisons_what_it_would_have_written(monkeypatch) -> None:
    with opened() as runtime:
        x, first, second = held(runtime)
        other = cx.array(np.zeros(3))
        lower = runtime._driver.scheduler.lowering.lower

        def refuse(command: Any, *rest: Any) -> Any:
            if command.task is second:
                raise PlanError("no room")
            return lower(command, *rest)

        monkeypatch.setattr(runtime._driver.scheduler.lowering, "lower", refuse)
        third = add_one(x[5:8])
        with pytest.raises(ExceptionGroup) as group:
            runtime.wait()
        assert first.exception() is None
        assert isinstance(second.exception(), cx.TaskFailed) and isinstance(second.exception(), PlanError)
        assert "test_hold.py" in str(second.exception())
        assert group.value.exceptions == (second.exception(),)
        assert third.exception() is second.exception()
        with pytest.raises(cx.TaskFailed, match="no room"):
            np.asarray(x)
        assert x[SIZE // 2 + 1 :][0].item() == 0.0 and other[0].item() == 0.0
        x[:] = 7
        assert x[3].item() == 7.0


def test_a_wrong_call_is_refused_at_the_call_though_others_are_held() -> None:
    with opened() as runtime:
        x, _, _ = held(runtime)

        @cx.kernel(split=0, y=cx.update(lambda chunk: "nonsense"), over=SIZE)
        def wrong(y):
            y += 1

        with pytest.raises(cx.CoexecError, match=r"nonsense"):
            wrong(x)
        assert len(runtime._driver.scheduler.hold) == 2
        check(x)


def test_an_error_of_our_own_on_the_thread_fails_every_wait(monkeypatch) -> None:
    runtime = opened("auto")
    with runtime._driver.lock:

        def broken(event: object) -> None:
            raise RuntimeError(f"bug in {event}")

        monkeypatch.setattr(runtime._driver.scheduler.hold, "settle", broken)
        assert runtime._driver.pump.let_go(True)
        monkeypatch.undo()
    with pytest.raises(cx.errors.RuntimeClosed):
        runtime.wait()
    runtime.close()
