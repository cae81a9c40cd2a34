"""Faults: failing kernels, poisoned boxes, our own errors, forks, and programs that end too early."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

import coexec as cx
from coexec.errors import RuntimeClosed
from tests.clusters import cluster
from tests.devices import MIXED, TWO
from tests.holding import closed_gate, pass_gate


@cx.kernel(split=0, x=cx.update)
def increment(x):
    x += 1


@cx.kernel(x=cx.read, y=cx.write)
def copy(x, y):
    y[...] = x


@cx.kernel(split=0, x=cx.update)
def fail(x, words="no luck"):
    raise ValueError(words)


@cx.kernel(x=cx.update)
def hold(x):
    pass_gate("hold")
    x += 1


# Failing kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", ["cpu:0", TWO, MIXED])
def test_a_failure_poisons_exactly_what_the_kernel_would_have_written(devices) -> None:
    with cx.Runtime(devices):
        x = cx.zeros(100)
        increment(x)
        task = fail(x[40:60])
        assert np.asarray(x[:40]).sum() == 40
        assert np.asarray(x[60:]).sum() == 40
        for part in (x[40:60], x, x[59:61], x[30:41], x[50]):
            with pytest.raises(ValueError, match="no luck"):
                np.asarray(part)
        assert isinstance(task.exception(), ValueError)


def test_a_failure_in_one_chunk_poisons_that_chunk_only() -> None:
    @cx.kernel(split=0, x=cx.update)
    def half(x, chunk):
        if chunk.lo[0] == 0:
            raise ValueError("first half")
        x += 1

    with cx.Runtime(TWO):
        x = cx.zeros(100)
        task = half.using(devices=TWO)(x)
        if "," in TWO:
            assert np.asarray(x[50:]).sum() == 50
        with pytest.raises(ValueError, match="first half"):
            np.asarray(x[:50])
        with pytest.raises(ValueError, match="first half"):
            task.result()


def test_the_error_is_the_original_and_says_where_it_came_from() -> None:
    def deeper(x):
        return x["no such key"]

    @cx.kernel(split=0, x=cx.update)
    def lookup(x, chunk):
        deeper({})

    with cx.Runtime("cpu:0"):
        x = cx.zeros(10)
        lookup(x[2:8])
        with pytest.raises(KeyError) as caught:
            np.asarray(x)
    error = caught.value
    assert isinstance(error, cx.TaskFailed) and isinstance(error, KeyError)
    assert isinstance(error.__cause__, KeyError) and error.__cause__.args == ("no such key",)
    assert error.task == "lookup" and error.device == "cpu:0" and error.chunk == "[0:6]"
    text = str(error)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    call, body = (lines.index(line) + 1 for line in ("        lookup(x[2:8])", '        return x["no such key"]'))
    assert f"{Path(__file__).name}:{call}" in text and f"{Path(__file__).name}:{body}" in text
    assert "lookup failed on cpu:0" in text and "chunk [0:6]" in text and "KeyError" in text
    assert "deeper" in "".join(traceback.format_exception(error))


def test_errors_of_awkward_types_arrive_too() -> None:
    class Picky(Exception):
        def __init__(self, code, reason):
            super().__init__(code, reason)

    class Final(BaseException):
        pass

    def throw(which):
        raise {
            "picky": Picky(5, "x"),
            "unicode": UnicodeDecodeError("utf-8", b"b", 0, 1, "c"),
            "exit": SystemExit(3),
            "base": Final("y"),
            "os": OSError(2, "gone"),
            "stop": StopIteration(4),
        }[which]

    @cx.kernel(x=cx.update)
    def raiser(x, which):
        throw(which)

    with cx.Runtime("cpu:0"):
        for which, kind in {
            "picky": Picky,
            "unicode": UnicodeDecodeError,
            "os": OSError,
            "stop": StopIteration,
            "exit": cx.TaskFailed,
            "base": cx.TaskFailed,
        }.items():
            error = raiser(cx.zeros(1), which).exception()
            assert isinstance(error, cx.TaskFailed) and isinstance(error, kind), which
            assert error.__cause__ is not None and str(error)


class Coded(ValueError):
    """An error that tells more than its text."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


@cx.kernel(x=cx.update)
def coded(x):
    raise Coded(len(x))


def test_the_error_has_what_the_original_has() -> None:
    with cx.Runtime(TWO):
        x = cx.zeros(7)
        coded(x)
        with pytest.raises(Coded) as caught:
            np.asarray(x)
        assert caught.value.code == 7 and isinstance(caught.value, cx.TaskFailed) and caught.value.task == "coded"


