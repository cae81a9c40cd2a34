"""Ids taken from a list by position: each once, and lists of readers as long as there are readers."""

from __future__ import annotations

from coexec.graph.forms import Numbering
from coexec.graph.positions import Edges, Positions


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
