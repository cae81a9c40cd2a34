"""What is allocated, filled and copied: the behaviours B1 to B16 and B20 to B23 of the Celerity reference, in our words."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from coexec.geometry import Box, Region, overlaps, whole
from coexec.machine.platform import HOST, USER
from coexec.program.mapper import fixed, halo
from coexec.testing.graphs import GraphBuilder


def span(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def test_a_kernel_without_arrays_is_an_instruction_between_two_epochs() -> None:
    """B1."""
    g = GraphBuilder()
    task = g.call("nothing", over=10)
    g.epoch()
    assert g.instructions.kinds == ["epoch", "kernel", "epoch"]
    assert g.instructions.chain()
    assert g.kernels(task).chunks == [whole((10,))]


def test_an_access_mapped_to_nothing_allocates_nothing_and_orders_nothing() -> None:
    """B2."""
    g = GraphBuilder()
    a, b = g.array(10), g.array(10)
    make = g.call("make", writes=a)
    use = g.call("use", reads=(a, lambda chunk: slice(0, 0)), writes=b, on="dev:0")
    assert len(g.instructions.of("alloc", array=a)) == 1
    assert g.instructions.of("copy").copied == Region()
    assert g.emitted_graph.concurrent(g.kernels(make).only(), g.kernels(use).only())
    assert g.parents(use) == set()
    g.verify()


def test_an_access_mapped_to_nothing_before_anything_else_allocates_nothing() -> None:
    """B2."""
    g = GraphBuilder()
    a, b = g.array(10), g.array(10)
    g.call("use", reads=(a, lambda chunk: slice(0, 0)), writes=b)
    assert g.instructions.of("alloc").allocated == [whole((10,))]
    assert len(g.instructions.of("alloc", array=a)) == 0


def test_overlapping_accesses_of_one_chunk_share_one_allocation() -> None:
    """B3."""
    g = GraphBuilder()
    a, b = g.array(100, 1.0), g.array(100)
    g.call("use", reads=[(a, fixed(slice(0, 60))), (a, fixed(slice(40, 80)))], writes=b)
    assert g.instructions.of("alloc", array=a).allocated == [span(0, 80)]
    assert len(g.instructions.of("free")) == 0
    g.verify()


def test_accesses_that_only_touch_have_allocations_of_their_own() -> None:
    """B13, of one chunk."""
    g = GraphBuilder()
    a, b = g.array(100, 1.0), g.array(100)
    g.call("use", reads=[(a, fixed(slice(0, 60))), (a, fixed(slice(60, 80)))], writes=b)
    assert sorted(g.instructions.of("alloc", array=a).allocated) == [span(0, 60), span(60, 80)]
    g.verify()


def test_every_allocation_is_freed_once_and_after_every_use() -> None:
    """B4. `verify` checks that each free is the only one of its allocation and comes after every use of it."""
    g = GraphBuilder(3)
    a, b, total = g.array(60, 2.0), g.array(60), g.array(())
    g.call("one", reads=(a, halo(2)), writes=b, on="all")
    g.call("two", reads=b, updates=a, on=["dev:1", "dev:2"])
    g.call("sum", reads=a, reduces=total, over=(60,), on="all")
    g.read(total)
    for array in (a, b, total):
        g.drop(array)
    g.epoch()
    g.verify()
    allocs, frees = g.instructions.of("alloc"), g.instructions.of("free")
    assert sorted(i.step.allocation.id for i in allocs) == sorted(i.step.allocation.id for i in frees)
    assert allocs.nbytes == frees.nbytes > 0


def test_a_divided_kernel_tiles_its_range_and_uses_the_memory_of_each_device() -> None:
    """B5."""
    g = GraphBuilder(4)
    a = g.array((20, 3))
    task = g.call("make", writes=a, on="all")
    kernels = g.kernels(task)
    assert [i.device for i in kernels] == ["dev:0", "dev:1", "dev:2", "dev:3"]
    assert Region(kernels.chunks) == Region([whole((20, 3))]) and sum(b.volume for b in kernels.chunks) == 60
    for kernel in kernels:
        assert [b.allocation.memory for b in kernel.step.bindings] == [g.memory(kernel.device)]
    assert kernels.all_concurrent()


def test_allocations_wait_for_the_epoch_and_for_nothing_else() -> None:
    """B6."""
    g = GraphBuilder(2)
    a, b = g.array(50), g.array(50)
    g.call("make", writes=a)
    g.call("use", reads=a, writes=b, on="all")
    start = g.instructions.of("epoch").only()
    assert [alloc.after for alloc in g.instructions.of("alloc")] == [(start.id,)] * 4
    g.epoch()
    c = g.array(50)
    late = g.call("late", writes=c)
    now = g.instructions.of("epoch")[-1]
    assert g.of(late).of("alloc").predecessors() == [now]


def test_reads_are_unordered_and_a_write_waits_for_all_reads_since_the_last_write() -> None:
    """B7."""
    g = GraphBuilder(1)
    a = g.array(50)
    first = g.kernels(g.call("write", writes=a)).only()
    readers = [g.kernels(g.call("read", reads=a, writes=g.array(50))).only() for _ in range(4)]
    assert g.emitted_graph.all_concurrent(readers)
    assert all(g.emitted_graph.ordered(first, reader) for reader in readers)
    last = g.kernels(g.call("rewrite", writes=a)).only()
    assert set(readers) <= set(g.kernels(g.tasks[-1]).predecessors())
    assert first.id not in (*last.needs, *last.after)
    g.verify()


def test_kernels_on_different_arrays_are_unordered() -> None:
    """B8."""
    g = GraphBuilder(1)
    a, b = g.array(50), g.array(50)
    on_a = [g.kernels(g.call("a", updates=a)).only() for _ in range(3)]
    on_b = [g.kernels(g.call("b", updates=b)).only() for _ in range(3)]
    assert all(g.emitted_graph.concurrent(x, y) for x in on_a for y in on_b)
    assert g.emitted_graph.chain(on_a) and g.emitted_graph.chain(on_b)


def test_data_read_on_another_device_is_copied_once_and_exactly() -> None:
    """B9."""
    g = GraphBuilder(2)
    a = g.array(100)
    make = g.call("make", writes=a, on="dev:0")
    use = g.call("use", reads=(a, fixed(slice(30, 70))), writes=g.array(5), on="dev:1")
    copy = g.instructions.of("copy").only()
    assert copy.step.boxes == (span(30, 70),) and (copy.step.source.memory, copy.step.target.memory) == (2, 3)
    assert copy in g.kernels(use).predecessors()
    assert g.kernels(make).only() in g.instructions.of("copy").predecessors()
    g.verify()


def test_coherent_data_is_not_copied_again_until_it_is_overwritten_elsewhere() -> None:
    """B10."""
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    for _ in range(3):
        g.call("use", reads=a, writes=g.array(100), on="dev:1")
    assert len(g.instructions.of("copy")) == 1
    g.call("change", updates=a[:10], on="dev:0")
    g.call("use", reads=a, writes=g.array(100), on="dev:1")
    assert g.instructions.of("copy")[1:].copied == Region([span(0, 10)])
    g.verify()


def test_a_read_of_two_producers_is_two_copies_each_behind_its_own() -> None:
    """B11."""
    g = GraphBuilder(2)
    a = g.array(100)
    left = g.kernels(g.call("left", writes=a[:50], on="dev:0")).only()
    right = g.kernels(g.call("right", writes=a[50:], on="dev:0")).only()
    g.call("use", reads=a, writes=g.array(100), on="dev:1")
    copies = g.instructions.of("copy")
    assert [i.step.boxes for i in copies] == [(span(0, 50),), (span(50, 100),)]
    assert copies.all_concurrent()
    first, second = copies
    assert g.emitted_graph.ordered(left, first) and not g.emitted_graph.ordered(right, first)
    assert g.emitted_graph.ordered(right, second) and not g.emitted_graph.ordered(left, second)


def test_overlapping_readers_get_disjoint_pieces_and_wait_only_for_what_they_read() -> None:
    """B12."""
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    parts = [("dev:1", span(0, 50)), ("dev:1", span(50, 100))]
    use = g.call("use", reads=(a, halo(5)), writes=g.array(100), chunks=parts)
    copies = g.instructions.of("copy")
    boxes = [box for copy in copies for box in copy.step.boxes]
    assert not any(overlaps(x, y) for x, y in combinations(boxes, 2))
    assert copies.copied == Region([whole((100,))])
    for kernel, read in zip(g.kernels(use), [span(0, 55), span(45, 100)], strict=True):
        mine = [c for c in copies if g.emitted_graph.ordered(c, kernel)]
        assert Region([box for copy in mine for box in copy.step.boxes]) == Region([read])
    g.verify()


def test_boxes_that_do_not_overlap_what_is_allocated_get_allocations_of_exactly_their_size() -> None:
    """B13."""
    g = GraphBuilder(1)
    a = g.array(100)
    for lo, hi in [(0, 20), (20, 30), (60, 61)]:
        g.call("write", writes=a[lo:hi])
    assert g.instructions.of("alloc").allocated == [span(0, 20), span(20, 30), span(60, 61)]
    assert len(g.instructions.of("copy", "free")) == 0


def test_growing_an_allocation_copies_only_what_is_not_overwritten() -> None:
    """B14."""
    g = GraphBuilder(1)
    a = g.array(100)
    g.call("some", writes=a[:50])
    g.call("more", writes=a[30:80])
    assert g.instructions.of("alloc").allocated == [span(0, 50), span(0, 80)]
    copy = g.instructions.of("copy").only()
    assert copy.step.reason == "resize" and copy.step.boxes == (span(0, 30),)
    assert len(g.instructions.of("free")) == 1
    g.verify()


def test_growing_an_allocation_that_is_overwritten_in_whole_copies_nothing() -> None:
    """B14."""
    g = GraphBuilder(1)
    a = g.array(100)
    g.call("some", writes=a[:50])
    g.call("all", writes=a)
    assert len(g.instructions.of("copy")) == 0
    assert len(g.instructions.of("free")) == 1
    g.verify()


def test_a_resize_runs_beside_the_kernel_that_forced_it_when_they_touch_different_boxes() -> None:
    """B15."""
    g = GraphBuilder(1)
    a = g.array(100)
    g.call("some", writes=a[:50])
    more = g.kernels(g.call("more", writes=a[30:80])).only()
    assert g.emitted_graph.concurrent(g.instructions.of("copy").only(), more)


def test_a_resize_moves_the_results_of_each_producer_on_their_own() -> None:
    """Ours: so that a resize spreads no failure, and begins when the first producer is over."""
    g = GraphBuilder(1)
    a = g.array(100)
    left = g.kernels(g.call("left", writes=a[:20])).only()
    g.call("both", updates=a[:50])
    right = g.kernels(g.call("right", writes=a[20:50])).only()
    both = g.kernels(g.tasks[1]).only()
    g.call("grow", updates=a[:80])
    copies = g.instructions.of("copy", reason="resize")[-2:]
    assert [i.step.boxes for i in copies] == [(span(0, 20),), (span(20, 50),)]
    assert [set(i.needs) for i in copies] == [{both.id}, {right.id}]
    assert left.id not in {id for i in copies for id in i.needs}
    g.verify()


def test_borrowed_memory_is_copied_only_where_it_is_read_and_never_freed() -> None:
    """B16. Ours copies from the borrowed memory itself: a backend that needs pinned memory stages it."""
    g = GraphBuilder(2)
    a = g.array(100, data=np.arange(100.0), borrowed=True)
    assert g.instructions.kinds == ["epoch"]
    g.call("use", reads=(a, fixed(slice(10, 30))), writes=g.array(5), on="dev:0")
    copy = g.instructions.of("copy").only()
    assert copy.step.boxes == (span(10, 30),) and (copy.step.source.memory, copy.step.target.memory) == (USER, 2)
    g.drop(a)
    assert [i.step.allocation.memory for i in g.instructions.of("free")] == [2]
    g.verify()


def test_borrowed_memory_is_read_in_place_where_the_device_can() -> None:
    """B16, for devices that share the host's memory."""
    g = GraphBuilder(1, shared=True)
    a = g.array(100, data=np.arange(100.0), borrowed=True)
    g.call("use", reads=a, writes=g.array(100))
    assert len(g.instructions.of("copy")) == 0
    g.call("change", updates=a[:10])
    copy = g.instructions.of("copy").only()
    assert (copy.step.source.memory, copy.step.target.memory) == (USER, HOST) and copy.step.boxes == (span(0, 10),)
    g.verify()


