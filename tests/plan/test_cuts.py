"""Parts of a call beside each other: what they take of a memory that they share, and where calls are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.bench.plan import exact
from coexec.bench.plan.harness import told_run
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.steps.bounds import Brought
from coexec.plan.steps.cuts import _crowded, divided, part_seconds, shares
from coexec.plan.steps.slices import done


def by_events(parts: list[tuple[float, int, float]], bandwidth: float) -> dict[int, float]:
    """Return when each part is done, found by going from one end to the next."""
    left = {number: seconds for seconds, number, _ in parts}
    asks = {number: ask for _, number, ask in parts}
    now, done = 0.0, {}
    while left:
        speed = min(1.0, bandwidth / sum(asks[number] for number in left))
        first = min(left, key=lambda number: (left[number], number))
        step = left[first]
        now += step / speed
        left = {number: seconds - step for number, seconds in left.items()}
        done[first] = now
        del left[first]
    return done


@given(st.lists(st.tuples(st.floats(1e-6, 1e-2), st.floats(1e8, 1e11)), min_size=1, max_size=8), st.floats(1e9, 3e11))
def test_parts_that_share_a_memory_are_slowed_down_alike_until_one_is_done(found: Any, bandwidth: float) -> None:
    parts = [(seconds, number, ask) for number, (seconds, ask) in enumerate(found)]
    wanted = by_events(parts, bandwidth)
    got = dict(_crowded(parts, bandwidth))
    assert got == {number: pytest.approx(end, rel=1e-9) for number, end in wanted.items()}
    moved = sum(seconds * ask for seconds, _, ask in parts)
    assert max(got.values()) >= moved / bandwidth * (1 - 1e-9)


def summed(preset: str) -> Any:
    """Return the planner of a program that sums an array again and again."""
    with cx.Runtime("", platform=preset, store="off", diagnostics="off") as runtime:
        x = cx.zeros((8192, 8192), np.float32)
        with cx.record(times=30):
            x.sum()
        return runtime._driver.scheduler.plan.steps


def test_cores_beside_a_device_that_likes_multiples_are_cut_as_they_like_it() -> None:
    steps = summed("edge-soc")
    call = next(call.profile for call in steps._step.calls if call.profile.axis is not None)
    devices = [*(name for name in call.devices if name.startswith("cpu:") and name != "cpu:all"), "gpu:0"]
    assert call.devices["gpu:0"].device.granule > call.granule
    found = done(shares(steps._step, devices, steps._machine.platform))
    assert found is not None
    parts = divided(call, found)
    rows = [part.box.shape[call.axis] for part in parts if part.device != "gpu:0"]
    assert max(rows) - min(rows) <= call.granule + call.devices["gpu:0"].device.granule // 2
    assert parts[-1].box.lo[call.axis] % call.devices["gpu:0"].device.granule == 0
    ends = [seconds for _, seconds in part_seconds(call, parts, steps._machine.platform)]
    assert max(ends) <= 1.1 * sum(ends) / len(ends)  # one core has what the device's multiples leave


@pytest.mark.parametrize(("preset", "name", "size"), [("edge-soc", "sum", "8192"), ("laptop", "dag VEC", "2,000,000")])
def test_a_told_step_whose_devices_share_a_memory_is_as_fast_as_on_any_of_them(
    preset: str, name: str, size: str
) -> None:
    program = next(p for p in exact.programs(quick=False) if p.name == name and p.size.startswith(size))
    platform = cx.Platform.load(preset)
    ours = told_run(platform, [device.name for device in platform.devices], program)
    for others in (["gpu:0"], ["cpu:all"], ["cpu:all", "gpu:0"]):
        assert ours <= told_run(platform, others, program) / 0.95


@cx.kernel(split=0, row=cx.read(cx.all), x=cx.update, flops=2)
def eliminate(row: Any, x: Any) -> None:
    x -= row


def test_few_granules_go_to_whoever_is_done_with_them_first() -> None:
    """Cut at the nearest granule, one of two slow devices would get four of 64 and be the last by a sixth."""
    platform = cx.Platform.load("laptop")
    with cx.Runtime("", platform=platform, store="off", diagnostics="off") as runtime:
        make = ArrayMaker(runtime._driver)
        x, w = make(64, 64, 56, 56), make(64, 64, 3, 3)
        with cx.record(times=20):
            cx.conv2d(x, w, padding=1)
        steps: Any = runtime._driver.scheduler.plan.steps
        call = steps._step.calls[0].profile
        parts = {"cpu:0": 0.0534, "cpu:1": 0.0534, "cpu:2": 0.0534, "cpu:3": 0.0534, "gpu:0": 0.7864}
        rows = {part.device: part.box.hi[0] - part.box.lo[0] for part in divided(call, parts)}
        assert rows == {"cpu:0": 3, "cpu:1": 3, "cpu:2": 3, "cpu:3": 3, "gpu:0": 52}
        even = dict.fromkeys(["cpu:0", "cpu:1"], 0.5)
        assert [part.box.hi[0] - part.box.lo[0] for part in divided(call, even)] == [32, 32]


def test_what_a_step_reads_through_several_views_of_one_array_is_brought_once() -> None:
    with cx.Runtime("", platform="a100x4", store="off", diagnostics="off") as runtime:
        a = cx.array(np.ones((1024, 1024), np.float32))
        with cx.record(times=4):
            eliminate(a[:1], a[1:])
        steps: Any = runtime._driver.scheduler.plan.steps
        machine = steps._machine._replace(where=lambda _: [(a._box, 2)])
        brought = Brought(machine)
        for call in steps._step.calls:
            brought.look(call)
        assert brought._read == {2: a.nbytes}
