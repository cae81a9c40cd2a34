"""What planning has taken of a program's time, and whether it may take more.

Before: nothing.  After: planner.py.  Knows seconds alone.
"""

from __future__ import annotations

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
