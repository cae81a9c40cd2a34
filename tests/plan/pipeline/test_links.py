"""What links have in common counts in a pipeline's period, by hand."""

from __future__ import annotations

import pytest

from coexec.machine.platform import Platform
from coexec.plan.pipeline import DeviceClass, Hop, PipelineStage, StreamKernel, StreamSystem, StreamWork, judged
from coexec.plan.pipeline.platforms import classes_of
from coexec.plan.pipeline.system import Port, WayEnd

ENDS = {("host", "g"): Hop(1.0, 10.0), ("g", "host"): Hop(2.0, 5.0)}
CARDS = StreamSystem((DeviceClass("g", 4), DeviceClass("c", 1)), {**ENDS, ("host", "c"): Hop(), ("c", "host"): Hop()})


def test_devices_in_turn_share_the_latency_of_copies_and_parts_of_an_item_do_not():
    assert CARDS.busy(WayEnd("host"), WayEnd("g", 4, True)) == [(1.0 / 4, 1 / 40)]
    assert CARDS.busy(WayEnd("host"), WayEnd("g", 4)) == [(1.0, 1 / 40)]
    assert CARDS.busy(WayEnd("g", 2), WayEnd("host")) == [(2.0, 1 / 10)]


def test_through_the_host_one_item_leaves_while_the_other_arrives():
    assert CARDS.busy(WayEnd("g"), WayEnd("g", 2)) == [(2.0, 1 / 5), (1.0, 1 / 20)]
    assert CARDS.moved(("g", 1), ("g", 2)) == (3.0, 1 / 5 + 1 / 20), "one item takes both"


def test_whoever_works_in_the_hosts_memory_copies_nothing_itself():
    direct = StreamSystem(CARDS.classes, {**CARDS.hops, ("c", "g"): Hop(1.0, 10.0)})
    for system in (CARDS, direct):
        assert system.busy(WayEnd("c"), WayEnd("g", 2, True)) == [(0.5, 1 / 20)]
        assert system.busy(WayEnd("host"), WayEnd("c")) == [(0.0, 0.0)]


def test_between_devices_each_part_is_a_copy():
    direct = StreamSystem(CARDS.classes, {**CARDS.hops, ("g", "g"): Hop(1.0, 10.0)})
    assert direct.busy(WayEnd("g"), WayEnd("g", 3)) == [(3.0, 1 / 10), (1.0, 1 / 30)]
    assert direct.busy(WayEnd("g", 2, True), WayEnd("g", 2, True)) == [(0.5, 1 / 20), (0.5, 1 / 20)]


def test_ways_that_share_something_are_as_quick_as_that_together():
    hop = Hop(1.0, 10.0, together=(10.0, 20.0, 15.0, 20.0))
    assert [hop.per_byte(n) for n in (1, 2, 3, 4)] == [1 / 10, 1 / 20, 1 / 15, 1 / 20]
    assert hop.busy(2, turns=True) == (0.5, 1 / 20)
    assert hop.busy(4, turns=True) == (0.125, 1 / 20), "half of the latency is hidden where copies share a link"


def test_two_cards_behind_one_switch_are_the_last_that_are_taken_together():
    system, members, _ = classes_of(Platform.load("mi210x8"))
    assert members["gpu"] == ("gpu:0", "gpu:2", "gpu:4", "gpu:6", "gpu:1", "gpu:3", "gpu:5", "gpu:7")
    together = system.hops["host", "gpu"].together
    assert together == tuple(pytest.approx(x * 25e9) for x in (1, 2, 3, 4, 2.5, 3, 3.5, 4))
    assert system.hops["cpu", "gpu"].together == together, "whose memory is the host's"


def test_bytes_of_all_stages_that_pass_a_link_add_up():
    kernels = [StreamKernel(name, {"g": 1.0, "c": 1.0}) for name in ("a", "b", "c")]
    work = StreamWork.chain(kernels, [60.0, 40.0, 20.0, 10.0])
    ports = tuple(Port(frozenset({"in"}), frozenset({"out", f"out {n}"})) for n in range(4))
    limits = {"in": 10.0, "out": 20.0, **{f"out {n}": 5.0 for n in range(4)}}
    shared = StreamSystem(CARDS.classes, CARDS.hops, {"g": ports}, limits)
    stages = [
        PipelineStage(("a",), (("g", 1),), "alone", 0),
        PipelineStage(("b",), (("c", 1),), "alone", 1),
        PipelineStage(("c",), (("g", 2),), "in turn", 2),
    ]
    point = judged(work, shared, stages)
    assert judged(work, CARDS, stages).links == 0.0
    assert point.links == (60.0 + 20.0) / 10.0, "out: 40 of the first card, 10 of both others"
    assert point.quickest == 10.0 == judged(work, CARDS, stages).quickest, "the first card's results: 2 s and 40 bytes"
    narrow = StreamSystem(CARDS.classes, CARDS.hops, {"g": ports}, {**limits, "in": 5.0})
    assert judged(work, narrow, stages).period == 16.0 and judged(work, narrow, stages).bottleneck is None


def test_a_group_of_several_stages_takes_all_its_kernels_or_all_its_copies():
    work = StreamWork.chain(
        [StreamKernel(name, {"g": t, "c": 0.5}) for name, t in zip("abc", (1.0, 9.0, 6.0), strict=True)], [40.0] * 4
    )
    stages = [
        PipelineStage(("a",), (("g", 1),), "alone", 0),
        PipelineStage(("b",), (("c", 1),), "alone", 1),
        PipelineStage(("c",), (("g", 1),), "alone", 0),
    ]
    assert judged(work, CARDS, stages).busy[0] == (1.0 + 4.0) * 2 > 1.0 + 6.0
