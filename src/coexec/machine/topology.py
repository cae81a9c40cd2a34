"""How memories are joined: switches, buses, network cards, and the ways that lead over them, found by rule.

Before: machine/parts.py.  After: machine/platform.py.  Knows names and numbers of one node; the other nodes are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from ..errors import unknown_name
from .parts import HOST, USER, Device, Link, Memory

COMMON = 1 << 20
"""Bytes for which the quickest way is looked for."""


class Switch(NamedTuple):
    """Something that passes data on and keeps none: a PCIe switch, a root complex, a ring."""

    name: str
    peers: bool = True  # devices may copy to each other through it; if not, one end is the host


class Bus(NamedTuple):
    """A bandwidth that several links share, whatever their direction."""

    name: str
    bandwidth: float


class Wire(NamedTuple):
    """One direction of a connection of which at least one end is no memory."""

    source: str
    target: str
    latency: float
    bandwidth: float
    shared: tuple[str, ...] = ()
    name: str = ""

    @property
    def id(self) -> str:
        """The name under which transfers share this wire."""
        return f"{self.source}>{self.target}"


class Network(NamedTuple):
    """What joins the network cards of all nodes."""

    latency: float  # seconds from card to card
    bandwidth: float  # bytes per second of one card in one direction
    total: float | None = None  # bytes per second of everything that is under way; None = nothing blocks


class Path(NamedTuple):
    """A way over wires: what it takes, and what it passes through."""

    latency: float
    bandwidth: float
    through: tuple[tuple[float, str], ...]  # bandwidth and name of each thing that others may use too
    names: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The time of a transfer of common size."""
        return self.latency + COMMON / self.bandwidth

    def inside(self, node: str) -> Path:
        """Return the same way with the names of a node."""
        return self._replace(through=tuple((limit, node + name) for limit, name in self.through)) if node else self

    def link(self, source: int, target: int) -> Link:
        """Return the way as a link. The narrowest thing on it comes first; among equals, the first one met."""
        narrow = [name for _, name in sorted(self.through, key=itemgetter(0))]
        return Link(source, target, self.latency, self.bandwidth, tuple(narrow), "+".join(dict.fromkeys(self.names)))


def local(name: str) -> str:
    """Return a name without its node."""
    return name.rpartition("/")[2]


def joined(*paths: Path) -> Path:
    """Return one path after the other."""
    return Path(
        sum(path.latency for path in paths),
        min(path.bandwidth for path in paths),
        tuple(part for path in paths for part in path.through),
        tuple(name for path in paths for name in path.names),
    )


