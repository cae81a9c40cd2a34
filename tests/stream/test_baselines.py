"""What a front is compared with, by hand: every plan pays for all devices that wait, and none outruns its items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coexec.plan.pipeline import DeviceClass, Hop, StreamKernel, StreamSystem, StreamWork, plan_pipeline
from coexec.stream.baselines import compared
from coexec.stream.planning import PreparedFront

BIG, SMALL = DeviceClass("big", 1, watts=110.0, idle_watts=10.0), DeviceClass("small", 2, watts=25.0, idle_watts=5.0)
ENDS = [(a, b) for a in ("host", "big", "small") for b in ("host", "big", "small") if a != b]
SYSTEM = StreamSystem((BIG, SMALL), {pair: Hop() for pair in ENDS})
WORK = StreamWork.chain([StreamKernel(name, {"big": 1.0, "small": 4.0}) for name in ("0.a", "1.b")], [0.0, 0.0, 0.0])


def prepared(pace: float) -> PreparedFront:
    names = tuple(kernel.name for kernel in WORK.kernels)
    members = {"big": ("big:0",), "small": ("small:0", "small:1")}
    front = plan_pipeline(WORK, SYSTEM)
    found = PreparedFront(front, WORK, SYSTEM, members, names, names, ("", ""), 0, "", 0.0, frozenset(), 0.0)
    return found.paced(pace)


def figures(pace: float, objective: str) -> dict[str, Any]:
    """Return seconds between two items and joules of each, of what is compared and of what is chosen."""
    found = prepared(pace)
    points = {**compared(found, objective), "chosen": found.front.choose(objective)}
    return {name: pytest.approx((point.period, point.energy)) for name, point in points.items()}


def test_energy_has_the_idle_power_of_all_devices_for_as_long_as_an_item_takes() -> None:
    # Idle: 10 + 2 * 5 = 20 W. A kernel draws 100 J on the big device and 4 s * 20 W = 80 J on a small one.
    assert figures(2.5, "energy") == {
        "one big": (2.5, 200 + 20 * 2.5),  # 2 s of work, but an item comes every 2.5 s only
        "all small": (4.0, 160 + 20 * 4.0),  # the big one waits, and draws its 10 W
        "each kind of kernel on one class": (2.5, 180 + 20 * 2.5),
        "chosen": (2.5, 180 + 20 * 2.5),
    }


def test_without_a_pace_the_devices_set_the_period() -> None:
    assert figures(0.0, "energy") == {
        "one big": (2.0, 200 + 20 * 2.0),
        "all big": (2.0, 200 + 20 * 2.0),  # as many joules as the small ones, and quicker
        "each kind of kernel on one class": (2.0, 180 + 20 * 2.0),
        "chosen": (2.0, 180 + 20 * 2.0),
    }


def test_where_items_come_slowly_the_frugal_plan_is_chosen() -> None:
    # Every 8 s: 160 J on small devices, of which one is enough, 200 J on the big one; all wait for 8 s at 20 W.
    found = figures(8.0, "energy")
    assert found["chosen"] == (8.0, 160 + 20 * 8.0) and found["one small"] == (8.0, 160 + 20 * 8.0)
    calm = prepared(8.0).front.choose(
        "throughput"
    )  # no slower than the others, and one device is done in half the time
    assert (calm.period, calm.quickest, calm.devices) == (8.0, 2.0, 1)
    assert calm in prepared(8.0).front.points
    busy = prepared(2.5).front.choose(
        "throughput"
    )  # none keeps up easily, so the quickest is ready should items come sooner
    assert (busy.period, busy.quickest) == (2.5, prepared(0.0).front.points[0].period)


def test_one_device_that_keeps_up_is_no_plan_if_items_may_not_take_that_long() -> None:
    found = replace(prepared(0.0), most_latency=1.5).paced(8.0)
    assert all(point.devices > 1 for point in found.front.points)
