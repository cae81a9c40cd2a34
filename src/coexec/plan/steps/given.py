"""What a planner of steps is given, and what it tells of itself.

Before: profile.py, guide.py.  After: planner.py.  Plain data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...graph.task import Task
from ..plan import Plan
from .guide import Guided
from .profile import CallProfile


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
