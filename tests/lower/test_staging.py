"""Copies between memories: direct where links allow, through the host once otherwise. B17 to B19 of the Celerity reference.

Celerity stages in pooled host buffers. Here the stage is the array's own host memory: what was staged stays valid there, so
the next reader, and the host program, find it without another copy, and there is no pool to reuse.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from coexec.geometry import Box, Region, overlaps, whole
from coexec.machine.platform import HOST, USER, Device, Link, Memory, Platform, host_links
from coexec.program.mapper import all as map_all, fixed, halo
from coexec.testing.graphs import GraphBuilder
from coexec.testing.queries import Selection


def span(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def ways(copies: Selection) -> list[tuple[int, int]]:
    """Return from which memory to which each copy goes."""
    return [(copy.step.source.memory, copy.step.target.memory) for copy in copies]


def test_a_broadcast_without_peer_links_is_staged_in_host_memory_once() -> None:
    """B17."""
    g = GraphBuilder(4, peers=False)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=(a, map_all), writes=g.array(99), on=["dev:1", "dev:2", "dev:3"])
    copies = g.instructions.of("copy")
    assert ways(copies) == [(2, HOST), (HOST, 3), (HOST, 4), (HOST, 5)]
    assert copies.copied == Region([whole((100,))]) and all(copy.nbytes == 800 for copy in copies)
    assert copies[1:].all_concurrent()
    assert all(copies[0] in copies.of(to=memory).predecessors() for memory in (3, 4, 5))
    g.verify()


def test_what_readers_want_in_common_is_staged_once_and_each_gets_only_its_part() -> None:
    """B17, for readers of different parts."""
    g = GraphBuilder(3, peers=False)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    parts = [("dev:1", span(20, 50)), ("dev:2", span(50, 80))]
    use = g.call("use", reads=(a, halo(10)), writes=g.array(100), chunks=parts)
    staged, out = g.instructions.of("copy", to=HOST), g.instructions.of("copy", source=HOST)
    assert [copy.step.boxes for copy in staged] == [(span(10, 40),), (span(40, 60),), (span(60, 90),)]
    assert out.of(to=3).copied == Region([span(10, 60)]) and out.of(to=4).copied == Region([span(40, 90)])
    for kernel, alien in zip(g.kernels(use), (staged[2], staged[0]), strict=True):
        assert g.emitted_graph.concurrent(kernel, alien)  # nobody waits for what only the other reads
    g.verify()


def test_parts_on_one_device_do_not_wait_for_each_others_stage() -> None:
    """B17 with B12."""
    g = GraphBuilder(2, peers=False)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    use = g.call("use", reads=a, writes=g.array(100), chunks=[("dev:1", span(0, 40)), ("dev:1", span(40, 100))])
    first, second = g.instructions.of("copy", to=HOST)
    left, right = g.kernels(use)
    assert [copy.step.boxes for copy in (first, second)] == [(span(0, 40),), (span(40, 100),)]
    assert g.emitted_graph.ordered(first, left) and g.emitted_graph.ordered(second, right)
    assert g.emitted_graph.concurrent(first, right) and g.emitted_graph.concurrent(second, left)
    g.verify()


def test_a_staged_read_of_two_producers_waits_for_each_on_its_own() -> None:
    """B17 with B11: the pieces of two producers stay apart on the way through the host."""
    g = GraphBuilder(3, peers=False)
    a = g.array(100)
    left = g.kernels(g.call("left", writes=a[:50], on="dev:0")).only()
    right = g.kernels(g.call("right", writes=a[50:], on="dev:1")).only()
    g.call("use", reads=a, writes=g.array(100), on="dev:2")
    for copy in g.instructions.of("copy", to=4):
        mine, other = (left, right) if copy.step.boxes == (span(0, 50),) else (right, left)
        assert g.emitted_graph.ordered(mine, copy) and not g.emitted_graph.ordered(other, copy)
    assert len(g.instructions.of("copy", to=4)) == 2
    g.verify()


def test_a_region_that_is_no_box_is_staged_as_one_copy_in_and_one_out() -> None:
    """B17 with B20."""
    g = GraphBuilder(2, peers=False)
    a = g.array((4, 4))
    g.call("make", writes=a, on="dev:0")
    g.call("middle", writes=a[1:3, 1:3], on="dev:1")
    g.call("use", reads=a, writes=g.array((4, 4)), on="dev:1")
    copies = g.instructions.of("copy", reason="coherence")
    assert ways(copies) == [(2, HOST), (HOST, 3)]
    assert copies[0].step.boxes == copies[1].step.boxes and len(copies[0].step.boxes) > 1
    g.verify()


def test_a_broadcast_over_peer_links_touches_no_host_memory() -> None:
    g = GraphBuilder(4)
    a = g.array(100)
    make = g.kernels(g.call("make", writes=a, on="dev:0")).only()
    g.call("use", reads=(a, map_all), writes=g.array(99), on=["dev:1", "dev:2", "dev:3"])
    copies = g.instructions.of("copy")
    assert ways(copies) == [(2, 3), (2, 4), (2, 5)]
    assert copies.all_concurrent() and all(make in copies[i : i + 1].predecessors() for i in range(3))
    assert len(g.instructions.of("alloc", to=HOST)) == 0


def test_only_the_reader_without_a_link_is_served_through_the_host() -> None:
    """dev:0 and dev:1 are peers; dev:2 is not."""
    devices = tuple(Device(f"dev:{i}", "invented", i + 2, (i + 2,)) for i in range(3))
    memories = (Memory("user"), Memory("host", paged=True), *(Memory(d.name) for d in devices))
    links = host_links([2, 3, 4]) | {(2, 3): Link(2, 3, bandwidth=20e9), (3, 2): Link(3, 2, bandwidth=20e9)}
    g = GraphBuilder(platform=Platform(devices, memories, links))
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=(a, map_all), writes=g.array(100), on=["dev:1", "dev:2"])
    assert sorted(ways(g.instructions.of("copy"))) == [(HOST, 4), (2, HOST), (2, 3)]
    g.verify()


@pytest.mark.parametrize("peers", [True, False])
def test_memories_that_are_up_to_date_receive_nothing(peers: bool) -> None:
    """B18."""
    g = GraphBuilder(3, peers=peers)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=(a, map_all), writes=g.array(100), on="dev:1")
    before = len(g.instructions.of("copy"))
    g.call("use", reads=(a, map_all), writes=g.array(99), on="all")
    later = g.instructions.of("copy")[before:]
    assert [i.step.target.memory for i in later] == [4] and later.nbytes == 800
    g.call("use", reads=(a, map_all), writes=g.array(99), on="all")
    g.read(a)
    g.read(a)
    assert len(g.instructions.of("copy", array=a)) == before + 1 + peers  # the stage has it for the host program too
    g.verify()


def test_a_destination_that_has_some_of_it_receives_the_rest() -> None:
    """B18."""
    g = GraphBuilder(3, peers=False)
    a = g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=(a, fixed(slice(0, 60))), writes=g.array(5), on="dev:1")
    before = len(g.instructions.of("copy", reason="coherence"))
    g.call("use", reads=(a, map_all), writes=g.array(100), on=["dev:1", "dev:2"])
    later = g.instructions.of("copy", reason="coherence")[before:]
    assert later.of(to=HOST).copied == Region([span(60, 100)])
    assert later.of(to=3).copied == Region([span(60, 100)]) and later.of(to=4).copied == Region([span(0, 100)])
    g.verify()


def test_the_stage_of_an_array_is_made_once_and_written_again_behind_its_last_readers_only() -> None:
    """B19. Nothing is pooled: an array's stage is used again for that array alone, ordered by its own copies."""
    g = GraphBuilder(2, peers=False)
    a, b = g.array(100), g.array(100)
    stages = []
    for _ in range(4):
        g.call("make", writes=a, on="dev:0")
        g.call("use", reads=a, writes=b, on="dev:1")
        stages.append(g.instructions.of("copy", to=HOST)[-1])
    assert len(g.instructions.of("alloc", to=HOST)) == 1 and len(g.instructions.of("free")) == 0
    for again, out in zip(stages[1:], g.instructions.of("copy", source=HOST), strict=False):
        kinds = {i.kind for i in Selection(g.emitted_graph, [again]).predecessors()}
        assert kinds == {"kernel", "copy"} and g.emitted_graph.ordered(out, again)
    g.verify()


