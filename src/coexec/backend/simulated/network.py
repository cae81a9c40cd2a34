"""Transfers over the links of a platform: latency first, then bytes at a rate that is shared with others.

Before: sharing.py, machine/.  After: world.py.  Knows copies and links; no lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import unknown_name
from ...graph.instruction import Copy
from ...machine.platform import HOST, Link, Platform
from ...machine.topology import local
from .scenario import Scenario
from .sharing import FairShare
from .timeline import Job, Timeline

if TYPE_CHECKING:
    from .backend import SimulatedBackend


class TransferWay(NamedTuple):
    """A link, as transfers over it see it."""

    latency: float
    resources: tuple[Hashable, ...]  # its memories (the user's are the host's), and names it shares with other links


class SimulatedNetwork:
    """All links of a platform, and what is under way on them."""

    def __init__(self, platform: Platform, timeline: Timeline, scenario: Scenario) -> None:
        self._platform = platform
        self._timeline = timeline
        self._share = FairShare(timeline, self._limit)
        self._ways: dict[
            tuple[int, int, int], TransferWay | None
        ] = {}  # by rank of the process, and memories as it numbers them
        self._links: dict[Hashable, Link] = {}  # by the memories that they join
        self._limits: dict[Hashable, float] = {}
        self._factors: list[tuple[str, float]] = []
        self._made_of = {wire.id: wire.name for wire in platform.topology.wires} if platform.topology else {}
        for happening in scenario.happenings:
            if happening.what == "link":
                self._check(happening.name)

    def begin(self, entry: Any, done: Callable[[Any], None]) -> bool:
        """Begin a copy between two memories; `done(entry)` is called at its end. False if no link leads there."""
        copy = entry.instruction.step
        assert isinstance(copy, Copy)
        way = self._way(entry.process, copy.source.memory, copy.target.memory)
        if way is not None:
            self._go(entry, copy.nbytes, way, done)
        return way is not None

    def send(self, entry: Any, nbytes: int, ranks: tuple[int, int], done: Callable[[Any], None]) -> None:
        """Begin a message between the hosts of two ranks; `done(entry)` is called at its end."""
        key = (-1, *ranks)
        way = self._ways.get(key)
        if way is None:
            topology = self._platform.topology
            ends = (
                (HOST, HOST) if topology is None else (topology.memory(ranks[0], HOST), topology.memory(ranks[1], HOST))
            )
            link = self._platform.link(*ends)
            assert link is not None, "ranks are nodes of one network"
            self._links.setdefault(ends, link)
            way = self._ways[key] = TransferWay(link.latency, (ends, *self._limited(link)))
        self._go(entry, nbytes, way, done)

    def _go(self, entry: Any, nbytes: int, way: TransferWay, done: Callable[[Any], None]) -> None:
        entry.job = job = Job(entry, float(nbytes), self._arrived, way.resources, done)
        if way.latency:
            self._timeline.at(self._timeline.now + way.latency, self._share.join, job)
        else:
            self._share.join(job)

    def _arrived(self, entry: Any) -> None:
        job: Job = entry.job
        self._share.leave(job)
        assert job.then is not None
        job.then(entry)

    def _way(self, process: SimulatedBackend, source: int, target: int) -> TransferWay | None:
        key = (process.rank, source, target)
        if key in self._ways:
            return self._ways[key]
        link = process.platform.link(source, target) if source != target else None
        if link is None:  # within one memory
            self._ways[key] = None
            return None
        ends = (self._id(process, max(source, HOST)), self._id(process, target))
        self._links.setdefault(ends, link)
        way = self._ways[key] = TransferWay(link.latency, (ends, *self._limited(link)))
        return way

    def _limited(self, link: Link) -> list[str]:
        return [name for name in dict.fromkeys(link.shared) if self._platform.limit(name) is not None]

    def _id(self, process: SimulatedBackend, memory: int) -> int:
        """Return what the platform of all processes calls a memory of one of them."""
        topology = self._platform.topology
        if process.platform is self._platform or topology is None:
            return memory
        return topology.memory(process.rank, memory)

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
            link = self._links[resource]
            found = link.bandwidth
            names = {">".join(self._platform.memories[memory].name for memory in resource)}
            if (link.source, link.target) in self._platform.links:
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
            raise unknown_name("link in a scenario", name, sorted(known))
