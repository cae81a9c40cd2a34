"""The plans that a step could have: one per set of devices, estimated from the most promising down, and the best of them.

Before: cuts.py, bounds.py, estimate.py, account.py.  After: looking.py.  Goes on for a moment at a time.

1. On a set of devices, divisible calls are cut, and the others go where they are done first.
2. A bounded local search around the plans that look best moves a call or shifts a cut, and keeps what takes less: list scheduling
   places one call after the other and never looks back, and cuts are balanced by what devices take, not by what links and coexec
   itself do. Both leave plans that one change makes better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, log
from typing import NamedTuple

from ...geometry import Box, bounding
from ...machine.platform import HOST, Device, Platform
from ..designs import Designs
from .account import WORTH, PlanAccount
from .bounds import LOOKED_UP, Bounds, DeviceSet, Figure, Target
from .cuts import StepPart, StepParts, best_alone, divided, foreign, is_foreign, shares, whole
from .estimate import TURNS, Emulation, Overheads, PeriodEstimate, estimate
from .profile import CallProfile, StepCall, StepProfile
from .slices import VISIT, Work


def placed(
    step: StepProfile,
    devices: Sequence[str],
    platform: Platform,
    overheads: Overheads,
    cut: Callable[[CallProfile], StepParts],
) -> Work[list[StepParts]]:
    """Return a plan on some devices: divisible calls cut by `cut`, the others one by one where they are done first.

    Calls are placed as in a turn that found all data in place, the second of two. Devices that can be configured may hold any
    design at the beginning, and the best is taken: to load it is worth nothing for one call, and much for all turns.
    """
    plan: list[StepParts | None] = []
    for call in step.calls:
        profile = call.profile
        if profile.host:
            plan.append((StepPart("host", profile.box),))
        elif profile.axis is not None and len(devices) > 1 and best_alone(profile, devices)[0] > overheads.wake:
            plan.append(cut(profile))
        elif len(able := [d for d in devices if d in profile.devices]) < 2:
            plan.append(whole(call, devices[0]) if not able else (StepPart(able[0], profile.box),))
        else:
            plan.append(None)
        yield 0.0
    if None not in plan:
        return [parts for parts in plan if parts is not None]
    beginnings = Designs(platform).combinations(devices)
    best: tuple[float, list[StepParts]] | None = None
    for held in beginnings:
        ended = yield from _one_by_one(step, devices, plan, Emulation(platform, overheads, None, held))
        if best is None or ended[0] < best[0]:
            best = ended
    assert best is not None
    return best[1]


def _one_by_one(
    step: StepProfile, devices: Sequence[str], plan: Sequence[StepParts | None], emulation: Emulation
) -> Work[tuple[float, list[StepParts]]]:
    """Return the end of the second of two turns, and its plan: calls that have no place get one, one after the other."""
    for number in range(2):
        chosen: list[StepParts] = []
        for call, parts in zip(step.calls, plan, strict=True):
            chosen.append(parts or (_first_done(emulation, call, devices, number),))
            for _ in emulation.call(call, chosen[-1], number):
                yield 0.0
    return emulation.over().end, chosen


def _first_done(emulation: Emulation, call: StepCall, devices: Sequence[str], number: int) -> StepPart:
    """Return all of a call on the device that would be done with it first."""
    able = [device for device in devices if device in call.profile.devices]
    return StepPart(min(able, key=lambda device: emulation.finish(call, device, number)), call.profile.box)


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


DEAR = 8.0  # times what looks take that they must be able to save: bounds promise more than there is
BETTER = 0.8  # of a bound before: what was measured then says nothing any more
UNABLE = "they can run none of its calls"
UNKNOWN = "nothing is known of the speed of one of them"
CANNOT = "cannot be faster, whatever is moved"
NOT_YET = "what it may save is not worth a look yet"


class Considered(NamedTuple):
    """A set of devices, and what became of it."""

    devices: tuple[str, ...]
    bound: float  # seconds of a turn: no plan on these devices takes less
    account: PlanAccount | None  # None: it was not looked at
    why: str = ""


class Search:
    """The sets of devices that a step could run on, what each takes at least, and what was found of those that were looked at.

    One device that runs all of it needs no look: its bound is about what it takes. Others are looked at once what they may save is worth it.
    """

    def __init__(
        self,
        step: StepProfile,
        machine: Target,
        groups: Sequence[Sequence[Device]],
        sets: Sequence[DeviceSet],
        off: Mapping[tuple[str, ...], float],
        *,
        exact: bool = True,
    ) -> None:
        """Begin with sets of devices of these classes; `off` tells how far estimates were off, by devices.

        Where models are not `exact`, each device alone has a plan, whatever they say: it may be tried.
        """
        self._step, self._machine, self._off = step, machine, off
        self._bounds, self._sets, self._exact = Bounds(step, groups, machine), sets, exact
        self.since: PlanAccount | None = None  # the plan in force when it was looked where the data is
        self.looks = 0.0  # seconds, of all of them
        self.visit = VISIT  # seconds that a visit takes here
        self._improved: set[tuple[str, ...]] = set()  # devices around whose plan others were looked for
        self.found: dict[tuple[str, ...], Considered] = {}
        self._figures: list[tuple[DeviceSet, Figure]] = []
        self._others: list[DeviceSet] = []  # of several devices, of which no figure is known yet
        self._least, self._crowds = 0.0, 1

    def begin(self) -> Work[None]:
        """Find what a turn takes at least, on any devices and on each of those that need no look."""
        step, sets, bounds = self._step, self._sets, self._bounds
        yield from bounds.begin()
        least = bounds.least(max(sets, key=lambda chosen: len(chosen.devices)))
        yield len(step.calls) / LOOKED_UP
        for chosen in sets:
            devices = chosen.devices
            # Who lends a hand has to be brought something.
            if len(devices) > 1 or (self._exact and foreign(step, devices)):
                self._others.append(chosen)
                self.found[devices] = Considered(devices, least, None, NOT_YET)
            else:
                figure = yield from bounds.of(chosen)
                self._figures.append((chosen, figure))
                self.found[devices] = Considered(devices, figure.period, *(yield from self._figured(devices, figure)))
        self._least = least
        self._crowds = min([len(chosen.crowds) for chosen in self._others if len(chosen.crowds) > 1], default=1)

    def _figured(self, devices: tuple[str, ...], figure: Figure) -> Work[tuple[PlanAccount | None, str]]:
        """Return the plan that gives all of a step to one device, with what it takes at least."""
        made = yield from self._planned(devices)
        if isinstance(made, str):
            return None, made
        lent = sum(
            [best_alone(c.profile, list(c.profile.devices))[0] for c in self._step.calls if is_foreign(c, devices)]
        )
        made.estimated = PeriodEstimate(figure.period + lent, figure.way, figure.own, {}, 0, figure.slack)
        return made, ""

    def _planned(self, devices: tuple[str, ...]) -> Work[PlanAccount | str]:
        """Return a plan on some devices, which nobody has estimated, or why there is none."""
        if not any(device in call.profile.devices for call in self._step.calls for device in devices):
            return UNABLE
        made = yield from planned(self._step, devices, self._machine)
        if made is None:
            return UNKNOWN
        plan, parts = made
        if (full := (yield from crowded(self._step, plan, self._machine.platform))) is not None:
            return f"the memory of {full} is too small"
        return PlanAccount(devices, plan, None, parts, self._off.get(devices, 1.0))

    def moved(self, present: PlanAccount | None) -> Work[None]:
        """Look again where the data is: another plan is in force."""
        self.since = present
        yield from self._bounds.look_where()
        for number, (chosen, figure) in enumerate(self._figures):
            way = self._bounds.way(chosen)
            self._figures[number] = chosen, figure._replace(way=way)
            account = self.found[chosen.devices].account
            if len(chosen.devices) == 1 and account is not None and account.estimated is not None:
                account.estimated = account.estimated._replace(transition=way)
                account.since = present
            yield 1 / LOOKED_UP

    def way(self, devices: tuple[str, ...]) -> Work[float | None]:
        """Return the seconds in which what is elsewhere comes to some devices by now; None for devices that are no set of the search."""
        yield from self._bounds.look_where()
        return next((self._bounds.way(chosen) for chosen in self._sets if chosen.devices == devices), None)

    def start(self) -> None:
        """Take the ways to plans that needed no look as ways from the plan in force."""
        present = self.since
        for entry in self.found.values():
            if entry.account is not None:
                entry.account.since = present

    def keep(self, before: Search) -> list[tuple[str, ...]]:
        """Keep the plans of an earlier search that were measured, unless much more is expected by now; return the devices of those."""
        better = []
        for devices, entry in before.found.items():
            account, now = entry.account, self.found.get(devices)
            if account is None or now is None:
                continue
            if account is not self.since and now.bound < BETTER * entry.bound:
                better.append(devices)
            elif account.measured is not None or account is self.since:
                self.found[devices] = entry
        return better

    def others(self, present: PlanAccount | None) -> list[PlanAccount]:
        """Return the plans that are known beside the present one."""
        return [entry.account for entry in self.found.values() if entry.account not in (None, present)]

    def due(self, present: PlanAccount | None, repetitions: float, share: float) -> Work[tuple[str, ...] | None]:
        """Return the devices of the next plan that is worth a look: few memories first, then the one that takes least in the long run.

        Of few memories, bounds promise least too much. What it may save in so many repetitions, against the best known, is many times what all looks take, for most find nothing;
        or looks take no more than a share of what these repetitions do.
        """
        spent = self.looks if present is None else 0.0  # before anything runs, all of them are waited for
        best = min([account.costs(repetitions, present=False) for account in self.others(present)], default=inf)
        if present is not None:
            best = min(best, present.costs(repetitions, present=True))
        if self._others:
            least, look = repetitions * self._least, self._crowds * TURNS * len(self._step.calls) * self.visit
            if least + look > WORTH * best or look > max((best - least) / DEAR, share * best):
                return None
            yield from self._figure_others()
        likely: tuple[tuple[float, ...], tuple[str, ...]] | None = None
        for (devices, crowds, _, _), figure in self._figures:
            entry = self.found[devices]
            if entry.account is not None or entry.why not in (NOT_YET, CANNOT):
                continue
            look = TURNS * len(self._step.calls) * len(crowds) * self.visit
            least = figure.costs(repetitions)
            if repetitions * figure.period > best:
                self.found[devices] = entry._replace(why=CANNOT)
            elif least + look > WORTH * best or (
                self.looks + look > share * best and spent + look > (best - least) / DEAR
            ):
                self.found[devices] = entry._replace(why=NOT_YET)
            elif likely is None or _rank(figure, crowds, devices) < likely[0]:
                likely = _rank(figure, crowds, devices), devices
        return likely[1] if likely is not None else None

    def _figure_others(self) -> Work[None]:
        """Find what sets of several devices take at least."""
        while self._others:
            chosen = self._others[0]
            figure = yield from self._bounds.of(chosen)
            self._others.pop(0)
            self._figures.append((chosen, figure))
            self.found[chosen.devices] = self.found[chosen.devices]._replace(bound=figure.period)

    def look(self, devices: tuple[str, ...], present: PlanAccount | None) -> Work[None]:
        """Make a plan on some devices, and estimate it."""
        made, machine = (yield from self._planned(devices)), self._machine
        entry = self.found[devices]
        if isinstance(made, str):
            self.found[devices] = entry._replace(why=made)
            return
        for answer in estimate(self._step, made.plan, machine.platform, machine.overheads, machine.where):
            yield 1.0
            self.looks += VISIT
            made.estimated = answer
        made.since = present
        self._limit(made, entry)
        self.found[devices] = entry._replace(account=made, why="")

    def _limit(self, account: PlanAccount, entry: Considered) -> None:
        """Let no estimate promise less than what devices, links and memories take at least."""
        answer = account.estimated
        if answer is not None and answer.period < entry.bound:
            account.estimated = answer._replace(period=entry.bound)

    def promising(self, repetitions: float, share: float) -> tuple[str, ...] | None:
        """Return the devices whose plan may be made better by a change, before anything runs; None if looks may take no more."""
        likely: tuple[float, tuple[str, ...]] | None = None
        best = min([account.costs(repetitions, present=False) for account in self.others(None)], default=inf)
        for (devices, crowds, _, _), figure in self._figures:
            account = self.found[devices].account
            if account is None or len(devices) < 2 or devices in self._improved or not account.shares:
                continue
            look = TURNS * len(self._step.calls) * len(crowds) * self.visit
            least = figure.costs(repetitions)
            if least + look > WORTH * best or (
                self.looks + look > share * best and self.looks + look > (best - least) / DEAR
            ):
                continue
            costs = account.costs(repetitions, present=False)
            if likely is None or costs < likely[0]:
                likely = costs, devices
        return likely[1] if likely is not None else None

    def improve(self, devices: tuple[str, ...], repetitions: float, share: float) -> Work[None]:
        """Look for a better plan on some devices near to the one that is known, as long as looks may take."""
        self._improved.add(devices)
        entry = self.found[devices]
        assert entry.account is not None
        best = min([account.costs(repetitions, present=False) for account in self.others(None)])
        least = next(figure.costs(repetitions) for chosen, figure in self._figures if chosen.devices == devices)
        most = max(share * best, (best - least) / DEAR)
        for better in improved(self._step, entry.account, self._machine):
            if better is None:
                self.looks += VISIT
                yield 1.0
                if self.looks > most:
                    return
            elif (yield from crowded(self._step, better.plan, self._machine.platform)) is None:
                self._limit(better, entry)
                self.found[devices] = entry._replace(account=better)


def _rank(figure: Figure, crowds: Sequence[object], devices: Sequence[str]) -> tuple[float, ...]:
    """Return what to compare of sets that are worth a look: few memories first, then the shorter turns, of about the same ones few devices."""
    about = round(log(figure.period, 1.0 / WORTH)) if figure.period > 0.0 else -inf
    return len(crowds), about, len(devices), figure.period


def planned(
    step: StepProfile, devices: Sequence[str], machine: Target
) -> Work[tuple[list[StepParts], dict[str, float]] | None]:
    """Return a plan of a step on some devices, and shares; None if nothing is known of one of them.

    A call that none of them can run goes to another device: it does not keep them from the rest of the step.
    """
    if not (yield from is_known(step, devices)):
        return None
    if len(devices) == 1:
        return [whole(call, devices[0]) for call in step.calls], {devices[0]: 1.0}
    parts = yield from shares(step, devices, machine.platform)
    if parts is None:
        return None
    cut = partial(divided, parts=parts)
    return (yield from placed(step, devices, machine.platform, machine.overheads, cut)), parts


def is_known(step: StepProfile, devices: Sequence[str]) -> Work[bool]:
    """Tell whether something is known of how long these devices take for the calls of a step that they can run."""
    for call in step.calls:
        profile, all_of_it = call.profile, call.profile.whole
        for device in devices if all_of_it is not None else ():
            assert all_of_it is not None
            if device in profile.devices and profile.seconds(device, all_of_it, together=False) is None:
                return False
            yield 0.0
    return True


def crowded(step: StepProfile, plan: Sequence[StepParts], platform: Platform) -> Work[str | None]:
    """Return a memory in which a plan's parts of arrays do not fit together, or None."""
    boxes: dict[tuple[int, int], list[Box]] = {}
    sizes: dict[int, int] = {}
    memories = {device.name: device.memory for device in platform.devices}
    for call, parts in zip(step.calls, plan, strict=True):
        profile = call.profile
        for device, box in parts:
            memory = memories.get(device, HOST)
            if platform.memories[memory].capacity is None or memory == HOST or profile.host:
                continue
            touched = profile.whole if box == profile.box and profile.whole is not None else profile.part(box)
            for argument, array, needed in zip(profile.arguments, call.arrays, touched.boxes, strict=True):
                sizes[array] = argument.itemsize
                boxes.setdefault((memory, array), []).append(needed)
        yield 0.0
    held: dict[int, int] = {}
    for (memory, array), needed_of in boxes.items():
        held[memory] = held.get(memory, 0) + bounding(needed_of).volume * sizes[array]
    for memory, nbytes in held.items():
        if nbytes > (platform.memories[memory].capacity or inf):
            return platform.memories[memory].name
    return None
