"""Handles: what a call returns tells when its task is over and how it ended, and can stop it before it begins."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from tests.devices import TWO
from tests.holding import closed_gate
from tests.small_kernels import fail, hold, increment


def test_a_handle_tells_when_its_task_is_over() -> None:
    with cx.Runtime("cpu:0"):
        x = cx.zeros(10)
        with closed_gate("hold"):
            task = hold(x)
            assert not task.done()
            assert task.wait(timeout=0) is False
            with pytest.raises(TimeoutError, match=r"T\d+ hold is not over"):
                task.result(timeout=0)
            with pytest.raises(TimeoutError):
                task.exception(timeout=0)
        assert task.wait() and task.done()
        assert task.result() is None and task.exception() is None
        assert task.cancel() is False


def test_a_failed_handle_raises_again_and_again() -> None:
    with cx.Runtime("cpu:0"):
        task = fail(cx.zeros(3))
        assert task.wait()
        for _ in range(2):
            with pytest.raises(ValueError, match="no luck"):
                task.result()
        assert isinstance(task.exception(), ValueError)


def test_a_task_that_has_not_begun_can_be_cancelled() -> None:
    with cx.Runtime("cpu:0"):
        x, y = cx.zeros(3), cx.zeros(3)
        with closed_gate("hold") as gate:
            first = hold(x)
            gate.wait_for_arrival()
            queued, dependent, other = increment(y), increment(x), increment(cx.zeros(1))
            assert first.cancel() is False
            assert queued.cancel() is True
            assert dependent.cancel() is True
        assert first.exception() is None and other.exception() is None
        for task in (queued, dependent):
            assert task.wait() and isinstance(task.exception(), cx.TaskCancelled)
            with pytest.raises(cx.TaskCancelled, match="cancel"):
                task.result()
        for array in (x, y):
            with pytest.raises(cx.TaskCancelled):
                np.asarray(array)
        x[...] = 3
        assert np.asarray(x).tolist() == [3, 3, 3]


@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_what_comes_after_a_cancelled_task_still_waits_for_what_runs(devices) -> None:
    @cx.kernel(x=cx.write)
    def overwrite(x):
        x[...] = 3

    with cx.Runtime(devices, inline=False):
        x = cx.zeros(3)
        with closed_gate("hold") as gate:
            hold.using(devices="cpu:0")(x)
            gate.wait_for_arrival()
            middle = increment.using(devices="cpu:0")(x)
            assert middle.cancel()
            last = overwrite.using(devices=devices.split(",")[-1])(x)
            assert last.wait(timeout=0.05) is False  # the held task is still inside the array
        assert np.asarray(x).tolist() == [3, 3, 3]
        assert isinstance(middle.exception(), cx.TaskCancelled)


def test_what_needs_a_cancelled_task_is_cancelled_too() -> None:
    with cx.Runtime("cpu:0"):
        x, y = cx.zeros(3), cx.zeros(3)
        with closed_gate("hold") as gate:
            hold(x)
            gate.wait_for_arrival()
            middle = increment(x)
            y[...] = x
            last = increment(y)
            assert middle.cancel()
        assert isinstance(last.exception(), cx.TaskCancelled)
        cx.wait()


def test_a_cancelled_task_is_no_failure() -> None:
    with cx.Runtime("cpu:0"):
        with closed_gate("hold") as gate:
            hold(cx.zeros(3))
            gate.wait_for_arrival()
            task = increment(cx.zeros(3))
            task.cancel()
        cx.wait()  # raises nothing
        assert task.done()


def test_a_task_of_higher_priority_goes_first() -> None:
    order: list[str] = []

    @cx.kernel(x=cx.update)
    def mark(x, name):
        append(name)

    def append(name):
        order.append(name)

    with cx.Runtime("cpu:0"):
        with closed_gate("hold") as gate:
            hold(cx.zeros(1))
            gate.wait_for_arrival()
            mark(cx.zeros(1), "low")
            mark.using(priority=5)(cx.zeros(1), "high")
            mark.using(priority=1)(cx.zeros(1), "middle")
        cx.wait()
    assert order == ["high", "middle", "low"]