def test_a_copy_comes_from_the_nearest_memory_that_is_valid() -> None:
    """Ours: the reference always copies from the producer."""
    g = GraphBuilder(2)
    a = g.array(100, data=np.arange(100.0))
    g.call("use", reads=a, writes=g.array(100), on="dev:0")
    g.call("use", reads=a, writes=g.array(100), on="dev:1")
    assert [i.step.source.memory for i in g.instructions.of("copy")] == [HOST, 2]  # the peer link is the faster one


def test_a_region_that_is_no_box_moves_as_one_copy() -> None:
    """B20."""
    g = GraphBuilder(2)
    a = g.array((4, 4))
    g.call("make", writes=a, on="dev:0")
    g.call("middle", writes=a[1:3, 1:3], on="dev:1")
    g.call("use", reads=a, writes=g.array((4, 4)), on="dev:1")
    copy = g.instructions.of("copy", reason="coherence").only()
    assert len(copy.step.boxes) > 1
    assert Region(copy.step.boxes) == Region([whole((4, 4))]) - Region([Box((1, 1), (3, 3))])
    g.verify()


def test_a_kernel_that_reads_and_overwrites_the_same_elements_finds_the_old_values() -> None:
    """B21."""
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("both", reads=(a, fixed(slice(0, 60))), writes=a[:40], over=(40,), on="dev:1")
    assert g.instructions.of("copy").copied == Region([span(0, 60)])
    g.verify()


