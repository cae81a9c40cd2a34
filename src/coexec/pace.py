"""How far the program may run ahead of its devices, and what is looked at after each of its calls.

Before: stages.py.  After: runtime.py, which sends the calls.  Decides nothing about a task.
"""

from __future__ import annotations

from abc import abstractmethod

from .graph.task import Task
from .program.value import Lending
from .stages import Stages

GUESSES = 4  # tasks divided by guess that may be under way
UNREAD = 64  # records that may wait before the predictors see them


class Pace(Stages):
    """A runtime's way to keep the program near its devices."""

    lending: Lending

    def keep_pace(self, task: Task) -> None:
        """After a call: say what is odd, bound what is remembered, and wait where running ahead is of no use."""
        if self._signals.pending is not None:
            self._signals.check()
        if self._diagnostics.pending:
            self._diagnostics.speak()
        if self.lending.lenders:
            with self._lock:
                self.lending.let_go()
        due = self._graph.since_horizon - self._horizon_step
        if due >= 0:
            self._pass_horizon()
        elif len(self._executor.records) > UNREAD:
            self._drain()
        if self._sync:
            task.result()
        elif task.guess:
            self._let_measure(task)

    def _let_measure(self, task: Task) -> None:
        """Do not run far ahead with guesses: what is measured now makes better plans."""
        if self._timed or self._virtual is not None:
            self._guesses.append(task)
            if len(self._guesses) > GUESSES:
                self._wait_for(self._guesses.popleft(), "first measurements")

    def _pass_horizon(self) -> None:
        """Bound what is remembered, and how far the program runs ahead: by two horizons."""
        before = self._upkeep.last
        if before is not None and not before.finished:
            self._wait_for(before, "run-ahead")
        with self._lock:
            since = self._graph.since_horizon
            if since < self._horizon_step or self._upkeep.last is not before:
                return  # another thread was faster
            self._upkeep.horizon()
        self._drain()

    @abstractmethod
    def _wait_for(self, task: Task, what: str, timeout: float | None = None) -> bool:
        """Wait for one task, because of `what`; return False on time-out."""