def test_staging_orders_no_kernels_of_different_arrays() -> None:
    """B19."""
    g = GraphBuilder(2, peers=False)
    pairs = [(g.array(100), g.array(100)) for _ in range(2)]
    kernels = []
    for a, b in pairs:
        for _ in range(3):
            g.call("make", writes=a, on="dev:0")
            g.call("use", reads=a, updates=b, on="dev:1")
        kernels.append(g.instructions.of("kernel", array=a))
    assert all(g.emitted_graph.concurrent(mine, other) for mine in kernels[0] for other in kernels[1])
    assert [len(g.instructions.of("copy", array=a, to=HOST)) for a, _ in pairs] == [3, 3]


def test_each_device_gets_exactly_what_the_others_made_and_all_at_the_same_time() -> None:
    """Number 6 of the reference's list: an all-to-all read."""
    g = GraphBuilder(3)
    a = g.array(90)
    g.call("make", writes=a, on="all")
    g.call("use", reads=(a, map_all), writes=g.array(90), on="all")
    copies = g.instructions.of("copy", reason="coherence")
    assert len(copies) == 6 and copies.all_concurrent()
    for number in range(3):
        own = span(30 * number, 30 * number + 30)
        assert copies.of(to=number + 2).copied == Region([span(0, 90)]) - Region([own])
    g.verify()


