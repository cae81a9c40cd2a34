"""Items that are stacked, and streams in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ItemFailed, ProgramError, ShapeError
from coexec.stream.window import NOTHING
from tests.stream.functions import may_fail, reads_inside, three_calls, three_calls_plain, weights
from tests.stream.test_results import opened


def test_stacked_items_have_the_results_of_single_ones() -> None:
    calls = []

    def fn(item: Any) -> Any:
        calls.append(item.shape)
        return np.sqrt(item) + 1, item * 2

    given_items = [np.full((4, 4), float(n)) for n in range(10)]
    with opened(devices="cpu:0,cpu:1"):
        found = cx.Pipeline(fn).map(given_items, batch=(4, 10.0))
    assert (4, 4, 4) in calls and (2, 4, 4) in calls
    for (root, twice), item in zip(found, given_items, strict=True):
        np.testing.assert_array_equal(root, np.sqrt(item) + 1)
        np.testing.assert_array_equal(twice, item * 2)


def test_a_function_that_mixes_stacked_items_is_refused() -> None:
    given_items = [np.full((4, 4), float(n)) for n in range(6)]
    with opened(devices="cpu:0"):
        with pytest.raises(ProgramError, match="another result"):
            cx.Pipeline(lambda item: item - cx.sum(item)).map(given_items, batch=(3, 1.0))
        with pytest.raises(ShapeError, match="first axis"):
            cx.Pipeline(lambda item: cx.sum(item, axis=0)).map(given_items, batch=(3, 1.0))


def test_items_that_cannot_be_stacked_are_computed_by_themselves() -> None:
    given_items: list[Any] = [np.ones(3), np.ones(4), (np.ones(2),), np.ones(5), np.ones(5), "text"]
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(lambda item: item + 1)
        found = pipe.map(given_items, batch=(2, 10.0), on_error="skip")
        assert [len(result) for result in found] == [3, 4, 5, 5]
        assert [failure.index for failure in pipe.failures] == [2, 5]


def test_of_a_stack_that_fails_each_item_is_computed_by_itself() -> None:
    given_items = [np.full((4, 4), 13.0 if n == 5 else n) for n in range(8)]
    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(may_fail)
        found = pipe.map(given_items, batch=(4, 1.0), on_error="return")
        assert [isinstance(r, ItemFailed) for r in found] == [n == 5 for n in range(8)]
        assert [f.index for f in pipe.failures] == [5]
        cx.wait()


async def slowly(count: int) -> AsyncIterator[Any]:
    for number in range(count):
        yield np.full((16, 16), float(number), np.float32)


@pytest.mark.parametrize("function", [three_calls, reads_inside])
@pytest.mark.parametrize("options", [{"devices": "cpu:0,cpu:1"}, {"platform": "dype-pcie4", "execute": True}])
def test_asynchronous_iterables_are_taken_and_streams_are_ones(function: Any, options: dict[str, Any]) -> None:
    async def collected(source: Any) -> list[Any]:
        return [result async for result in pipe.stream(source)]

    with opened(**options):
        pipe = cx.Pipeline(function, w=weights())
        found = asyncio.run(collected(slowly(9)))
        again = asyncio.run(collected([np.full((16, 16), float(n), np.float32) for n in range(9)]))
    assert len(found) == len(again) == 9
    if function is three_calls:
        for number, result in enumerate(found):
            plain = three_calls_plain(np.full((16, 16), float(number), np.float32), weights())
            np.testing.assert_allclose(result["z"], plain["z"], rtol=1e-4, atol=1e-3)


def test_an_asynchronous_iterable_needs_an_event_loop() -> None:
    with opened(devices="cpu:0"):
        with pytest.raises(ArgumentError, match="async for"):
            list(cx.Pipeline(may_fail).stream(slowly(3)))
        with pytest.raises(ArgumentError, match="after"):
            cx.Pipeline(may_fail).stream(slowly(3), after=-2)


@pytest.mark.parametrize("batch", [None, (2, 10.0)])
def test_newer_items_of_an_asynchronous_source_take_the_place_of_older_ones(batch: Any) -> None:
    async def run(pipe: cx.Pipeline) -> list[float]:
        all_there, buffer = asyncio.Event(), np.empty((4, 4))

        async def camera() -> AsyncIterator[Any]:
            yield np.zeros((4, 4))
            for number in range(1, 20):
                buffer[...] = number  # one buffer for all pictures
                yield buffer
            all_there.set()

        found: list[float] = []
        async with pipe.stream(camera(), drop="oldest", ahead=3, batch=batch) as stream:
            async for result in stream:
                found.append(float(result[0, 0]))
                await all_there.wait()
        return found

    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(lambda item: item * 1)
        found = asyncio.run(run(pipe))
        assert found == sorted(set(found)) and found[0] == 0.0 and found[-3:] == [17.0, 18.0, 19.0]
        assert pipe.stats()["dropped"] == 20 - len(found) > 0


def test_an_asynchronous_generator_is_closed_when_the_consumer_stops() -> None:
    closed: list[str] = []

    async def endless() -> AsyncIterator[Any]:
        try:
            while True:
                yield np.ones((4, 4))
        finally:
            closed.append("source")

    async def one(pipe: cx.Pipeline, **options: Any) -> None:
        async with pipe.stream(endless(), ahead=2, **options) as stream:
            async for _ in stream:
                break
        assert closed.pop() == "source" and stream.closed

    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(may_fail)
        for options in ({}, {"drop": "oldest"}, {"batch": (3, 1.0)}):
            asyncio.run(one(pipe, **options))


def test_a_plain_generator_that_is_waited_for_is_closed_once_it_answers() -> None:
    closed, asked, go_on = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[Any]:
        try:
            yield np.ones((4, 4))
            asked.set()
            go_on.wait(30)
            yield np.ones((4, 4))
        finally:
            closed.set()

    async def one(pipe: cx.Pipeline) -> None:
        async with pipe.stream(slow()) as stream:
            results = aiter(stream)
            await anext(results)
            second = asyncio.ensure_future(anext(results))
            assert await asyncio.to_thread(asked.wait, 30)
            second.cancel()
        assert not closed.is_set()
        go_on.set()  # the stream is closed, the generator still computes
        assert await asyncio.to_thread(closed.wait, 30)

    with opened(devices="cpu:0"):
        asyncio.run(one(cx.Pipeline(may_fail)))


@pytest.mark.parametrize("order", ["input", "completion"])
def test_a_result_is_handed_over_while_the_next_item_is_to_come_whenever_it_ended(order: str) -> None:
    given = threading.Event()

    def slow() -> Iterator[Any]:
        yield np.ones((4, 4))
        assert given.wait(30), "the first result was kept until the second item came"
        yield np.ones((4, 4))

    async def both(pipe: cx.Pipeline) -> int:
        count = 0
        async with pipe.stream(slow(), order=order) as stream:
            window, deliver, awaited = stream._window, stream._deliver, stream._window.awaited
            looked: list[object] = []

            def early() -> Any:  # its result is asked for before the item ends ...
                if window.runs and not looked:
                    looked.append(stream)
                    return NOTHING
                return deliver()

            def late() -> list[Any]:  # ... and what it waits for after it has ended
                for run in list(window.runs):
                    while not run.over:
                        window._go_on(run)
                return awaited()

            stream._deliver, window.awaited = early, late  # type: ignore[method-assign]
            async for _ in stream:
                given.set()
                count += 1
        return count

    with opened(devices="cpu:0"):
        assert asyncio.run(both(cx.Pipeline(may_fail))) == 2


def test_an_asynchronous_consumer_may_stop_early_and_items_may_fail() -> None:
    async def first(pipe: cx.Pipeline) -> Any:
        async for result in pipe.stream(slowly(1000), ahead=3):
            return result
        return None

    async def failing(pipe: cx.Pipeline) -> list[Any]:
        return [result async for result in pipe.stream(slowly(20), on_error="skip")]

    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(may_fail)
        assert float(asyncio.run(first(pipe))[0, 0]) == 1.0
        assert len(asyncio.run(failing(pipe))) == 19
        assert [f.index for f in pipe.failures] == [13]
        cx.wait()