def test_a_stencil_on_a_two_by_two_division_exchanges_only_with_axis_neighbours() -> None:
    """B22. Along the axes, a halo has no corners: neither is a diagonal neighbour's element copied, nor waited for."""
    g = GraphBuilder(4)
    u, v = g.array((8, 8)), g.array((8, 8))
    corners = [(r, c) for r in (0, 4) for c in (0, 4)]
    parts = [(f"dev:{i}", Box((r, c), (r + 4, c + 4))) for i, (r, c) in enumerate(corners)]
    g.call("make", writes=u, chunks=parts)
    g.call("step", reads=(u, halo(1, shape="axes")), writes=v, chunks=parts)
    pairs = {
        (i.step.source.memory - 2, i.step.target.memory - 2) for i in g.instructions.of("copy", reason="coherence")
    }
    assert pairs == {(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1)}
    assert sum(box.volume for i in g.instructions.of("copy", reason="coherence") for box in i.step.boxes) == 8 * 4
    g.verify()


def test_instructions_form_a_topological_order_and_all_but_the_first_wait_for_something() -> None:
    """B23. `verify` checks it too, for every program of every test."""
    g = GraphBuilder(3)
    a = g.array(30, 1.0)
    for number in range(4):
        g.call("step", reads=(a, halo(1)), writes=(b := g.array(30)), on="all")
        g.drop(a)
        a = b
        if number % 2:
            g.horizon()
    g.read(a)
    seen: set[int] = set()
    for number, instruction in enumerate(g.instructions):
        edges = {*instruction.needs, *instruction.after}
        assert edges <= seen and bool(edges) == bool(number)
        seen.add(instruction.id)
    g.verify()


