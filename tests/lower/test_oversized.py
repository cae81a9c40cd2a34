"""Rounds: runs of rows that fit, found by bisection, whatever each row needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import DoesNotFit
from coexec.geometry import Box, Region, bounding, whole
from coexec.graph.command import Chunk
from coexec.lower.oversized import MOST_ROUNDS, Cutting, Rest, Round, TooLarge, TooMany, longest
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all


def silent() -> None:
    """Hear nothing."""


class Memory:
    """A memory in which each row needs so much, and which counts how often it was asked."""

    def __init__(self, weights: Sequence[int], room: int) -> None:
        self.before = [0, *accumulate(weights)]
        self.room = room
        self.asked = 0

    def fill(self, chunks: Sequence[Chunk]) -> float:
        self.asked += 1
        return self.need([chunk.box for chunk in chunks]) / self.room

    def need(self, boxes: Sequence[Box]) -> float:
        return sum((self.before[box.hi[0]] - self.before[box.lo[0]]) * box.shape[1] / 4 for box in boxes)


def rounds_of(memory: Memory, boxes: Sequence[Box], axes: Sequence[int] = (0,), granule: int = 1) -> list[Round]:
    chunks = [Chunk("dev:0", box, number) for number, box in enumerate(boxes)]
    return Cutting([Rest(chunk, axes, granule) for chunk in chunks], memory.fill, silent).rounds()


WEIGHTS = st.lists(st.integers(0, 40), min_size=1, max_size=60)


@given(WEIGHTS, st.integers(0, 60), st.integers(1, 4), st.integers(1, 3))
def test_every_row_is_in_one_round_and_every_round_fits(
    weights: list[int], spare: int, devices: int, granule: int
) -> None:
    heaviest = max(sum(weights[i : i + granule]) for i in range(len(weights)))
    memory = Memory(weights, max(1, heaviest + spare))
    cuts = [len(weights) * i // devices // granule * granule for i in range(devices)] + [len(weights)]
    boxes = [Box((a, 0), (b, 4)) for a, b in pairwise(cuts) if a < b]
    rounds = rounds_of(memory, boxes, granule=granule)
    parts = [part.box for entry in rounds for _, part in entry]
    assert Region(parts) == Region(boxes) and sum(part.volume for part in parts) == 4 * len(weights)
    assert all(memory.need([part.box for _, part in entry]) <= memory.room for entry in rounds)
    assert all(part.lo[0] % granule == 0 for part in parts)
    assert memory.asked <= (len(rounds) + 1) * (6 + 6 * log2(1 + len(weights)))


@given(WEIGHTS, st.integers(0, 60))
def test_there_are_at_most_a_few_times_as_many_rounds_as_there_must_be(weights: list[int], spare: int) -> None:
    memory = Memory(weights, max(1, *weights) + spare)
    must, held = 1, 0
    for weight in weights:
        must, held = (must, held + weight) if held + weight <= memory.room else (must + 1, weight)
    assert len(rounds_of(memory, [whole((len(weights), 4))])) <= 2 * must


@given(st.integers(1, 200), st.integers(0, 200), st.integers(1, 250))
def test_the_longest_run_is_found_from_any_guess(most: int, fitting: int, guess: int) -> None:
    asked: list[int] = []

    def fits(count: int) -> bool:
        asked.append(count)
        return count <= fitting

    assert longest(most, fits, guess) == min(most, fitting)
    assert all(1 <= count <= most for count in asked) and len(asked) == len(set(asked)) <= 2 + 2 * log2(1 + most)


def test_one_heavy_row_does_not_make_the_others_small() -> None:
    weights = [1] * 200_000
    weights[123_456] = 10_000
    memory = Memory(weights, 10_000)
    rounds = rounds_of(memory, [whole((200_000, 4))])
    assert len(rounds) <= 45 and memory.asked < 45 * 20


def test_a_row_that_does_not_fit_is_cut_along_the_next_axis_into_strips_of_several_rows() -> None:
    memory = Memory([4] * 100, 3)
    rounds = rounds_of(memory, [whole((100, 4))], axes=(0, 1))
    parts = [part.box for entry in rounds for _, part in entry]
    assert Region(parts) == Region([whole((100, 4))])
    assert all(memory.need([part]) <= 3 for part in parts) and any(part.shape[0] > 1 for part in parts)


def test_pieces_stay_whole_while_they_fit() -> None:
    memory = Memory([1] * 12 + [4] * 4, 8)
    pieces = tuple(Box((lo, 0), (lo + 4, 4)) for lo in range(0, 16, 4))
    chunk = Chunk("dev:0", bounding(pieces), 0, pieces)
    rounds = Cutting([Rest(chunk, (0,), 1)], memory.fill, silent).rounds()
    parts = [part for entry in rounds for _, part in entry]
    assert [part.box.hi[0] - part.box.lo[0] for part in parts if part.box.hi[0] <= 12] == [4, 4, 4]
    assert [part.box for part in parts if part.box.lo[0] >= 12] == [Box((lo, 0), (lo + 1, 4)) for lo in range(12, 16)]


def test_what_cannot_be_cut_is_named() -> None:
    memory = Memory([*range(1, 100), 300], 200)
    with pytest.raises(TooLarge) as error:
        rounds_of(memory, [whole((100, 4))])
    assert [part.box for part in error.value.parts] == [Box((99, 0), (100, 4))]


def test_more_rounds_than_anybody_waits_for_are_refused_before_all_are_looked_for() -> None:
    memory = Memory([3] * 10 * MOST_ROUNDS, 4)
    with pytest.raises(TooMany):
        rounds_of(memory, [whole((10 * MOST_ROUNDS, 4))])
    assert memory.asked < 5 * MOST_ROUNDS


# On graphs ------------------------------------------------------------------------------------------------------------


def sums_of(sizes: Sequence[int]) -> Any:
    """Return a kernel that adds up rows of unlike lengths, which lie one behind the other."""
    ends = (0, *accumulate(sizes))

    @cx.kernel(split=0, over="y", x=cx.read(lambda c: slice(ends[c.lo[0]], ends[c.hi[0]])), y=cx.write)
    def sums(x: Any, y: Any, chunk: Any) -> None:
        lo = ends[chunk.lo[0]]
        for row in range(chunk.lo[0], chunk.hi[0]):
            y[row - chunk.lo[0]] = x[ends[row] - lo : ends[row + 1] - lo].sum()

    return sums


@pytest.mark.parametrize("order", [list, sorted, lambda sizes: sorted(sizes, reverse=True)])
@pytest.mark.parametrize("spare", [8, 100, 10_000])
def test_a_memory_just_above_the_heaviest_row_is_enough(order: Callable[[list[int]], list[int]], spare: int) -> None:
    rng = np.random.default_rng(3)
    sizes = order([*rng.integers(1, 9, 300).tolist(), 500])
    g = GraphBuilder(1, capacity=8 * 500 + spare)
    x, y = g.array(sum(sizes), data=np.arange(float(sum(sizes)))), g.array(len(sizes))
    with g:
        sums_of(sizes)(x, y)
    assert len(g.instructions.of("kernel")) <= 12
    result = g.read(y)
    g.verify()
    assert run_all(g.emitted, at_random(1)) == {}
    ends = [0, *accumulate(sizes)]
    np.testing.assert_array_equal(g.delivered[result.id], np.add.reduceat(np.arange(float(sum(sizes))), ends[:-1]))


@pytest.mark.parametrize("order", [sorted, lambda sizes: sorted(sizes, reverse=True)])
def test_a_memory_just_below_the_heaviest_row_is_refused_with_its_size(order: Callable[[list[int]], list[int]]) -> None:
    sizes = order([*range(1, 100), 500])
    g = GraphBuilder(1, capacity=8 * 500)
    x, y = g.array(sum(sizes), data=np.ones(sum(sizes))), g.array(len(sizes))
    with g, pytest.raises(DoesNotFit, match="needs 4,008 bytes in memory 'dev:0', which has 4,000 bytes") as error:
        sums_of(sizes)(x, y)
    assert "split=" not in str(error.value) and g.instructions.kinds == ["epoch"]
