"""How long kernels took before, and so how long they will take: robust against outliers, honest about the unknown.

Before: nothing.  After: plan/.  Knows keys, sizes and seconds; records are given to it.
"""

from __future__ import annotations

from collections.abc import Hashable

from .work import Estimate, Work


WINDOW = 7  # measurements kept per size class: a median of seven ignores three outliers
SHAPES = 64  # calls of unlike shapes remembered per variant and device
SETTLED = 32  # after so many, only every 16th is looked at


class _SizeClass:
    """Recent seconds per element of one size class (sizes within a factor of two)."""

    __slots__ = ("count", "rates", "seconds_per_element", "spread")

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.count = 0
        self.seconds_per_element = 0.0
        self.spread = 0.0

    def learn(self, rate: float) -> None:
        self.count += 1
        if self.count > SETTLED and self.count & 15:
            return
        if len(self.rates) == WINDOW or self.count == 2:  # the first run is cold: it does not count beside another
            del self.rates[0]
        self.rates.append(rate)
        ordered = sorted(self.rates)
        middle = ordered[len(ordered) // 2]
        self.seconds_per_element = middle
        self.spread = (ordered[-1] - ordered[0]) / middle if middle else 0.0


class Model:
    """One variant on one speed class of devices."""

    def __init__(self) -> None:
        self._classes: dict[int, _SizeClass] = {}
        self._exact: dict[Hashable, _SizeClass] = {}  # of calls with exactly these shapes
        self._asked: Work | None = None  # the last asked for, and the answer: programs repeat themselves
        self.version = 0
        self._answer: float | None = None

    def learn(self, work: Work, seconds: float, *, together: bool = False) -> None:
        """Take one measurement."""
        del together
        key, size = work.key, int(work.size)
        exact = self._exact.get(key)
        if exact is not None and exact.count > SETTLED and exact.count & 15:
            exact.count += 1
            return
        rate = seconds / (size or 1)
        group = size.bit_length()
        known = self._classes.get(group)
        if known is None:
            known = self._classes[group] = _SizeClass()
        known.learn(rate)
        if key is not None:
            if exact is None:
                if len(self._exact) >= SHAPES:
                    del self._exact[next(iter(self._exact))]
                exact = self._exact[key] = _SizeClass()
            exact.learn(rate)
        self._asked = None
        self.version += 1

    def seconds(self, work: Work, *, together: bool = False) -> float | None:
        """Return the predicted seconds, or None if nothing was measured near it."""
        if work is not self._asked:
            exact = self._exact.get(work.key) if work.key is not None else None
            self._asked, size = work, int(work.size)
            self._answer = exact.seconds_per_element * (size or 1) if exact is not None else self._predict(size)
        return self._answer

    def _predict(self, size: int) -> float | None:
        known = self._classes.get(size.bit_length())
        if known is not None:
            return known.seconds_per_element * (size or 1)
        if not self._classes:
            return None
        key = min(self._classes, key=lambda other: abs(other - size.bit_length()))
        return self._classes[key].seconds_per_element * (size or 1)

    def estimate(self, work: Work, *, together: bool = False) -> Estimate | None:
        """Return the prediction with its spread, or None."""
        seconds = self.seconds(work, together=together)
        if seconds is None:
            return None
        known = self._classes.get(int(work.size).bit_length())
        return Estimate(seconds, known.spread if known is not None else 1.0)

    def measured(self, work: Work) -> int:
        """Return how many measurements of that size class there are."""
        known = self._classes.get(int(work.size).bit_length())
        return known.count if known is not None else 0


class History:
    """All models, by (variant, speed class)."""

    def __init__(self) -> None:
        self._models: dict[Hashable, Model] = {}

    def model(self, key: Hashable) -> Model:
        """Return the model for `key`, an empty one if nothing was measured yet."""
        known = self._models.get(key)
        if known is None:
            known = self._models[key] = Model()
        return known
