"""Host tasks, fences, horizons, epochs and clean-up: the behaviours B24 and B26 to B29 of the Celerity reference, in our words."""

from __future__ import annotations

import numpy as np
import pytest

from coexec.geometry import Box, Region, whole
from coexec.graph.instruction import Instruction
from coexec.machine.platform import HOST
from coexec.program.mapper import halo
from coexec.testing.graphs import GraphBuilder


def test_host_tasks_of_one_order_are_a_chain_and_other_orders_are_not_touched() -> None:
    """B24. Ours has no host objects: an order is a name, and nothing is destroyed with it."""
    g = GraphBuilder()
    log = [g.kernels(g.host_task("log", order="log")).only() for _ in range(3)]
    plot = [g.kernels(g.host_task("plot", order="plot")).only() for _ in range(3)]
    free = [g.kernels(g.host_task("free", order=None)).only() for _ in range(3)]
    graph = g.emitted_graph
    assert graph.chain(log) and graph.chain(plot)
    assert all(graph.concurrent(a, b) for a in log for b in [*plot, *free])
    assert graph.all_concurrent(free)


def test_an_order_outlives_horizons_and_epochs() -> None:
    """B24."""
    g = GraphBuilder()
    first = g.kernels(g.host_task("log")).only()
    g.horizon()
    g.horizon()
    second = g.kernels(g.host_task("log")).only()
    g.epoch()
    third = g.kernels(g.host_task("log")).only()
    assert g.emitted_graph.chain([first, second, third])


def test_a_fence_brings_exactly_the_requested_box_to_the_host_and_waits_for_it() -> None:
    """B26."""
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("make", writes=a, on="all")
    fence = g.of(g.read(a[40:60])).of("fence").only()
    copies = g.instructions.of("copy")
    assert copies.copied == Region([Box((40,), (60,))])
    assert {i.step.target.memory for i in copies} == {HOST}
    assert all(g.emitted_graph.ordered(copy, fence) for copy in copies)
    g.verify()


def test_a_fence_waits_for_what_it_reads_and_for_nothing_else() -> None:
    g = GraphBuilder(1, shared=True)
    a, b = g.array(100), g.array(100)
    mine = g.kernels(g.call("mine", writes=a[:50])).only()
    rest = g.kernels(g.call("rest", writes=a[50:])).only()
    other = g.kernels(g.call("other", writes=b)).only()
    fence = g.of(g.read(a[:50])).of("fence").only()
    assert g.emitted_graph.ordered(mine, fence)
    assert g.emitted_graph.concurrent(rest, fence) and g.emitted_graph.concurrent(other, fence)


def test_a_fence_of_nothing_completes_without_a_copy() -> None:
    """B26."""
    g = GraphBuilder(2)
    a = g.array(100)
    make = g.kernels(g.call("make", writes=a, on="dev:1")).only()
    fence = g.of(g.read(a[5:5])).of("fence").only()
    assert len(g.instructions.of("copy")) == 0
    assert g.emitted_graph.concurrent(make, fence)


def test_a_later_write_waits_for_the_fence() -> None:
    g = GraphBuilder(1, shared=True)
    a = g.array(100)
    g.call("make", writes=a)
    fence = g.of(g.read(a)).of("fence").only()
    assert fence in g.kernels(g.call("change", updates=a)).ancestors()


def test_the_private_arrays_of_a_reduction_are_freed_behind_it() -> None:
    """B27. Ours frees at once instead of listing garbage for the next horizon."""
    g = GraphBuilder(2)
    x, total = g.array(100, 1.0), g.array((), 0.0)
    task = g.call("sum", reads=x, reduces=total, over=(100,), on="all")
    reduced = g.of(task).of("reduce").only()
    private = [i.step.allocation.id for i in g.of(task).of("alloc") if i.step.allocation.array < 0]
    frees = g.of(task).of("free")
    assert sorted(i.step.allocation.id for i in frees) == sorted(private)
    assert all(g.emitted_graph.ordered(kernel, reduced) for kernel in g.kernels(task))
    for free in frees:  # the slots on devices once they are copied, the gathered ones once they are combined
        assert g.emitted_graph.ordered(reduced, free) == (free.step.allocation.memory == HOST)
    g.verify()


