"""What came out: how long whole tasks took, divided and undivided, so that the better way is the one that was measured.

Before: nothing.  After: plan/planner.py, plan/place.py.  Owned by a runtime; told under its lock.

Predictions are made part by part. What they do not see (threads that fight for a core, memory that is shared) shows in the
time from a call until its last part is done, if nothing else was going on meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from statistics import median

WINDOW = 5
ENOUGH = 3  # outcomes of a way before it is judged; the first is cold
TRY_AT = 4  # divisions after which the other way is tried
AGAIN = 64  # undivided runs after which a division is tried again
WORTH = 0.97  # undivided must be faster by this to be preferred


class Outcomes:
    """Recent times of tasks by (kernel, shapes), divided and undivided."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._recent: dict[Hashable, tuple[deque[float], deque[float]]] = {}  # undivided, divided
        self._runs: dict[Hashable, list[int]] = {}

    def learn(self, key: Hashable, *, divided: bool, seconds: float) -> None:
        """Take the time of one task."""
        if len(self._recent) >= self._most and key not in self._recent:
            self._recent.clear()
            self._runs.clear()
        ways = self._recent.setdefault(key, (deque(maxlen=WINDOW), deque(maxlen=WINDOW)))
        runs = self._runs.setdefault(key, [0, 0])
        runs[divided] += 1
        if runs[divided] == 2:
            ways[divided].clear()  # the first run was cold
        ways[divided].append(seconds)

    def undivided(self, key: Hashable, *, close: bool) -> bool:
        """Tell whether a task that would be divided should not be: that was faster, or was not tried and may be close."""
        runs = self._runs.get(key)
        if runs is None:
            return False
        whole, parts = runs
        if whole < ENOUGH:
            return close and parts >= TRY_AT
        known = self._recent[key]
        if not known[0] or not known[1] or median(known[0]) >= WORTH * median(known[1]):
            return False
        return whole % AGAIN >= ENOUGH  # for a few runs out of many, a division gets another chance