@dataclass(frozen=True)
class Topology:
    """The connections of one node, and how many nodes like it a network joins.

    Memory 0 is the user's, on the first node; then come all memories of the first node, all of the second, and so on.
    """

    memories: tuple[str, ...]  # of one node, the user's and the host's first
    switches: tuple[Switch, ...] = ()
    wires: tuple[Wire, ...] = ()  # sorted
    buses: tuple[Bus, ...] = ()
    cards: tuple[str, ...] = ()  # the network cards of a node
    network: Network | None = None
    nodes: int = 1
    prefix: str = ""  # of the names on a single node that was taken out of several
    _links: dict[tuple[int, int], Link | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _paths: dict[tuple[str, str], Path | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _leaving: dict[str, list[Wire]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _limits: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _widths: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    _halves: dict[tuple[str, bool], tuple[str, Path] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._widths.extend(sorted({wire.bandwidth for wire in self.wires}, reverse=True))
        for wire in self.wires:
            self._leaving.setdefault(wire.source, []).append(wire)
            self._limits[wire.id] = wire.bandwidth
        self._limits.update({bus.name: bus.bandwidth for bus in self.buses})
        if self.network is not None:
            for card in self.cards:
                self._limits[f"{card}>network"] = self._limits[f"network>{card}"] = self.network.bandwidth
            if self.network.total is not None:
                self._limits["network"] = self.network.total

    @property
    def plain(self) -> bool:
        """Whether there is nothing here but memories."""
        return not (self.switches or self.wires or self.buses or self.cards or self.network) and self.nodes == 1

    def names(self) -> list[str]:
        """Return what parts of ways are called: what they are made of, and what they share."""
        return [*self._limits, *(wire.name for wire in self.wires if wire.name)]

    def named(self, node: int) -> str:
        """Return what names on this node begin with."""
        return f"n{node}/" if self.nodes > 1 else self.prefix

    def place(self, memory: int) -> tuple[int, int]:
        """Return the node of a memory, and the memory's id within it."""
        if memory == USER:
            return 0, USER
        node, local = divmod(memory - 1, len(self.memories) - 1)
        return node, local + 1

    def memory(self, node: int, local: int) -> int:
        """Return the id of a memory of a node: the inverse of `place`."""
        return USER if local == USER else 1 + node * (len(self.memories) - 1) + local - 1

    def limit(self, shared: str) -> float:
        """Return the bytes per second that all transfers through `shared` get together."""
        found = self._limits.get(local(shared))
        if found is None:
            raise unknown_name("switch, bus or wire", shared, list(self._limits))
        return found

    def link(self, source: int, target: int, direct: Mapping[tuple[int, int], Link]) -> Link | None:
        """Return the way between two memories, or None. `direct` has the links of the first node without switches."""
        if (source, target) not in self._links:
            self._links[source, target] = self._find(source, target, direct)
        return self._links[source, target]

    def _find(self, source: int, target: int, direct: Mapping[tuple[int, int], Link]) -> Link | None:
        (here, one), (there, other) = self.place(source), self.place(target)
        if target in (source, USER) or there >= self.nodes:
            return None
        if here == there and (found := direct.get((one, other))) is not None:
            shared = tuple(self.named(here) + local(name) for name in found.shared)
            return Link(source, target, found.latency, found.bandwidth, shared, found.name)
        begin, end = self.memories[max(one, HOST)], self.memories[other]  # what is the user's is on the host
        path = self._within(here, begin, end) if here == there else self._across(here, begin, there, end)
        return None if path is None else path.link(source, target)

    def _within(self, node: int, source: str, target: str) -> Path | None:
        path = self.path(source, target)
        return None if path is None else path.inside(self.named(node))

    def _across(self, here: int, source: str, there: int, target: str) -> Path | None:
        """Return the way over the network: to the nearest card, and from the card nearest to the other end."""
        begin, end = self._half(source, out=True), self._half(target, out=False)
        if begin is None or end is None or self.network is None:
            return None
        one, other = self.named(here), self.named(there)
        latency, bandwidth, total = self.network
        cards = ((bandwidth, f"{one}{begin[0]}>network"), (bandwidth, f"{other}network>{end[0]}"))
        through = cards if total is None else (*cards, (total, "network"))
        return joined(begin[1].inside(one), Path(latency, bandwidth, through, ("network",)), end[1].inside(other))

    def _half(self, memory: str, *, out: bool) -> tuple[str, Path] | None:
        """Return the nearest card and the way to or from it; memories take turns among cards that are equally near."""
        if (memory, out) not in self._halves:
            ways = {card: self.path(memory, card) if out else self.path(card, memory) for card in self.cards}
            known = [(card, way) for card, way in ways.items() if way is not None]
            least = min((way.seconds for _, way in known), default=0.0)
            nearest = [(card, way) for card, way in known if way.seconds == least]
            turn = self.memories.index(memory) - HOST
            self._halves[memory, out] = nearest[turn % len(nearest)] if nearest else None
        return self._halves[memory, out]

    def path(self, source: str, target: str) -> Path | None:
        """Return the quickest way over switches within a node, or None."""
        if (source, target) not in self._paths:
            found = [path for least in self._widths if (path := self._quickest(source, target, least)) is not None]
            self._paths[source, target] = min(found, key=lambda path: path.seconds, default=None)
        return self._paths[source, target]

    def _quickest(self, source: str, target: str, least: float) -> Path | None:
        """Return the way with the smallest latency over wires of at least that bandwidth (Dijkstra)."""
        host = self.memories[HOST] in (source, target)
        passing = {switch.name for switch in self.switches if switch.peers or host}
        order, done = count(), set()
        heap: list[tuple[float, int, int, str, tuple[Wire, ...]]] = [(0.0, 0, next(order), source, ())]
        while heap:
            latency, hops, _, place, wires = heappop(heap)
            if place == target:
                return _path(wires)
            if place in done:
                continue
            done.add(place)
            for wire in self._leaving.get(place, ()):
                if wire.bandwidth >= least and (wire.target == target or wire.target in passing):
                    heappush(heap, (latency + wire.latency, hops + 1, next(order), wire.target, (*wires, wire)))
        return None


def _path(wires: Iterable[Wire]) -> Path:
    wires = tuple(wires)
    return Path(
        sum(wire.latency for wire in wires),
        min(wire.bandwidth for wire in wires),
        tuple((wire.bandwidth, name) for wire in wires for name in (wire.id, *wire.shared)),
        tuple(wire.name for wire in wires if wire.name),
    )


class Parts(NamedTuple):
    """Everything that makes a platform, in the order of its fields."""

    devices: tuple[Device, ...]
    memories: tuple[Memory, ...]
    links: Mapping[tuple[int, int], Link]
    topology: Topology | None = None
    name: str = ""
    about: str = ""