def test_a_dropped_array_is_freed_after_its_last_use_and_without_waiting_for_more() -> None:
    """B27."""
    g = GraphBuilder(2)
    a, b = g.array(100, 1.0), g.array(100, 1.0)
    use = g.kernels(g.call("use", reads=a, writes=g.array(100), on="all"))
    other = g.kernels(g.call("other", updates=b, on="all"))
    g.drop(a)
    frees = g.instructions.of("free")
    graph = g.emitted_graph
    assert len(frees) == 2
    for kernel, free in zip(use, frees, strict=True):  # each in its own memory
        assert graph.ordered(kernel, free) and kernel.step.bindings[0].allocation is free.step.allocation
    assert all(graph.concurrent(kernel, free) for kernel in other for free in frees)
    g.verify()


def test_after_an_epoch_nothing_depends_directly_on_what_was_before() -> None:
    """B28."""
    g = GraphBuilder(2)
    a, b = g.array(100), g.array(100)
    g.call("left", writes=a[:50], on="dev:0")
    g.call("right", writes=a[50:], on="dev:0")
    g.call("again", reads=a, writes=b, on="dev:0")
    g.epoch()
    epoch = g.instructions[-1]
    before = {i.id for i in g.instructions}
    g.call("use", reads=a, updates=b, on="dev:1")
    later = g.instructions.where(lambda i: i.id not in before)
    assert all(id == epoch.id or id not in before for i in later for id in (*i.needs, *i.after))
    # Two writers before the epoch count as one source after it: one copy per array.
    assert [i.step.boxes for i in later.of("copy", array=a)] == [(whole((100,)),)]
    g.verify()


def test_a_horizon_changes_nothing_until_the_next_one_is_passed() -> None:
    """B29."""
    g = GraphBuilder()
    a = g.array(100)
    first = g.kernels(g.call("first", updates=a)).only()
    g.horizon()
    horizon = g.instructions[-1]
    second = g.kernels(g.call("second", updates=a)).only()
    assert first.id in second.needs and horizon.id not in (*second.needs, *second.after)
    alloc = g.of(g.call("fresh", writes=g.array(10))).of("alloc").only()
    assert horizon.id not in alloc.after
    g.horizon()
    b = g.array(10)
    third = g.of(g.call("third", writes=b)).of("alloc").only()
    assert third.after == (horizon.id,)
    assert g.emitted_graph.ordered(first, horizon)
    g.verify()


def test_a_failed_writer_is_still_named_after_horizons_and_epochs() -> None:
    """Ours: what it would have written stays poisoned until it is overwritten."""
    g = GraphBuilder(1, shared=True)
    a = g.array(100, 0.0)
    bad = g.kernels(g.call("bad", updates=a[:50])).only()
    good = g.kernels(g.call("good", updates=a[50:])).only()
    for _ in range(3):
        g.horizon(failed={bad.id})
    g.epoch(failed={bad.id})
    poisoned = g.of(g.read(a[:50])).of("fence").only()
    healthy = g.of(g.read(a[50:])).of("fence").only()
    assert bad.id in poisoned.needs
    assert bad.id not in healthy.needs and good.id not in healthy.needs
    g.call("heal", writes=a[:50])
    assert bad.id not in g.of(g.read(a[:50])).of("fence").only().needs


def test_only_what_is_read_is_needed_and_what_is_overwritten_is_merely_waited_for() -> None:
    g = GraphBuilder(1, shared=True)
    a, b = g.array(100, 0.0), g.array(100, 0.0)
    make = g.kernels(g.call("make", writes=a)).only()
    reader = g.kernels(g.call("reader", reads=a, writes=b)).only()
    over = g.kernels(g.call("over", writes=a)).only()
    change = g.kernels(g.call("change", updates=a)).only()
    assert reader.needs == (make.id,)
    assert over.needs == () and over.after == (reader.id,)
    assert change.needs == (over.id,)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_siblings_never_wait_for_each_other(parts: int) -> None:
    g = GraphBuilder(3)
    a, b = g.array(60, 1.0), g.array(60)
    tasks = [
        g.call("step", reads=(a, halo(3)), writes=b, on=g.devices[:parts]),
        g.call("back", reads=(b, halo(3)), writes=a, on=g.devices[:parts]),
        g.call("in place", updates=a, on=g.devices[:parts]),
    ]
    for task in tasks:
        assert g.kernels(task).all_concurrent()
    g.verify()


