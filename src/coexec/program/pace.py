"""How large a call may be that is made at once: as large as it takes less processor time than a task costs.

Before: nothing.  After: program/small.py, which makes the calls and times some.  Knows sizes and seconds only.
"""

from __future__ import annotations

from .at_home import MOST

EVERY = 64
"""Calls of one function of which one is timed, and told to the trace: the clocks take as long as a call."""
FIRST, LEAST = 1 << 12, 1 << 6
"""Elements of a small call: before any was timed, and however slow it is."""
STEP = 4
"""How much larger calls are tried, once those of the present size take less than this fraction of a task's cost."""
SLOW = 4
"""Timed calls in a row that took longer than a task costs, until smaller ones only are taken: on a busy machine some do."""
AGAIN = 256
"""Calls beyond the limit of which one is made all the same, to see whether the limit still holds."""


class CallPace:
    """How large a call of one function may be, in elements."""

    __slots__ = ("left", "limit", "refused", "slow", "stands")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # negative: no call of it is small
        self.left = 0  # calls until one is timed
        self.stands = 1  # calls that the next timed one stands for
        self.slow = 0  # calls in a row that took longer than a task costs
        self.refused = 0  # calls that were larger

    def takes(self, size: int) -> bool:
        """Tell whether a call may be made though it is larger than the limit."""
        if size > MOST or self.limit < 0:
            return False
        self.refused += 1
        if self.refused % AGAIN:
            return False
        self.left = 0  # it is timed
        return True

    def learn(self, size: int, seconds: float, task: float) -> None:
        """Note how much processor time a call took, where a task costs `task` seconds."""
        if seconds > task:
            self.slow += 1
            if self.slow >= SLOW:
                self.limit = max(LEAST, min(self.limit, size // 2))
        else:
            self.slow = 0
            self.limit = max(self.limit, min(MOST, size * STEP if seconds * STEP < task else size))
