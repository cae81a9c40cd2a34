"""The recent measurements of one thing: their median, which outliers do not move and lasting changes do.

Before: nothing.  After: predict/table.py.  Knows seconds; not of what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WINDOW = 7  # measurements kept: a median of seven ignores three outliers
SETTLED = 32  # after so many, only every 16th is looked at
SURPRISES = 3  # so many in a row, and a settled window looks again
TOLERANCE = 0.15  # a measurement this far from the median is a surprise, unless such noise is usual
NOISE = 3.0  # usual: within so many spreads


def median(ordered: Sequence[float]) -> float:
    """Return the middle of sorted values; the lower one of two, as what disturbs a measurement makes it longer."""
    return ordered[(len(ordered) - 1) // 2]


def centre(values: Iterable[float]) -> float:
    """Return the median of values in any order, between two the mean: statistics has it too, and loads a lot for it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _restated(now: float, then: float) -> float:
    """Return `now`, or the measurement itself if the device is back at its old speed: errors must not add up."""
    return then if then <= now * (1.0 + TOLERANCE) and now <= then * (1.0 + TOLERANCE) else now


class MeasurementWindow:
    """The last measurements, oldest first."""

    __slots__ = ("_adjusted", "_held", "_steady", "cold", "count", "high", "low", "middle", "recent", "spread")

    def __init__(self) -> None:
        self.recent: tuple[float, ...] = ()  # as measured
        self.count = 0  # all measurements, kept or not
        self.cold = True  # nothing but a first run, which pays for compilers, caches and pages
        self.middle = 0.0
        self.spread = 0.0  # relative: half of the measurements lie within it
        self.low = self.high = 0.0  # between these, a measurement is no surprise
        self._adjusted: tuple[float, ...] = ()  # as they would be at the present speed of the device
        self._held: tuple[float, ...] = ()  # surprises that a settled window has not taken
        self._steady = 0

    def learn(self, seconds: float) -> bool:
        """Take one measurement; say whether it was looked at."""
        self.count += 1
        self._steady += 1
        if self._steady > SETTLED and not self._worth_a_look(seconds):
            return False
        if self.count > 1 and self.cold:
            self.recent = self._adjusted = ()
            self.cold = False
        self._append((seconds,))
        return True

    def _worth_a_look(self, seconds: float) -> bool:
        if self.low <= seconds <= self.high:
            self._held = ()
            return not self._steady & 15
        self._held += (seconds,)
        if len(self._held) < SURPRISES and self.low <= self.recent[-1] <= self.high:
            return False
        self._held = self._held[:-1]
        self._release()
        return True

    def _release(self) -> None:
        """Take what was held back, and settle anew."""
        held, self._held = self._held, ()
        self._steady = 0
        if held:
            self._append(held)

    def load(self, seconds: Sequence[float]) -> None:
        """Take older measurements of a warm device, oldest first, before what is here."""
        here, adjusted = ((), ()) if self.cold else (self.recent, self._adjusted)
        self.count += len(seconds)
        self.cold = False
        self.recent = (*seconds, *here)[-WINDOW:]
        self._adjusted = (*seconds, *adjusted)[-WINDOW:]
        self._settle()

    def drift(self, factor: float, fresh: int) -> None:
        """The device's speed changed: all but the last `fresh` measurements would now take `factor` times as long."""
        self._release()
        old = max(len(self._adjusted) - fresh, 0)
        pairs = zip(self._adjusted[:old], self.recent[:old], strict=True)
        self._adjusted = (*(_restated(now * factor, then) for now, then in pairs), *self._adjusted[old:])
        self._settle()

    def _append(self, seconds: tuple[float, ...]) -> None:
        self.recent = (*self.recent, *seconds)[-WINDOW:]
        self._adjusted = (*self._adjusted, *seconds)[-WINDOW:]
        self._settle()

    def _settle(self) -> None:
        values = self._adjusted
        middle = median(sorted(values))
        self.spread = median(sorted(abs(v - middle) for v in values)) / middle if middle else 0.0
        usual = 1.0 + max(TOLERANCE, NOISE * self.spread)
        self.low, self.high = middle / usual, middle * usual
        self.middle = middle
