"""What happens when several use one thing: transfers share links fairly, kernels share cores, memories and devices.

Before: timeline.py.  After: backend.py.  Knows jobs and limits; no platform.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain

from .timeline import Job, Timeline

Limit = Callable[[Hashable], float]
"""Bytes per second that all users of a resource get together."""
ROUNDING = 1.0 + 1e-12
CLOSE = 1.0 + 1e-9  # sums of rates that come and go are not exact


class Resource:
    """Something that transfers pass through: what it carries, who uses it, and what they would have alone."""

    __slots__ = ("asked", "left", "limit", "open", "round", "users")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.users: dict[Job, float] = {}  # and the rate that each would have alone
        self.asked = 0.0  # the sum of these
        self.round = 0  # in which shares were found last
        self.left = 0.0  # what nobody has got yet, in that round
        self.open = 0  # who has got nothing yet


class FairShare:
    """Transfers, each over several resources: none can get more without taking it from one that gets no more itself.

    That is max-min fairness, found by progressive filling: all rates grow alike until a resource is full, which fixes
    those that use it; the others go on. Only transfers are looked at that are connected with one that begins or ends,
    by resources that could be full at all: a network core that carries whatever its cards send connects nobody. What
    begins or ends at one moment is looked at together, before time moves on.
    """

    def __init__(self, timeline: Timeline, limit: Limit) -> None:
        self._timeline = timeline
        self._limit = limit
        self._resources: dict[Hashable, Resource] = {}
        self._ways: dict[tuple[Hashable, ...], tuple[tuple[Resource, ...], float]] = {}
        self._changed: dict[Resource, None] = {}  # tight ones whose users came or went at this moment
        self._round = 0

    def join(self, job: Job) -> None:
        """Begin a transfer; `job.uses` are its resources."""
        alone = self._enter(job)
        tight = [resource for resource in job.parts if resource.asked > resource.limit * CLOSE]
        if tight:
            self._change(tight)
        else:
            self._timeline.pace(job, alone)

    def leave(self, job: Job) -> None:
        """End a transfer."""
        self._change([resource for resource in job.parts if resource.asked > resource.limit * CLOSE])
        for resource in job.parts:
            resource.asked -= resource.users.pop(job)
            if not resource.users:
                resource.asked = 0.0  # sums of what comes and goes are not exact

    def refill(self) -> None:
        """Look at everything: limits have changed."""
        jobs = dict.fromkeys(job for resource in self._resources.values() for job in resource.users)
        self._resources.clear()
        self._ways.clear()
        self._changed.clear()
        for job in jobs:
            self._enter(job)
        self._fill(self._resources.values())

    def _enter(self, job: Job) -> float:
        """Note that a transfer uses its resources; return the rate it would have alone."""
        parts, alone = self._ways.get(job.uses) or self._find(job.uses)
        job.parts = parts
        for resource in parts:
            resource.users[job] = alone
            resource.asked += alone
        return alone

    def _find(self, uses: tuple[Hashable, ...]) -> tuple[tuple[Resource, ...], float]:
        """Return the resources of that name, and what one transfer over all of them gets alone; as limits are now."""
        known = self._resources
        for name in uses:
            if name not in known:
                known[name] = Resource(self._limit(name))
        parts = tuple([known[name] for name in uses])
        way = self._ways[uses] = (parts, min([resource.limit for resource in parts]))
        return way

    def _change(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            if not self._changed:
                self._timeline.before_it_moves(self._settle)
            self._changed[resource] = None

    def _settle(self) -> None:
        changed, self._changed = self._changed, {}
        self._fill(changed)

    def _fill(self, around: Iterable[Resource]) -> None:
        """Find the rates of all transfers that are connected with some resources."""
        self._round += 1
        alone, tight = self._connected(around)
        rates: dict[Job, float] = {}
        by_need = sorted(alone, key=alone.__getitem__, reverse=True)  # the last one is content first
        while len(rates) < len(alone):
            while by_need[-1] in rates:
                by_need.pop()
            tight = [resource for resource in tight if resource.open]
            level = min([alone[by_need[-1]], *[resource.left / resource.open for resource in tight]])
            full = [resource for resource in tight if resource.left / resource.open <= level * ROUNDING]
            done = dict.fromkeys([job for resource in full for job in resource.users if job not in rates])
            while by_need and alone[by_need[-1]] <= level * ROUNDING:
                if (job := by_need.pop()) not in rates:
                    done[job] = None
            for job in done:
                rates[job] = level
                for used in job.parts:
                    if used.round == self._round:
                        used.left -= level
                        used.open -= 1
        for job in alone:
            self._timeline.pace(job, rates[job])

    def _connected(self, around: Iterable[Resource]) -> tuple[dict[Job, float], list[Resource]]:
        """Return the transfers that are joined with `around` by tight resources, with their rates alone, and these."""
        todo = list(around)
        seen, jobs, tight = set(todo), dict[Job, float](), []
        while todo:
            resource = todo.pop()
            if resource.asked > resource.limit * CLOSE:
                tight.append(resource)
                resource.round, resource.left, resource.open = self._round, resource.limit, len(resource.users)
            for job, alone in resource.users.items():
                if job not in jobs:
                    jobs[job] = alone
                    for other in job.parts:
                        if other not in seen and other.asked > other.limit * CLOSE:
                            seen.add(other)
                            todo.append(other)
        return jobs, tight


class SharedResource:
    """Something that kernels use up together: cores, a memory's bandwidth, a device's rate.

    If they ask for more than there is, each is slowed down by the same factor. A crowd may be `within` another: what it can
    use at most is what all of its kernels together ask of that one.
    """

    __slots__ = ("capacity", "crowds", "extra", "fraction", "jobs", "within")

    def __init__(self, capacity: float, within: SharedResource | None = None) -> None:
        self.capacity = capacity
        self.within = within
        self.crowds: dict[SharedResource, float] = {}  # within it, and how much each asks for
        self.jobs: dict[Job, float] = {}  # and how much each asks for at full speed
        self.extra = 0.0  # asked for by what is no job
        self.fraction = 1.0  # of what is asked for that everybody gets

    def update(self) -> bool:
        """Find the fraction anew; tell whether it has changed."""
        before, asked = self.fraction, sum(self.jobs.values(), self.extra)
        if self.within is not None:
            self.within.crowds[self] = min(asked, self.capacity)
        if self.crowds:
            asked = sum(self.crowds.values(), asked)
        self.fraction = self.capacity / asked if asked > self.capacity * ROUNDING else 1.0
        return self.fraction != before

    def share(self) -> float:
        """Return which fraction of what a kernel asks for it gets."""
        return self.fraction if self.within is None else self.fraction * self.within.fraction

    def everybody(self) -> Iterable[Job]:
        """Return the kernels that are in it, and in the crowds within it."""
        return chain(self.jobs, *[crowd.jobs for crowd in self.crowds]) if self.crowds else self.jobs


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

    def others(self, crowd: SharedResource, asked: float) -> None:
        """Let something that is no job use a crowd, too."""
        if crowd.extra != asked:
            crowd.extra = asked
            self._changed((crowd,))

    def pace(self, job: Job) -> None:
        """Let a kernel run at the speed that it gets now."""
        speed = self._factor(job)
        if job.uses:
            speed *= min([crowd.share() for crowd in job.uses])
        self._timeline.pace(job, speed)

    def _changed(self, crowds: Iterable[SharedResource]) -> None:
        for crowd in crowds:
            if crowd.update():
                for job in crowd.everybody():
                    self.pace(job)
            if crowd.within is not None:
                self._changed((crowd.within,))
