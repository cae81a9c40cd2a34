"""Full memories: what goes, in which order, and what that copies. Rows are 8 bytes; dev:0 holds 100 of them."""

from __future__ import annotations

import numpy as np
import pytest

from coexec.errors import DoesNotFit
from coexec.geometry import Box
from coexec.machine.platform import HOST
from coexec.program.mapper import all as map_all, fixed
from coexec.testing.graphs import GraphBuilder

ROOM = 8 * 100


def full() -> GraphBuilder:
    return GraphBuilder(1, capacity=ROOM)


def evictions(g: GraphBuilder) -> int:
    return sum(account.evictions for account in g.lowering.coherence.budget.open)


def freed(g: GraphBuilder) -> list[int]:
    """Return the arrays that backings of dev:0 were freed of, in order."""
    return [i.step.allocation.array for i in g.instructions.of("free") if i.step.allocation.memory == 2]


def test_an_allocation_waits_for_the_free_of_a_dropped_array_and_nothing_is_evicted() -> None:
    g = full()
    a, b = g.array(60), g.array(60)
    make = g.call("make", writes=a)
    g.drop(a)
    use = g.call("use", writes=b)
    free, alloc = g.instructions.of("free").only(), g.of(use).of("alloc").only()
    assert free.id in alloc.after
    assert g.emitted_graph.ordered(g.kernels(make).only(), g.kernels(use).only())
    assert evictions(g) == 0
    g.verify()


def test_without_pressure_an_allocation_does_not_wait_for_frees() -> None:
    g = full()
    a, b = g.array(40), g.array(40)
    g.call("make", writes=a)
    g.drop(a)
    alloc = g.of(g.call("use", writes=b)).of("alloc").only()
    assert alloc.after == (g.instructions.of("epoch").only().id,)
    g.verify()


def test_what_holds_nothing_any_more_goes_first_and_is_not_copied() -> None:
    g = GraphBuilder(2, capacity=ROOM)
    old, dead, new = g.array(40), g.array(40), g.array(40)
    g.call("old", writes=old)
    g.call("dead", writes=dead)
    g.call("overwritten elsewhere", writes=dead, on="dev:1")
    g.call("new", writes=new)
    assert freed(g) == [dead._storage.id] and len(g.instructions.of("copy")) == 0
    g.verify()


def test_what_another_memory_holds_too_goes_without_a_copy_before_what_would_be_lost() -> None:
    g = full()
    dirty, clean = g.array(40), g.array(40, data=np.ones(40))
    g.call("write", writes=dirty)
    g.call("read", reads=clean, writes=g.array(1))
    g.call("new", writes=g.array(40))
    assert freed(g) == [clean._storage.id]
    assert [i.step.reason for i in g.instructions.of("copy")] == ["coherence"]
    g.verify()


def test_an_initial_value_is_made_again_rather_than_copied() -> None:
    g = full()
    zeros = g.array(60, 0.0)
    g.call("read", reads=zeros, writes=g.array(10))
    g.call("new", writes=g.array(60))
    g.call("read", reads=zeros, writes=g.array(10))
    assert len(g.instructions.of("fill")) == 2
    assert [i for i in g.instructions.of("copy") if i.step.source.array == zeros._storage.id] == []
    g.verify()


def test_the_least_recently_used_goes_first() -> None:
    g = full()
    a, b, c = (g.array(30, data=np.ones(30)) for _ in range(3))
    for array in (a, b, c, a):
        g.call("read", reads=array, writes=g.array(1))
    g.call("new", writes=g.array(30))
    assert freed(g) == [b._storage.id]
    g.call("new", writes=g.array(30))
    assert freed(g) == [b._storage.id, c._storage.id]
    g.verify()


def test_what_only_this_memory_holds_is_written_back_once_and_read_again_later() -> None:
    g = full()
    a, b = g.array(60), g.array(60)
    write = g.kernels(g.call("write a", writes=a)).only()
    second = g.call("write b", writes=b)
    copy = g.instructions.of("copy", reason="evict").only()
    assert copy.step.boxes == (Box((0,), (60,)),) and (copy.step.source.memory, copy.step.target.memory) == (2, HOST)
    assert copy.needs == (write.id,)
    (alloc,) = [i for i in g.of(second).of("alloc") if i.step.allocation.memory == 2]
    assert g.emitted_graph.ordered(copy, alloc)
    g.call("read a", reads=a, writes=g.array(1))
    assert [i.step.reason for i in g.instructions.of("copy")] == ["evict", "evict", "coherence"]
    g.verify()


