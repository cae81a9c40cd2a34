"""Which crowds the kernels of a device are in: of the cores, of the memory, of the device itself.

Before: sharing.py, machine/.  After: backend.py.  Plain bookkeeping: made once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...machine.platform import Device, Platform
from .durations import Timed
from .sharing import SharedResource


class Crowds:
    """What the kernels of one device use together with others."""

    __slots__ = ("cores", "memory", "occupied", "rate")

    def __init__(
        self, cores: SharedResource | None, occupied: int, memory: SharedResource | None, rate: SharedResource | None
    ) -> None:
        self.cores, self.occupied = cores, float(occupied)
        self.memory = memory
        self.rate = rate

    def of(self, timed: Timed) -> tuple[tuple[SharedResource, ...], tuple[float, ...]]:
        """Return the crowds of a kernel, and how much it asks of each; what was measured is as it was among them."""
        crowds: list[SharedResource] = []
        asks: list[float] = []
        if self.cores is not None and timed.source != "measured":
            crowds.append(self.cores)
            asks.append(self.occupied)
        if self.memory is not None and timed.bytes_per_s:
            crowds.append(self.memory)
            asks.append(timed.bytes_per_s)
        if self.rate is not None and timed.computing:
            crowds.append(self.rate)
            asks.append(timed.computing)
        return tuple(crowds), tuple(asks)


def node_of(device: Device) -> str:
    """Return the node that a device's name begins with; "" where there is only one."""
    return device.name.rpartition("/")[0]


def crowds_of(platform: Platform) -> tuple[dict[str, Crowds], Mapping[str, SharedResource]]:
    """Return the crowds of every device, and those of the cores of each node."""
    numbers: dict[str, set[int]] = {}
    on: dict[int, list[Device]] = {}
    for device in platform.devices:
        numbers.setdefault(node_of(device), set()).update(device.cores)
        on.setdefault(device.memory, []).append(device)
    cores = {node: SharedResource(float(len(ids))) for node, ids in numbers.items() if ids}
    memories = {}
    for memory, devices in on.items():
        bandwidth = platform.memories[memory].bandwidth
        if bandwidth is None and len(devices) == 1:
            bandwidth = devices[0].bandwidth
        if bandwidth is not None and (len(devices) > 1 or devices[0].concurrent > 1):
            memories[memory] = SharedResource(bandwidth)
    found = {}
    for device in platform.devices:
        rate = SharedResource(1.0) if device.concurrent > 1 else None
        own = cores[node_of(device)] if device.cores else None
        shared = memories.get(device.memory)
        most = device.bandwidth
        if rate is not None and shared is not None and most is not None and most < shared.capacity:
            shared = SharedResource(
                most, within=shared
            )  # or several kernels at once would move more than one of them can
        found[device.name] = Crowds(own, len(device.cores), shared, rate)
    found["host"] = Crowds(None, 0, None, None)
    return found, cores
