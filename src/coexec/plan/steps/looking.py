"""Looks at plans of a step, each for a moment, and what they take of the program's time.

Before: choose.py, spending.py.  After: planner.py.  Changes no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...machine.platform import Device
from ..candidate import Candidates
from .account import PlanAccount
from .bounds import DeviceSet, Target, as_sets
from .choose import VISIT, Search
from .estimate import estimate
from .profile import StepProfile
from .sets import classes, device_sets
from .spending import MOST_FIRST, SHARE, Spending

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
