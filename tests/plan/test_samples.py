"""Single calls tell what a step would take on a device: which of them, and when."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from coexec.geometry import Box
from coexec.plan.steps.account import PlanAccount
from coexec.plan.steps.cuts import StepPart
from coexec.plan.steps.estimate import PeriodEstimate
from coexec.plan.steps.planner import StepPlanner
from coexec.plan.steps.profile import StepProfile
from coexec.plan.steps.samples import LONG, Samples, was_seen
from coexec.plan.steps.trials import DOUBT, Trials

BOX, HALF, REST = Box((0,), (8,)), Box((0,), (4,)), Box((4,), (8,))
CUT = (StepPart("cpu:0", HALF), StepPart("gpu:0", REST))
SECONDS = 2e-3


class Kind:
    """Stands for the profile of a call."""

    def __init__(self, measured: tuple[str, ...] = ()) -> None:
        self.box, self.whole, self.measured = BOX, object(), measured
        self.devices = {"cpu:0": None, "gpu:0": None}

    def was_measured(self, device: str, _: object) -> bool:
        return device in self.measured

    def seconds(self, device: str, _: object, *, together: bool) -> float:
        assert not together and device in self.devices
        return SECONDS


def step(*kinds: Kind) -> StepProfile:
    calls: Any = tuple([SimpleNamespace(profile=kind) for kind in kinds])
    return StepProfile(calls)


def present(count: int, measured: float | None = 1.0) -> PlanAccount:
    made = PlanAccount(("cpu:0", "gpu:0"), [CUT] * count, None)
    made.measured = measured
    return made


def alone(device: str, seconds: float = 1.0) -> PlanAccount:
    return PlanAccount((device,), [], PeriodEstimate(seconds, 0.01, 0.0, {}), {device: 1.0})


BOTH = [alone("cpu:0"), alone("gpu:0")]


def test_each_device_does_one_call_of_each_kind_and_the_others_stay_as_they_are() -> None:
    one, other = Kind(), Kind()
    found = Samples().due(step(one, other, one, other, one), present(5), BOTH)
    assert found is not None
    assert [[part.device for part in parts] for parts in found.plan] == [
        ["cpu:0"], ["cpu:0"], ["gpu:0"], ["gpu:0"], ["cpu:0", "gpu:0"]
    ]  # fmt: skip
    assert found.seconds == pytest.approx(4 * SECONDS / 2 + 2 * 2 * 0.01)  # and there and back


def test_calls_that_come_often_are_done_twice_because_first_runs_are_cold() -> None:
    often, rare = Kind(), Kind()
    found = Samples().due(step(often, rare, often, often, rare, often, often), present(7), BOTH)
    assert found is not None
    assert [[part.device for part in parts] for parts in found.plan] == [
        ["cpu:0"], ["cpu:0"], ["gpu:0"], ["cpu:0"], ["gpu:0"], ["gpu:0"], ["cpu:0", "gpu:0"]
    ]  # fmt: skip


def test_what_was_measured_is_not_sampled_and_nothing_is_in_two_turns() -> None:
    samples, known = Samples(), Kind(("cpu:0",))
    found = samples.due(step(known, known, known), present(3), BOTH)
    assert found is not None and [len(parts) for parts in found.plan] == [1, 1, 2]
    assert found.plan[0][0].device == "gpu:0"
    samples.begin(found, object(), 1)
    assert samples.due(step(known, known, known), present(3), BOTH) is None
    samples.forget()
    assert samples.due(step(known, known, known), present(3), BOTH) is not None


def test_short_turns_and_devices_that_are_believed_to_be_far_slower_are_not_sampled() -> None:
    kind = Kind()
    assert Samples().due(step(kind, kind), present(2, LONG / 2), BOTH) is None
    assert Samples().due(step(kind, kind), present(2, None), BOTH) is None
    assert Samples().due(step(kind, kind), present(2), [alone("gpu:0", 1.1 * DOUBT)]) is None


def test_a_plan_that_exchanges_results_is_adopted_unmeasured_once_it_outweighs_what_it_may_lose() -> None:
    def relies(account: PlanAccount, repetitions: float, other: float = inf) -> bool:
        machine = SimpleNamespace(memories={"cpu:0": 1, "gpu:0": 2})
        planner: Any = SimpleNamespace(_machine=machine, _repetitions=repetitions, _trials=Trials())
        return StepPlanner._may_rely(planner, account, 1.0, other)

    both = PlanAccount(("cpu:0", "gpu:0"), [], PeriodEstimate(0.75, 0.0, 0.0, {}), {"cpu:0": 0.5, "gpu:0": 0.5})
    enough = Trials.loses(both, 1.0) / 0.25
    assert relies(alone("gpu:0", 0.75), 1.0)
    assert not relies(both, enough - 1.0) and relies(both, enough + 1.0)
    assert not relies(both, enough + 1.0, 0.8) and relies(both, enough + 1.0, 0.9)
    both.measured = 0.75
    assert relies(both, 1.0)


def test_what_an_adopted_plan_loses_was_weighed_and_is_no_part_of_what_trials_may_lose() -> None:
    for weighed in (True, False):
        trials, slow = Trials(), alone("gpu:0")
        slow.measured = 2.0
        trials.back, trials.weighed = present(1), weighed
        assert trials.over(slow, None) is False
        assert (trials.lost == 0.0) is weighed
        assert not trials.weighed


def test_a_step_was_seen_on_a_device_if_each_of_its_calls_was_that_the_device_can_run() -> None:
    known, unknown, elsewhere = Kind(("gpu:0",)), Kind(), Kind()
    del elsewhere.devices["gpu:0"]
    assert was_seen(step(known, elsewhere), "gpu:0")
    assert not was_seen(step(known, unknown), "gpu:0")


@pytest.mark.parametrize(("due", "promised"), [(False, 1.0), (True, 1.0), (True, 0.9 / DOUBT)])
def test_what_devices_take_alone_is_measured_before_one_of_them_is_chosen_unless_it_promises_very_much(
    due: bool, promised: float
) -> None:
    done: list[str] = []

    def sample(_: PlanAccount, __: StepProfile) -> bool:
        done.append("sampled")
        return due

    planner: Any = SimpleNamespace(
        present=present(1), adopted=True, _as_it_went=lambda present, _: present, _measured=lambda *_: None,
        _search=object(), _is_sampling=lambda *_: False, _trials=Trials(), _exact=False, _clock=lambda: 0.0, _sample=sample,
        _choose=lambda _: done.append("chosen"), _try=lambda *_: done.append("tried"), _looking=True,
        _others=lambda _: [alone("cpu:0", promised), alone("gpu:0", 2.0)],
        _is_better_anyway=lambda present: StepPlanner._is_better_anyway(planner, present),
    )  # fmt: skip
    moment: Any = None
    StepPlanner._decide(planner, moment, step(Kind()))
    if promised < 1.0:
        assert done == ["chosen", "tried"]
    else:
        assert done == (["sampled"] if due else ["sampled", "chosen", "tried"])
