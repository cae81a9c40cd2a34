"""How late devices begin: from the call until a device computes, beside what its copies take.

Before: nothing.  After: plan/place.py, plan/offering.py.  Owned by a runtime; told what was measured, under its lock.

Planning, lowering, waking threads and a driver's queues cost each kind of device its own time, a fixed one, which decides
what small shares are worth.
"""

from __future__ import annotations

from collections import deque

from ..predict.window import centre

WINDOW = 15
USUAL = 300e-6  # seconds, where nothing was measured
MOST = 5e-3  # seconds: what is later than this was kept from beginning by something else


class Lags:
    """The recent lags of each device."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[float]] = {}
        self._known: dict[str, float] = {}

    def learn(self, device: str, seconds: float) -> None:
        """Take one measurement, made while nothing else was going on."""
        if seconds <= MOST:
            recent = self._recent.setdefault(device, deque(maxlen=WINDOW))
            recent.append(max(0.0, seconds))
            self._known[device] = centre(recent)

    def load(self, known: dict[str, float]) -> None:
        """Take what a store kept."""
        self._known |= {device: seconds for device, seconds in known.items() if 0.0 <= seconds <= MOST}

    def of(self, device: str) -> float:
        """Return how late a device begins."""
        return self._known.get(device, USUAL)

    def measured(self) -> dict[str, float]:
        """Return what was measured here."""
        return {device: self._known[device] for device in self._recent}
