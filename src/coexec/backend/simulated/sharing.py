"""What happens when several use one thing: transfers share links fairly, kernels share cores, memories and devices.

Before: timeline.py.  After: backend.py.  Knows jobs and limits; no platform.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from .timeline import Job, Timeline

Limit = Callable[[Hashable], float]
"""Bytes per second that all users of a resource get together."""
ROUNDING = 1.0 + 1e-12


class FairShare:
    """Transfers, each over several resources: none can get more without taking it from one that gets no more itself.

    That is max-min fairness, found by progressive filling: all rates grow alike until a resource is full, which fixes
    those that use it; the others go on. Only transfers that are connected by resources with one that begins or ends
    are looked at.
    """

    def __init__(self, timeline: Timeline, limit: Limit) -> None:
        self._timeline = timeline
        self._limit = limit
        self._users: dict[Hashable, dict[Job, None]] = {}

    def join(self, job: Job) -> None:
        """Begin a transfer; `job.uses` are its resources."""
        users, alone = self._users, True
        for resource in job.uses:
            of = users.get(resource)
            if of is None:
                users[resource] = {job: None}
            else:
                alone = alone and not of
                of[job] = None
        if alone:
            self._timeline.pace(job, min([self._limit(resource) for resource in job.uses]))
        else:
            self._fill(job.uses)

    def leave(self, job: Job) -> None:
        """End a transfer."""
        shared = False
        for resource in job.uses:
            of = self._users[resource]
            del of[job]
            if of:
                shared = True
            else:
                del self._users[resource]
        if shared:
            self._fill(job.uses)

    def refill(self) -> None:
        """Look at everything: limits have changed."""
        self._fill(list(self._users))

    def _fill(self, around: Iterable[Hashable]) -> None:
        resources, jobs = self._connected(around)
        left = {resource: self._limit(resource) for resource in resources}
        open_ = {resource: len(self._users[resource]) for resource in resources}
        rates: dict[Job, float] = {}
        while len(rates) < len(jobs):
            level = min([left[resource] / number for resource, number in open_.items() if number])
            full = [r for r, number in open_.items() if number and left[r] / number <= level * ROUNDING]
            for resource in full:
                for job in self._users[resource]:
                    if job not in rates:
                        rates[job] = level
                        for used in job.uses:
                            left[used] -= level
                            open_[used] -= 1
        for job in jobs:
            self._timeline.pace(job, rates[job])

    def _connected(self, around: Iterable[Hashable]) -> tuple[list[Hashable], list[Job]]:
        """Return the resources that are joined with `around` by transfers, and all their transfers."""
        todo = [resource for resource in around if resource in self._users]
        resources, jobs = dict.fromkeys(todo), dict[Job, None]()
        while todo:
            for job in self._users[todo.pop()]:
                if job not in jobs:
                    jobs[job] = None
                    for resource in job.uses:
                        if resource not in resources:
                            resources[resource] = None
                            todo.append(resource)
        return list(resources), list(jobs)


class Crowd:
    """Something that kernels use up together: cores, a memory's bandwidth, a device's rate.

    If they ask for more than there is, each is slowed down by the same factor.
    """

    __slots__ = ("capacity", "extra", "fraction", "jobs")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.jobs: dict[Job, float] = {}  # and how much each asks for at full speed
        self.extra = 0.0  # asked for by what is no job
        self.fraction = 1.0  # of what is asked for that everybody gets

    def update(self) -> bool:
        """Find the fraction anew; tell whether it has changed."""
        before, asked = self.fraction, sum(self.jobs.values(), self.extra)
        self.fraction = self.capacity / asked if asked > self.capacity * ROUNDING else 1.0
        return self.fraction != before


class Crowding:
    """Kernels in crowds: each runs at the speed of the tightest one it is in, times that of its device."""

    def __init__(self, timeline: Timeline, factor: Callable[[Job], float]) -> None:
        self._timeline = timeline
        self._factor = factor  # 1 = full speed

    def join(self, job: Job, asks: Iterable[float]) -> None:
        """Begin a kernel; `job.uses` are its crowds, of which it asks so much each."""
        for crowd, asked in zip(job.uses, asks, strict=True):
            crowd.jobs[job] = asked
        self._changed(job.uses)
        self.pace(job)

    def leave(self, job: Job) -> None:
        """End a kernel."""
        for crowd in job.uses:
            del crowd.jobs[job]
        self._changed(job.uses)

    def others(self, crowd: Crowd, asked: float) -> None:
        """Let something that is no job use a crowd, too."""
        if crowd.extra != asked:
            crowd.extra = asked
            self._changed((crowd,))

    def pace(self, job: Job) -> None:
        """Let a kernel run at the speed that it gets now."""
        speed = self._factor(job)
        if job.uses:
            speed *= min([crowd.fraction for crowd in job.uses])
        self._timeline.pace(job, speed)

    def _changed(self, crowds: Iterable[Crowd]) -> None:
        for crowd in crowds:
            if crowd.update():
                for job in crowd.jobs:
                    self.pace(job)
