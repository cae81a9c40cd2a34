"""What goes wrong in the middle of a stream: items that fail, iterables that raise, consumers that stop, devices that are lost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from coexec.errors import ItemFailed, ProgramError, RuntimeClosed
from tests.stream.functions import items, may_fail, reads_inside, three_calls, weights
from tests.stream.test_results import opened


def left_behind() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("coexec-item", "coexec-stream"))]


def bad(count: int) -> list[Any]:
    """Return items of which numbers 3 and 7 fail."""
    return [np.full((4, 4), 13.0 if n in (3, 7) else n) for n in range(count)]


def test_a_failed_item_stops_the_stream_with_its_index() -> None:
    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(may_fail)
        found = []
        with pytest.raises(ItemFailed, match=r"item 3, stage 0.*thirteen") as caught:
            for result in pipe.stream(bad(10)):
                found.append(result)  # noqa: PERF402 - one by one, as a program would
        assert caught.value.index == 3
        assert isinstance(caught.value.__cause__, ValueError)
        assert [float(r[0, 0]) for r in found] == [1.0, 2.0, 3.0]
        assert [f.index for f in pipe.failures] == [3]
        cx.wait()  # everything that failed was told


def test_a_first_item_that_fails_is_told_as_it_is_also_if_nothing_is_known_of_its_calls() -> None:
    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def never_seen(x: Any, out: Any) -> None:
        if x[0, 0] == 13.0:
            raise ValueError("thirteen")
        out[...] = x + 1

    def function(x: Any) -> Any:
        out = cx.empty(x.shape, x.dtype)
        never_seen(x, out)
        return out

    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(function)
        with pytest.raises(ItemFailed, match=r"item 0.*thirteen") as caught:
            pipe.map(bad(10)[3:])
        assert isinstance(caught.value.__cause__, ValueError)
        found = pipe.map(bad(10)[3:], on_error="skip")
        assert [float(r[0, 0]) for r in found] == [n + 1.0 for n in range(4, 10) if n != 7]
        cx.wait()  # everything that failed was told


def test_failed_items_are_skipped_or_returned() -> None:
    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(may_fail)
        found = pipe.map(bad(10), on_error="skip")
        assert [float(r[0, 0]) for r in found] == [n + 1.0 for n in range(10) if n not in (3, 7)]
        assert [(f.index, f.stage) for f in pipe.failures] == [(3, "stage 0"), (7, "stage 0")]
        found = pipe.map(bad(10), on_error="return")
        assert [r.index for r in found if isinstance(r, ItemFailed)] == [3, 7]
        assert len(found) == 10
        assert pipe.stats()["failed"] == 2
        cx.wait()


def test_too_many_failures_stop_the_stream() -> None:
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(may_fail)
        assert len(pipe.map(bad(10), on_error="skip", max_failures=2)) == 8
        assert len(pipe.map(bad(12), on_error="skip", max_failures=0.2)) == 10
        for most in (1, 0.1):
            with pytest.raises(ItemFailed, match="2 of"):
                pipe.map(bad(11), on_error="skip", max_failures=most)
        cx.wait()


def test_an_item_of_another_shape_or_type_fails_by_itself() -> None:
    odd = [*items(3), np.zeros((5, 7), np.float32), "text", *items(2)]
    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(three_calls, w=weights())
        assert len(pipe.map(odd, on_error="skip")) == 5
        assert [f.index for f in pipe.failures] == [3, 4]
        assert len(pipe.map(odd[3:], on_error="skip")) == 2  # also if it is the first one
        assert [f.index for f in pipe.failures] == [0, 1]


def test_what_the_iterable_raises_comes_after_everything_before_it() -> None:
    def source() -> Iterator[Any]:
        yield from items(3)
        raise OSError("the camera is gone")

    with opened(devices="cpu:0,cpu:1"):
        found = []
        with pytest.raises(OSError, match="camera") as caught:
            for result in cx.Pipeline(three_calls, w=weights()).stream(source()):
                found.append(result)  # noqa: PERF402 - one by one, as a program would
    assert len(found) == 3
    assert "item 3" in caught.value.__notes__[0]


@pytest.mark.parametrize("function", [three_calls, reads_inside])
def test_a_consumer_that_stops_early_leaves_nothing_behind(function: Any) -> None:
    closed = []

    def source() -> Iterator[Any]:
        try:
            number = 0
            while True:
                yield items(1)[0] + number
                number += 1
        finally:
            closed.append(number)

    with opened(devices="cpu:0,cpu:1") as runtime:
        pipe = cx.Pipeline(function, w=weights())
        for _ in pipe.stream(source(), ahead=4):
            break
        assert closed
        stream = pipe.stream(source(), ahead=4)
        assert next(stream) is not None
        stream.close()
        stream.close()
        assert list(stream) == []
        with pipe.stream(source(), ahead=4) as results, pytest.raises(ZeroDivisionError):
            next(results)
            raise ZeroDivisionError
        assert results.closed
        assert len(closed) == 3
        pipe.close()
        assert left_behind() == []
        cx.wait()
        assert runtime._driver.executor.engine.idle


def test_a_stream_without_end_takes_no_more_memory() -> None:
    import tracemalloc

    def source() -> Iterator[Any]:
        item = np.ones((8, 8), np.float32)
        while True:
            yield item

    with opened(platform="dype-pcie4", execute=True, horizon=16) as runtime:
        stream = cx.Pipeline(lambda item: item * 2 + 1).stream(source())
        sizes = []
        tracemalloc.start()
        for number, _ in enumerate(stream):
            if number in (300, 500):
                sizes.append(tracemalloc.get_traced_memory()[0])
            if number > 500:
                break
        tracemalloc.stop()
        stream.close()
        assert runtime._driver.scheduler.live() < 500
    assert sizes[1] - sizes[0] < 200_000, sizes


def test_a_stream_goes_on_after_an_item() -> None:
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(may_fail)
        stream = pipe.stream(iter(bad(10)))
        with pytest.raises(ItemFailed):
            list(stream)
        assert stream.position == 3
        rest = pipe.stream(iter(bad(10)), after=stream.position, on_error="skip")
        assert [float(r[0, 0]) for r in rest] == [5.0, 6.0, 7.0, 9.0, 10.0]
        assert [f.index for f in pipe.failures] == [7]
        assert [float(r[0, 0]) for r in pipe.stream(bad(10), after=7)] == [9.0, 10.0]


def survive(function: Any, order: str, seeds: range, rows: int = 64) -> int:
    """Let devices be lost in the middle of streams; check that each item has one result, and return how many were lost."""
    w, given_items = weights(rows), items(16, rows)
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(function, w=w)
        plain = sorted(summed(pipe(item)) for item in given_items)
    lost = 0
    for seed in seeds:
        random = np.random.default_rng(seed)
        gone = random.permutation(["gpu:0", "gpu:1", "fpga:0", "fpga:1", "fpga:2"])[:4]
        scenario = Scenario(tuple(Happening.lost(str(name), float(random.uniform(0, 6e-3))) for name in gone))
        with opened(platform="dype-pcie4", execute=True, scenario=scenario):
            found = cx.Pipeline(function, w=w).map(given_items, order=order)
        np.testing.assert_allclose(sorted(map(summed, found)), plain, rtol=1e-3)
        lost += len(gone)
    return lost


def summed(result: Any) -> float:
    return float(np.asarray(result["z"] if isinstance(result, dict) else result[0]).sum())


@pytest.mark.filterwarnings("ignore:device")
@pytest.mark.parametrize("function", [three_calls, reads_inside])
@pytest.mark.parametrize("order", ["input", "completion"])
def test_no_item_is_lost_or_repeated_when_devices_are_lost(function: Any, order: str) -> None:
    assert survive(function, order, range(2)) == 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:device")
@pytest.mark.parametrize("function", [three_calls, reads_inside])
def test_no_item_is_lost_or_repeated_by_a_thousand_losses(function: Any) -> None:
    assert survive(function, "input", range(2, 127), rows=16) == 500


@pytest.mark.slow
def test_a_stream_of_a_hundred_thousand_items_remembers_no_more_than_one_of_a_thousand() -> None:
    def source() -> Iterator[Any]:
        item = np.ones((4, 4), np.float32)
        for _ in range(100_000):
            yield item

    with opened(devices="cpu:0", horizon=16) as runtime:
        stream = cx.Pipeline(lambda item: item * 2).stream(source())
        live = []
        number = -1
        for number, _ in enumerate(stream):
            if number in (1_000, 99_000):
                live.append(runtime._driver.scheduler.live())
        assert number == 99_999
    assert live[1] <= 2 * live[0] + 100


def test_failures_of_items_are_the_streams_and_nobody_elses() -> None:
    def waits(item: Any) -> Any:
        result = may_fail(item)
        cx.wait()
        return result

    with opened(devices="cpu:0,cpu:1"):
        for function in (may_fail, waits):
            pipe = cx.Pipeline(function)
            found = []
            for result in pipe.stream(bad(10), on_error="skip", ahead=4):
                found.append(float(result[0, 0]))
                cx.wait()  # raises nothing: later items that have failed are told of in their turn
            assert found == [n + 1.0 for n in range(10) if n not in (3, 7)]
            assert [failure.index for failure in pipe.failures] == [3, 7]


def test_a_call_that_fails_beside_the_result_is_told_by_wait() -> None:
    def beside(item: Any) -> Any:
        may_fail(item)
        return item * 2

    with opened(devices="cpu:0,cpu:1"):
        assert len(cx.Pipeline(beside).map(bad(6))) == 6
        with pytest.raises(ExceptionGroup, match="1 task failed"):
            cx.wait()


def test_an_item_without_features_fails_by_itself() -> None:
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(may_fail).feature("inverse", lambda item: 1 / float(np.asarray(item)[0, 0]))
        found = pipe.map([np.full((4, 4), float(n)) for n in (1, 2, 0, 3)], on_error="skip")
        assert [float(result[0, 0]) for result in found] == [2.0, 3.0, 4.0]
        assert [(failure.index, type(failure.error)) for failure in pipe.failures] == [(2, ZeroDivisionError)]


@pytest.mark.filterwarnings("ignore:device")
def test_devices_may_be_lost_while_other_items_fail_and_while_stacks_are_computed() -> None:
    scenario = Scenario(
        tuple(Happening.lost(name, 1e-4 * n) for n, name in enumerate(("gpu:0", "fpga:1", "fpga:0"), 1))
    )
    odd = [np.full((4, 4), 13.0 if n % 5 == 4 else n + 100) for n in range(20)]
    for batch in (None, (4, 10.0)):
        with opened(platform="dype-pcie4", execute=True, scenario=scenario):
            pipe = cx.Pipeline(may_fail)
            found = pipe.map([*odd, "text"], on_error="skip", batch=batch)
            assert [float(result[0, 0]) for result in found] == [n + 101.0 for n in range(20) if n % 5 != 4]
            assert [failure.index for failure in pipe.failures] == [4, 9, 14, 19, 20]
            cx.wait()


def test_results_are_taken_by_one_thread_at_a_time() -> None:
    pulled, go_on = threading.Event(), threading.Event()

    def source() -> Iterator[Any]:
        yield items(1)[0]
        pulled.set()
        go_on.wait(30)

    with opened(devices="cpu:0"):
        stream = cx.Pipeline(may_fail).stream(source(), ahead=1)
        next(stream)
        other = threading.Thread(target=lambda: list(stream))
        other.start()
        assert pulled.wait(30)
        with pytest.raises(ProgramError, match="another thread"):
            next(stream)
        go_on.set()
        other.join()
        assert stream.closed


def test_newer_items_take_the_place_of_older_ones() -> None:
    go_on, taken = threading.Event(), threading.Event()

    def source() -> Iterator[Any]:
        for number in range(20):
            buffer[...] = number
            yield buffer  # one buffer for all pictures
        taken.set()
        go_on.wait(30)

    buffer = np.empty((4, 4))
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(may_fail)
        pipe.plan(np.ones((4, 4)))
        stream = pipe.stream(source(), drop="oldest", ahead=3)
        assert taken.wait(30)
        go_on.set()
        found = [float(r[0, 0]) for r in stream]
        assert found == [18.0, 19.0, 20.0]
        assert pipe.stats()["dropped"] == 17
    for thread in threading.enumerate():
        if thread.name == "coexec-stream-source":
            thread.join(30)
    assert left_behind() == []


def test_what_a_source_raises_on_its_thread_reaches_the_consumer() -> None:
    class Odd(BaseException):
        pass

    def source(error: BaseException) -> Iterator[Any]:
        yield items(1)[0]
        raise error

    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(may_fail)
        for error in (OSError("gone"), Odd("gone")):
            with pytest.raises(type(error), match="gone"):
                pipe.map(source(error), drop="oldest", batch=(2, 0.0))


@pytest.mark.parametrize("policy", ["raise", "skip", "return"])
def test_a_stream_whose_runtime_is_closed_ends_whatever_becomes_of_failures(policy: str) -> None:
    pipe = cx.Pipeline(three_calls, w=weights())
    with opened(devices="cpu:0"):
        stream = pipe.stream(itertools.repeat(items(1)[0]), on_error=policy)
        next(stream)
    with pytest.raises(RuntimeClosed):  # not an item that fails, and after it the next one, for ever
        for _ in range(100):
            next(stream)
    assert list(stream) == [] and pipe.failures == []


@pytest.mark.parametrize("fixed", [False, True])
def test_a_device_that_was_lost_before_the_first_item_is_planned_around(fixed: bool) -> None:
    scenario = Scenario((Happening.lost("gpu:0", at=0.0),))
    with opened(platform="dype-pcie4", scenario=scenario, execute=True):
        pipe = cx.Pipeline(three_calls, w=weights())
        front = pipe.plan(items(1)[0], devices="gpu:0,gpu:1")
        found = pipe.map(items(6), plan=front[0] if fixed else None)
        assert [float(result["z"].sum()) for result in found] == pytest.approx(
            [float(((2 * item) @ weights()).sum()) for item in items(6)], abs=1e-3
        )
        assert [stage["devices"] for stage in pipe.stats()["stages"]] == [["gpu:1"]]
