"""Models that are wrong: what runs decides, so that in the end no program is slower than on the best of its devices alone.

All of it is simulated: the machine does what its platform says, and the models of some device say something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.steps.account import SETTLING, PlanAccount
from coexec.plan.steps.choose import CANNOT, NOT_YET, UNKNOWN
from coexec.plan.steps.estimate import PeriodEstimate
from coexec.plan.steps.profile import CallProfile
from coexec.plan.steps.trials import AGAIN, DOUBT, FAR, SHARE, Trials
from coexec.predict.learned import Learned
from coexec.predict.model import KernelModel
from coexec.predict.work import Estimate, Work
from tests.plan.test_step_choice import heavy, machine_of, smooth

BOTH = ("cpu:0", "gpu:0")
WARM, TURNS = 100, 240
INEXACT = {"*": 1e-9}  # noise that nobody sees: it tells that devices may not be what models say


class Turn(NamedTuple):
    """What one turn took, and under which plan."""

    seconds: float
    devices: tuple[str, ...]
    tried: bool


def turns(devices: tuple[str, ...], count: int, happens: tuple[Happening, ...] = ()) -> list[Turn]:
    """Run a step so many times on a core and a GPU, or on one of them."""
    scenario = Scenario(happens, INEXACT)
    platform = machine_of(1, [(2e12, 400e9)], 12e9)
    found = []
    with cx.Runtime(",".join(devices), platform=platform, store="off", diagnostics="off", scenario=scenario) as runtime:
        given, clock = ArrayMaker(runtime._driver), runtime.machine.lanes["host"].clock
        a, b = given(1000, 1000), given(1000, 1000)
        for _ in range(count):
            begin = clock()
            heavy(a, b)
            smooth(b, a)
            runtime.wait()
            steps: Any = runtime._driver.scheduler.plan.steps
            present = steps.present if steps is not None else None
            tried = steps is not None and steps._trials.back is not None
            found.append(Turn(clock() - begin, present.devices if present is not None else (), tried))
    return found


def lying(monkeypatch: pytest.MonkeyPatch, factors: Mapping[str, float]) -> None:
    """Let plans of steps expect so many times what each device takes."""
    honest = CallProfile.seconds

    def seconds(self: CallProfile, device: str, *args: Any, **options: Any) -> float | None:
        known = honest(self, device, *args, **options)
        return None if known is None else known * factors.get(device, 1.0)

    monkeypatch.setattr(CallProfile, "seconds", seconds)


def best_alone(happens: tuple[Happening, ...] = ()) -> float:
    """Return what the step takes on the better device alone."""
    return min([turns((d,), 8, tuple(h for h in happens if h.name == d))[-1].seconds for d in BOTH])


@pytest.mark.parametrize("factor", [0.1, 3.0, 10.0])
@pytest.mark.parametrize("liar", BOTH)
def test_in_the_end_what_runs_is_as_quick_as_the_best_device_alone(
    liar: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = best_alone()
    lying(monkeypatch, {liar: factor})
    found = turns(BOTH, TURNS)
    settled = [turn.seconds for turn in found[WARM:] if not turn.tried]
    assert len(settled) > (TURNS - WARM) * 2 / 3
    assert sorted(settled)[int(0.9 * len(settled))] <= best / 0.97  # the rest pay for the way back from a trial


@pytest.mark.parametrize(
    "factors", [{"gpu:0": 30.0}, {"cpu:0": 0.02}, {"gpu:0": 1000.0}, {"cpu:0": 0.02, "gpu:0": 10.0}]
)
def test_devices_that_are_slower_or_faster_than_their_platform_says_are_found_out(factors: dict[str, float]) -> None:
    happens = tuple(Happening.slow(device, factor) for device, factor in factors.items())
    best = best_alone(happens)
    found = turns(BOTH, TURNS, happens)
    settled = sorted([turn.seconds for turn in found[WARM:] if not turn.tried])
    assert settled[int(0.9 * len(settled))] <= best / 0.97


def test_plans_do_not_go_back_and_forth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer the program runs, the rarer plans change."""
    lying(monkeypatch, {"gpu:0": 10.0})
    found = turns(BOTH, TURNS)
    changes = [n for n in range(1, len(found)) if found[n].devices != found[n - 1].devices]
    assert len(changes) <= 12
    assert len([n for n in changes if n >= TURNS // 2]) <= 4


def test_a_device_is_a_candidate_although_it_cannot_run_one_small_call() -> None:
    """The core does it, and the GPU does the rest."""
    platform = machine_of(1, [(2e12, 400e9)], 12e9)
    with cx.Runtime(",".join(BOTH), platform=platform, store="off", diagnostics="off") as runtime:
        given = ArrayMaker(runtime._driver)
        a, b, c = given(3000, 3000), given(3000, 3000), given(100, 100)
        for _ in range(30):
            heavy.using(devices="cpu:0")(c, c)
            heavy(a, b)
            smooth(b, a)
        runtime.wait()
        steps: Any = runtime._driver.scheduler.plan.steps
        assert steps.present.devices == ("gpu:0",)
        assert [[part.device for part in parts] for parts in steps.present.plan].count(["cpu:0"]) == 1
        plan = runtime.step_plan()
        assert plan is not None and "gpu:0" in plan.considered


class Poisoned(KernelModel):
    """A model that says the same whatever it is asked."""

    says = nan
    asked = 0

    def estimate(self, work: Work, *, together: bool = False) -> Estimate | None:
        Poisoned.asked += 1
        return Estimate(self.says, 0.0, "history")

    def seconds(self, work: Work, *, together: bool = False) -> float | None:
        Poisoned.asked += 1
        return self.says


@pytest.mark.parametrize("poison", [nan, -1.0, inf, 0.0, 1e300, 1e-300])
@pytest.mark.parametrize("liar", BOTH)
def test_poisoned_models_give_right_results_within_a_bounded_time_and_a_reason(
    liar: str, poison: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Learned.model

    def model(self: Learned, kernel: Any, variant: Any, device: Any, how: str = "") -> KernelModel:
        known = honest(self, kernel, variant, device, how)
        if device.name == liar:
            made = object.__new__(Poisoned)
            made.__dict__ = known.__dict__
            return made
        return known

    monkeypatch.setattr(Learned, "model", model)
    monkeypatch.setattr(Poisoned, "says", poison)
    monkeypatch.setattr(Poisoned, "asked", 0)
    start = np.random.default_rng(3).random((300, 200))
    platform, scenario = machine_of(1, [(2e12, 400e9)], 12e9), Scenario((), INEXACT)
    with cx.Runtime(
        ",".join(BOTH), platform=platform, store="off", diagnostics="off", execute=True, scenario=scenario
    ) as runtime:
        x, out = cx.array(start), cx.zeros(start.shape)
        for _ in range(40):
            heavy(x, out)
        assert np.array_equal(np.asarray(out), np.exp(start))
        assert Poisoned.asked
        steps: Any = runtime._driver.scheduler.plan.steps
        assert steps.planning < 20e-3
        assert steps.unplanned or steps.considered
        for entry in steps.considered:
            if liar in entry.devices and not 0.0 <= poison < inf:
                assert entry.why in (UNKNOWN, NOT_YET, CANNOT)
            else:
                assert entry.why or entry.account.period >= 0.0


def account(measured: float | None, estimated: float, name: str = "x") -> PlanAccount:
    made = PlanAccount((name,), [], PeriodEstimate(estimated, 0.0, 0.0, {}), {name: 1.0})
    made.measured = measured
    return made


def test_a_trial_waits_until_what_it_may_lose_is_a_small_share_of_the_time() -> None:
    trials, present, slow = Trials(), account(1.0, 1.0), account(None, 1.5, "slow")
    loses = Trials.loses(slow, 1.0)
    assert loses > 0.0
    assert trials.due(present, [slow], 10, 0.9 * loses / SHARE) is None
    assert trials.due(present, [slow], 10, 1.1 * loses / SHARE) is slow
    trials.lost = loses
    assert trials.due(present, [slow], 10, 1.1 * loses / SHARE) is None
    assert trials.due(account(None, 1.0), [slow], 10, inf) is None  # nobody knows what would be given up


def test_a_plan_that_nobody_measured_may_take_twice_the_time_whatever_it_promises() -> None:
    trials, present, unknown = Trials(), account(1.0, 1.0), account(None, 0.95, "unknown")
    loses = (DOUBT - 1.0) * SETTLING  # it is left after its first turn then
    assert trials.due(present, [unknown], 10, 0.99 * loses / SHARE) is None
    assert trials.due(present, [unknown], 10, 1.01 * loses / SHARE) is unknown


def test_the_more_promising_of_two_plans_is_tried_first_and_neither_again_at_once() -> None:
    trials, present = Trials(), account(1.0, 1.0)
    one, other = account(None, 0.99, "one"), account(None, 0.95, "other")
    assert trials.due(present, [one, other], 10, 100.0) is other
    other.measured, other.left_at, other.times = 1.1, 10, 1
    assert trials.due(present, [one, other], 11, 100.0) is one
    one.measured, one.left_at, one.times = 1.1, 11, 1
    assert trials.due(present, [one, other], 12, 1e9) is None
    assert trials.due(present, [one, other], 10 + 2 * AGAIN, 1e9) is other


def test_a_trial_ends_with_the_better_of_the_two() -> None:
    for measured, stays in ((0.9, True), (0.99, False), (1.1, False), (None, None)):
        trials = Trials()
        trials.back = account(1.0, 1.0)
        assert trials.over(account(measured, 1.0), None) is stays
        assert (trials.back is None) is (stays is not None)


def test_a_trial_that_is_far_off_ends_with_its_first_turn() -> None:
    trials, tried = Trials(), account(None, 1.0)
    trials.back = account(1.0, 1.0)
    assert trials.over(tried, 0.99 * FAR) is None
    assert trials.over(tried, 1.01 * FAR) is False
    assert tried.measured == 1.01 * FAR and trials.lost > 0.0
