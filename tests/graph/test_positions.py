"""Ids taken from a list by position: each once, and lists of readers as long as there are readers."""

from __future__ import annotations

import copy
import random
from typing import Any

from coexec.graph.forms import Numbering
from coexec.graph.positions import MOST_WRITTEN, OFTEN, Edges, Positions


def test_a_reader_joins_the_list_of_the_others() -> None:
    places = Positions([[0], [1, 2]])
    readers = [5, 6]
    assert places.fill([3, readers, 9]) == [3, [5, 6, 9]]
    assert readers == [5, 6, 9]  # the list only grows, so it is the same one
    assert places.fill([3, 5, 9]) == [3, [5, 9]]


def test_a_list_of_readers_joins_another() -> None:
    places = Positions([[0, 1]])
    assert places.fill([[3, 4], [5]]) == [[3, 4, 5]]
    assert places.fill([3, [5, 6]]) == [[3, 5, 6]]


def test_whoever_reads_twice_is_one_reader() -> None:
    numbers = Numbering()
    assert numbers.several([4, 4]) == numbers.one(4) == 0
    assert numbers.several([4, 7, 4]) == 1
    assert numbers.ids == [4, [4, 7]]


def test_edges_name_each_id_once() -> None:
    assert Edges.of([0, 1], set()).fill([3, 3]) == {3}
    assert sorted(Edges.of([0, 1, 2], {2}).fill([3, 4, [4, 5]])) == [3, 4, 5]
    assert Edges.of([], set()).fill([1]) == set()


def _random(draw: random.Random) -> tuple[list[list[int]], list[Any]]:
    """Return positions, some of them of lists of readers, and slots."""
    size = draw.randint(1, 9)
    positions = [[draw.randrange(size)] for _ in range(draw.randint(1, 6))]
    positions += [draw.sample(range(size), draw.randint(1, min(3, size))) for _ in range(draw.randint(0, 4))]
    draw.shuffle(positions)
    slots = [
        [draw.randrange(99), draw.randrange(99)] if draw.random() < 0.4 else draw.randrange(99) for _ in range(size)
    ]
    return positions, slots


def test_what_is_asked_for_often_is_written_out_and_gives_the_same() -> None:
    draw = random.Random(11)
    for number in range(300):
        positions, slots = _random(draw)
        plain, often = Positions(positions), Positions(positions)
        for _ in range(OFTEN):
            often.fill(copy.deepcopy(slots))
        assert often._written is not None
        mine, other = copy.deepcopy(slots), copy.deepcopy(slots)
        assert plain.fill(mine) == often.fill(other), number
        assert mine == other, number  # lists have grown alike


def test_long_ones_are_not_written_out() -> None:
    places = Positions([[0, 1]] * (MOST_WRITTEN + 1))
    for _ in range(OFTEN + 1):
        places.fill([1, 2])
    assert places._written is None
