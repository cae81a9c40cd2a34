"""Parts handed out while a task runs, on real devices: results, program order, and every way a program can end."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.devices import MIXED, TWO
from tests.holding import closed_gate, pass_gate

POLICIES = ("dynamic", "auto")
ROWS = 4000
BOTH = TWO if "," in TWO else "cpu:0,opencl:0"
MACHINES = [(BOTH, {}), (MIXED, {"opencl:0": "own"}), (MIXED, {"opencl:0": "shared"})]

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


def names(devices: str) -> str:
    return devices.replace("@1", "")


def kernels() -> tuple[Any, Any]:
    """Return two kernels that nobody measured: the first call of each is divided evenly."""

    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def double(x, y):
        pass_gate("part")
        y[...] = 2 * x

    @cx.kernel(split=0, y=cx.update)
    def increment(y):
        y += 1

    double.opencl("y(i) = 2 * x(i);")
    increment.opencl("y(i) += 1;")
    return double, increment


@pytest.mark.parametrize(("devices", "memory"), MACHINES, ids=str)
@pytest.mark.parametrize("policy", POLICIES)
def test_results_are_those_of_numpy(policy, devices, memory) -> None:
    double, increment = kernels()
    with cx.Runtime(devices, memory=memory):
        x, y = cx.array(np.arange(ROWS, dtype=float)), cx.zeros(ROWS)
        expected_x, expected_y = np.arange(ROWS, dtype=float), np.zeros(ROWS)
        for _ in range(6):
            double.using(devices=names(devices), policy=policy)(x, y)
            increment.using(devices=names(devices), policy=policy)(y)
            increment.using(devices="cpu:0")(x)
            expected_y = 2 * expected_x + 1
            expected_x = expected_x + 1
        np.testing.assert_array_equal(np.asarray(y), expected_y)
        np.testing.assert_array_equal(np.asarray(x), expected_x)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_runtime_hands_out_everything_if_told_so(policy, monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_POLICY", policy)
    double, _ = kernels()
    with cx.Runtime(BOTH) as runtime:
        assert runtime.config.policy == policy
        x, y = cx.ones(1_000_000), cx.zeros(1_000_000)
        for _ in range(3):
            double(x, y)
        assert np.asarray(y).sum() == 2_000_000


@pytest.mark.parametrize("policy", POLICIES)
def test_a_trace_has_every_row_once(policy, tmp_path) -> None:
    double, _ = kernels()
    with cx.Runtime(BOTH, trace=tmp_path / "t.json"):
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        task = double.using(devices=BOTH, policy=policy)(x, y)
        task.result()
        assert policy in task.why
    trace = cx.Trace.load(tmp_path / "t.json")
    assert sum(row["name"] == "double" for row in trace.tasks) == 1
    kernels_run = [row for row in trace.instructions if row["kind"] == "kernel"]
    assert len(kernels_run) > 4, "more parts than devices"


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_submitted_meanwhile_keeps_program_order(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH) as runtime, closed_gate("part") as gate:
        x, y = cx.array(np.arange(ROWS, dtype=float)), cx.zeros(ROWS)
        open_task = double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        assert runtime._driver.scheduler.plan.open
        increment(x)  # must not be seen by `double`
        increment.using(devices=BOTH, policy=policy)(y)
        y[:10] = -5
        total = cx.zeros(ROWS)
        double.using(devices=BOTH, policy="even")(y, total)
        assert not open_task.done()
        gate.open.set()
        expected = 2 * np.arange(ROWS, dtype=float) + 1
        expected[:10] = -5
        np.testing.assert_array_equal(np.asarray(total), 2 * expected)
        np.testing.assert_array_equal(np.asarray(y), expected)
        assert np.asarray(x)[0] == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_reads_and_waits_wait_for_an_open_task(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH, horizon=3), closed_gate("part") as gate:
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        task = double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        assert not task.wait(timeout=0)
        seen: list[float] = []
        reader = threading.Thread(target=lambda: seen.append(float(np.asarray(y).sum())))
        reader.start()
        gate.open.set()
        cx.wait()
        reader.join()
        assert seen == [2.0 * ROWS] and task.done()
        for _ in range(10):  # past several horizons
            increment.using(devices=BOTH, policy=policy)(y)
        assert np.asarray(y).sum() == 12 * ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_many_tasks_that_open_and_close_at_once_do_not_pile_up(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH, horizon=10_000), closed_gate("part") as gate:
        x, y, z = cx.ones(ROWS), cx.zeros(ROWS), cx.zeros(2)
        double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        for _ in range(1500):
            increment.using(devices=BOTH, policy=policy)(z)
        gate.open.set()
        assert np.asarray(z).tolist() == [1500, 1500]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_that_waits_may_be_for_other_devices(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(",".join(dict.fromkeys([*BOTH.split(","), "opencl:0"]))), closed_gate("part") as gate:
        x, y, z = cx.ones(ROWS), cx.zeros(ROWS), cx.zeros(4)
        double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        for _ in range(3):
            increment.using(devices=BOTH, policy=policy)(z)
            increment.using(devices=f"{BOTH.split(',')[1]},cpu:0", policy=policy)(z)
            increment.using(devices="cpu:0,opencl:0", policy=policy)(y)
        gate.open.set()
        assert np.asarray(z).tolist() == [6] * 4 and np.asarray(y).sum() == 5 * ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_arrays_dropped_meanwhile_live_as_long_as_they_are_needed(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH), closed_gate("part") as gate:
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        z = cx.zeros(ROWS)
        double.using(devices=BOTH, policy="even")(y, z)
        del x, y
        gc.collect()
        increment(z)
        gate.open.set()
        assert np.asarray(z).sum() == 5 * ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_leaving_the_runtime_completes_an_open_task(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH):
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        double.using(devices=BOTH, policy=policy)(x, y)
        increment.using(devices=BOTH, policy=policy)(y)
    assert np.asarray(y).sum() == 3 * ROWS
    runtime = cx.Runtime(BOTH)
    with closed_gate("part") as gate:
        runtime.__enter__()
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        gate.open.set()
        runtime.close()  # without a wait
    assert np.asarray(y).sum() == 2 * ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_an_interrupt_cancels_what_was_not_handed_out(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH) as runtime, closed_gate("part") as gate:
        x, y, z = cx.ones(ROWS), cx.zeros(ROWS), cx.zeros(ROWS)
        task = double.using(devices=BOTH, policy=policy)(x, y)
        behind = increment.using(devices=BOTH, policy=policy)(z)
        gate.wait_for_arrival()
        runtime.cancel_pending("the test says so")
        assert not runtime._driver.scheduler.plan.open
        gate.open.set()
        for cancelled in (task, behind):
            with pytest.raises(cx.TaskCancelled, match="the test says so"):
                cancelled.result()
        with pytest.raises(cx.TaskCancelled):
            np.asarray(y)
        y.fill(0)
        increment.using(devices=BOTH, policy=policy)(y)
        assert np.asarray(y).sum() == ROWS, "the runtime goes on"


@pytest.mark.parametrize("policy", POLICIES)
def test_leaving_with_an_error_does_not_hang(policy) -> None:
    double, _ = kernels()
    with closed_gate("part") as gate:

        def program() -> None:
            with cx.Runtime(BOTH):
                x, y = cx.ones(ROWS), cx.zeros(ROWS)
                double.using(devices=BOTH, policy=policy)(x, y)
                gate.wait_for_arrival()
                gate.open.set()
                raise KeyError("the program's own")

        with pytest.raises(KeyError, match="the program's own"):
            program()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failing_body_poisons_its_part_only(policy) -> None:
    @cx.kernel(split=0, y=cx.update)
    def picky(y, chunk):
        if chunk.lo[0] == 0:
            raise ValueError("first rows")
        y += 1

    with cx.Runtime(BOTH):
        y = cx.zeros(ROWS)
        task = picky.using(devices=BOTH, policy=policy)(y)
        with pytest.raises(ValueError, match="first rows"):
            task.result()
        with pytest.raises(ValueError, match="first rows"):
            np.asarray(y[:1])
        assert np.asarray(y[ROWS // 2 :]).sum() == ROWS // 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_poisoned_input_cancels_the_parts_that_read_it(policy) -> None:
    double, _ = kernels()

    @cx.kernel(x=cx.update)
    def fail(x):
        raise ValueError("no luck")

    with cx.Runtime(BOTH):
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        fail(x[:1])
        double.using(devices=BOTH, policy=policy)(x, y)
        assert np.asarray(y[ROWS // 2 :]).sum() == ROWS
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(y)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_call_that_cannot_be_planned_raises_where_it_is_made(policy) -> None:
    double, increment = kernels()

    @cx.kernel(split=0, y=cx.update, flops=lambda y: -1.0)
    def odd(y):
        y += 1

    with cx.Runtime(BOTH), closed_gate("part") as gate:
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        with pytest.raises(cx.CoexecError, match="nowhere:0"):
            increment.using(devices="nowhere:0")(y)
        with pytest.raises(cx.CoexecError, match="flops"):
            odd(y)
        gate.open.set()
        assert np.asarray(y).sum() == 2 * ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_what_waits_behind_an_open_task_can_be_cancelled(policy) -> None:
    double, increment = kernels()
    with cx.Runtime(BOTH), closed_gate("part") as gate:
        x, y, z = cx.ones(ROWS), cx.zeros(ROWS), cx.zeros(ROWS)
        double.using(devices=BOTH, policy=policy)(x, y)
        gate.wait_for_arrival()
        behind = increment.using(devices=BOTH, policy=policy)(y)
        assert behind.cancel()
        gate.open.set()
        with pytest.raises(cx.TaskCancelled):
            behind.result()
        increment(z)
        assert np.asarray(z).sum() == ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_shares_that_the_plan_cuts_into_pieces_are_handed_out_whole(policy) -> None:
    """Copies that take long are overlapped by cutting a share; on demand it is one stock again."""
    double, _ = kernels()
    with cx.Runtime(MIXED, memory={"opencl:0": "own"}):
        x, y = cx.array(np.arange(400_000, dtype=float)), cx.zeros(400_000)
        for _ in range(6):
            double.using(devices=names(MIXED), policy="static")(x, y)
            double.using(devices=names(MIXED), policy=policy)(x, y)
            x += 1  # on the host's side: the device has to fetch it again
        np.testing.assert_array_equal(np.asarray(y), 2 * (np.arange(400_000) + 5))