def test_only_the_parts_that_nobody_else_holds_are_written_back() -> None:
    g = full()
    a = g.array(60, data=np.ones(60))
    g.call("read", reads=a, writes=g.array(1))
    g.call("change", updates=a[10:20])
    g.call("new", writes=g.array(60))
    assert g.instructions.of("copy", reason="evict", array=a).only().step.boxes == (Box((10,), (20,)),)
    g.verify()


def test_two_tasks_whose_operands_exceed_memory_together_take_turns() -> None:
    """starpu#38: tasks that evict each other's operands still make progress, and each evicts once per turn."""
    g = full()
    a, b = (g.array(60, data=np.ones(60)) for _ in range(2))
    for _ in range(5):
        g.call("on a", updates=a)
        g.call("on b", updates=b)
    assert len(g.instructions.of("copy", reason="evict")) == 9 == evictions(g)
    assert len(g.instructions.of("kernel")) == 10
    g.verify()


def test_operands_of_one_task_never_evict_each_other() -> None:
    g = full()
    a, b = g.array(50, data=np.ones(50)), g.array(50)
    for _ in range(3):
        g.call("both", reads=a, writes=b)
    assert evictions(g) == 0
    g.call("new", writes=g.array(50))
    assert evictions(g) == 1
    g.verify()


def test_growth_that_does_not_fit_beside_the_old_allocation_goes_through_the_host() -> None:
    g = full()
    a = g.array(100)
    g.call("some", writes=a[:60])
    more = g.call("more", updates=a[:80])
    assert [(i.step.reason, i.step.target.memory) for i in g.of(more).of("copy")] == [("evict", HOST), ("coherence", 2)]
    assert [i.step.allocation.box.volume for i in g.instructions.of("alloc") if i.step.allocation.memory == 2] == [
        60,
        80,
    ]
    g.verify()


def test_growth_with_room_stays_in_its_memory() -> None:
    g = full()
    a = g.array(60)
    g.call("some", writes=a[:30])
    more = g.call("more", updates=a[:60])
    assert g.of(more).of("copy").only().step.reason == "resize"
    g.verify()


def test_a_backing_larger_than_needed_makes_way_for_two_that_fit() -> None:
    g = full()
    a, b = g.array(100, data=np.ones(100)), g.array(60)
    g.call("all", reads=a, writes=g.array(0))
    g.call("part", reads=(a, fixed(slice(0, 40))), writes=b, over=(60,))
    assert [i.step.allocation.box.volume for i in g.instructions.of("alloc") if i.step.allocation.memory == 2] == [
        100,
        40,
        60,
    ]
    g.verify()


def test_a_limited_host_evicts_what_devices_hold_and_keeps_what_only_it_holds() -> None:
    g = GraphBuilder(1, host=8 * 100, capacity=8 * 1000)
    a, b = g.array(50, data=np.ones(50)), g.array(50, data=np.ones(50))
    g.call("read", reads=a, writes=g.array(1))
    c = g.array(50)
    g.call("write", writes=c)
    g.read(c)
    frees = [(i.step.allocation.array, i.step.allocation.memory) for i in g.instructions.of("free")]
    assert frees == [(a._storage.id, HOST)]
    g.read(a)
    assert [i.step.allocation.array for i in g.instructions.of("free")] == [a._storage.id, c._storage.id]
    big = g.array(60)
    g.call("write", writes=big)
    with pytest.raises(DoesNotFit, match=r"needs 480 bytes in memory 'host', which has 400 bytes"):
        g.read(big)
    g.read(b)


def test_what_is_refused_leaves_everything_as_it_was() -> None:
    g = full()
    a, b = g.array(80, data=np.ones(80)), g.array(80, data=np.ones(80))
    before = len(g.emitted)
    with pytest.raises(DoesNotFit, match=r"task 'both' needs 1,280 bytes in memory 'dev:0', which has 800 bytes"):
        g.call("both", reads=a, updates=b)
    with pytest.raises(DoesNotFit, match=r"part of task 'both' with row 0 along axis 0 needs 816 bytes"):
        g.call("both", reads=(g.array(101), map_all), updates=b, chunks=[("dev:0", Box((0,), (80,)))])
    assert len(g.emitted) == before
    g.call("one", updates=b)
    g.verify()
