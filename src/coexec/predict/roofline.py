"""The least time that a device's peak rates allow: all there is to say when nothing was measured.

Before: machine/.  After: predict/model.py, backend/simulated/.  Knows rates by type; no kernel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from ..machine.platform import Device


class Roofline(NamedTuple):
    """The peak rates of a device, as far as they are known."""

    flops: float | None = None  # operations per second
    bandwidth: float | None = None  # bytes per second, to and from its memory

    def of(self, kind: str) -> Roofline:
        """Return the peaks for some types: the same for all."""
        del kind
        return self

    def terms(self, work_flops: float | None, work_bytes: float | None) -> tuple[float, float]:
        """Return the least seconds of computing and of moving, 0 where nothing is known."""
        computing = work_flops / self.flops if work_flops and self.flops else 0.0
        return computing, work_bytes / self.bandwidth if work_bytes and self.bandwidth else 0.0

    def seconds(self, work_flops: float | None, work_bytes: float | None) -> float | None:
        """Return the time of the slower of computing and moving, or None if no rate is known for either."""
        return max(self.terms(work_flops, work_bytes)) or None

    def ratio(self, other: tuple[float | None, float | None], flops: float | None, nbytes: float) -> float | None:
        """Return how many times as long as on a device with other peaks some work takes here, or None."""
        if not (self.flops and other[0]):
            flops = None  # compare what both state
        mine, theirs = self, Roofline(*other)
        if not (self.bandwidth and other[1]):
            mine, theirs = mine._replace(bandwidth=None), theirs._replace(bandwidth=None)
        here, there = mine.seconds(flops, nbytes), theirs.seconds(flops, nbytes)
        return here / there if here and there else None


UNKNOWN = Roofline()
"""The peaks of a device of which nothing is known."""


class Peaks(Protocol):
    """Rooflines by what is computed with."""

    def of(self, kind: str) -> Roofline:
        """Return the peaks for arrays of some types."""


class DevicePeaks:
    """The peaks of a device in one operation: rates go by type. `memory` is its memory's bandwidth, if it states none of its own."""

    def __init__(self, device: Device, memory: float | None = None, measured: Roofline = UNKNOWN, op: str = "") -> None:
        achieved = device.reaches(op) if device.achieved or device.configurations else None
        self._part = 1.0 if achieved is None else achieved.of_peak
        self._device = device
        self._flops = measured.flops
        self._bandwidth = device.bandwidth or memory or measured.bandwidth
        self._known: dict[str, Roofline] = {}

    def of(self, kind: str) -> Roofline:
        """Return the peaks for arrays of some types."""
        known = self._known.get(kind)
        if known is None:
            rate = self._device.rate(computing_type(kind))
            known = self._known[kind] = Roofline(rate * self._part if rate else self._flops, self._bandwidth)
        return known


@lru_cache(maxsize=1024)
def computing_type(kind: str) -> str:
    """Return the widest type that a kernel on arrays of some types computes with: it sets the pace."""
    types = [np.dtype(name) for name in kind.split()] or [np.dtype(np.float32)]
    numbers = [t for t in types if t.kind in "fc"] or types
    return max(numbers, key=lambda t: t.itemsize).name
