"""What happens when several use one thing: transfers share links fairly, kernels share cores, memories and devices.

Before: timeline.py.  After: backend.py.  Knows jobs and limits; no platform.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from .timeline import Job, Timeline

Limit = Callable[[Hashable], float]
"""Bytes per second that all users of a resource get together."""
ROUNDING = 1.0 + 1e-12
CLOSE = 1.0 + 1e-9  # sums of rates that come and go are not exact


class FairShare:
    """Transfers, each over several resources: none can get more without taking it from one that gets no more itself.

    That is max-min fairness, found by progressive filling: all rates grow alike until a resource is full, which fixes
    those that use it; the others go on. Only transfers are looked at that are connected with one that begins or ends,
    by resources that could be full at all: a network core that carries whatever its cards send connects nobody.
    """

    def __init__(self, timeline: Timeline, limit: Limit) -> None:
        self._timeline = timeline
        self._limit = limit
        self._users: dict[Hashable, dict[Job, float]] = {}  # and the rate that each would have alone
        self._asked: dict[Hashable, float] = {}  # the sum of these

    def join(self, job: Job) -> None:
        """Begin a transfer; `job.uses` are its resources."""
        alone = min([self._limit(resource) for resource in job.uses])
        for resource in job.uses:
            self._users.setdefault(resource, {})[job] = alone
            self._asked[resource] = self._asked.get(resource, 0.0) + alone
        around = [resource for resource in job.uses if self._tight(resource)]
        if around:
            self._fill(around)
        else:
            self._timeline.pace(job, alone)

    def leave(self, job: Job) -> None:
        """End a transfer."""
        around = [resource for resource in job.uses if self._tight(resource)]
        for resource in job.uses:
            of = self._users[resource]
            self._asked[resource] -= of.pop(job)
            if not of:
                del self._users[resource], self._asked[resource]
        if around:
            self._fill(around)

    def refill(self) -> None:
        """Look at everything: limits have changed."""
        jobs = dict.fromkeys(job for of in self._users.values() for job in of)
        self._asked = dict.fromkeys(self._users, 0.0)
        for job in jobs:
            alone = min([self._limit(resource) for resource in job.uses])
            for resource in job.uses:
                self._users[resource][job] = alone
                self._asked[resource] += alone
        self._fill(list(self._users))

    def _tight(self, resource: Hashable) -> bool:
        """Tell whether a resource could not carry what its transfers would have alone."""
        return self._asked[resource] > self._limit(resource) * CLOSE

    def _fill(self, around: Iterable[Hashable]) -> None:
        """Find the rates of all transfers that are connected with some resources."""
        alone = self._connected(around)
        tight = dict.fromkeys(r for job in alone for r in job.uses if self._tight(r))
        left = {resource: self._limit(resource) for resource in tight}
        open_ = {resource: len(self._users[resource]) for resource in tight}
        rates: dict[Job, float] = {}
        by_need = sorted(alone, key=alone.__getitem__, reverse=True)  # the last one is content first
        while len(rates) < len(alone):
            while by_need[-1] in rates:
                by_need.pop()
            level = alone[by_need[-1]]
            level = min([level, *[left[resource] / number for resource, number in open_.items() if number]])
            full = [r for r, number in open_.items() if number and left[r] / number <= level * ROUNDING]
            done = dict.fromkeys(job for r in full for job in self._users[r] if job not in rates)
            done |= {job: None for job in by_need if job not in rates and alone[job] <= level * ROUNDING}
            for job in done:
                rates[job] = level
                for used in job.uses:
                    if used in left:
                        left[used] -= level
                        open_[used] -= 1
        for job in alone:
            self._timeline.pace(job, rates[job])

    def _connected(self, around: Iterable[Hashable]) -> dict[Job, float]:
        """Return the transfers that are joined with `around` by tight resources, with the rates they would have alone."""
        todo = [resource for resource in around if resource in self._users]
        seen, jobs = set(todo), dict[Job, float]()
        while todo:
            for job, alone in self._users[todo.pop()].items():
                if job not in jobs:
                    jobs[job] = alone
                    for resource in job.uses:
                        if resource not in seen and self._tight(resource):
                            seen.add(resource)
                            todo.append(resource)
        return jobs


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
