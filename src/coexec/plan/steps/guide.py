"""What the plan in force says of calls that it does not name: they are divided over its devices, as its shares say.

Before: cuts.py, account.py, tree.py.  After: planner.py, plan/planner.py.  Looks at each shape of a call once.

Calls on views that shrink, on arrays that grow, or that come now and then, meet data that lies where the plan put it.
What a planner of steps is given (`Profiles`), and what it tells of itself (`PlanningSpent`), stands here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...graph.shape import CallShape
from ...graph.task import Task
from ..candidate import Candidate
from ..plan import Plan
from .account import PlanAccount
from .bounds import Target
from .cuts import best_alone, divided
from .profile import CallProfile
from .tree import call_plan
from .watch import LITTLE

KEPT = 512  # shapes of calls whose answers are remembered


class Guided(NamedTuple):
    """How a call is planned: as a plan says, or by itself, but on some devices alone."""

    plan: Plan | None
    devices: frozenset[str]

    def left(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates on these devices; all, if none of them is there any more."""
        return [c for c in candidates if c.name in self.devices] or candidates


class Guide:
    """Follows one account at a time."""

    def __init__(self, machine: Target, profile: Callable[[Task], CallProfile | None]) -> None:
        self._machine = machine
        self._profile = profile
        self._account: PlanAccount | None = None
        self.devices: frozenset[str] = frozenset()
        self._found: dict[CallShape, Guided | None] = {}

    def follow(self, account: PlanAccount) -> None:
        """Say what follows from this account from now on; nothing, if it was not made of shares."""
        self._account = account if account.shares else None
        self.devices = frozenset(account.shares)
        self._found.clear()

    def forget(self) -> None:
        """Look at every call anew: devices have come or gone."""
        self._found.clear()

    def of(self, task: Task) -> Guided | None:
        """Return how a call is planned; None: by itself, on whichever devices."""
        shape = task.shape
        if self._account is None or shape is None:
            return None
        if shape not in self._found:
            if len(self._found) >= KEPT:
                self._found.clear()
            profile = self._profile(task)
            self._found[shape] = None if profile is None or profile.host else self._along(profile, self._account)
        return self._found[shape]

    def _along(self, call: CallProfile, account: PlanAccount) -> Guided | None:
        able = [device for device in account.shares if device in call.devices]
        known = [call.whole is not None and call.seconds(d, call.whole, together=False) is not None for d in able]
        if not able or not all(known):
            return None
        if call.size < LITTLE:
            return None
        if call.axis is None or len(able) < 2 or best_alone(call, able)[0] <= self._machine.overheads.wake:
            return Guided(None, self.devices)
        return Guided(call_plan(call, divided(call, account.shares), self._machine), self.devices)


class Profiles(Protocol):
    """Makes profiles of calls, and follows plans."""

    def profile(self, task: Task) -> CallProfile | None:
        """Return what plans of steps need to know of a call; None if such a call is planned by itself alone."""

    def adopt(self, plan: Plan | None, guide: Callable[[Task], Guided | None]) -> None:
        """Follow a plan of a step from now on, and a guide where it says nothing, in place of those before."""


class PlanningSpent(NamedTuple):
    """What planning steps has taken, and come to."""

    seconds: float
    candidates: int
    limit: float | None  # seconds per call of the step that is planned: no plan takes less
    calls: int  # that were seen
