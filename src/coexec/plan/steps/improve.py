"""A bounded local search around a plan of a step: move a call, shift a cut, and keep what takes less.

Before: cuts.py, estimate.py.  After: choose.py.  Knows no budget: whoever asks stops when it has spent enough.

List scheduling places one call after the other and never looks back, and cuts are balanced by what devices take, not by what
links and coexec itself do. Both leave plans that one change makes better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .account import WORTH, PlanAccount
from .bounds import Target
from .cuts import StepPart, StepParts, divided
from .estimate import PeriodEstimate, estimate
from .profile import StepProfile

SHIFT = 0.05  # of a step's rows, which go from the device that is busy longest to the one that is least
MOST = 16  # changes that are tried


class Change(NamedTuple):
    """A plan that differs from another in one thing."""

    plan: list[StepParts]
    shares: dict[str, float]


def improved(step: StepProfile, account: PlanAccount, machine: Target) -> Iterator[PlanAccount | None]:
    """Look for a plan near to `account` that takes less; yields None for each visit, and a better plan when one is found."""
    tried = 0
    best, found = account, True
    while found and tried < MOST:
        found = False
        for change in changes(step, best):
            tried += 1
            answer: PeriodEstimate | None = None
            for found_so_far in estimate(step, change.plan, machine.platform, machine.overheads, machine.where):
                answer = found_so_far
                yield None
            assert answer is not None and best.estimated is not None
            if answer.period < WORTH * best.estimated.period:
                best = PlanAccount(account.devices, change.plan, answer, change.shares, account.off)
                found = True
                yield best
            if found or tried >= MOST:
                break


def changes(step: StepProfile, account: PlanAccount) -> Iterator[Change]:
    """Yield plans that differ from one in one thing: a cut between the busiest and the idlest device, or the device of a call."""
    estimated = account.estimated
    busy = {device: estimated.busy.get(device, 0.0) for device in account.devices} if estimated is not None else {}
    if account.shares and len(busy) > 1 and any(len(parts) > 1 for parts in account.plan):
        shifted = _shifted(account.shares, busy)
        if shifted is not None:
            yield Change(_cut_anew(step, account.plan, shifted), shifted)
    whole = [
        (number, call.profile)
        for number, (call, parts) in enumerate(zip(step.calls, account.plan, strict=True))
        if len(parts) == 1 and not call.profile.host and call.profile.whole is not None
    ]
    for number, profile in sorted(
        whole, key=lambda entry: -entry[1].whole.work.size if entry[1].whole else 0.0
    ):  # the large ones first
        here = account.plan[number][0].device
        for device in sorted(account.devices, key=lambda device: busy.get(device, 0.0)):
            if device != here and device in profile.devices:
                plan = list(account.plan)
                plan[number] = (StepPart(device, profile.box),)
                yield Change(plan, account.shares)


def _shifted(shares: dict[str, float], busy: dict[str, float]) -> dict[str, float] | None:
    """Return shares of which some has gone from the device that is busy longest to the one that is least; None if it has none."""
    longest = max(busy, key=lambda device: (busy[device], device))
    least = min(busy, key=lambda device: (busy[device], device))
    if longest == least or shares.get(longest, 0.0) <= 0.0:
        return None
    moved = min(SHIFT, shares[longest])
    return {**shares, longest: shares[longest] - moved, least: shares.get(least, 0.0) + moved}


def _cut_anew(step: StepProfile, plan: Sequence[StepParts], shares: dict[str, float]) -> list[StepParts]:
    return [
        divided(call.profile, shares) if len(parts) > 1 else parts for call, parts in zip(step.calls, plan, strict=True)
    ]
