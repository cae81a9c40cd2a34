"""Allocations that grow, merge or stay apart: which copies that takes, and what may run beside them (B3, B13 to B15)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coexec.geometry import Box, Region, whole
from coexec.program.mapper import all as map_all, fixed
from coexec.testing.every_order import every_order
from coexec.testing.graphs import GraphBuilder


def span(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def fill(value: float) -> Callable[..., None]:
    """Return a body that fills its last argument."""
    return lambda *arrays: arrays[-1].fill(value)


def test_accesses_that_overlap_see_one_allocation() -> None:
    """B3, in two dimensions: each binding has its own box of the same allocation."""
    g = GraphBuilder()
    a = g.array((10, 10), 1.0)
    boxes = [(slice(0, 6), slice(2, 8)), (slice(4, 9), slice(0, 3))]
    task = g.call("use", reads=[(a, fixed(*box)) for box in boxes], writes=g.array(5))
    first, second = g.kernels(task).only().step.bindings[:2]
    assert first.allocation is second.allocation and first.allocation.box == Box((0, 0), (9, 8))
    assert (first.box, second.box) == (Box((0, 2), (6, 8)), Box((4, 0), (9, 3)))
    assert g.instructions.of("fill", array=a).only().step.boxes == Region([first.box, second.box]).boxes
    g.verify()


def test_two_far_elements_are_two_allocations_of_one_element() -> None:
    """B35 on one machine: nothing between them is allocated or moved."""
    g = GraphBuilder(2)
    a = g.array(1_000_000, data=np.arange(1e6))
    task = g.call(
        "use", reads=[(a, fixed(slice(0, 1))), (a, fixed(slice(999_999, None)))], writes=g.array(5), on="dev:1"
    )
    ends = [span(0, 1), span(999_999, 1_000_000)]
    assert g.instructions.of("alloc", array=a).allocated == ends
    assert g.instructions.of("copy").copied == Region(ends) and g.instructions.of("copy").nbytes == 16
    assert [b.box for b in g.kernels(task).only().step.bindings[:2]] == ends
    g.verify()


def test_kernels_in_allocations_of_their_own_are_not_ordered() -> None:
    """B13."""
    g = GraphBuilder()
    a = g.array(100)
    kernels = [g.kernels(g.call("write", writes=a[lo:hi])).only() for lo, hi in [(0, 20), (20, 30), (60, 61)]]
    assert g.emitted_graph.all_concurrent(kernels)
    assert len({kernel.step.bindings[0].allocation.id for kernel in kernels}) == 3


def test_a_box_that_overlaps_several_allocations_makes_them_one() -> None:
    """B14: and the bounding box may reach a further one, which is swallowed as well."""
    g = GraphBuilder()
    a = g.array((10, 10))
    g.call("corner", writes=a[0:2, 0:2])
    g.call("middle", writes=a[4:6, 4:6])
    g.call("aside", writes=a[5:7, 0:1])  # not touched by the next box, but within the bounding box
    g.call("far", writes=a[9:10, 9:10])
    g.call("both", updates=a[1:5, 1:5])
    assert g.instructions.of("alloc").allocated[-1] == Box((0, 0), (7, 6))
    frees = g.instructions.of("free")
    assert sorted(i.step.allocation.box for i in frees) == [
        Box((0, 0), (2, 2)),
        Box((4, 4), (6, 6)),
        Box((5, 0), (7, 1)),
    ]
    assert g.instructions.of("copy", reason="resize").nbytes == (4 + 4 + 2) * 8
    g.verify()


def test_what_is_left_of_an_overwritten_corner_moves_as_one_copy() -> None:
    """Number 22 of the reference's list: an L."""
    g = GraphBuilder()
    a = g.array((6, 6))
    g.call("some", writes=a[:4, :4])
    g.call("more", writes=a[2:, 2:])
    copy = g.instructions.of("copy", reason="resize").only()
    assert (
        Region(copy.step.boxes) == Region([Box((0, 0), (4, 4))]) - Region([Box((2, 2), (4, 4))])
        and len(copy.step.boxes) == 2
    )
    g.verify()


def test_nothing_is_kept_of_allocations_that_are_overwritten_or_out_of_date() -> None:
    """Number 24: only what is live here and survives the task is copied."""
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("left", writes=a[:10], on="dev:0")
    g.call("right", writes=a[50:60], on="dev:0")
    g.call("middle", writes=a[20:30], on="dev:0")
    g.call("elsewhere", writes=a[:10], on="dev:1")  # what dev:0 has of it is dead now
    g.call("grow", reads=(a, fixed(slice(25, 30))), writes=a[5:60], over=(55,), on="dev:0")
    resized = g.instructions.of("copy", reason="resize")
    assert resized.copied == Region([span(25, 30)])
    assert len(g.instructions.of("free")) == 3
    assert len(g.instructions.of("copy", reason="coherence")) == 0
    g.verify()


def test_growing_on_one_device_touches_no_other() -> None:
    g = GraphBuilder(2)
    a = g.array(100)
    g.call("make", writes=a[:50], on="dev:0")
    g.call("use", reads=a[:50], writes=g.array(50), on="dev:1")
    before = len(g.instructions)
    g.call("grow", updates=a[:80], on="dev:0")
    touched = {i.step.allocation.memory for i in g.instructions[before:].of("alloc", "free")}
    assert touched == {2} and len(g.instructions[before:].of("copy", reason="coherence")) == 0


def test_readers_of_the_old_allocation_go_on_while_it_is_copied() -> None:
    """B15: a resize only reads. The old allocation goes when both are done."""
    g = GraphBuilder()
    a = g.array(100)
    g.call("some", writes=a[:50])
    reader = g.kernels(g.call("reader", reads=a[:50], writes=g.array(50))).only()
    grown = g.kernels(g.call("more", updates=a[:80])).only()
    resize = g.instructions.of("copy", reason="resize").only()
    free = g.instructions.of("free").only()
    graph = g.emitted_graph
    assert graph.concurrent(reader, resize) and graph.ordered(resize, grown)
    assert graph.ordered(reader, free) and graph.ordered(resize, free)
    assert graph.concurrent(reader, grown)  # it writes to the new one
    g.verify()


def test_a_resize_beside_its_kernel_is_right_in_every_order() -> None:
    """B15: the kernel that grows the array, the copy and the readers of both, in whichever order."""
    g = GraphBuilder(2)
    a, b = g.array(6), g.array(3)
    g.call("some", writes=a[:3], body=fill(1.0))
    g.call("reader", reads=a[:3], writes=b, body=lambda x, y: np.add(x, 1.0, out=y))
    g.call("more", writes=a[2:5], body=fill(2.0))
    g.call("rest", writes=a[5:], on="dev:1", body=fill(3.0))
    tasks = [g.read(a), g.read(b)]
    assert every_order(g.emitted, limit=20_000) > 20
    np.testing.assert_array_equal(g.delivered[tasks[0].id], [1, 1, 2, 2, 2, 3])
    np.testing.assert_array_equal(g.delivered[tasks[1].id], [2, 2, 2])


def test_host_memory_has_its_final_size_at_once() -> None:
    """B13, ours: pages cost nothing until they are touched, so host allocations never grow."""
    g = GraphBuilder(2)
    a = g.array((50, 50))
    for row in range(0, 50, 10):
        g.host_task("row", writes=a[row : row + 10])
    g.call("use", reads=(a, map_all), writes=g.array(5), on="dev:1")
    assert g.instructions.of("alloc", array=a).allocated == [whole((50, 50))] * 2
    assert len(g.instructions.of("copy", reason="resize")) == 0
