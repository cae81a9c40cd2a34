"""What came out: how long whole tasks took, divided and undivided, so that the better way is the one that was measured.

Before: nothing.  After: plan/planner.py, plan/place.py.  Owned by a runtime; told under its lock.

Predictions are made part by part. What they do not see (threads that fight for a core, memory that is shared) shows in the
time from a call until its last part is done, if nothing else was going on meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

from ..predict.window import centre

if TYPE_CHECKING:
    from ..graph.task import Task

WINDOW = 5
ENOUGH = 3  # outcomes of a way before it is judged; the first is cold
TRY_AT = 6  # divisions after which the other way is tried
PAUSE = 8  # undivided runs after which a division is tried again; twice as many each time that it was slower again
LONGEST = 256
NOT_FAR = 1.6  # times the predicted seconds of a division: beyond, undivided cannot win
WORTH = 0.97  # undivided must be faster by this to be preferred


class Ways:
    """The recent times of one task, undivided and divided."""

    __slots__ = ("divided", "left", "pause", "runs", "whole")

    def __init__(self) -> None:
        self.whole: deque[float] = deque(maxlen=WINDOW)
        self.divided: deque[float] = deque(maxlen=WINDOW)
        self.runs = [0, 0]  # undivided, divided
        self.pause = self.left = PAUSE

    def learn(self, seconds: float, *, divided: bool) -> None:
        """Take one time."""
        way = self.divided if divided else self.whole
        self.runs[divided] += 1
        if self.runs[divided] == 2:
            way.clear()  # the first run was cold
        way.append(seconds)

    def undivided(self, *, close: bool, seen: bool) -> bool:
        """Tell whether the next run should be undivided; tried it is only if what comes out will be `seen`."""
        if self.runs[0] < ENOUGH:
            return close and seen and self.runs[1] >= TRY_AT
        if len(self.divided) < ENOUGH:
            return False  # it is being tried
        if centre(self.whole) >= WORTH * centre(self.divided):
            self.pause = self.left = PAUSE
            return False
        self.left -= seen
        if self.left > 0:
            return True
        self.pause = self.left = min(LONGEST, 2 * self.pause)
        self.divided.clear()
        return False


class Outcomes:
    """What came out of tasks, by (kernel, shapes)."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._ways: dict[Hashable, Ways] = {}

    def learn(self, key: Hashable, *, seconds: float, divided: bool) -> None:
        """Take the time of one task."""
        ways = self._ways.get(key)
        if ways is None:
            if len(self._ways) >= self._most:
                self._ways.clear()
            ways = self._ways[key] = Ways()
        ways.learn(seconds, divided=divided)

    def undivided(self, key: Hashable, *, close: bool, seen: bool = True) -> bool:
        """Tell whether a task that would be divided should not be: that was faster, or was not tried and may be close.

        `seen` tells that nothing else is going on, so that its time will be learnt.
        """
        ways = self._ways.get(key)
        return ways is not None and ways.undivided(close=close, seen=seen)

    def better(self, task: Task, alone: float, divided: float, *, seen: bool) -> bool:
        """Tell whether a task was measured to be faster undivided, or should be seen so because it is predicted not far off."""
        return self.undivided(outcome_key(task), close=alone < NOT_FAR * divided, seen=seen)

    def judged(self, key: Hashable) -> bool:
        """Tell whether both ways were seen often enough: until then one of them may be but a try."""
        ways = self._ways.get(key)
        return ways is None or (ways.runs[0] >= ENOUGH and len(ways.divided) >= ENOUGH) or ways.runs[1] < TRY_AT


def outcome_key(task: Task) -> Hashable:
    """Return under which key a task's times are remembered: a variant that appears or goes changes all of them."""
    kernel = task.kernel
    return kernel, task.key, sum(not variant.off for variant in kernel.variants) if kernel is not None else 0
