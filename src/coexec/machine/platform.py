"""Devices, memories and links of one machine or of a cluster, as plain data.

Before: machine/parts.py, machine/topology.py.  After: plan/, lower/, backend/.  Knows nothing of how a device is driven.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import UnknownName, unknown_name
from .parts import HOST, USER, Device, Link, Memory, usable
from .topology import Parts, Topology, local as without_node

__all__ = ["HOST", "USER", "Device", "Link", "Memory", "Platform", "host_links", "peer_links", "usable"]


@dataclass(frozen=True)
class Platform:
    """A machine, or a cluster of machines that are alike: devices, memories (USER and HOST first) and links."""

    devices: tuple[Device, ...]
    memories: tuple[Memory, ...] = (Memory("user"), Memory("host", paged=True))
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)  # direct ones, within the first node
    topology: Topology | None = None  # everything else; None = there are only direct links
    name: str = ""
    about: str = ""  # one sentence

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Platform:
        """Return the platform that a TOML file describes; `source` is its path, or the name of a preset."""
        from .files.loading import load

        return cls(*load(source))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the platform as a TOML file, from which `load` gives the same again."""
        from .files.loading import save

        save(self._parts(), path)

    @staticmethod
    def presets() -> tuple[str, ...]:
        """Return the names of the platforms that come with coexec."""
        from .files.loading import presets

        return tuple(sorted(presets()))

    def describe(self) -> str:
        """Return what the platform consists of, as text."""
        from .describing import described

        return described(self._parts())

    def _parts(self) -> Parts:
        return Parts(self.devices, self.memories, self.links, self.topology, self.name, self.about)

    @property
    def nodes(self) -> int:
        """How many machines it has."""
        return self.topology.nodes if self.topology is not None else 1

    def node(self, index: int) -> Platform:
        """Return one machine of a cluster as a platform of its own, with the names it has there."""
        if self.topology is None or self.nodes == 1:
            return self
        if not 0 <= index < self.nodes:
            raise UnknownName(f"unknown node {index} (the platform has {self.nodes}, numbered from 0)")
        topology = self.topology
        local = {topology.memory(index, i): i for i in range(len(topology.memories))}
        devices = tuple(
            replace(device, memory=local[device.memory], readable=tuple(local[m] for m in device.readable))
            for device in self.devices
            if device.memory in local
        )
        begin = topology.named(index)
        links = {
            pair: replace(link, shared=tuple(begin + without_node(name) for name in link.shared))
            for pair, link in self.links.items()
        }
        alone = replace(topology, nodes=1, prefix=begin)
        return Platform(devices, tuple(self.memories[m] for m in local), links, alone, self.name, self.about)

    def device(self, name: str) -> Device:
        """Return the device called `name`."""
        for device in self.devices:
            if device.name == name:
                return device
        raise unknown_name("device", name, [d.name for d in self.devices])

    def link(self, source: int, target: int) -> Link | None:
        """Return the way between two memories, direct or over switches and the network, or None."""
        found = self.links.get((source, target))
        if found is None and self.topology is not None:
            found = self.topology.link(source, target, self.links)
        return found

    def links_into(self, target: int) -> list[Link]:
        """Return the ways that lead to a memory."""
        ways = (self.link(source, target) for source in range(len(self.memories)))
        return [link for link in ways if link is not None]

    def limit(self, shared: str) -> float | None:
        """Return the bytes per second of what links share by that name; None where only the links themselves limit."""
        return self.topology.limit(shared) if self.topology is not None else None

    def as_dict(self) -> dict[str, object]:
        """Return the platform as JSON-ready data."""
        return {
            "devices": [
                {
                    "name": d.name,
                    "kind": d.kind,
                    "memory": self.memories[d.memory].name,
                    "cores": list(d.cores),
                    **({"wide": True} if d.wide else {}),
                    **({"concurrent": d.concurrent} if d.concurrent > 1 else {}),
                    **({"launch_s": d.launch} if d.launch else {}),
                }
                for d in self.devices
            ],
            "memories": [{"name": m.name, "capacity": m.capacity} for m in self.memories],
            "links": [
                {
                    "from": self.memories[link.source].name,
                    "to": self.memories[link.target].name,
                    "latency_s": link.latency,
                    "bytes_per_s": link.bandwidth,
                }
                for link in self.links.values()
            ],
        }


def host_links(memories: Iterable[int]) -> dict[tuple[int, int], Link]:
    """Return links that join every memory in `memories` with HOST, and USER to all of them."""
    links = {(USER, HOST): Link(USER, HOST)}
    for memory in memories:
        links[USER, memory] = Link(USER, memory)
        links[HOST, memory] = Link(HOST, memory)
        links[memory, HOST] = Link(memory, HOST)
    return links


def peer_links(memories: Sequence[int]) -> dict[tuple[int, int], Link]:
    """Return links that join every two of the memories directly."""
    return {(a, b): Link(a, b) for a in memories for b in memories if a != b}
