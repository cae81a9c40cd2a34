"""Snapshots: what lowering remembers, and whether it is the same but for names."""

from __future__ import annotations

from typing import Any

import pytest

from coexec.geometry import Box
from coexec.graph.tracker import Entries, Tracker
from coexec.lower.snapshot import Counters, Renaming, Same, load, take
from coexec.testing import GraphBuilder


def counters(g: GraphBuilder) -> Counters:
    return Counters(
        g.lowering.emitter.last, g.lowering.coherence.last_allocation, len(g._storages), g.graph.last, 0
    )  # fmt: skip


def whole(writer: int, *readers: int) -> Entries:
    return Entries(False, writer, readers, (), (), ())


class Plain:
    """Names that stay."""

    def writer(self, id: int) -> int:
        return id

    def readers(self, ids: tuple[int, ...]) -> list[int]:
        return list(ids)

    def strided(self, entries: tuple[Any, ...]) -> list[Any]:
        return list(entries)


def test_numbers_stay_or_grow_by_what_was_made() -> None:
    same = Same(start=10, made=4)
    assert same.one(3, 3) and same.one(9, 13)
    assert not same.one(8, 13)
    assert same.renamed == {3: 3, 9: 13}


def test_a_number_has_one_name() -> None:
    same = Same(start=10, made=4)
    assert same.one(9, 13)
    assert not same.one(9, 9)


def test_readers_may_only_become_more_by_recent_ones() -> None:
    assert Same(10, 4).readers((9,), (13,))
    assert not Same(10, 4).readers((9, 10), (13,))
    same = Same(10, 4)
    assert same.readers((5,), (5, 9))
    assert same.piling == {5, 9} and list(same.longer.values()) == [1]
    assert not Same(10, 4).readers((5,), (6, 9))
    assert not Same(10, 4).readers((5,), (5, 2))


def test_trackers_are_compared_box_by_box() -> None:
    half = (Box((0,), (5,)), Box((5,), (10,)))
    a = Entries(True, 0, (), ((half[0], 9), (half[1], 3)), ((half[0], (10,)),), ())
    b = Entries(True, 0, (), ((half[0], 13), (half[1], 3)), ((half[0], (14,)),), ())
    assert Same(10, 4).entries(a, b)
    assert not Same(10, 4).entries(a, b._replace(writers=((half[1], 13), (half[0], 3))))
    assert not Same(10, 4).entries(a, b._replace(readers=()))
    assert not Same(10, 4).entries(a, whole(13))
    assert not Same(10, 4).entries(whole(9), whole(12))


def test_strided_entries_are_compared_with_their_lattice() -> None:
    box = Box((0,), (10,))
    a = Entries(True, 0, (), ((box, 3),), (), ((box, ((0, 2),), 9, True),))
    assert Same(10, 4).entries(a, a._replace(strided=((box, ((0, 2),), 13, True),)))
    assert not Same(10, 4).entries(a, a._replace(strided=((box, ((1, 2),), 13, True),)))
    assert not Same(10, 4).entries(a, a._replace(strided=((box, ((0, 2),), 13, False),)))
    more = (*a.strided, (box, ((0, 2),), 9, False))
    assert Same(10, 4).entries(a, a._replace(strided=more))
    assert not Same(10, 4).entries(a, a._replace(strided=(*a.strided, (box, ((0, 2),), 9, True))))


def test_a_tracker_is_dumped_and_loaded_as_it_was() -> None:
    tracker = Tracker(Box((0,), (10,)), 1)
    tracker.did_write(Box((0,), (5,)), None, 2)
    tracker.did_read(Box((2,), (7,)), None, 3)
    tracker.did_read(Box((0,), (10,)), ((1, 2),), 4)
    other = Tracker(Box((0,), (10,)), 99)
    other.load(tracker.dump(), Plain())
    assert other.dump() == tracker.dump() and other.ids() == tracker.ids()
    for box in (Box((0,), (10,)), Box((3,), (4,)), Box((6,), (10,))):
        found: list[set[int]] = [set(), set()]
        tracker.before_write(box, None, found[0])
        other.before_write(box, None, found[1])
        assert found[0] == found[1]


def stencil(g: GraphBuilder, a: Any, b: Any) -> None:
    g.call("step", reads=a, writes=b, on="all")


def test_a_stencil_is_in_the_same_state_after_two_turns_but_for_names() -> None:
    g = GraphBuilder(2)
    a, b = g.array(100, 0.0), g.array(100, 0.0)
    ids = [a._storage.id, b._storage.id]
    taken = []
    for _ in range(5):
        stencil(g, a, b)
        stencil(g, b, a)
        taken.append(take(ids, counters(g), g.lowering, g.graph))
    made = taken[4].counters.since(taken[3].counters)
    assert Renaming(taken[3].counters, made).holds(taken[3], taken[4], {id: id for id in ids})
    early = taken[1].counters.since(taken[0].counters)
    assert early.instructions >= made.instructions


@pytest.mark.parametrize("change", ["elsewhere", "another reader", "a new array", "an order"])
def test_a_state_that_differs_is_no_renaming(change: str) -> None:
    g = GraphBuilder(2)
    a, b = g.array(100, 0.0), g.array(100, 0.0)
    ids = [a._storage.id, b._storage.id]
    for _ in range(3):
        stencil(g, a, b)
        stencil(g, b, a)
    before = take(ids, counters(g), g.lowering, g.graph)
    stencil(g, a, b)
    if change == "elsewhere":
        g.call("step", reads=b, writes=a, on="dev:0")
    elif change == "another reader":
        g.call("look", reads=b, writes=a, on="dev:1")
        g.call("step", reads=b, writes=a, on="all")
        g.call("look", updates=b, on="dev:1")
    elif change == "an order":
        stencil(g, b, a)
        g.host_task("log", order="log")
    else:
        stencil(g, b, a)
        ids.append(g.array(100, 0.0)._storage.id)
    after = take(ids, counters(g), g.lowering, g.graph)
    renaming = Renaming(before.counters, after.counters.since(before.counters))
    assert not renaming.holds(before, after, {id: id for id in ids})


def test_a_state_is_loaded_as_it_was_taken() -> None:
    g = GraphBuilder(2)
    a, b = g.array(100, 0.0), g.array(100, 0.0)
    ids = [a._storage.id, b._storage.id]
    stencil(g, a, b)
    before = take(ids, counters(g), g.lowering, g.graph)
    for id, held in before.arrays.items():
        load(held, g.lowering.states()[id], Plain(), Plain(), lambda allocation: allocation)
    assert take(ids, counters(g), g.lowering, g.graph) == before