def test_what_depends_on_a_failure_is_cancelled_and_the_rest_completes() -> None:
    ran: list[str] = []

    def note(name):
        ran.append(name)

    @cx.kernel(x=cx.read, y=cx.update)
    def use(x, y, name):
        note(name)
        y += x

    with cx.Runtime("cpu:0"):
        a, b, c, d = (cx.zeros(4) for _ in range(4))
        fail(a)
        use(a, b, "needs a")
        use(b, c, "needs b")
        use(d, d, "free")
        assert np.asarray(d).sum() == 0
        for array in (c, b, a):
            with pytest.raises(ValueError, match="no luck"):
                np.asarray(array)
        assert ran == ["free"]


def test_reading_again_raises_the_same_error_again() -> None:
    with cx.Runtime("cpu:0"):
        x = cx.zeros(4)
        fail(x)
        seen = []
        for _ in range(3):
            with pytest.raises(ValueError) as caught:
                np.asarray(x)
            seen.append(caught.value)
            depth = len(traceback.extract_tb(caught.value.__traceback__))
            assert depth < 12  # no traceback piles up
        assert len({id(error.__cause__) for error in seen}) == 1


@pytest.mark.parametrize("devices", ["cpu:0", MIXED])
def test_overwriting_the_whole_box_heals_it(devices) -> None:
    with cx.Runtime(devices):
        x = cx.zeros(100)
        fail(x[20:40])
        x[20:30] = 5  # half of it
        assert np.asarray(x[:30]).sum() == 50
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(x)
        copy(cx.ones(10), x[30:40])
        assert np.asarray(x).sum() == 60
        task = fail(x)
        x.fill(1)
        increment(x)
        assert np.asarray(x).sum() == 200
        assert isinstance(task.exception(), ValueError)  # healed, but it did happen


def test_updating_a_poisoned_box_does_not_heal_it() -> None:
    with cx.Runtime("cpu:0"):
        x = cx.zeros(10)
        fail(x)
        increment(x)
        x[::2] = 1  # a part in steps: the rest stays poisoned
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(x)
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(x[1::2])


def test_a_failure_in_steps_poisons_only_those_elements() -> None:
    with cx.Runtime("cpu:0"):
        x = cx.zeros(10)
        task = fail(x[2:8:2])
        assert np.asarray(x[1::2]).tolist() == [0] * 5
        assert np.asarray(x[:2]).tolist() == [0, 0]
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(x[4:6])
        x[3:5] = 1  # one of the three
        assert np.asarray(x[3:6]).tolist() == [1, 1, 0]
        x[2:7:2] = 2
        assert np.asarray(x).tolist() == [0, 0, 2, 1, 2, 0, 2, 0, 0, 0]
        assert task.exception() is not None


def readable(x: cx.Array) -> list[bool]:
    """Tell which elements can be read."""

    def one(i: int) -> bool:
        try:
            np.asarray(x[i, ...])
        except ValueError:
            return False
        return True

    return [one(i) for i in range(len(x))]


def test_what_a_stepped_view_overwrites_of_a_poisoned_box_is_healed_for_good() -> None:
    with cx.Runtime("cpu:0", horizon=8):
        x, y = cx.ones(8), cx.zeros(10)
        fail(x[1:6]).exception()
        x[1::3] = 7
        healthy = [i in (0, 1, 4, 6, 7) for i in range(8)]
        assert readable(x) == healthy
        for _ in range(100):
            increment(y)
        cx.wait()
        assert readable(x) == healthy
        fail(x[::2]).exception()
        x[3::2] = 8
        assert readable(x) == [i % 2 == 1 for i in range(8)]
        x[::2] = 9
        assert np.asarray(x).tolist() == [9, 7, 9, 8, 9, 8, 9, 8]


def test_what_was_healed_in_steps_is_moved_to_other_memories_though_the_rest_is_lost() -> None:
    with cx.Runtime(platform=cluster(1, 2), execute=True):
        x = cx.ones(9)
        fail.using(devices="gpu:0")(x[2:7]).exception()
        x[::2] = 5
        for device in ("gpu:1", "gpu:0", "gpu:1"):
            increment.using(devices=device)(x[::4])
            increment.using(devices=device)(x[2::4])
            assert readable(x) == [i in (0, 1, 2, 4, 6, 7, 8) for i in range(9)]
        assert np.asarray(x[::2]).tolist() == [8] * 5
        x[1::2] = 2
        assert np.asarray(x).tolist() == [8, 2] * 4 + [8]


