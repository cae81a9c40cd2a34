"""What a simulated run draws: watts of each device by what it does, over the virtual time.

Before: machine/.  After: backend.py.  Knows spans of time; no instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...machine.platform import Device


class Energy(NamedTuple):
    """Joules. Devices that state no watts are not in it."""

    devices: Mapping[str, float]
    active: Mapping[str, float]  # seconds that each computed
    seconds: float  # in all

    @property
    def total(self) -> float:
        """Joules of all devices."""
        return sum(self.devices.values())


def energy(active: Iterable[tuple[Device, float, float]], seconds: float) -> Energy:
    """Return the energy of devices that computed for some of these seconds, drawing so many joules, and waited for the rest.

    A wide device is the same silicon as the narrow ones beside it, which wait when it computes and draw that already.
    """
    joules, spans = {}, {}
    for device, busy, drawn in active:
        spans[device.name] = busy
        if device.watts is not None:
            idle = 0.0 if device.wide else device.idle_watts or 0.0
            joules[device.name] = drawn + idle * (seconds - busy)
    return Energy(joules, spans, seconds)
