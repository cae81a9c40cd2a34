"""Transfers over the links of a platform: latency first, then bytes at a rate that is shared with others.

Before: sharing.py, machine/.  After: backend.py.  Knows copies and links; no lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ...errors import unknown_name
from ...graph.instruction import Copy
from ...machine.platform import HOST, USER, Platform
from ...machine.topology import local
from .scenario import Scenario
from .sharing import FairShare
from .timeline import Job, Timeline


class Way(NamedTuple):
    """A link, as transfers over it see it."""

    latency: float
    resources: tuple[Hashable, ...]  # its memories (the user's are the host's), and names it shares with other links


class Network:
    """All links of a platform, and what is under way on them."""

    def __init__(self, platform: Platform, timeline: Timeline, scenario: Scenario) -> None:
        self._platform = platform
        self._timeline = timeline
        self._share = FairShare(timeline, self._limit)
        self._ways: dict[tuple[int, int], Way] = {}
        self._limits: dict[Hashable, float] = {}
        self._factors: list[tuple[str, float]] = []
        self._made_of = {wire.id: wire.name for wire in platform.topology.wires} if platform.topology else {}
        for happening in scenario.happenings:
            if happening.what == "link":
                self._check(happening.name)

    def begin(self, entry: Any, done: Callable[[Any], None]) -> None:
        """Begin a copy between two memories; `done(entry)` is called at its end."""
        copy: Copy = entry.instruction
        way = self._way(copy.source.memory, copy.target.memory)
        entry.job = job = Job(entry, float(copy.nbytes), lambda entry: self._arrived(entry, done), way.resources)
        if way.latency:
            self._timeline.at(self._timeline.now + way.latency, self._share.join, job)
        else:
            self._share.join(job)

    def _arrived(self, entry: Any, done: Callable[[Any], None]) -> None:
        self._share.leave(entry.job)
        done(entry)

    def _way(self, source: int, target: int) -> Way:
        way = self._ways.get((source, target))
        if way is None:
            link = self._platform.link(source, target)
            assert link is not None, "a copy without a link takes the time of its memory"
            limited = [name for name in dict.fromkeys(link.shared) if self._platform.limit(name) is not None]
            way = self._ways[source, target] = Way(link.latency, ((max(source, HOST), target), *limited))
        return way

    def _limit(self, resource: Hashable) -> float:
        found = self._limits.get(resource)
        if found is None:
            found = self._limits[resource] = self._bandwidth(resource)
        return found

    def _bandwidth(self, resource: Any) -> float:
        """Return the bytes per second of a resource as they are now."""
        if isinstance(resource, str):
            found = self._platform.limit(resource)
            names = {resource, local(resource), self._made_of.get(local(resource), "")}
        else:
            source, target = resource
            link = self._platform.link(source, target) or self._platform.link(USER, target)
            assert link is not None
            found = link.bandwidth
            names = {">".join(self._platform.memories[memory].name for memory in resource)}
            if (link.source, target) in self._platform.links:
                names.add(link.name)  # others pass through parts that have limits of their own
        assert found is not None
        for name, factor in self._factors:
            if name in names:
                found *= factor
        return found

    def degrade(self, name: str, factor: float) -> None:
        """Let links of that name have `factor` times their bandwidth from now on."""
        self._factors.append((name, factor))
        self._limits.clear()
        self._share.refill()

    def _check(self, name: str) -> None:
        """Raise if no link is called so."""
        memories = [memory.name for memory in self._platform.memories]
        known = {link.name for link in self._platform.links.values()} - {""}
        topology = self._platform.topology
        if topology is not None:
            known |= set(topology.names())
        source, arrow, target = name.partition(">")
        pair = bool(arrow) and source in memories and target in memories
        if not pair and name not in known and local(name) not in known:
            raise unknown_name("link", name, sorted(known))