def test_poison_outlives_horizons_and_waits() -> None:
    with cx.Runtime("cpu:0", horizon=8):
        x, y = cx.zeros(10), cx.zeros(10)
        fail(x[:5])
        with pytest.raises(ExceptionGroup):
            cx.wait()
        for _ in range(100):
            increment(y)
            increment(x[5:])
        cx.wait()
        with pytest.raises(ValueError, match="no luck"):
            np.asarray(x)
        assert np.asarray(x[5:]).tolist() == [100] * 5
        copy(x[5:], x[:5])
        assert np.asarray(x).tolist() == [100] * 10


def test_a_failed_reduction_poisons_its_array() -> None:
    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
    def total_of(x, total, chunk):
        if chunk.hi[0] > 90_000:
            raise ArithmeticError("last block")
        total += x.sum()

    with cx.Runtime(TWO):
        total = cx.zeros(())
        total_of(cx.ones(100_000), total)
        with pytest.raises(ArithmeticError, match="last block"):
            float(total)
        total[...] = 0
        assert float(total) == 0


def test_wait_raises_all_failures_nobody_has_seen_as_a_group() -> None:
    with cx.Runtime("cpu:0"):
        arrays = [cx.zeros(3) for _ in range(3)]
        for number, array in enumerate(arrays):
            fail(array, f"number {number}")
        increment(arrays[0])  # cancelled: not a failure of its own
        with pytest.raises(ValueError, match="number 1"):
            np.asarray(arrays[1])  # seen
        with pytest.raises(ExceptionGroup, match="2 tasks failed") as caught:
            cx.wait()
        assert sorted(str(e.__cause__) for e in caught.value.exceptions) == ["number 0", "number 2"]
        assert caught.group_contains(ValueError)
        cx.wait()  # told once


def test_leaving_the_runtime_raises_what_nobody_has_seen() -> None:
    with pytest.raises(ExceptionGroup, match="1 task failed"), cx.Runtime("cpu:0"):
        fail(cx.zeros(3))
    with cx.Runtime("cpu:0"):
        assert fail(cx.zeros(3)).exception() is not None  # seen


def test_a_poisoned_array_raises_also_after_its_runtime_was_closed() -> None:
    with cx.Runtime("cpu:0"):
        x = cx.zeros(10)
        task = fail(x[:5])
        task.exception()
    with pytest.raises(ValueError, match="no luck"):
        np.asarray(x)
    assert np.asarray(x[5:]).tolist() == [0] * 5


def test_running_out_of_memory_says_sizes_and_remedy() -> None:
    with cx.Runtime("cpu:0", memory={"host": "1MB"}):
        small = cx.zeros(1000)
        increment(small)
        big = cx.zeros(10**6)
        with pytest.raises(cx.CoexecError, match=r"needs 7\.6 MiB in memory 'host'.*Runtime\(memory="):
            increment(big)
        with pytest.raises(cx.CoexecError, match="MiB"):
            np.asarray(big)
        assert np.asarray(small).sum() == 1000
        copy(small[:5], small[5:10])
        assert float(small[9]) == 1


# Our own errors -----------------------------------------------------------------------------------------------------------


def test_an_error_of_our_own_fails_every_wait_with_its_cause(monkeypatch) -> None:
    before = set(threading.enumerate())
    runtime = cx.Runtime("cpu:0", inline=False)
    with closed_gate("hold") as gate, pytest.raises(RuntimeClosed), runtime:
        x, y = cx.zeros(3), cx.zeros(3)
        task = hold(x)
        gate.wait_for_arrival()

        def finish(*args, **kwargs):
            raise RuntimeError("a bug of ours")

        monkeypatch.setattr(runtime._driver.executor.engine, "finish", finish)
        answers: list[BaseException | None] = []

        def wait_elsewhere():
            try:
                np.asarray(x)
            except BaseException as error:
                answers.append(error)

        threads = [threading.Thread(target=wait_elsewhere) for _ in range(3)]
        for thread in threads:
            thread.start()
        gate.open.set()
        for thread in threads:
            thread.join()
        for wait in (task.result, task.wait, cx.wait, lambda: np.asarray(y), lambda: np.asarray(x)):
            with pytest.raises(RuntimeClosed) as caught:
                wait()
            assert isinstance(caught.value.__cause__, RuntimeError) and "a bug of ours" in str(caught.value.__cause__)
        assert len(answers) == 3 and all(isinstance(error, RuntimeClosed) for error in answers)
        cx.wait()
    assert set(threading.enumerate()) <= before
