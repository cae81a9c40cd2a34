"""Steps of which the program says how often they come: planned before any of them runs.

Before: planner.py.  After: schedule/plan.py.  Pure, as what it adds to.

1. The first time, the calls of a step wait until it is over, or until somebody wants to see something of it.
2. Then its plan is chosen for as many turns as were told, and looks take no more than a share of these.
3. If something was read within it, the whole of it is known only when it is over: it is planned once more, for the turns left.
4. While such turns come, nothing is looked at again but within the share of time that later looks have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.task import Task
from .choose import VISIT
from .looking import EARLY_SHARE, FIRST
from .planner import StepPlanner


class ToldPlanner(StepPlanner):
    """Plans the steps of one program, and those that it tells of before they run."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin as any planner of steps does."""
        super().__init__(*args, **options)
        self._told_at = -1  # calls, after which a step begins that the program tells of; -1: it is over
        self._times = 0  # that it comes
        self.first = False  # a step was planned before any of it runs: that is paid for first

    def told(self) -> None:
        """Note that a step begins of which the program says how often it comes."""
        self._told_at, self._times = self._watch.calls, 0

    def passed(self, *, whole: bool) -> None:
        """Take the end of such a step. Unless the `whole` of it waited, because a value was wanted, it is planned once more."""
        begun, self._told_at = self._told_at, -1
        planned = self._step
        if whole or begun < 0 or self._times < 2 or planned is None:
            return
        step = self._watch.passed(self._watch.calls - begun)
        if step is None or (len(step.calls), len(step.reads)) == (len(planned.calls), len(planned.reads)):
            return
        self._until = self._watch.calls + (self._times - 1) * len(step.calls)
        try:
            if self._begin(step):
                self._repetitions = float(self._times - 1)
                self._go_on()
        except Exception as error:  # noqa: BLE001 - a call that can be computed does not fail because it cannot be planned
            self._give_up(error)

    def ahead(self, tasks: Sequence[Task], births: int, reads: Sequence[tuple[int, int, int]], times: int) -> None:
        """Plan calls that wait, with reads after so many of them, which will come so many times. Fails none of them.

        There were so many `births` of arrays before the first of them.
        """
        self._until, self._times = self._watch.calls + times * len(tasks), times
        try:
            self._plan_ahead(tasks, births, reads, times)
        except Exception as error:  # noqa: BLE001 - a call that can be computed does not fail because it cannot be planned
            self._give_up(error)

    def _plan_ahead(
        self, tasks: Sequence[Task], births: int, reads: Sequence[tuple[int, int, int]], times: int
    ) -> None:
        step = self._watch.told(tasks, births, reads)
        self._forget()
        if step is None:
            self.unplanned = self._watch.why
            return
        self._step, self._repetitions = step, float(times)
        begin = self._clock() if self._clock is not None else 0.0
        search = self._search = self._begin_search(step)
        while search.looks < FIRST and (devices := search.due(None, float(times), EARLY_SHARE)) is not None:
            for _ in search.look(devices, None):
                pass
        while search.looks < FIRST and (devices := search.promising(float(times), EARLY_SHARE)) is not None:
            for _ in search.improve(devices):
                if search.looks >= FIRST:
                    break
        self.first = True
        counted = search.visits() * VISIT + search.looks
        self._spend(counted if self._clock is None else self._clock() - begin, later=False)
        best = min(search.others(None), key=lambda account: account.costs(float(times), present=False), default=None)
        if best is None:
            self._forget()
            self.unplanned = "nothing is known of the speed of a device that could run it"
        else:
            self._adopt(best, step)
            search.since = best
