"""Work that goes on for a moment at a time, and what such moments cost.

Before: nothing.  After: bounds.py, cuts.py, choose.py, looking.py.  Knows no plan.

Planning happens in the program's thread, which waits meanwhile. So whatever takes time in proportion to the calls of a step, or to
its devices, is a generator that yields after each of them, and goes on when there is time for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Work = Generator[float, None, T]
"""Yields what it has taken since the last time, in visits of an estimate; returns what it was for."""

VISIT = 20e-6  # seconds that going through what devices of one memory do of one call takes, of a server's core


def done(work: Work[T]) -> T:
    """Do all of it at once, and return what it was for."""
    while True:
        try:
            next(work)
        except StopIteration as over:
            result: T = over.value
            return result


class Slice:
    """A moment of planning: so many seconds by a clock or, without one, as visits count."""

    def __init__(self, seconds: float, clock: Callable[[], float] | None) -> None:
        self._clock, self.most = clock, seconds
        self._begin = clock() if clock is not None else 0.0
        self.visits = 0.0  # that work said it took

    @property
    def took(self) -> float:
        """The seconds that it has taken so far."""
        return self.visits * VISIT if self._clock is None else self._clock() - self._begin

    @property
    def over(self) -> bool:
        """Whether it has taken as long as it may."""
        return self.took >= self.most

    def advance(self, work: Generator[float | None, None, Any]) -> bool:
        """Let work go on until the moment is over; tell whether it has something left to do now: it may be done, or wait (None)."""
        while not self.over:
            visits = next(work, None)
            if visits is None:
                return False
            self.visits += visits
        return True
