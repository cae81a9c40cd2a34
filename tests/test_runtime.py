"""The runtime as a whole: opening and closing, handles, threads, contexts, several runtimes, and the sync mode."""

from __future__ import annotations

import contextvars
import gc
import threading
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import NestedCallError, ProgramError, RuntimeClosed
from tests.devices import MIXED, TWO
from tests.holding import closed_gate
from tests.scripts import run_script
from tests.small_kernels import fail, hold, increment


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    left = {t.name for t in set(threading.enumerate()) - before if "coexec" in t.name.lower()}
    assert left <= {"coexec-signals"}  # it stands as long as the default runtime, which some of these tests open


# Order and run-ahead ------------------------------------------------------------------------------------------------------


def test_a_read_waits_for_its_array_and_nothing_else() -> None:
    with cx.Runtime(TWO):
        x, y = cx.zeros(10), cx.zeros(10)
        with closed_gate("hold") as gate:
            held = hold.using(devices="cpu:0")(x[:5])
            gate.wait_for_arrival()
            increment(y)
            increment.using(devices=TWO.split(",")[-1])(x[5:])
            if "," in TWO:
                assert np.asarray(x[5:]).tolist() == [1] * 5
                assert np.asarray(y).tolist() == [1] * 10
            assert not held.done()
        assert np.asarray(x).tolist() == [1] * 10


PROGRESS: dict[str, int] = {"submitted": 0, "ahead": 0}


def note_progress(number: int) -> None:
    PROGRESS["ahead"] = max(PROGRESS["ahead"], PROGRESS["submitted"] - number)


def test_the_program_runs_ahead_by_a_bounded_number_of_tasks() -> None:
    @cx.kernel(x=cx.update)
    def note(x, number):
        note_progress(number)

    PROGRESS.update(submitted=0, ahead=0)
    with cx.Runtime("cpu:0", horizon=16, inline=False):
        x = cx.zeros(1)
        for number in range(2000):
            note(x, number)
            PROGRESS["submitted"] = number
        cx.wait()
    assert PROGRESS["ahead"] <= 3 * 16


# Threads ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [TWO, MIXED, "null:2", "simulated:2"])
def test_no_thread_outlives_its_runtime(devices) -> None:
    before = set(threading.enumerate())
    with cx.Runtime(devices):
        x = cx.zeros(1000)
        for _ in range(10):
            increment(x)
        cx.wait()
    after = [t for t in set(threading.enumerate()) - before if "coexec" in t.name.lower()]
    assert after == []


def test_threads_may_submit_side_by_side() -> None:
    with cx.Runtime(TWO):
        shared = cx.zeros(100, int)
        results: dict[int, float] = {}
        barrier = threading.Barrier(4)

        def work(number):
            mine = cx.zeros(50)
            barrier.wait()
            for _ in range(200):
                increment(mine)
                increment(shared)
            results[number] = float(mine[0])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == dict.fromkeys(range(4), 200.0)
        assert int(shared[0]) == 800


def test_threads_may_wait_side_by_side() -> None:
    with cx.Runtime(TWO):
        x = cx.zeros(10)
        answers: list[Any] = []
        with closed_gate("hold"):
            hold(x)
            threads = [threading.Thread(target=lambda: answers.append(np.asarray(x).tolist())) for _ in range(5)]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        assert answers == [[1] * 10] * 5


def test_bodies_run_in_the_callers_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nobody")

    def read_variable():
        return variable.get()

    @cx.kernel(x=cx.update)
    def check(x, expected):
        assert read_variable() == expected

    with cx.Runtime(TWO):
        for name in ("first", "second"):
            token = variable.set(name)
            check(cx.zeros(1), name)
            variable.reset(token)
        check(cx.zeros(1), "nobody")
        cx.wait()


@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_numpys_error_state_holds_in_bodies(devices) -> None:
    @cx.kernel(split=0, x=cx.update)
    def invert(x):
        x[...] = 1 / x

    with cx.Runtime(devices):
        with np.errstate(divide="raise"):
            failing = invert.using(devices=devices)(cx.zeros(10))
        with np.errstate(divide="ignore"):
            fine = invert.using(devices=devices)(cx.zeros(10))
        assert isinstance(failing.exception(), FloatingPointError)
        assert fine.exception() is None


def make_array():
    return cx.zeros(3)


FOREIGN: dict[str, Any] = {}


def read_kept():
    return np.asarray(FOREIGN["array"])


def run_kept():
    increment(FOREIGN["array"])


def wait_inside():
    cx.wait()


@pytest.mark.parametrize("function", [make_array, read_kept, run_kept, wait_inside])
@pytest.mark.parametrize("kind", ["kernel", "host task"])
def test_a_coexec_call_from_inside_a_body_raises_at_once(function, kind) -> None:
    def body(x):
        function()

    with cx.Runtime("cpu:0"):
        FOREIGN["array"] = cx.zeros(3)
        kernel = (cx.kernel if kind == "kernel" else cx.host_task)(x=cx.update)(body)
        error = kernel(cx.zeros(1)).exception()
        assert isinstance(error, cx.TaskFailed) and isinstance(error.__cause__, NestedCallError)
        assert "from inside 'body'" in str(error)
        FOREIGN.clear()


# Several runtimes ---------------------------------------------------------------------------------------------------------


