"""Devices, memories and links of one machine, as plain data.

Before: nothing.  After: plan/, lower/, backend/.  Knows nothing of how a device is driven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

USER = 0
"""Memory id of what the user owns: borrowed arrays. coexec reads it and never writes it."""
HOST = 1
"""Memory id of the host memory that coexec owns."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Something that holds allocations. Its index in the platform is its id."""

    name: str
    capacity: int | None = None  # bytes; None = not limited by coexec
    paged: bool = False  # pages appear on first touch, so allocating a whole array costs nothing
    strict: bool = True  # allocations are kept within the capacity; False: it is known, and the system's business
    largest: int | None = None  # bytes of one allocation; None = as many as there are


def usable(capacity: int | None) -> int | None:
    """Return the part of a device's memory that coexec plans with: a sixteenth is left to its driver."""
    return None if capacity is None else capacity - capacity // 16


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs kernels, as the planner and the lowering see it."""

    name: str  # "cpu:0", "cpu:all", "opencl:0"
    kind: str  # the backend's name: cpu, opencl, simulated, null
    memory: int  # where it writes
    readable: tuple[int, ...] = ()  # memories it reads in place, the native one first
    speed: str = ""  # devices with the same speed class share measurements
    cores: tuple[int, ...] = ()  # CPU cores it occupies while it runs
    wide: bool = False  # all cores at once; excludes the narrow devices
    lanes: int = 64  # how many in-order lanes may be open at once
    waits_across_lanes: bool = False  # can order one lane behind another without the host
    eager: bool = True  # a lane has one server, so an instruction may be queued behind an unfinished one
    description: str = ""
    software: str = ""  # driver and library versions: measurements hold for these only
    flops: float | None = None  # peak operations per second in single precision, from device data
    bandwidth: float | None = None  # peak bytes per second from its own memory, from device data
    granule: int = 1  # rows of a share are multiples of this, as far as possible
    watts: float | None = None  # while it computes
    idle_watts: float | None = None  # while it waits

    def reads(self, memory: int) -> bool:
        """Tell whether kernels on this device read `memory` in place."""
        return memory == self.memory or memory in self.readable


@dataclass(frozen=True, slots=True)
class Link:
    """A way to copy from one memory to another."""

    source: int
    target: int
    latency: float = 5e-6  # seconds
    bandwidth: float = 8e9  # bytes per second
    shared: str = ""  # links of the same name carry one transfer at a time

    def seconds(self, nbytes: int) -> float:
        """Return the predicted time to move `nbytes`."""
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Platform:
    """One machine: its devices, its memories (USER and HOST first) and its links."""

    devices: tuple[Device, ...]
    memories: tuple[Memory, ...] = (Memory("user"), Memory("host", paged=True))
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)

    def device(self, name: str) -> Device:
        """Return the device called `name`."""
        for device in self.devices:
            if device.name == name:
                return device
        from ..errors import unknown_name

        raise unknown_name("device", name, [d.name for d in self.devices])

    def link(self, source: int, target: int) -> Link | None:
        """Return the direct link between two memories, or None."""
        return self.links.get((source, target))

    def as_dict(self) -> dict[str, object]:
        """Return the platform as JSON-ready data."""
        return {
            "devices": [
                {"name": d.name, "kind": d.kind, "memory": self.memories[d.memory].name, "cores": list(d.cores)}
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
