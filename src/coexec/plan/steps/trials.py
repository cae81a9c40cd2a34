"""What plans of a step take when they run: turns are measured, and plans of which nobody knows what they take are tried.

Before: account.py.  After: planner.py.  Knows tasks by number, seconds and turns; no device.

Models may be wrong, so a plan that is estimated to take longer may take less than the one in force. What runs decides, and what
never ran cannot: each plan of a step that comes again and again is tried once, the most promising first, as soon as what that may
lose is a small share of the time that the program has taken. One that was measured long ago is tried again, after longer and longer.
A trial lasts a few turns, and the plan before comes back if it is no better.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ...graph.task import Task
from ..repeats import LONGEST
from .account import MEASURED, SETTLING, SOON, WORTH, PlanAccount, TurnClock


class Measuring(TurnClock):
    """Takes calls and the ends of their parts, and tells how long turns take."""

    __slots__ = ("_last", "_open", "_real")

    def __init__(self, *, real: bool, middle: bool) -> None:
        """Begin; on a `real` machine the program has a time of its own; where turns differ, the `middle` one counts."""
        super().__init__(middle=middle)
        self._real = real
        self._last: float | None = None  # when the last part was over
        self._open: dict[int, list[float]] = {}  # tasks that end a turn: parts that run, and when the last was over

    def forget(self) -> None:
        """Begin anew: the program does something else."""
        self.begin()
        self._open.clear()

    def called(self, task: Task) -> None:
        """Take a call. If nothing was under way, no plan could have made it come sooner."""
        if self._real and task.starved and self._last is not None and task.submitted > self._last:
            self.idle(task.submitted - self._last)
            self._last = task.submitted

    def ends_turn(self, task: Task, parts: int) -> None:
        """Note that a turn is over when so many parts of a task are."""
        if len(self._open) > LONGEST:
            self._open.clear()
        self._open[task.id] = [float(parts), 0.0]

    def finished(self, task: Task, stop: float) -> None:
        """Take the end of a part of a task."""
        if self._last is None or stop > self._last:
            self._last = stop
        end = self._open.get(task.id)
        if end is not None:
            end[0], end[1] = end[0] - 1.0, max(end[1], stop)
            if end[0] <= 0.0:
                del self._open[task.id]
                self.ended(end[1])


SHARE = 0.03  # of the program's time that trials may lose
SEEN = 4  # turns until a step is looked at once more, with what is known of its calls by then; then twice as many, and so on
AGAIN = 16  # turns until a plan is tried for the second time; then twice as many, and so on
DOUBT = 2.0  # times what the plan before took that one may take which nobody measured, whatever is estimated: first turns did
FAR = 1.3  # times what the plan before took: a trial whose first turn takes more is over, or few runs would be mostly trials


class Trials:
    """The trials of one step at a time."""

    def __init__(self) -> None:
        """Begin with none."""
        self.back: PlanAccount | None = None  # the plan in force before the one that is being tried; None: none is
        self.weighed = False  # what it may lose was weighed against what it promises, and is no part of the share
        self.lost = 0.0  # seconds that trials took beyond what the plans before them would have

    def due(self, present: PlanAccount, others: Sequence[PlanAccount], turn: int, elapsed: float) -> PlanAccount | None:
        """Return the plan to be tried now: of those whose trials can be afforded, the one that promises most."""
        if present.measured is None:
            return None
        left = self.left(elapsed)
        found: PlanAccount | None = None
        for other in others:
            waits = other.measured is not None and turn < other.left_at + AGAIN * 2**other.times
            if waits or other.rests(turn) or not other.period < inf:
                continue
            if self.loses(other, present.measured) <= left and (found is None or other.period < found.period):
                found = other
        return found

    def left(self, elapsed: float) -> float:
        """Return the seconds that trials may lose now, of a program that has taken so many."""
        return SHARE * elapsed - self.lost

    @staticmethod
    def loses(other: PlanAccount, period: float) -> float:
        """Return what a trial is expected to lose: the way there and back, and turns that take longer."""
        way = 2.0 * other.estimated.transition if other.estimated is not None else 0.0
        takes = other.period if other.measured is not None else max(other.period, DOUBT * period)
        enough = SOON[0] if SOON[0] * takes >= SOON[1] else MEASURED
        turns = SETTLING if takes > FAR * period else SETTLING + enough
        return way + turns * max(0.0, takes - period)

    def over(self, present: PlanAccount, first: float | None) -> bool | None:
        """Tell whether the plan that is being tried stays; None: nobody knows yet. Its `first` turn without the way there took so long."""
        back = self.back
        assert back is not None and back.measured is not None
        if present.measured is None and first is not None and first > FAR * back.measured:
            present.measured = first
        if present.measured is None:
            return None
        stays = present.measured < WORTH * back.measured
        self.lost += 0.0 if self.weighed else self.loses(present, back.measured)
        self.back, self.weighed = None, False
        return stays
