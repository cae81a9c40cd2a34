"""Calls that run once on one device alone, so that it is known what a step would take there.

Before: account.py, profile.py, cuts.py.  After: planner.py.  Plans no step.

What parts of a call took beside other devices says little about the whole of it on one of them: caches are other ones, memory is not
shared, and halves are no half of the work. A trial of a device runs whole turns on it. One call of each kind tells as much, for a
small share of one turn: the n-th of its calls goes to the n-th device that nobody has seen do it, and then they begin again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from .account import PlanAccount
from .cuts import StepPart, StepParts
from .profile import CallProfile, StepProfile
from .trials import DOUBT

LONG = 10e-3  # seconds of a turn: a shorter one is tried as it is
AGAIN = 2  # times that a device does a call, if it comes often enough: the first time kernels are built, and caches are cold


class Sampling(NamedTuple):
    """A turn in which some calls run elsewhere."""

    plan: list[StepParts]
    seconds: float  # that it takes beyond what the plan in force does, at most
    taken: list[tuple[CallProfile, str]]


class Samples:
    """The calls and devices that were sampled, or need not be."""

    def __init__(self) -> None:
        self._taken: set[tuple[CallProfile, str]] = set()
        self.since: object = None  # for whom calls are being sampled
        self.turn = 0  # before the one with the samples

    def forget(self) -> None:
        """Begin anew: devices have come or gone."""
        self._taken.clear()
        self.since = None

    def begin(self, sampling: Sampling, since: object, turn: int) -> None:
        """Note that a turn with samples begins."""
        self._taken.update(sampling.taken)
        self.since, self.turn = since, turn

    def due(self, step: StepProfile, present: PlanAccount, alone: Sequence[PlanAccount]) -> Sampling | None:
        """Return a turn in which each device that may be used `alone` does one call of each kind that it has not done; None if all have.

        One that is not believed to be nearly as quick as what runs now is left out: what is sampled takes at most DOUBT times as long as
        it does now, so that much of its time is spent in any case.
        """
        if present.measured is None or present.measured < LONG:
            return None
        left: dict[CallProfile, list[str]] = {}
        for account in alone:
            if account.period > DOUBT * present.measured:
                continue
            for call in step.calls:
                profile, device = call.profile, account.devices[0]
                if device not in left.setdefault(profile, []) and self._is_unknown(profile, device):
                    left[profile].append(device)
        often = Counter([call.profile for call in step.calls])
        for profile, unseen in left.items():
            if often[profile] >= AGAIN * len(unseen):
                unseen.extend(unseen * (AGAIN - 1))  # all of them once, and then all of them again
        plan, seconds = list(present.plan), 0.0
        taken: list[tuple[CallProfile, str]] = []
        for number, (call, parts) in enumerate(zip(step.calls, present.plan, strict=True)):
            devices = left.get(call.profile)
            if not devices:
                continue
            device, whole = devices.pop(0), call.profile.whole
            taken.append((call.profile, device))
            if whole is None or [part.device for part in parts] == [device]:
                continue
            plan[number] = (StepPart(device, call.profile.box),)
            seconds += (1.0 - 1.0 / DOUBT) * (call.profile.seconds(device, whole, together=False) or inf)
        if not seconds < inf or plan == present.plan:
            return None
        ways = [account.estimated.transition for account in alone if account.estimated is not None]
        return Sampling(plan, seconds + 2.0 * sum(ways), taken)

    def _is_unknown(self, call: CallProfile, device: str) -> bool:
        return (
            device in call.devices
            and call.whole is not None
            and (call, device) not in self._taken
            and not call.was_measured(device, call.whole)
        )


def was_seen(step: StepProfile, device: str) -> bool:
    """Tell whether every call of a step that a device can run was seen to run there as a whole: then nothing is left to be built."""
    return all(
        call.profile.whole is None
        or device not in call.profile.devices
        or call.profile.was_measured(device, call.profile.whole)
        for call in step.calls
    )
