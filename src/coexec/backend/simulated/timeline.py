"""A virtual clock: events in the order of their time, and jobs whose speed may change while they run.

Before: nothing.  After: sharing.py, backend.py.  Knows neither instructions nor devices. Ties go by the order in which
events were made, so a simulation repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

Action = Callable[[Any], None]


class Job:
    """Something that takes time: so much is left of it, at such a speed."""

    __slots__ = ("done", "left", "owner", "parts", "speed", "then", "touched", "uses", "version")

    def __init__(
        self, owner: Any, left: float, done: Action, uses: tuple[Any, ...] = (), then: Action | None = None
    ) -> None:
        self.owner = owner
        self.left = left  # seconds at full speed, or bytes
        self.done = done  # called with the owner when nothing is left
        self.uses = uses  # what it shares with others
        self.parts: tuple[Any, ...] = ()  # the same, for whoever shares it out
        self.then = then  # for whoever made it
        self.speed = 0.0
        self.touched = 0.0  # when `left` was true
        self.version = 0  # grows with each change of speed: events made before are void


class Timeline:
    """The clock and what is to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._heap: list[tuple[float, int, Action, Any, Job | None, int]] = []
        self._unsettled: list[Callable[[], None]] = []

    def at(self, time: float, action: Action, what: Any) -> None:
        """Have `action(what)` called at a time that is not over."""
        heappush(self._heap, (max(self.now, time), next(self._order), action, what, None, 0))

    def pace(self, job: Job, speed: float) -> None:
        """Let a job go on at another speed from now on."""
        if speed == job.speed:
            return
        now = self.now
        if job.speed:
            job.left = max(0.0, job.left - (now - job.touched) * job.speed)
        job.touched, job.speed = now, speed
        job.version += 1
        if speed > 0.0:
            due = now + job.left / speed if speed != 1.0 else now + job.left
            heappush(self._heap, (due, next(self._order), job.done, job.owner, job, job.version))

    def cancel(self, job: Job) -> None:
        """Stop a job for good."""
        job.version += 1
        job.speed = 0.0

    def before_it_moves(self, settle: Callable[[], None]) -> None:
        """Have `settle()` called when everything of this moment has happened."""
        self._unsettled.append(settle)

    def next_time(self) -> float | None:
        """Return when something happens next, or None."""
        heap = self._heap
        while True:
            while heap:
                time, _, _, _, job, version = heap[0]
                if job is None or job.version == version:
                    break
                heappop(heap)
            if not self._unsettled or (heap and time <= self.now):
                return time if heap else None
            unsettled, self._unsettled = self._unsettled, []
            for settle in unsettled:
                settle()

    def step(self) -> bool:
        """Let the next thing happen; False if nothing is to come."""
        if self.next_time() is None:
            return False
        self.happen()
        return True

    def happen(self) -> None:
        """Let the next thing happen, which `next_time` has just found."""
        self.now, _, action, what, _, _ = heappop(self._heap)
        action(what)
