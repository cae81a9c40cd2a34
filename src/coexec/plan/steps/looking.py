"""Look at plans of a step, each for a moment, within what planning may take of the program's time.

Before: choose.py, account.py.  After: planner.py, telling.py.  Which devices a step could run on: classes of devices that are alike, in
powers of two, and unions of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from ...machine.platform import Device, Platform
from ..candidate import Candidates
from .account import PlanAccount
from .bounds import DeviceSet, Target, as_sets
from .choose import VISIT, Search
from .estimate import estimate
from .profile import StepProfile

MOST_FIRST = 20e-3  # seconds of first looks at steps, before they count as later ones do
SHARE = 0.01  # of the program's time that later looks may take


class Spending:
    """Adds up the seconds of planning, beside those that the program has computed."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._began: float | None = None
        self._now = 0.0
        self.planning = 0.0  # seconds, all together
        self._later = 0.0  # of these, beyond first looks
        self._unpaid = 0.0  # seconds that nobody was charged for yet

    def _computed(self, start: float, stop: float) -> None:
        """Note that the program has computed something."""
        if self._began is None:
            self._began = start
        self._now = max(self._now, stop)

    def unpaid(self) -> float:
        """Return the seconds of planning that nobody was charged for yet."""
        seconds, self._unpaid = self._unpaid, 0.0
        return seconds

    def _may_begin(self) -> bool:
        return self.planning <= MOST_FIRST or self.planning <= SHARE * self._elapsed()

    def _elapsed(self) -> float:
        """Return for how many seconds the program has computed."""
        return 0.0 if self._began is None else self._now - self._began

    def _spend(self, seconds: float, *, later: bool) -> None:
        self.planning += seconds
        self._unpaid += seconds
        if later:
            self._later += seconds


MOST_CLASSES = 4  # of which all unions are looked at; of more, the fastest together


def classes(platform: Platform, lost: Mapping[str, str]) -> list[list[Device]]:
    """Return the devices that are alike, class by class; those that are lost are left out."""
    found: dict[object, list[Device]] = {}
    for device in platform.devices:
        if device.name not in lost:
            found.setdefault(alike(device), []).append(device)
    return list(found.values())


def alike(device: Device) -> object:
    """Return what devices of a class have in common."""
    return (
        device.kind, device.speed, device.wide, device.flops, device.rates, device.bandwidth, device.ops, device.launch
    )  # fmt: skip


def device_sets(groups: Sequence[Sequence[Device]]) -> list[tuple[str, ...]]:
    """Return sets of devices, the smaller ones of each class first. No set has all cores as one device beside the cores."""
    found: list[tuple[Device, ...]] = []
    for group in groups:
        count = 1
        while count < len(group):
            found.append(tuple(group[:count]))
            count *= 2
        found.append(tuple(group))
    few = groups[:MOST_CLASSES]
    for count in range(2, len(few) + 1):
        found += [tuple(d for group in chosen for d in group) for chosen in combinations(few, count)]
    return [tuple(d.name for d in chosen) for chosen in found if not _twice(chosen)]


def _twice(chosen: Sequence[Device]) -> bool:
    """Tell whether a set has some cores both one by one and as one device."""
    taken: set[int] = set()
    for device in chosen:
        cores = set(device.cores)
        if taken & cores:
            return True
        taken |= cores
    return False


FIRST = 4e-3  # seconds of the first look at a step
EARLY_SHARE = 0.02  # of the time that a step is expected to take, which looks at plans of it may take
SLICE = 1e-3  # and of later ones


class Looking(Spending):
    """Looks at plans of one step at a time."""

    def __init__(
        self, machine: Target, candidates: Candidates, clock: Callable[[], float] | None, *, exact: bool
    ) -> None:
        """Look at plans for a machine, of which models may be `exact`; without a `clock` looks are counted."""
        super().__init__()
        self._exact = exact
        self._machine = machine
        self._candidates = candidates
        self._clock = clock
        self._repetitions = 1.0  # of the step that are expected
        self._groups: list[list[Device]] | None = None  # devices that are alike; None: they have to be found
        self._sets: list[DeviceSet] = []
        self._search: Search | None = None  # for plans of the step
        self._looking: Iterator[int] | None = None
        self._off: dict[tuple[str, ...], float] = {}  # times as long as estimated that plans took, by devices

    def _begin_search(self, step: StepProfile) -> Search:
        """Return what is known of sets of devices from numbers alone."""
        if self._groups is None:
            self._groups = classes(self._machine.platform, self._candidates.lost)
            self._sets = as_sets(device_sets(self._groups), self._groups, self._machine.platform)
        return Search(step, self._machine, self._groups, self._sets, self._off, exact=self._exact)

    def _look(self, search: Search, present: PlanAccount | None) -> None:
        """Look at plans for a moment: at first for as long as it takes to see the likely ones, then in slices."""
        first = self.planning <= MOST_FIRST
        allowed = FIRST if first else min(SLICE, SHARE * self._elapsed() - self._later)
        took, begin = search.visits() * VISIT, self._clock() if self._clock is not None else 0.0
        while took < allowed:
            if self._looking is None:
                devices = search.due(present, self._repetitions, 2.0 * EARLY_SHARE if first else 1.0)
                took += search.visits() * VISIT if self._clock is None else 0.0
                if devices is None:
                    break
                self._looking = search.look(devices, present)
            visits = next(self._looking, None)
            if visits is None:
                self._looking = None
                continue
            took = took + visits * VISIT if self._clock is None else self._clock() - begin
        self._spend(took, later=not first)

    def _estimate(self, account: PlanAccount, step: StepProfile) -> float:
        """Estimate a plan from where the data is now; return the seconds that it took."""
        machine = self._machine
        begin = self._clock() if self._clock is not None else 0.0
        visits = 0
        for answer in estimate(step, account.plan, machine.platform, machine.overheads, machine.where):
            visits += 1
            account.estimated = answer
        took = visits * VISIT if self._clock is None else self._clock() - begin
        self._spend(took, later=False)
        return took

    def _renew(self, step: StepProfile, present: PlanAccount) -> list[tuple[str, ...]]:
        """Look at the step once more: more is known of its calls by now. Return the devices of which much more is expected.

        What was measured of others stays.
        """
        begin = self._clock() if self._clock is not None else 0.0
        for call in step.calls:
            call.profile.look_again()
        before, self._looking = self._search, None
        self._search = self._begin_search(step)
        self._search.since = present
        changed = self._search.keep(before) if before is not None else []
        if self._clock is not None:
            self._search.visits()
            self._spend(self._clock() - begin, later=True)
        return changed
