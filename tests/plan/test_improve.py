"""The local search around a plan of a step: one change at a time, never a worse plan, and an end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.plan.steps.account import PlanAccount
from coexec.plan.steps.choose import MOST, changes, improved, planned
from coexec.plan.steps.cuts import StepPart
from coexec.plan.steps.estimate import TURNS, estimate


@cx.kernel(x=cx.read, y=cx.write, flops=2000)
def whole(x: Any, y: Any) -> None:
    y[...] = np.sqrt(x)


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write, flops=4)
def smooth(x: Any, y: Any) -> None:
    y[...] = x[:-2] + x[2:]


def told(preset: str) -> tuple[Any, Any]:
    """Return the planner of a step of two whole calls that do not meet and of one that may be divided, and its platform."""
    with cx.Runtime("", platform=preset, store="off", diagnostics="off") as runtime:
        arrays = [cx.zeros(1 << 22, np.float32) for _ in range(6)]
        with cx.record(times=50):
            whole(arrays[0], arrays[1])
            whole(arrays[2], arrays[3])
            smooth(arrays[4], arrays[5])
        return runtime._driver.scheduler.plan.steps, runtime.platform


def account(steps: Any, devices: tuple[str, ...], device: str | None = None) -> PlanAccount:
    """Return the plan on some devices, estimated; with a `device`, calls that are not divided are all there."""
    machine, step = steps._machine, steps._step
    found = planned(step, devices, machine)
    assert found is not None
    plan, parts = found
    if device is not None:
        plan = [p if len(p) > 1 else (StepPart(device, p[0].box),) for p in plan]
    made = PlanAccount(devices, plan, None, parts)
    for made.estimated in estimate(step, plan, machine.platform, machine.overheads, machine.where):
        pass
    return made


@pytest.mark.parametrize(("preset", "devices"), [("mi210x8", ("gpu:0", "gpu:1")), ("a100x4", ("gpu:0", "gpu:1"))])
def test_calls_that_wait_for_each_other_on_one_device_are_moved_apart(preset: str, devices: tuple[str, ...]) -> None:
    steps, _ = told(preset)
    before = account(steps, devices, devices[-1])
    better = [found for found in improved(steps._step, before, steps._machine) if found is not None]
    assert better
    periods = [plan.estimated.period for plan in (before, *better) if plan.estimated is not None]
    assert all(later < sooner for sooner, later in pairwise(periods))
    used = {part.device for parts in better[-1].plan if len(parts) == 1 for part in parts}
    assert len(used) == 2


def test_a_change_touches_one_thing_and_covers_every_call() -> None:
    steps, _ = told("a100x4")
    before = account(steps, ("gpu:0", "gpu:1", "gpu:2"))
    for change in changes(steps._step, before):
        assert sum(change.shares.values()) == pytest.approx(1.0)
        differ = [number for number, parts in enumerate(change.plan) if parts != before.plan[number]]
        assert len({len(change.plan[number]) > 1 for number in differ}) <= 1
        for call, parts in zip(steps._step.calls, change.plan, strict=True):
            assert sum(part.box.volume for part in parts) == call.profile.box.volume


def test_the_search_ends() -> None:
    steps, _ = told("laptop")
    before = account(steps, ("cpu:all", "gpu:0"), "gpu:0")
    visits = sum(found is None for found in improved(steps._step, before, steps._machine))
    assert visits <= MOST * (TURNS * 2 * len(steps._step.calls) + 1)


def test_the_same_search_finds_the_same() -> None:
    found = []
    for _ in range(2):
        steps, _ = told("laptop")
        before = account(steps, ("cpu:all", "gpu:0"), "cpu:all")
        better = [plan for plan in improved(steps._step, before, steps._machine) if plan is not None]
        found.append([[[(part.device, part.box) for part in parts] for parts in plan.plan] for plan in better])
    assert found[0] == found[1]


def test_no_estimate_promises_less_than_the_limit_of_its_devices() -> None:
    steps, _ = told("laptop")
    for entry in steps._search.found.values():
        if entry.account is not None and entry.account.estimated is not None:
            assert entry.account.estimated.period >= entry.bound * (1 - 1e-12)
