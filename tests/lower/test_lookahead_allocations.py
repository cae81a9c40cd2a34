"""How many allocations lookahead leaves, and of what size. B46 and B47 of the Celerity reference."""

from __future__ import annotations

import pytest

from coexec.geometry import Box
from coexec.lower.state import Foreseen
from coexec.machine.platform import HOST
from coexec.program.mapper import halo
from coexec.schedule.hold import REMEMBERED
from coexec.testing.graphs import GraphBuilder
from tests.lower.patterns import rsim, tiles, wave_sim


def names(g: GraphBuilder) -> list[str]:
    return [i.task.name for i in g.instructions.of("kernel", "host task")]


def test_host_allocations_of_tasks_reads_and_reductions_merge_into_one() -> None:
    """B46."""
    g = GraphBuilder(paged=False, lookahead="auto")
    a = g.array((20, 10), 0.0)
    g.call("make", updates=a)
    g.host_task("read row 0", reads=a[0:1])
    g.host_task("write row 1", updates=a[1:2])
    g.call("sum", reads=a[5:15], reduces=a[2], over=(10, 10))
    g.host_task("write row 3", updates=a[3:4])
    g.read(a[4])
    assert g.instructions.of("alloc", array=a, to=HOST).allocated == [Box((0, 0), (5, 10))]
    g.verify()


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("oversubscribe", [1, 4])
def test_a_stencil_makes_two_allocations_per_device_and_frees_them(axes: int, oversubscribe: int) -> None:
    """B47."""
    g = GraphBuilder(4, lookahead="auto")
    shape = (64, 64)
    u, up = wave_sim(g, shape, tiles(g, shape, axes=axes, oversubscribe=oversubscribe), 20)
    assert len(names(g)) == 22 * 4 * oversubscribe  # nothing is held any more
    for array in (u, up):
        g.drop(array)
    g.epoch()
    for device in g.devices:
        made = g.instructions.of("alloc", to=g.memory(device))
        assert len(made) == 2
        freed = [free.step.allocation for free in g.instructions.of("free")]
        assert all(alloc.step.allocation in freed for alloc in made)
    assert not g.instructions.of("copy", reason="resize")
    g.verify()


def test_an_array_that_is_read_ever_further_makes_one_allocation_per_device() -> None:
    """B47."""
    g = GraphBuilder(4, lookahead="auto")
    rad = rsim(g, 20, 40)
    assert names(g) == []
    g.epoch()
    g.drop(rad)
    for device in g.devices:
        assert len(g.instructions.of("alloc", to=g.memory(device))) == 1
    assert len(g.instructions.of("free")) == 4
    assert not g.instructions.of("copy", reason="resize")
    g.verify()


def test_without_lookahead_such_an_array_is_allocated_again_in_every_step() -> None:
    g = GraphBuilder(4, lookahead="none")
    rsim(g, 20, 40)
    for device in g.devices:
        assert len(g.instructions.of("alloc", to=g.memory(device))) >= 20
    g.verify()


def test_boxes_far_apart_are_allocated_apart_and_only_when_they_are_needed() -> None:
    g = GraphBuilder(lookahead="infinite")
    a, b = g.array(1000), g.array(10)
    g.call("left", writes=a[:10])
    g.call("other", writes=b)
    g.call("right", writes=a[900:910])
    g.flush()
    assert g.instructions.kinds == ["epoch", "alloc", "kernel", "alloc", "kernel", "alloc", "kernel"]
    assert g.instructions.of("alloc", array=a).allocated == [Box((0,), (10,)), Box((900,), (910,))]


def test_a_later_array_that_is_used_like_an_earlier_one_has_its_final_size_at_once() -> None:
    g = GraphBuilder(2, lookahead="auto")
    u = g.array(100, 0.0)
    for turn in range(6):
        temporary, result = g.array(100), g.array(100)
        g.call("make", reads=u, writes=temporary, on="all")
        g.call("use", reads=(temporary, halo(1)), writes=result, on="all")
        if turn == 0:
            assert g.lookahead.holding
            g.flush()
        assert not g.lookahead.holding, turn
        assert len(g.instructions.of("alloc", array=temporary)) == 2
        g.drop(temporary)
        g.drop(u)
        u = result
    assert not g.instructions.of("copy", reason="resize")
    g.verify()


def test_a_later_array_that_grows_beyond_an_earlier_one_is_held_again_and_that_is_remembered() -> None:
    g = GraphBuilder(lookahead="auto")
    for needed, held in ((20, True), (20, False), (40, True), (40, False), (20, False)):
        a = g.array(100)
        g.call("make", writes=a[:10])
        g.call("use", updates=a[:needed])
        assert g.lookahead.holding is held
        g.flush()
    assert not g.instructions.of("copy", reason="resize") - g.instructions.of("copy", reason="resize")[:1]
    g.verify()


def test_so_many_uses_are_remembered_and_no_more() -> None:
    g = GraphBuilder(lookahead="auto")
    for size in range(3, REMEMBERED + 100):
        a = g.array(size)
        g.call("make", writes=a[1:])
        g.flush()
        g.drop(a)
    assert len(g.lookahead._known) <= REMEMBERED


def test_what_would_not_fit_is_not_allocated_beforehand() -> None:
    g = GraphBuilder(capacity=8 * 150, lookahead="infinite")
    a = g.array(1000)
    g.call("left", writes=a[:100])
    g.call("more", writes=a[100:200])
    g.flush()
    assert g.instructions.of("alloc", to=2)[0].step.allocation.box == Box((0,), (100,))
    g.verify()


def test_boxes_are_foreseen_as_one_if_that_wastes_at_most_a_quarter() -> None:
    foreseen = Foreseen(0, 0)
    assert foreseen.add(Box((0,), (40,)))
    assert not foreseen.add(Box((10,), (20,)))  # covered
    assert foreseen.add(Box((60,), (100,)))  # one for both would be of 100 for 80
    assert foreseen.boxes == [Box((0,), (100,))]
    assert foreseen.add(Box((200,), (210,)))
    assert foreseen.boxes == [Box((0,), (100,)), Box((200,), (210,))]
    assert foreseen.take(Box((95,), (120,))) == Box((0,), (120,))
    assert foreseen.boxes == [Box((200,), (210,))]


def test_thousands_of_temporaries_in_a_small_memory_wait_for_earlier_ones_and_leave_nothing_behind() -> None:
    g = GraphBuilder(2, capacity=8 * 400, lookahead="auto")
    u = g.array(100, 0.0)
    for turn in range(1500):
        temporary = g.array(100)
        g.call("make", reads=u, writes=temporary, on="all")
        g.call("use", reads=(temporary, halo(1)), updates=u, on="all")
        g.drop(temporary)
        if turn % 100 == 99:
            g.horizon()
    g.flush()
    look = g.lookahead
    assert not look.holding and not look._foreseen and not look._levels
    assert len(look._known) < 10 and len(g.lowering.states()) == 1
    assert len(g.instructions.of("kernel")) == 2 * 2 * 1500
    assert not g.instructions.of("copy", reason="resize")
    assert not g.instructions.of("copy", reason="evict")
