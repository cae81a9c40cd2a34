from __future__ import annotations

import random
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import pytest

from coexec.errors import DoesNotFit, PlanError
from coexec.plan.pipeline import (
    DeviceClass,
    Hop,
    PipelineStage,
    StreamKernel,
    StreamSystem,
    StreamWork,
    judged,
    plan_pipeline,
)
from coexec.plan.pipeline.judge import cut
from tests.plan.pipeline import invented

ITEMS = 300


def streamed(point):
    """Return the seconds between two results when items stream through a pipeline, event by event.

    Each way into a group carries one item at a time, whichever of its stages that is for. A group takes what has arrived, the last
    stage's first; a group in turn has a server per device.
    """
    shared = {slot for slot in point.busy if sum(s.slot == slot for s in point.stages) > 1}  # stages of unlike modes
    servers = {s.slot: s.devices if s.mode == "in turn" and s.slot not in shared else 1 for s in point.stages}
    ways: dict[int | None, float] = {}  # when each is free again, by slot; None leads back to the host
    waiting: dict[int, list[Any]] = {slot: [] for slot in servers}  # (minus stage, item)
    events: list[Any] = []
    free, order, results = dict(servers), 0, []

    def send(now, stage, item):
        nonlocal order
        last = stage == len(point.stages)
        seconds, slot = (point.result, None) if last else (point.stages[stage].transfer, point.stages[stage].slot)
        ways[slot] = max(ways.get(slot, 0.0), now) + seconds
        order += 1
        heappush(events, (ways[slot], order, "arrives", stage, item))

    for item in range(ITEMS):
        send(0.0, 0, item)
    while events:
        now, _, what, stage, item = heappop(events)
        if what == "arrives" and stage == len(point.stages):
            results.append(now)
            continue
        slot = point.stages[stage].slot
        if what == "arrives":
            heappush(waiting[slot], (-stage, item))
        else:
            free[slot] += 1
            send(now, stage + 1, item)
        while free[slot] and waiting[slot]:
            behind, next_item = heappop(waiting[slot])
            chosen = point.stages[-behind]
            busy = chosen.compute * servers[slot]
            free[slot] -= 1
            order += 1
            heappush(events, (now + busy, order, "done", -behind, next_item))
    half = len(results) // 2
    results.sort()
    return (results[-1] - results[half]) / (len(results) - 1 - half)


def test_streams_of_items_take_the_period_of_their_plan():
    seen = 0
    for seed in range(24):
        draw = random.Random(seed)
        machine = invented.system(draw, draw.choice([(2, 2), (1, 1), (2, 1, 1)]))
        try:
            found = plan_pipeline(invented.graph(draw, machine), machine)
        except PlanError:
            continue
        for point in found.points:
            assert streamed(point) == pytest.approx(point.period, rel=0.01)
            seen += len(point.stages) > 1
    assert seen > 10


MACHINE = StreamSystem(
    (DeviceClass("f", 2, 30.0, 10.0, memory=10e6, load=0.5), DeviceClass("g", 1, 50.0, 20.0, handover=0.25)),
    {pair: Hop(0.5, 1e6) for pair in (("host", "f"), ("f", "host"), ("host", "g"), ("g", "host"))},
)
KERNELS = [
    StreamKernel("a", {"f": (4.0, 2.5), "g": 2.0}, weights=1e6),
    StreamKernel("b", {"f": (6.0, 4.0), "g": 3.0}, weights=2e6),
]
WORK = StreamWork.chain(KERNELS, [1e6, 2e6, 0.5e6])


def stage(*kernels, on="f", n=1, mode="alone", slot=0):
    return PipelineStage(kernels, ((on, n),), mode, slot)


def test_energy_time_and_latency_by_hand():
    point = judged(WORK, MACHINE, [stage("a", n=2, mode="in turn"), stage("b", on="g", slot=1)])
    first, second = point.stages
    assert (first.compute, first.transfer) == (2.0, 0.75), "0.5 s and 1e6 bytes at 1e6 per second, on two ways in turn"
    assert (second.compute, second.transfer) == (3.25, 2.5), (
        "to the host (0.5 + 2) / 2, while the one before comes in 0.5 + 2"
    )
    assert point.result == 1.0 and point.period == 3.25 and point.bottleneck == 1
    assert point.active == 20.0 * 4.0 + 30.0 * 3.25
    assert point.idle_watts == point.used_watts == 40.0 and point.energy == point.active + 130.0
    assert point.latency == (0.5 + 1 + 4) + (0.5 + 2 + 0.5 + 2 + 3.25) + 1.0
    assert point.setup == max(0.5 + 0.5 + 1.0, 0.5 + 2.0)
    assert first.memory == (1e6 + 2 * 3e6,) and second.memory == (2e6 + 2 * 2.5e6,)


def test_unused_devices_draw_their_idle_power_too():
    point = judged(WORK, MACHINE, [stage("a", "b", on="g")])
    assert point.used_watts == 20.0 and point.energy - point.energy_used == 20.0 * point.period


def test_a_mixed_group_ends_together():
    end, shares = cut([4.0, 2.0], [0.0, 0.25])
    assert shares[0] * 4.0 == pytest.approx(end) == shares[1] * 2.0 + 0.25 and sum(shares) == pytest.approx(1.0)
    assert cut([4.0, 0.1], [0.0, 5.0])[0] == float("inf"), "whoever begins after the others have ended is no help"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([stage("a")], "no stage runs b"),
        ([stage("b"), stage("a", slot=1)], "before what it waits for"),
        ([stage("a"), stage("a", "b", on="g", slot=1)], "runs twice"),
        ([stage("a", n=2, mode="divided"), stage("b", slot=1)], "use 3 devices of class 'f', which has 2"),
        ([stage("a"), stage("b", on="g")], "slot 0 is both 1 f and 1 g"),
        ([stage("a", "b", on="g", n=2, mode="divided")], "cannot run divided on 2 g"),
    ],
)
def test_stages_that_make_no_pipeline_are_refused(stages, message):
    with pytest.raises(PlanError, match=message):
        judged(WORK, MACHINE, stages)


def test_what_does_not_fit_is_said_in_bytes():
    small = StreamSystem((replace(MACHINE.classes[0], memory=6e6), MACHINE.classes[1]), MACHINE.hops)
    with pytest.raises(DoesNotFit, match="a stage of a on 1 f needs"):
        judged(WORK, small, [stage("a"), stage("b", on="g", slot=1)])
