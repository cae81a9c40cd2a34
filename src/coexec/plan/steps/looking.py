"""Look at plans of a step, each for a moment, within what planning may take of the program's time.

Before: choose.py, account.py.  After: planner.py, telling.py.  Which devices a step could run on: classes of devices that are alike, in
powers of two, and unions of classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import combinations

from ...machine.platform import Device, Platform
from ..candidate import Candidates
from .account import PlanAccount
from .bounds import DeviceSet, Target, as_sets
from .choose import Search, is_known
from .estimate import estimate
from .profile import StepProfile
from .slices import VISIT, Slice, Work

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


FIRST = 4e-3  # seconds of the first look at a step: less than the 5 ms for which a program may be kept waiting
EARLY_SHARE = 0.02  # of the time that a step is expected to take, which looks at plans of it may take
LEAST = 1e-4  # seconds that are worth going on for
KNOWN = 32  # visits that tell how long one takes
SLICE = 1e-3  # seconds of every further look

Looks = Generator[float | None, None, None]
"""One look after the other. Yields visits, and None whenever nothing is worth a look now."""


class Looking(Spending, ABC):
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
        self.present: PlanAccount | None = None  # the plan in force; call by call, if none was adopted
        self._search: Search | None = None  # for plans of the step
        self._looks: Looks | None = None  # what is looked at for the step
        self._looking = False  # in the middle of a look
        self._way: Work[None] | None = None  # to a plan that tempts: estimated before anything else
        self._off: dict[tuple[str, ...], float] = {}  # times as long as estimated that plans took, by devices
        self._new = True  # nothing of the step was looked at yet
        self._visit = VISIT  # seconds that a visit was seen to take: beside kernels, what it needs has left the caches
        self._visits = self._visiting = 0.0  # of which that is known, and their seconds
        self.longest = 0.0  # seconds that the program's thread was kept waiting at once

    # Moments ----------------------------------------------------------------------------------------------------------

    def _moment(self) -> Slice:
        """Return a moment of planning, which begins now."""
        return Slice(0.0, self._clock)

    def _look(self, moment: Slice) -> None:
        """Go on with what is looked at until a moment is over: at first as long as it takes to see the likely plans, then a slice."""
        first = FIRST if self._new else SLICE
        moment.most = min(SLICE, SHARE * self._elapsed() - self._later) if self.planning > MOST_FIRST else first
        if self._way is not None and not moment.advance(self._way):
            self._way = None
        if self._way is None and self._looks is not None:
            self._looking = moment.advance(self._looks)

    def _meanwhile(self) -> None:
        """Go on with a look that has begun, while devices have something to do: what a turn is worth, not what its end leaves time for."""
        if self.planning > MOST_FIRST and SHARE * self._elapsed() - self._later < LEAST:
            return
        moment = self._moment()
        try:
            self._look(moment)
        finally:
            self._over(moment)

    def _over(self, moment: Slice) -> None:
        """Account for a moment of planning."""
        took = moment.took
        self._new = False
        if self._clock is not None:
            self._visits, self._visiting = self._visits + moment.visits, self._visiting + took
            if self._visits >= KNOWN:
                self._visit = max(VISIT, self._visiting / self._visits)
        self.longest = max(self.longest, took)
        self._spend(took, later=self.planning > MOST_FIRST)

    # What is looked at ------------------------------------------------------------------------------------------------

    def _new_search(self, step: StepProfile) -> Search:
        """Return a search for plans of a step, which is to begin."""
        if self._groups is None:
            self._groups = classes(self._machine.platform, self._candidates.lost)
            self._sets = as_sets(device_sets(self._groups), self._groups, self._machine.platform)
        search = Search(step, self._machine, self._groups, self._sets, self._off, exact=self._exact)
        search.visit = self._visit
        return search

    def _looks_at(self, step: StepProfile, present: PlanAccount) -> Looks:
        """Look at a step that is planned call by call, and then at one plan of it after the other."""
        for call in step.calls:
            call.profile.look_again()
            yield 0.0
        if not (yield from is_known(step, present.devices)):
            self._unknown()
            return
        search = self._new_search(step)
        yield from search.begin()
        alone = search.found.get(present.devices) if len(present.devices) == 1 else None
        if alone is not None and alone.account is not None and alone.account.estimated is not None:
            present.estimated = alone.account.estimated._replace(transition=0.0)  # needs no look
        elif (
            self._clock is None
        ):  # what it takes is measured before it is left; looking at it would take longer than at all others
            yield from self._estimating(present, step)
        search.since, self._search = present, search
        if not self._exact:
            search.start()
        yield from self._further(search)

    @abstractmethod
    def _unknown(self) -> None:
        """Leave a step alone: nothing is known of who runs it now."""

    def _further(self, search: Search) -> Looks:
        """Look at one plan after the other, as long as each is worth it."""
        while True:
            present = self.present
            if present is not None and search.since is not present:
                yield from search.moved(present)
            share = 2.0 * EARLY_SHARE if self.planning <= MOST_FIRST else 1.0
            devices = yield from search.due(present, self._repetitions, share)
            if devices is None:
                yield None
            else:
                yield from search.look(devices, present)

    def _looks_ahead(self, step: StepProfile, times: float) -> Looks:
        """Look at plans of a step that waits to be planned, and then for better ones near to them."""
        search = self._new_search(step)
        yield from search.begin()
        self._search = search
        while (devices := (yield from search.due(None, times, EARLY_SHARE))) is not None:
            yield from search.look(devices, None)
        while (devices := search.promising(times, EARLY_SHARE)) is not None:
            yield from search.improve(devices, times, EARLY_SHARE)

    def _looks_again(self, step: StepProfile, forget: Callable[[Sequence[tuple[str, ...]]], None]) -> Looks:
        """Look at a step once more, for more is known of its calls by now; `forget` is told of which devices much more is expected.

        What was measured of others stays.
        """
        for call in step.calls:
            call.profile.look_again()
            yield 0.0
        before, search = self._search, self._new_search(step)
        yield from search.begin()
        search.since = self.present
        if before is not None:
            forget(search.keep(before))
        self._search = search
        yield from self._further(search)

    def _estimating(self, account: PlanAccount, step: StepProfile) -> Work[None]:
        """Estimate a plan from where the data is now."""
        machine, since = self._machine, self.present
        for answer in estimate(step, account.plan, machine.platform, machine.overheads, machine.where):
            yield 1.0
            if answer is not None:
                account.estimated, account.since = answer, since
