"""Loops in live runtimes: the same results with replay and without, equal to NumPy's, whatever happens in the middle."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.observe.trace import Trace
from tests.cli.commands import call
from tests.devices import MIXED, TWO
from tests.holding import closed_gate, pass_gate
from tests.scripts import run_script
from tests.small_loops import SIZE, axpy, bent, highest, mixed, opened, smooth, smoothed, values

TURNS = 48  # many, because an array may be dropped a call later than in the step before
OWN = {"opencl:0": "64MB"}  # its own memory, not the host's

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


Loop = Callable[[], tuple[Any, ...]]


def stencil() -> tuple[Any, ...]:
    u, v = cx.array(values()), cx.zeros(SIZE)
    for _ in range(TURNS):
        smooth(u, v)
        u, v = v, u
    return u, v


def stencil_in_numpy() -> tuple[Any, ...]:
    u, v = values(), np.zeros(SIZE)
    for _ in range(TURNS):
        u, v = smoothed(u), u
    return u, v


def chains() -> tuple[Any, ...]:
    x = cx.array(values())
    for _ in range(TURNS):
        x = np.sqrt(x * x + 1) - x / 3
    return (x,)


def chains_in_numpy() -> tuple[Any, ...]:
    x = values()
    for _ in range(TURNS):
        x = np.sqrt(x * x + 1) - x / 3
    return (x,)


def temporaries() -> tuple[Any, ...]:
    x, y = cx.array(values()), cx.zeros(SIZE)
    for _ in range(TURNS):
        axpy(bent(bent(x)), y, 0.5)
    return (y,)


def temporaries_in_numpy() -> tuple[Any, ...]:
    x, y = values(), np.zeros(SIZE)
    for _ in range(TURNS):
        y += 0.5 * bent.function(bent.function(x))
    return (y,)


def convergence() -> tuple[Any, ...]:
    u, v, tops = cx.array(values()), cx.zeros(SIZE), []
    for _ in range(TURNS):
        smooth(u, v)
        top = cx.zeros(())
        highest(v, top)
        tops.append(float(top))
        u, v = v, u
    return u, np.array(tops)


def convergence_in_numpy() -> tuple[Any, ...]:
    u, tops = values(), []
    for _ in range(TURNS):
        u = smoothed(u)
        tops.append(max(0.0, u.max()))
    return u, np.array(tops)


def arrays_as_scalars() -> tuple[Any, ...]:
    x, y = cx.array(values()), cx.zeros(SIZE)
    for _ in range(TURNS):
        a = (x * x).max()
        mixed(x, y, a, 0.25)
    return (y,)


def arrays_as_scalars_in_numpy() -> tuple[Any, ...]:
    x, y = values(), np.zeros(SIZE)
    for _ in range(TURNS):
        y += (x * x).max() * x + 10 * 0.25
    return (y,)


LOOPS: dict[str, tuple[Loop, Loop]] = {
    "stencil": (stencil, stencil_in_numpy),
    "chains": (chains, chains_in_numpy),
    "temporaries": (temporaries, temporaries_in_numpy),
    "convergence": (convergence, convergence_in_numpy),
    "arrays as scalars": (arrays_as_scalars, arrays_as_scalars_in_numpy),
}


@pytest.mark.parametrize(("devices", "memory"), [(TWO, None), (MIXED, OWN)])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_computes_the_same_with_replay_and_without(name: str, devices: str, memory: Any) -> None:
    loop, in_numpy = LOOPS[name]
    found, steps = [], []
    for replay in (False, True):
        with opened(devices, replay=replay, memory=memory) as runtime:
            found.append([np.asarray(array) for array in loop()])
            steps.append(runtime._driver.scheduler.counts.replayed)
    assert steps[0] == 0
    if devices == TWO or name == "stencil":  # what is allocated in a limited memory is counted anew each time
        assert steps[1] >= TURNS // 6, runtime._driver.scheduler.counts
    for plain, replayed, expected in zip(*found, in_numpy(), strict=True):
        np.testing.assert_array_equal(plain, replayed)
        np.testing.assert_allclose(replayed, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "devices"),
    [(name, "null:2") for name in LOOPS] + [(name, "simulated:2") for name in LOOPS if name != "convergence"],
)  # a simulation has no values to converge
def test_a_loop_is_replayed_where_nothing_is_computed(name: str, devices: str) -> None:
    with opened(devices) as runtime:
        LOOPS[name][0]()
        assert runtime._driver.scheduler.counts.replayed >= 3


@pytest.mark.parametrize("step", [1, 2, 3, 16])
@pytest.mark.parametrize("name", LOOPS)
def test_horizons_at_any_distance_change_nothing(name: str, step: int) -> None:
    loop, in_numpy = LOOPS[name]
    with opened(TWO, horizon=step) as runtime:
        found = [np.asarray(array) for array in loop()]
        assert runtime._driver.scheduler.link.graph.since_horizon <= 2 * step + 1
    for replayed, expected in zip(found, in_numpy(), strict=True):
        np.testing.assert_allclose(replayed, expected, rtol=1e-12)


# What goes wrong ------------------------------------------------------------------------------------------------------------


class Fault:
    """In which turn a body raises."""

    at = -1


def count_down() -> bool:
    Fault.at -= 1
    return Fault.at == 0


@cx.kernel(x=cx.update)
def fragile(x: Any) -> None:
    if count_down():
        raise ValueError("as the test wants")
    x += 1


def test_a_body_that_raises_in_a_replayed_step_poisons_what_it_writes_until_that_is_overwritten() -> None:
    with opened(TWO) as runtime:
        x, y = cx.zeros(100), cx.zeros(100)
        Fault.at = 15
        tasks = []
        for _ in range(20):
            tasks.append(fragile(x))
            axpy(x, y, 1.0)
        assert runtime._driver.scheduler.counts.replayed >= 10
        failed = tasks[14].exception()
        assert isinstance(failed, ValueError) and isinstance(failed, cx.TaskFailed)
        assert f"T{tasks[14].id} fragile" in str(failed) and "as the test wants" in str(failed)
        assert f"{__file__}:{tasks[14].line}" in str(failed)
        assert tasks[13].exception() is None and tasks[19].exception() is failed
        with pytest.raises(ValueError, match="as the test wants"):
            np.asarray(y)
        x[...] = 0
        y[...] = 0
        for _ in range(20):
            fragile(x)
            axpy(x, y, 1.0)
        np.testing.assert_array_equal(np.asarray(x), 20.0)
        np.testing.assert_array_equal(np.asarray(y), float(sum(range(1, 21))))


@cx.kernel(x=cx.update)
def gated(x: Any) -> None:
    pass_gate("replay")
    x += 1


def test_a_replayed_loop_that_is_cancelled_goes_on_once_its_arrays_are_overwritten() -> None:
    with opened(TWO) as runtime:
        x, y = cx.zeros(10), cx.zeros(10)
        for _ in range(8):
            gated(x)
            axpy(x, y, 1.0)
        np.asarray(x)
        for _ in range(8):
            gated(x)
            axpy(x, y, 1.0)
        np.asarray(x)
        with closed_gate("replay") as gate:
            begun = [gated(x) for _ in range(4)]
            gate.wait_for_arrival()
            runtime.cancel_pending("the test says so")
            gate.open.set()
        assert begun[0].exception() is None
        assert all(isinstance(task.exception(), cx.TaskCancelled) for task in begun[1:])
        with pytest.raises(cx.TaskCancelled):
            np.asarray(x)
        x[...] = 3
        for _ in range(8):
            gated(x)
        assert np.asarray(x).tolist() == [11.0] * 10


def test_a_wait_in_each_turn_changes_nothing() -> None:
    with opened(TWO):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(10):
            axpy(x, y, 1.0)
            cx.wait()
        np.testing.assert_allclose(np.asarray(y), 10 * values())


def test_a_runtime_closed_in_the_middle_of_a_step_keeps_its_arrays() -> None:
    runtime = opened(TWO)
    with runtime:
        u, v = cx.array(values()), cx.zeros(SIZE)
        for _ in range(12):
            axpy(u, v, 1.0)
            axpy(v, u, 1e-3)
        axpy(u, v, 1.0)
    a, b = values(), np.zeros(SIZE)
    for _ in range(12):
        b += a
        a += 1e-3 * b
    b += a
    np.testing.assert_allclose(np.asarray(u), a)
    np.testing.assert_allclose(np.asarray(v), b)


def test_two_threads_that_submit_at_once_get_what_each_asks_for() -> None:
    with opened(TWO):
        arrays = [(cx.array(values() * k), cx.zeros(SIZE)) for k in (1, 2)]

        def work(x: Any, y: Any) -> None:
            for turn in range(60):
                axpy(x, y, 1.0)
                axpy(bent(x), y, 0.5)
                if turn % 7 == 0:
                    float(y[0])

        threads = [threading.Thread(target=work, args=pair) for pair in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for k, (x, y) in enumerate(arrays, 1):
            expected = np.zeros(SIZE)
            for _ in range(60):
                expected += values() * k
                expected += 0.5 * bent.function(values() * k)
            np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-12)
            np.testing.assert_array_equal(np.asarray(x), values() * k)


def test_arrays_that_go_in_odd_orders_are_no_danger() -> None:
    with opened(TWO) as runtime:
        x, kept, expected = cx.array(values()), [], []
        for turn in range(60):
            kept.append(bent(x))
            expected.append(bent.function(values()))
            if turn % 5 == 4:
                del kept[turn % 3], expected[turn % 3]
            elif turn > 10:
                kept.pop(0), expected.pop(0)
        runtime.flush()
        for array, values_ in zip(kept, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(array), values_)


def test_values_that_were_read_are_not_kept() -> None:

    with opened(TWO):
        x, y = cx.array(values()), cx.zeros(SIZE)
        read = []
        for _ in range(12):
            axpy(x, y, 1.0)
            value = np.asarray(y)
            read.append(weakref.ref(value))
            del value
        assert [ref() is not None for ref in read] == [False] * 12


def test_arrays_passed_as_scalars_are_dropped_as_soon_as_the_program_drops_them() -> None:
    with opened(TWO) as runtime:
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(30):
            a = (x * x).max()
            mixed(x, y, a, 0.25)
        del a
        cx.wait()
        assert len(runtime._driver.scheduler.lowering.states()) == 2


def test_the_trace_of_a_replayed_run_is_valid_and_says_what_was_replayed(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with opened(TWO, trace=file) as runtime:
        convergence()
        replayed = runtime._driver.scheduler.counts.replayed
    trace = Trace.load(file)
    assert trace.complete and replayed > 0
    again = [task for task in trace.tasks if task["why"].endswith("(replayed)")]
    assert len(again) == replayed
    commands = {command["task"] for command in trace.commands}
    ran = {row["id"] for row in trace.ran}
    assert {task["id"] for task in again} <= commands
    assert {row["id"] for row in trace.instructions if row["kind"] == "kernel"} <= ran
    ended = call("trace", file)
    assert ended.code == 0 and "smooth" in ended.out


def test_ctrl_c_in_a_replayed_loop_leaves_a_usable_runtime() -> None:
    ended = run_script("""
        @cx.kernel(x=cx.update)
        def grow(x):
            x += 1

        with cx.Runtime("cpu:0", inline=False, diagnostics="off") as runtime:
            x = cx.zeros(1000)
            try:
                for turn in range(10**6):
                    grow(x)
                    if turn == 50:
                        assert runtime._driver.scheduler.counts.replayed > 20
                        os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                print("interrupted")
            x[...] = 0
            for turn in range(20):
                grow(x)
            assert np.asarray(x).tolist() == [20.0] * 1000
            print("usable")
    """)
    assert ended.returncode == 0 and "usable" in ended.stdout and "interrupted" in ended.stdout, ended.stderr
