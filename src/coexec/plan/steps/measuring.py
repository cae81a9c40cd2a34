"""When turns of a step are over: the last part of the call that ends each, and how long nothing was under way in between.

Before: account.py.  After: planner.py.  Knows tasks by number, and seconds.
"""

from __future__ import annotations

from ...graph.task import Task
from ..repeats import LONGEST
from .account import TurnClock


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