def test_runtimes_nest_and_each_keeps_its_arrays() -> None:
    with cx.Runtime("cpu:0") as outer:
        x = cx.zeros(3)
        with cx.Runtime(TWO) as inner:
            y = cx.zeros(3)
            assert y.runtime is inner and x.runtime is outer
            increment(y)
            assert np.asarray(x).tolist() == [0, 0, 0]  # reading needs no current runtime
            for call in (lambda: increment(x), lambda: y.__setitem__(..., x)):
                with pytest.raises(ProgramError, match="another runtime"):
                    call()
            x[0] = 1  # an assignment belongs to the array's own runtime
        increment(x)
        assert np.asarray(x).tolist() == [2, 1, 1]
        assert np.asarray(y).tolist() == [1, 1, 1]
        z = cx.array(np.asarray(y))
        increment(z)
        assert np.asarray(z).tolist() == [2, 2, 2]


def test_closing_makes_no_array_that_was_never_written() -> None:
    with cx.Runtime("cpu:0"):
        huge, seven = cx.zeros(1 << 55), cx.full((2, 3), 7)
    assert huge.shape == (1 << 55,)
    assert np.asarray(seven[:, 1:]).tolist() == [[7, 7], [7, 7]]
    assert np.asarray(huge[5:7]).tolist() == [0.0, 0.0]


def test_arrays_can_be_read_after_their_runtime_was_closed() -> None:
    with cx.Runtime(MIXED, memory={"opencl:0": "own"}):
        x, lazy, borrowed = cx.zeros((4, 6)), cx.full(3, 7), cx.asarray(np.arange(5))
        never = cx.empty(3)
        increment(x[1:])
    assert np.asarray(x).tolist() == [[0] * 6] + [[1] * 6] * 3
    assert np.asarray(x[1:, ::3].T).tolist() == [[1] * 3] * 2
    assert np.asarray(lazy).tolist() == [7, 7, 7]
    assert np.asarray(borrowed[::-2]).tolist() == [4, 2, 0]
    with pytest.raises(RuntimeClosed, match="never computed"):
        np.asarray(never)
    assert float(x[3, 3]) == 1
    assert repr(x)
    with pytest.raises(RuntimeClosed):
        x[0] = 1
    with pytest.raises((RuntimeClosed, ProgramError)):
        increment(x)


def test_a_closed_runtime_refuses_work() -> None:
    runtime = cx.Runtime("cpu:0")
    runtime.close()
    runtime.close()
    with pytest.raises(RuntimeClosed, match="closed"):
        runtime.wait()
    assert "closed" in repr(runtime)


def test_leaving_with_an_error_cancels_what_has_not_begun() -> None:
    with closed_gate("hold") as gate:

        def leave():
            with cx.Runtime("cpu:0"):
                hold(cx.zeros(1))
                gate.wait_for_arrival()
                tasks.append(increment(cx.zeros(1)))
                gate.open.set()
                raise KeyError("left")

        tasks: list[Any] = []
        with pytest.raises(KeyError, match="left"):
            leave()
    assert tasks[0].done()


# Garbage ------------------------------------------------------------------------------------------------------------------


def test_arrays_in_reference_cycles_are_freed_whenever_the_collector_runs() -> None:
    class Node:
        def __init__(self, array):
            self.array = array
            self.me = self

    with cx.Runtime("cpu:0", horizon=64) as runtime:
        before = gc.get_threshold()
        gc.set_threshold(5, 2, 2)  # the collector runs in the middle of submissions
        try:
            for number in range(500):
                node = Node(cx.zeros(100))
                increment(node.array)
                assert float(node.array[number % 100]) == 1
        finally:
            gc.set_threshold(*before)
        del node
        gc.collect()
        cx.wait()
        assert len(runtime._driver.scheduler.lowering.states()) == 0
        assert len(runtime._driver.scheduler.lowering.states()) == 0


# Sync ---------------------------------------------------------------------------------------------------------------------


def test_sync_mode_runs_each_call_at_once_in_the_caller() -> None:
    seen: list[str] = []

    def note():
        seen.append(threading.current_thread().name)

    @cx.kernel(split=0, x=cx.update)
    def body(x):
        note()
        x += 1

    with cx.Runtime(TWO, sync=True):
        x = cx.zeros(300_000)
        task = body(x)
        assert seen and set(seen) == {threading.current_thread().name}
        assert task.done()
        cx.host_task(x=cx.read)(lambda x: note())(x)
        increment(x)
        assert float(x[-1]) == 2
        assert set(seen) == {threading.current_thread().name}


def test_sync_mode_raises_at_the_call() -> None:
    with cx.Runtime("cpu:0", sync=True):
        x = cx.zeros(3)
        with pytest.raises(ValueError, match="no luck"):
            fail(x)
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(x)
        x[...] = 1
        assert np.asarray(x).tolist() == [1, 1, 1]


def test_sync_mode_is_an_environment_variable() -> None:
    done = run_script(
        """
        @cx.kernel(x=cx.update)
        def fail(x):
            raise ValueError("at the call")

        x = cx.zeros(3)
        try:
            fail(x)
        except ValueError as error:
            print(type(error).__name__, sorted(thread.name for thread in threading.enumerate()))
        """,
        environ={"COEXEC_SYNC": "1", "COEXEC_DEVICES": "cpu:0"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "TaskFailed[ValueError] ['MainThread', 'coexec-signals']"


def test_the_default_runtime_starts_with_the_first_array_and_ends_with_the_process() -> None:
    done = run_script(
        """
        assert threading.active_count() == 1
        @cx.kernel(x=cx.update)
        def increment(x):
            x += 1
        x = cx.zeros(5)
        increment(x)
        print(np.asarray(x).tolist())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 1.0, 1.0, 1.0, 1.0]\n", "")


def test_a_block_whose_runtime_was_closed_inside_ends_without_an_error() -> None:
    with cx.Runtime("cpu:0") as runtime:
        x = cx.ones(3)
        runtime.close()
        runtime.close()
    assert np.asarray(x).tolist() == [1.0, 1.0, 1.0]
