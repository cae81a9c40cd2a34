"""Loops in live runtimes: the same results with replay and without, equal to NumPy's, whatever happens in the middle."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.devices import MIXED, TWO
from tests.holding import closed_gate, pass_gate

SIZE = 2000
TURNS = 24
OWN = {"opencl:0": "64MB"}  # its own memory, not the host's

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(x: Any, y: Any, a: Any) -> None:
    y += a * x


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def smooth(x: Any, y: Any) -> None:
    y[...] = 0.5 * x[1:-1] + 0.25 * (x[:-2] + x[2:])


@cx.kernel(split=0, over="x", x=cx.read, top=cx.reduce("max"))
def highest(x: Any, top: Any) -> None:
    np.maximum(top, x.max(initial=-np.inf), out=top)


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def bent(x: Any) -> Any:
    return x / (1 + x * x)


@cx.kernel(x=cx.read, y=cx.update)
def mixed(x: Any, y: Any, a: Any, b: Any) -> None:
    y += a * x + 10 * b


def smoothed(x: Any) -> Any:
    p = np.pad(x, 1, mode="edge")
    return 0.5 * p[1:-1] + 0.25 * (p[:-2] + p[2:])


def opened(devices: str, **options: Any) -> cx.Runtime:
    return cx.Runtime(devices, inline=False, diagnostics="off", **options)


def values() -> Any:
    return np.linspace(-1.0, 2.0, SIZE)


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
            steps.append(runtime._replay.steps)
    assert steps[0] == 0
    if devices == TWO or name == "stencil":  # what is allocated in a limited memory is counted anew each time
        assert steps[1] >= TURNS // 3, runtime._replay.why
    for plain, replayed, expected in zip(*found, in_numpy(), strict=True):
        np.testing.assert_array_equal(plain, replayed)
        np.testing.assert_allclose(replayed, expected, rtol=1e-12)


@pytest.mark.parametrize("devices", ["null:2", "simulated:2"])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_replayed_where_nothing_is_computed(name: str, devices: str) -> None:
    with opened(devices) as runtime:
        LOOPS[name][0]()
        assert runtime._replay.steps >= 3


@pytest.mark.parametrize("step", [1, 2, 3, 16])
@pytest.mark.parametrize("name", LOOPS)
def test_horizons_at_any_distance_change_nothing(name: str, step: int) -> None:
    loop, in_numpy = LOOPS[name]
    with opened(TWO, horizon=step) as runtime:
        found = [np.asarray(array) for array in loop()]
        assert runtime._graph.since_horizon <= 2 * step + 1
    for replayed, expected in zip(found, in_numpy(), strict=True):
        np.testing.assert_allclose(replayed, expected, rtol=1e-12)


# One change in the middle -------------------------------------------------------------------------------------------------

FACTOR = 1.0


class Reach:
    """What a range mapper takes from outside."""

    by = 1


@cx.kernel(split=0, x=cx.read(lambda c: slice(max(0, c.lo[0] - Reach.by), c.hi[0])), y=cx.update)
def behind(x: Any, y: Any) -> None:
    y += FACTOR * x[len(x) - len(y) :] + x[0] * 0


@cx.kernel(split=0, x=cx.read, y=cx.update, flops=lambda n: 10.0 * n)
def featured(x: Any, y: Any, n: int) -> None:
    y += n * x


class Changing:
    """A loop of which one thing changes, and what NumPy makes of it."""

    def __init__(self, numpy: bool) -> None:
        self.numpy = numpy
        self.x, self.y, self.z = (self.array(values() * k) for k in (1, 2, 3))
        self.s, self.t = self.array(np.array(2.0)), self.array(np.array(3.0))
        self.seen: list[float] = []

    def array(self, data: Any) -> Any:
        return np.array(data) if self.numpy else cx.array(data)

    def call(self, kernel: Any, *args: Any, **options: Any) -> Any:
        if self.numpy:
            return kernel.function(*args)
        return kernel.using(**options)(*args) if options else kernel(*args)

    def turn(self, change: str, changed: bool) -> None:
        """Do one turn; everything but what changes is the same in each."""
        on = changed and change
        options: dict[str, Any] = {}
        x, y, z, count, a = self.x, self.y, self.z, 2, 0.5
        if on == "devices":
            options = {"devices": "cpu:0"}
        elif on == "priority":
            options = {"priority": 2}
        elif on == "policy":
            options = {"policy": "even"}
        elif on == "undivided":
            options = {"split": False}
        elif on == "aliasing":
            z = y
        elif on == "swapped":
            x, z = z, x
        elif on == "view":
            x, y = x[100:300], y[200:400]
        elif on == "strides":
            x, y = x[::2], y[1::2]
        elif on == "shape":
            x, y = self.array(values()[:77]), self.array(values()[:77])
        elif on == "dtype":
            x = self.array(values().astype(np.float32))
        elif on == "scalar":
            a = -3
        elif on == "feature":
            count = 5
        if on in ("shape", "view", "strides"):
            self.call(axpy, x, y, a)
            self.seen.append(float(y[3]))
        else:
            self.call(axpy, x, y, a, **options)
            if z is not y:
                self.call(axpy, y, z, 1e-3)
            else:
                self.call(axpy, y, y, 1e-3)
        self.call(behind, self.x, self.y)
        self.call(featured, self.x, self.z, count)
        first, second = (2.0, self.s) if on == "who is an array" else (self.s, 2.0)
        if self.numpy:
            mixed.function(self.x, self.y, float(first), float(second))
        else:
            mixed(self.x, self.y, first, second)
        born = self.array(np.full(SIZE, 7.0 if on == "first contents" else 1.0))
        filled = np.full(SIZE, 5.0 if on == "first value" else 1.0) if self.numpy else None
        if filled is None:
            filled = cx.full(SIZE, 5.0 if on == "first value" else 1.0)
        self.call(axpy, born, self.z, 0.125)
        self.call(axpy, filled, self.z, 0.125)


CHANGES = [
    "devices", "priority", "policy", "undivided", "aliasing", "swapped", "view", "strides", "shape", "dtype", "scalar",
    "feature", "who is an array", "first contents", "first value", "captured", "mapper", "a variant off", "wait", "plan",
]  # fmt: skip


def outside(change: str, changed: bool) -> None:
    global FACTOR
    FACTOR = 3.0 if changed and change == "captured" else 1.0
    Reach.by = 5 if changed and change == "mapper" else 1


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", [{9}, {8, 9, 14}, set(range(12, 40))])
def test_one_change_in_the_middle_is_seen(change: str, at: set[int]) -> None:
    results = []
    for numpy in (True, False):
        with opened(TWO) as runtime:
            loop = Changing(numpy)
            steps = 0
            for turn in range(18):
                outside(change, turn in at)
                if not numpy and turn in at:
                    steps = steps or runtime._replay.steps
                    if change == "wait":
                        cx.wait()
                    elif change == "plan":
                        axpy.plan(loop.x, loop.y, 0.5)
                    elif change == "a variant off":
                        runtime._planner._candidates.forget()
                loop.turn(change, turn in at)
            outside(change, changed=False)
            results.append([np.asarray(array) for array in (loop.x, loop.y, loop.z)] + [np.array(loop.seen)])
            assert numpy or steps > 0, runtime._replay.why
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


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
        assert runtime._replay.steps >= 10
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
        assert not runtime._replay.between
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
        assert len(runtime._upkeep.live) == 2


# Named steps ----------------------------------------------------------------------------------------------------------------


def test_a_named_step_tells_how_often_it_was_replayed() -> None:
    step = cx.record("turn")
    with opened(TWO):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(10):
            with step:
                axpy(x, y, 1.0)
                axpy(bent(x), y, 0.5)
        assert step.steps == 10 and step.replayed >= 6, step.why
        assert repr(step) == f"<cx.record turn: {step.replayed} of 10 replayed>"


def test_what_lies_between_named_steps_is_replayed_with_them() -> None:
    first, second = cx.record("first"), cx.record("second")
    with opened(TWO):
        x, y, tops = cx.array(values()), cx.zeros(SIZE), []
        for _ in range(12):
            with first:
                axpy(x, y, 1.0)
            axpy(bent(x), y, 0.5)
            with second:
                axpy(x, y, -1.0)
            tops.append(float(y[7]))
        assert first.replayed >= 5 and second.replayed >= 5, (first, second, first.why)
        expected = np.cumsum([0.5 * bent.function(values())[7]] * 12)
        np.testing.assert_allclose(tops, expected)


def test_a_named_step_may_be_longer_than_those_that_are_found() -> None:
    step = cx.record()
    with opened(TWO):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(9):
            with step:
                for _ in range(300):
                    axpy(x, y, 1.0)
            float(y[0])
        assert step.replayed >= 2, step.why
        np.testing.assert_allclose(np.asarray(y), 2700 * values())


def test_a_step_that_an_exception_leaves_is_over() -> None:
    step = cx.record()
    with opened(TWO) as runtime:
        x, y = cx.array(values()), cx.zeros(SIZE)
        with pytest.raises(KeyError), step:
            axpy(x, y, 1.0)
            raise KeyError("left")
        assert step.steps == 0
        for _ in range(10):
            axpy(x, y, 1.0)
        assert runtime._replay.steps > 3
        np.testing.assert_allclose(np.asarray(y), 11 * values())


def test_calls_beside_named_steps_are_no_part_of_them() -> None:
    step = cx.record()
    with opened(TWO):
        x, y, z = cx.array(values()), cx.zeros(SIZE), cx.zeros(SIZE)
        for turn in range(12):
            if turn % 3:
                with step:
                    axpy(x, y, 1.0)
                    axpy(x, z, 1.0)
            mixed(x, z, 1.0, 0.0)
            bent(x)
        np.testing.assert_allclose(np.asarray(y), 8 * values())
        np.testing.assert_allclose(np.asarray(z), 20 * values())


def test_without_replay_a_step_says_so() -> None:
    step = cx.record()
    with opened(TWO, replay=False):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(5):
            with step:
                axpy(x, y, 1.0)
        assert (step.steps, step.replayed, step.why) == (5, 0, "replay is off")
