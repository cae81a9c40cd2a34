"""Any stream, with any options and whatever goes wrong, gives what calling the function item by item gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ItemFailed
from tests.stream.functions import added, checked
from tests.stream.test_faults import left_behind
from tests.stream.test_results import opened

BAD = 13.0  # the value on which kernels and functions fail
SHAPE = (3, 4)
GONE = "the camera is gone"


def fails_in_a_kernel(item: Any) -> Any:
    y = cx.empty(item.shape, item.dtype)
    checked(item, y)
    return y * 2


def fails_in_python(item: Any) -> Any:
    y = item + 1
    if bool(cx.max(item) == BAD):
        raise ValueError("thirteen")
    return y * 2


def fails_at_a_read(item: Any) -> Any:
    y = cx.empty(item.shape, item.dtype)
    checked(item, y)
    return y * 2, float(y[-1, -1])


def writes_its_item(item: Any) -> Any:
    item += 1
    y = cx.empty(item.shape, item.dtype)
    checked(item - 1, y)
    return item * 2, y


def waits_for_everything(item: Any) -> Any:
    y = cx.empty(item.shape, item.dtype)
    checked(item, y)
    cx.wait()
    return y * 2


def first(result: Any) -> float:
    """Return the number by which a result is known."""
    return float((result[0] if isinstance(result, tuple) else result).flat[0])


@dataclass
class Asked:
    """One stream: its items, its options, what goes wrong, and how many results are taken."""

    values: list[float]
    on_error: str
    max_failures: Any  # a number of items, or a fraction of them
    raises_at: int | None  # the iterable raises in the place of this item
    take: int | None

    def outcomes(self) -> tuple[list[float | int], type[Exception] | None]:
        """Return what is handed over, one by one: numbers, or indexes of failed items; and what the stream ends with."""
        found: list[float | int] = []
        failed = 0
        end = len(self.values) if self.raises_at is None else min(self.raises_at, len(self.values))
        for index, value in enumerate(self.values[:end]):
            failed += value == BAD
            seen = index + 1
            most = self.max_failures
            if isinstance(most, float) and seen >= 10 and failed > most * seen:
                return found, ItemFailed
            if type(most) is int and failed > most:
                return found, ItemFailed
            if value != BAD:
                found.append(2 * (value + 1))
            elif self.on_error == "raise":
                return found, ItemFailed
            elif self.on_error == "return":
                found.append(index)
        return found, OSError if self.raises_at is not None and end == self.raises_at else None

    def source(self) -> Iterator[Any]:
        """Yield the items in one buffer, which is used again and again."""
        buffer = np.zeros(SHAPE)
        for index, value in enumerate(self.values):
            if index == self.raises_at:
                raise OSError(GONE)
            buffer[...] = value
            yield buffer
        if self.raises_at == len(self.values):
            raise OSError(GONE)

    async def later(self) -> AsyncIterator[Any]:
        """Yield the same to an event loop."""
        for item in self.source():
            yield item


@st.composite
def streams(draw: st.DrawFn) -> Asked:
    values = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0, BAD]), max_size=14))
    on_error = draw(st.sampled_from(["raise", "skip", "return"]))
    limits = st.one_of(st.none(), st.integers(0, 3), st.sampled_from([0.0, 0.2, 0.5]))
    most = draw(limits) if on_error != "raise" else None
    raises = draw(st.one_of(st.none(), st.integers(0, len(values))))
    return Asked(values, on_error, most, raises, draw(st.one_of(st.none(), st.integers(0, 6))))


def taken(stream: Any, take: int | None) -> tuple[list[Any], type[Exception] | None]:
    found: list[Any] = []
    try:
        while take is None or len(found) < take:
            found.append(next(stream))
    except StopIteration:
        return found, None
    except (ItemFailed, OSError) as error:
        return found, type(error)
    stream.close()
    return found, None


async def taken_later(stream: Any, take: int | None) -> tuple[list[Any], type[Exception] | None]:
    found: list[Any] = []
    try:
        async with stream:
            if take != 0:
                async for result in stream:
                    found.append(result)
                    if len(found) == take:
                        break
    except (ItemFailed, OSError) as error:
        return found, type(error)
    return found, None


def numbers(results: list[Any]) -> list[float | int]:
    return [result.index if isinstance(result, ItemFailed) else first(result) for result in results]


WINDOWS = st.one_of(st.none(), st.integers(1, 4), st.tuples(st.none(), st.integers(1, 600)))
BATCHES = st.one_of(st.none(), st.tuples(st.integers(1, 4), st.sampled_from([0.0, 30.0])))


@pytest.mark.parametrize(
    "function", [fails_in_a_kernel, fails_in_python, fails_at_a_read, writes_its_item, waits_for_everything]
)
@settings(max_examples=8, deadline=None)
@given(streams(), WINDOWS, BATCHES, st.booleans(), st.booleans())
def test_any_stream_gives_what_item_by_item_gives(
    function: Callable[..., Any], asked: Asked, ahead: Any, batch: Any, later: bool, simulated: bool
) -> None:
    machine: dict[str, Any] = {"platform": "laptop", "execute": True} if simulated else {"devices": "cpu:0,cpu:1"}
    if function is fails_at_a_read:
        batch = None  # a number from one element belongs to one item
    options = {"ahead": ahead, "batch": batch, "on_error": asked.on_error, "max_failures": asked.max_failures}
    with opened(**machine) as runtime:
        pipe = cx.Pipeline(function)
        stream = pipe.stream(asked.later() if later else asked.source(), **options)
        if later:
            found, end = asyncio.run(taken_later(stream, asked.take))
        else:
            found, end = taken(stream, asked.take)
        expected, expected_end = asked.outcomes()
        if asked.take is not None and asked.take <= len(expected):
            expected, expected_end = expected[: asked.take], None
        assert (numbers(found), end) == (expected, expected_end)
        assert [asked.values[failure.index] for failure in pipe.failures] == [BAD] * len(pipe.failures)
        assert stream.closed and left_behind() == []
        cx.wait()  # everything that failed was told, or thrown away
        assert runtime._driver.executor.engine.idle


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, BAD]), max_size=12), st.integers(1, 5), BATCHES)
def test_by_completion_every_item_comes_once_and_streams_can_be_resumed(
    values: list[float], ahead: int, batch: Any
) -> None:
    asked = Asked(values, "return", None, None, None)
    with opened(platform="dype-pcie4", execute=True):
        pipe = cx.Pipeline(fails_in_a_kernel)
        stream = pipe.stream(asked.source(), order="completion", ahead=ahead, batch=batch, on_error="return")
        some = list(islice(stream, 3))
        stream.close()
        rest = pipe.map(asked.source(), after=stream.position, order="completion", on_error="return")
        expected = asked.outcomes()[0]
        assert stream.position < len(values)
        assert Counter(numbers(rest)) == Counter(expected[stream.position + 1 :])
        assert Counter(numbers(some)) >= Counter(expected[: stream.position + 1])  # none before it is missing
        assert Counter(numbers(some)) <= Counter(expected)


@cx.kernel(x=cx.read, most=cx.update)
def kept_largest(x: Any, most: Any) -> None:
    np.maximum(most, np.max(np.asarray(x)), out=most)


def sums_up(item: Any, total: Any, most: Any) -> Any:
    """Write two constants, one of them after a wait."""
    added(item, total)
    if float(cx.sum(item)) > 0:
        kept_largest(item, most)
    return total * 1, most * 1


@pytest.mark.parametrize("machine", [{"devices": "cpu:0,cpu:1"}, {"platform": "dype-pcie4", "execute": True}])
def test_constants_that_are_written_are_a_state_whatever_the_window(machine: dict[str, Any]) -> None:
    given_items = [np.full(SHAPE, float(value)) for value in (3, 1, 4, 1, 5, 9, 2, 6)]
    with opened(**machine):
        pipe = cx.Pipeline(sums_up, total=np.zeros(SHAPE), most=np.zeros(SHAPE))
        found = pipe.map(given_items, ahead=5)
        found += pipe.map(given_items[:2])  # the state goes on
    sums = np.cumsum([3, 1, 4, 1, 5, 9, 2, 6, 3, 1])
    largest = np.maximum.accumulate([3, 1, 4, 1, 5, 9, 2, 6, 3, 1])
    assert [float(total[0, 0]) for total, _ in found] == sums.tolist()
    assert [float(most[0, 0]) for _, most in found] == largest.tolist()


def waits_then_writes(item: Any) -> Any:
    before = float(item[0])
    item += 1
    return item * 1, before


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 5), st.booleans())
def test_items_that_overlap_see_what_the_ones_before_them_wrote(begins: list[int], ahead: int, simulated: bool) -> None:
    machine: dict[str, Any] = {"platform": "dype-pcie4", "execute": True} if simulated else {"devices": "cpu:0,cpu:1"}
    plain = np.zeros(60)
    expected = []
    for begin in begins:
        view = plain[begin : begin + 20]
        before = float(view[0])
        view += 1
        expected.append((view.copy(), before))
    with opened(**machine):
        whole = cx.zeros(60)
        found = cx.Pipeline(waits_then_writes).map([whole[begin : begin + 20] for begin in begins], ahead=ahead)
        np.testing.assert_array_equal(whole, plain)
    for (result, before), (values, value) in zip(found, expected, strict=True):
        assert before == value
        np.testing.assert_array_equal(result, values)
