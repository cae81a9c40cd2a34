"""Calls on small arrays at home are NumPy's own: with the bits, the order, the failures and the errors of tasks."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import NestedCallError, ProgramError, RuntimeClosed, ShapeError, TaskFailed, UnsupportedError
from coexec.program.small_functions import AGAIN, EVERY, FIRST, LEAST, SLOW, CallPace
from tests.scripts import run_script


@pytest.fixture
def rt():
    with cx.Runtime("cpu:0") as runtime:
        yield runtime


def tasks(runtime: cx.Runtime) -> int:
    """Return how many tasks there were."""
    return runtime._driver.scheduler.link.graph.last


@cx.kernel(x=cx.update)
def doubled(x):
    x *= 2


@cx.kernel(split=0, x=cx.read, y=cx.write)
def plus_one(x, y):
    y[...] = x + 1


# What is computed ---------------------------------------------------------------------------------------------------------


def test_no_task_is_made_of_small_calls(rt: cx.Runtime) -> None:
    a, b = cx.array(np.arange(12.0).reshape(3, 4)), cx.ones((3, 4))
    before = tasks(rt)
    c = (a + b) * 2.0 - b / 4
    c += a
    c[1, 2:] = 5
    c[0] -= c[1]
    c[2, 0] = c[0, 0] + 1
    total = float(c.sum()) + float(np.sqrt(a).max()) + float(a[1].min())
    assert tasks(rt) == before
    x, y = np.arange(12.0).reshape(3, 4), np.ones((3, 4))
    z = (x + y) * 2.0 - y / 4
    z += x
    z[1, 2:] = 5
    z[0] -= z[1]
    z[2, 0] = z[0, 0] + 1
    assert np.array_equal(np.asarray(c), z) and total == z.sum() + np.sqrt(x).max() + x[1].min()


def test_loops_over_views_of_a_large_array_make_no_tasks(rt: cx.Runtime) -> None:
    big, rows = cx.array(np.arange(200_000.0)), cx.array(np.arange(300_000.0).reshape(300, 1000))
    x, m = np.arange(200_000.0), np.arange(300_000.0).reshape(300, 1000)
    before = tasks(rt)
    for i in range(1, 50):
        big[i] -= big[i - 1]
        rows[i] -= rows[i - 1]
        rows[i, 1:] += rows[i - 1, :-1] * 0.5
        x[i] -= x[i - 1]
        m[i] -= m[i - 1]
        m[i, 1:] += m[i - 1, :-1] * 0.5
    assert tasks(rt) == before
    assert np.array_equal(np.asarray(big), x) and np.array_equal(np.asarray(rows), m)


def test_a_sum_beyond_one_block_is_always_tasks(rt: cx.Runtime) -> None:
    x = np.random.default_rng(1).random(200_000).astype(np.float32)
    a = cx.array(x)
    before = tasks(rt)
    found = float(a.sum())
    assert tasks(rt) > before
    with cx.Runtime("cpu:0", inline=False):
        assert float(cx.array(x).sum()) == found


@pytest.mark.parametrize("function", [np.exp, np.sin, np.tanh, np.log1p, np.cbrt])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_way_whatever_the_strides(function: Any, dtype: Any) -> None:
    x = np.random.default_rng(2).random((37, 41)).astype(dtype)
    found = []
    for inline in (True, False):
        with cx.Runtime("cpu:0", inline=inline):
            a = cx.array(x)
            found.append([np.asarray(function(view)) for view in (a, a.T, a[::2, 1:], a[:, 3], a[::-1])])
    for short, long in zip(*found, strict=True):
        assert short.tobytes() == long.tobytes()


# Order --------------------------------------------------------------------------------------------------------------------


def test_small_calls_and_tasks_keep_the_programs_order(rt: cx.Runtime) -> None:
    a, b = cx.array(np.arange(4.0)), cx.zeros(4)
    for _ in range(20):
        doubled(a)
        a -= 1
        plus_one(a, b)
        a[0] = b[0] - 1
    x, y = np.arange(4.0), np.zeros(4)
    for _ in range(20):
        x *= 2
        x -= 1
        y[...] = x + 1
        x[0] = y[0] - 1
    assert np.array_equal(np.asarray(a), x) and np.array_equal(np.asarray(b), y)


def test_what_a_chain_has_taken_is_not_changed_under_it(rt: cx.Runtime) -> None:
    row, big = cx.array(np.arange(300.0)), cx.ones((400, 300))
    held = big * 2.0 + row  # held back, for more operators may come
    row[...] = -1
    row += 1
    assert np.array_equal(np.asarray(held)[7], 2 + np.arange(300.0)) and not np.asarray(row).any()


def test_what_was_read_never_changes(rt: cx.Runtime) -> None:
    a = cx.array(np.arange(5.0))
    first, value, view = np.asarray(a), a[2], a[1:3]
    a += 10
    a[2] = 99
    assert first.tolist() == [0, 1, 2, 3, 4] and not first.flags.writeable
    assert float(value) == 2 and np.asarray(view).tolist() == [11, 99]
    copy = np.array(a)
    copy[0] = -1
    assert float(a[0]) == 10


def test_borrowed_memory_is_read_at_once_and_never_written(rt: cx.Runtime) -> None:
    mine = np.arange(4.0)
    a = cx.asarray(mine)
    before = tasks(rt)
    assert np.asarray(a + 1).tolist() == [1, 2, 3, 4] and float(a[3]) == 3 and tasks(rt) == before
    a += 1
    a[0] = 7
    assert mine.tolist() == [0, 1, 2, 3] and np.asarray(a).tolist() == [7, 2, 3, 4]


def test_views_of_views_are_worked_out_when_a_task_asks(rt: cx.Runtime) -> None:
    a = cx.array(np.arange(48.0).reshape(6, 8))
    view = a[1:][::2][:, 1:-1][..., ::-1][1]
    doubled(view)
    view += 1
    x = np.arange(48.0).reshape(6, 8)
    part = x[1:][::2][:, 1:-1][..., ::-1][1]
    part *= 2
    part += 1
    assert np.array_equal(np.asarray(a), x) and view.shape == (6,) and view.size == 6
    for _ in range(3000):
        a = a[None][0]
    assert a.shape == (6, 8) and np.array_equal(np.asarray(a), x)


def test_threads_take_turns(rt: cx.Runtime) -> None:
    a: Any = cx.zeros(1000)

    def work() -> None:
        for _ in range(300):
            np.add(a, 1.0, out=a)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(np.asarray(a).tolist()) == {900.0}


# Failures and errors --------------------------------------------------------------------------------------------------------


def test_what_numpy_raises_while_computing_is_a_failed_task(rt: cx.Runtime) -> None:
    a, zero = cx.array(np.arange(3.0)), cx.zeros(3)
    with np.errstate(all="raise"):
        quotient = 1.0 / zero
        a /= zero
        root = np.sqrt(zero - 1)
    for poisoned in (quotient, a, root):
        with pytest.raises(TaskFailed) as caught:
            np.asarray(poisoned)
        assert isinstance(caught.value, FloatingPointError)
    with pytest.raises(FloatingPointError):
        np.asarray(a + 1)
    a[...] = 4
    assert np.asarray(a).tolist() == [4, 4, 4] and np.asarray(zero).tolist() == [0, 0, 0]


def test_an_overflow_in_place_is_not_computed_again(rt: cx.Runtime) -> None:
    a = cx.array(np.full(4, 1e300))
    with np.errstate(over="raise"):
        a *= 1e300  # once more, infinity times this would raise nothing
    with pytest.raises(FloatingPointError):
        np.asarray(a)
    with pytest.raises(ExceptionGroup):
        b = cx.ones(2)
        with np.errstate(divide="raise"):
            b /= 0.0
        cx.wait()


def test_arguments_are_refused_as_ever(rt: cx.Runtime) -> None:
    a, whole = cx.zeros(3), cx.zeros(3, int)
    with pytest.raises(ShapeError, match="cannot be broadcast"):
        a + cx.zeros(4)
    with pytest.raises(TypeError):
        whole += 0.5
    with pytest.raises(IndexError, match="out of bounds"):
        a[3]
    with pytest.raises(ShapeError, match="cannot assign"):
        a[:2] = cx.zeros(3)
    with pytest.raises(TypeError, match="complex"):
        a[0] = 1j
    with warnings.catch_warnings(), pytest.raises(UnsupportedError):
        warnings.simplefilter("ignore")
        many: Any = cx.zeros((20, 2))
        np.random.default_rng(1).shuffle(many)
    assert np.asarray(whole).tolist() == [0, 0, 0] and np.asarray(a).tolist() == [0, 0, 0]


def test_a_body_makes_no_small_calls(rt: cx.Runtime) -> None:
    outside = [cx.ones(3)]

    @cx.kernel(x=cx.update)
    def nested(x):
        x += float(holder.array.sum())

    class holder:
        array = outside[0]

    x = cx.zeros(3)
    nested(x)
    with pytest.raises(NestedCallError):
        np.asarray(x)


def test_arrays_of_two_runtimes_do_not_meet(rt: cx.Runtime) -> None:
    a = cx.ones(3)
    with cx.Runtime("cpu:0"):
        b = cx.ones(3)
        with pytest.raises(ProgramError, match="another runtime"):
            a + b
        with pytest.raises(ProgramError, match="another runtime"):
            a + 1


def test_a_closed_runtime_computes_nothing_and_still_knows() -> None:
    with cx.Runtime("cpu:0"):
        a = cx.ones(3) * 2
        zeros = cx.zeros(2)
    assert np.asarray(a).tolist() == [2, 2, 2] and np.asarray(zeros).tolist() == [0, 0]
    with cx.Runtime("cpu:0"), pytest.raises((RuntimeClosed, ProgramError)):
        a + 1
    with pytest.raises(RuntimeClosed):
        a[0] = 1


def test_a_forked_child_makes_no_small_calls() -> None:
    done = run_script(
        """
        with cx.Runtime("cpu:0"):
            a = cx.ones(3)
            b = a + 1
            child = os.fork()
            if not child:
                for use in (lambda: a + b, lambda: a.__setitem__(0, 1), lambda: a.sum(), lambda: np.asarray(a)):
                    try:
                        use()
                        print("used")
                    except cx.errors.RuntimeClosed:
                        print("refused", flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    assert (done.returncode, done.stdout) == (0, "refused\n" * 4), done.stderr


@pytest.mark.parametrize("call", ["a += 1", "a[0]", "a[1] = 2", "a.sum()", "np.asarray(a)"])
def test_a_loop_of_small_calls_can_be_interrupted(call: str) -> None:
    done = run_script(
        f"""
        looping = threading.Event()
        threading.Thread(target=lambda: (looping.wait(), os.kill(os.getpid(), signal.SIGINT))).start()
        with cx.Runtime("cpu:0"):
            a = cx.ones(3)
            try:
                while True:
                    {call}
                    looping.set()
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


# Where every call is a task -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"inline": False}, {"sync": True}, {"debug": True}, {"reproducible": True}, {"memory": {"host": "1MB"}}]
)
def test_some_options_make_a_task_of_every_call(options: dict[str, Any]) -> None:
    with cx.Runtime("cpu:0", **options) as runtime:
        a = cx.ones(3)
        before = tasks(runtime)
        b = a + 1
        assert tasks(runtime) > before and np.asarray(b).tolist() == [2, 2, 2]


def test_a_call_that_is_placed_is_a_task(rt: cx.Runtime) -> None:
    a = cx.ones(3)
    before = tasks(rt)
    with cx.placed("cpu:0"):
        b = a + 1
        b[0] = 5
    assert tasks(rt) == before + 2 and np.asarray(b).tolist() == [5, 2, 2]


# The size ------------------------------------------------------------------------------------------------------------------


def test_a_call_is_small_while_it_takes_less_time_than_a_task() -> None:
    pace = CallPace(FIRST)
    pace.learn(FIRST, 1e-6, 50e-6)
    assert pace.limit == 4 * FIRST
    for _ in range(SLOW):
        assert pace.limit == 4 * FIRST
        pace.learn(FIRST, 60e-6, 50e-6)
    assert pace.limit == FIRST // 2
    assert [pace.takes(FIRST) for _ in range(AGAIN)] == [False] * (AGAIN - 1) + [True]
    pace.learn(FIRST, 20e-6, 50e-6)
    assert pace.limit == FIRST
    for _ in range(SLOW):
        pace.learn(LEAST, 1.0, 50e-6)
    assert pace.limit == LEAST and not CallPace(-1).takes(8)


def test_a_trace_has_a_row_for_some_of_the_small_calls(tmp_path: Any) -> None:
    with cx.Runtime("cpu:0", trace=tmp_path / "trace.json"):
        a = cx.ones(3)
        for _ in range(3 * EVERY):
            a = a * 1.0
    rows = [row for row in cx.Trace.load(tmp_path / "trace.json").rows if row["row"] == "small"]
    assert [row["name"] for row in rows] == ["multiply"] * len(rows) and 2 <= len(rows) <= 4
    assert sum(row["calls"] for row in rows) <= 3 * EVERY and all(row["stop"] >= row["start"] for row in rows)


# Indices that NumPy made ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False])
def test_a_view_of_an_array_is_assigned_at_an_index_of_numpys(inline: bool) -> None:
    with cx.Runtime("cpu:0", inline=inline):
        for make in (np.array, cx.array):
            a = make([[1.0, 2.0], [3.0, 4.0]])
            a[np.int64(1)] = a[0, :]
            a[None, :] = a[np.int64(1)]
            assert np.asarray(a).tolist() == [[1.0, 2.0], [1.0, 2.0]], make
            with pytest.raises(IndexError):
                a[0, 0][np.int64(1)]


@pytest.mark.parametrize("inline", [True, False])
def test_a_value_is_no_matrix(inline: bool) -> None:
    with cx.Runtime("cpu:0", inline=inline):
        square, value = cx.ones((3, 3)), cx.array(2.0) + 1
        float(value)
        for product in (lambda: value @ square, lambda: square @ value, lambda: value @ value):
            with pytest.raises(ValueError, match="0-d"):
                product()


@pytest.mark.parametrize("inline", [True, False])
def test_the_outer_product_of_values_that_were_read_is_a_number(inline: bool) -> None:
    with cx.Runtime("cpu:0", inline=inline):
        value, row = cx.array(2.0) + 1, cx.ones(2)
        float(value)
        assert float(np.add.outer(value, value)) == 6 and np.asarray(np.add.outer(row, value)).tolist() == [4, 4]