def test_four_neighbours_on_one_device_get_seven_pieces() -> None:
    """Number 9: what two readers have in common is a piece of its own, so that neither waits for more than it reads."""
    g = GraphBuilder(2)
    a = g.array(80)
    g.call("make", writes=a, on="dev:0")
    parts = [("dev:1", span(20 * i, 20 * i + 20)) for i in range(4)]
    g.call("use", reads=(a, halo(2)), writes=g.array(80), chunks=parts)
    copies = g.instructions.of("copy")
    boxes = [box for copy in copies for box in copy.step.boxes]
    assert len(copies) == len(boxes) == 7 and copies.all_concurrent()
    assert not any(overlaps(x, y) for x, y in combinations(boxes, 2)) and copies.copied == Region([span(0, 80)])


@pytest.mark.parametrize("borrowed", [False, True])
def test_contents_from_the_host_move_only_as_far_as_they_are_read(borrowed: bool) -> None:
    """Number 12, with B16: parts for two devices, the rest never, and a second reader takes the nearest copy."""
    g = GraphBuilder(3)
    a = g.array(100, data=np.arange(100.0), borrowed=borrowed)
    home = USER if borrowed else HOST
    g.call("use", reads=(a, fixed(slice(10, 20))), writes=g.array(5), on="dev:0")
    g.call("use", reads=(a, fixed(slice(15, 40))), writes=g.array(5), on="dev:1")
    first, near, far = g.instructions.of("copy")
    assert (first.step.source.memory, first.step.target.memory, first.step.boxes) == (home, 2, (span(10, 20),))
    assert {(i.step.source.memory, i.step.boxes) for i in (near, far)} == {
        (2, (span(15, 20),)),
        (home, (span(20, 40),)),
    }
    g.drop(a)
    assert sorted(i.step.allocation.memory for i in g.instructions.of("free")) == ([2, 3] if borrowed else [HOST, 2, 3])
    g.verify()