def test_a_staged_copy_survives_that_the_staging_memory_grows() -> None:
    """Ours: exact host allocations merge while a second piece is staged."""
    g = GraphBuilder(2, peers=False, paged=False)
    a = g.array((6, 3), 1.0)
    g.read(a[:, 2:])
    g.call("make", writes=a, on="dev:0")
    reads = [(a, fixed(slice(0, 2), slice(0, 2))), (a, fixed(slice(4, 6)))]
    g.call("use", reads=reads, writes=g.array(5), on="dev:1")
    g.verify()


def test_an_undefined_array_moves_nothing() -> None:
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("use", reads=a, writes=g.array(100), on="dev:1")
    assert len(g.instructions.of("copy", "fill")) == 0
    g.read(a)
    assert len(g.instructions.of("copy", "fill")) == 0


def test_an_initial_value_is_filled_where_it_is_read_and_only_there() -> None:
    g = GraphBuilder(2)
    a = g.array(100, 7.0)
    g.call("use", reads=(a, fixed(slice(10, 20))), writes=g.array(5), on="dev:1")
    fill = g.instructions.of("fill").only()
    assert fill.step.boxes == (span(10, 20),) and fill.step.value == 7.0 and fill.step.allocation.memory == 3
    g.call("overwrite", writes=a, on="dev:0")
    assert len(g.instructions.of("fill")) == 1