def test_siblings_never_wait_for_each_other_even_where_one_reads_what_another_writes() -> None:
    """All chunks of a task see the array as it was before the task: what they come after is found before any is noted."""
    g = GraphBuilder(3, shared=True)
    a = g.array(60, 1.0)
    first = g.call("whole", updates=a)
    task = g.call("step", reads=(a, halo(3)), writes=a, on="all")
    assert g.kernels(task).all_concurrent()
    assert all(kernel.needs == (g.kernels(first).only().id,) for kernel in g.kernels(task))


@pytest.mark.parametrize("on", ["dev:0", "all"])
@pytest.mark.parametrize("part", [slice(None), slice(10, 40)])
def test_a_write_names_the_readers_and_not_the_writer_they_waited_for(on: str, part: slice) -> None:
    """B7, for tasks that are divided or touch a part."""
    g = GraphBuilder(2, shared=True)
    a = g.array(60, 1.0)
    first = g.kernels(g.call("write", writes=a[part], on=on))
    readers = g.kernels(g.call("read", reads=a[part], writes=g.array(60)[part], on=on))
    last = g.kernels(g.call("rewrite", writes=a[part], on=on))
    edges = {id for kernel in last for id in (*kernel.needs, *kernel.after)}
    assert {kernel.id for kernel in readers} <= edges
    assert edges.isdisjoint(kernel.id for kernel in first)


def test_a_strided_write_waits_for_who_wrote_before_and_needs_nobody() -> None:
    """Ours: the elements between are kept, but the kernel reads none of them, so no failure reaches it."""
    g = GraphBuilder(1, shared=True)
    a = g.array(60, 1.0)
    dense = g.kernels(g.call("dense", writes=a)).only()
    odd = g.kernels(g.call("odd", writes=a[1::2], over=(30,), chunks=[("dev:0", Box((0,), (30,)))])).only()
    assert odd.needs == () and odd.after == (dense.id,)


def test_a_host_read_of_borrowed_memory_copies_nothing() -> None:
    g = GraphBuilder(2)
    a = g.array(60, data=np.arange(60.0), borrowed=True)
    g.call("use", reads=a, writes=g.array(60), on="dev:1")
    g.read(a[10:20])
    assert len(g.instructions.of("copy", to=HOST)) == len(g.instructions.of("alloc", to=HOST)) == 0
    g.verify()


def test_red_and_black_points_are_written_at_the_same_time() -> None:
    g = GraphBuilder(2, shared=True)
    a = g.array(100, 0.0)
    red = g.kernels(g.call("red", updates=a[::2], on="dev:0")).only()
    black = g.kernels(g.call("black", updates=a[1::2], on="dev:1")).only()
    both = g.kernels(g.call("both", reads=a, writes=g.array(100), on="dev:0")).only()
    assert g.emitted_graph.concurrent(red, black)
    assert {red.id, black.id} <= {*both.needs}
    g.verify()


def test_a_strided_write_keeps_the_elements_between() -> None:
    g = GraphBuilder(2)
    a = g.array(9, data=np.arange(9.0))
    g.call("odd", writes=a[1::2], on="dev:1", body=lambda x: x.fill(-1.0))
    task = g.read(a)
    from coexec.testing.model_memory import run_all

    assert run_all(g.emitted) == {}
    np.testing.assert_array_equal(g.delivered[task.id], [0, -1, 2, -1, 4, -1, 6, -1, 8])
    g.verify()


def test_a_priority_reaches_the_kernels_of_the_call() -> None:
    g = GraphBuilder(2)

    def priorities(value: int) -> list[int]:
        kernels: list[Instruction] = list(g.kernels(g.call("k", writes=g.array(10), on="all", priority=value)))
        return [i.step.priority for i in kernels]

    assert priorities(0) == [4, 4] and priorities(2) == [6, 6] and priorities(-3) == [1, 1]
