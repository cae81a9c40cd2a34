"""Estimates of devices that share a memory, against what the simulator says of the same plan."""

from __future__ import annotations

from typing import Any

import pytest

import coexec as cx
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.steps.account import PlanAccount
from coexec.plan.steps.choose import planned
from coexec.plan.steps.estimate import PeriodEstimate, estimate
from coexec.plan.steps.slices import done


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def smooth(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def compared(side: int, devices: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds that a turn takes on some devices of a laptop: as estimated, and as simulated."""
    with cx.Runtime("", platform="laptop", store="off", diagnostics="off") as runtime:
        given, clock = ArrayMaker(runtime._driver), runtime.machine.lanes["host"].clock
        u, v = given(side, side), given(side, side)

        def turns(count: int) -> None:
            for _ in range(count):
                smooth(u, v)
                smooth(v, u)
            runtime.wait()

        turns(6)
        steps: Any = runtime._driver.scheduler.plan.steps
        made = done(planned(steps._step, devices, steps._machine))
        assert made is not None
        account, machine = PlanAccount(devices, made[0], None, made[1]), steps._machine
        for answer in estimate(steps._step, account.plan, machine.platform, machine.overheads, machine.where):
            account.estimated = answer
        steps._choose, steps._until = (lambda _: None), 10**9
        steps._adopt(account, steps._step)
        turns(6)
        begin = clock()
        turns(12)
        took = (clock() - begin) / 12
        assert account.estimated is not None
        return account.estimated.period * 2 / len(steps._step.calls), took


def test_cores_that_share_a_memory_draw_apart_and_wait_less_than_in_step() -> None:
    """In step, each turn would take what the memory takes and all waits besides: 1.3 times as long as it does."""
    estimated, simulated = compared(1000, ("cpu:0", "cpu:1", "cpu:2", "cpu:3"))
    assert estimated == pytest.approx(simulated, rel=0.1)


@pytest.mark.parametrize(
    "devices",
    [("cpu:0", "cpu:1"), ("cpu:all",), ("gpu:0",), ("cpu:all", "gpu:0"), ("cpu:0", "cpu:1", "cpu:2", "cpu:3", "gpu:0")],
)
@pytest.mark.parametrize("side", [1000, 3000])
def test_estimates_are_near_to_what_is_simulated_on_any_devices(side: int, devices: tuple[str, ...]) -> None:
    estimated, simulated = compared(side, devices)
    assert estimated == pytest.approx(simulated, rel=0.12)


def test_what_parts_took_beside_others_is_not_what_an_exact_device_takes_alone() -> None:
    """Five devices ask for twice what the memory gives. None of them would be as slow by itself."""
    with cx.Runtime("", platform="laptop", store="off", diagnostics="off") as runtime:
        given = ArrayMaker(runtime._driver)
        u, v = given(2000, 2000), given(2000, 2000)
        for _ in range(6):
            smooth(u, v)
            smooth(v, u)
        runtime.wait()
        steps: Any = runtime._driver.scheduler.plan.steps
        for call in steps._step.calls:
            work = call.profile.whole
            for name, candidate in call.profile.devices.items():
                seconds = call.profile.seconds(name, work, together=False)
                assert seconds == pytest.approx(work.work.size / candidate.device.bandwidth, rel=1e-3)


def known(period: float, own: float, measured: float | None = None) -> PlanAccount:
    made = PlanAccount(("a",), [], PeriodEstimate(period, 0.0, own, {}))
    made.measured = measured
    return made


def test_what_was_seen_of_calls_that_went_one_by_one_says_nothing_of_a_plan() -> None:
    one_by_one = PlanAccount(("a", "b"), [], PeriodEstimate(1.0, 0.0, 0.5, {}))
    one_by_one.measured = 1.2
    assert known(0.9, 0.5).late(one_by_one) == 0.0


def test_what_estimates_leave_out_of_our_own_cost_they_leave_out_of_every_plan() -> None:
    present = known(1.0, 0.5, measured=1.2)
    assert known(0.9, 0.5).late(present) == pytest.approx(0.2)
    assert known(0.9, 0.25).late(present) == pytest.approx(0.1)  # half as much to do for coexec
    assert known(0.9, 0.5, measured=0.95).late(present) == 0.0
    assert known(0.9, 0.5).late(known(1.0, 0.5)) == 0.0
    assert known(0.9, 0.1).late(known(1.0, 0.1, measured=9.0)) == pytest.approx(0.1)  # no more than there is of it
