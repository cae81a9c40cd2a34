"""What was measured of one kind of call under one condition, and what follows for calls that were not measured.

Before: predict/window.py, predict/regression.py, predict/nearest.py.  After: predict/model.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import frexp, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .nearest import NearestSamples
from .regression import TINY, Fit, Matrix, at_hand, fit
from .sample import Sample
from .window import MeasurementWindow
from .work import Work

KEYS = 256  # unlike calls remembered
SHAPES = 4  # unlike features that a fit needs
MANY_PER_FEATURE = 3  # calls, of which nobody has to look whether they tell features apart
SPARE = 2  # calls beyond the ways in which they differ: what keeps a fit from going through all of them
FAINT = 0.03  # of the strongest way in which calls differ: a weaker one is a border or a rounding
PLAINLY = 0.25  # of what one feature leaves unexplained: less, and it is another that times follow
APART = 1.5  # times: sizes that differ by less do not tell which feature their times follow, as noise is as large
CHANGED = 0.03  # an answer that moved by more is another answer
FIRST_RUN = 0.5  # the spread of a first run
STEP = 0.05  # of an answer that moved; so many steps, and the fit is made again
FAR = 20  # steps; no answer moves further
ROWS = 96  # of these many samples a fit is made, evenly over the sizes
DRIFT = 4  # measurements in a row that all say that the device's speed changed
CONSISTENT = 1.7  # the largest of their factors over the smallest


class KeyMeasurements(MeasurementWindow):
    """The measurements of calls with one key."""

    __slots__ = ("announced", "changed", "features", "key", "last")

    def __init__(self, key: str, features: tuple[float, ...]) -> None:
        super().__init__()
        self.key = key
        self.features = features
        self.announced = -1.0  # the median that fits and plans were made with
        self.changed = False  # since the store was last written
        self.last = 0  # when it was last measured, in measurements

    @property
    def doubt(self) -> float:
        """The spread; of a single first run nobody knows it."""
        return self.spread if not self.cold else FIRST_RUN

    def moved(self, noise: float = 0.0) -> int:
        """Say how far the median left what was announced, in steps beyond noise; it is announced then."""
        before, now = self.announced, self.middle
        if abs(now - before) <= max(CHANGED, self.spread / 2, noise) * before:
            return 0
        self.announced = now
        return 1 + min(int(abs(log(now / before)) / STEP), FAR) if before > 0.0 and now > 0.0 else FAR


class Guess(NamedTuple):
    """Seconds of a call that was not measured."""

    seconds: float
    spread: float


def key_of(work: Work) -> Hashable:
    """Return what calls are looked up by: calls without a key are alike if their features are."""
    return work.key if work.key is not None else ("", work.features)


def key_text(work: Work) -> str:
    """Return the key as a store keeps it; calls without a key are found by their features."""
    return "" if work.key is None else repr(work.key)


class MeasurementTable:
    """Measurements by key; the fit over them is made when it is asked for, and again when they changed noticeably."""

    def __init__(self, kind: str, *, together: bool) -> None:
        self.kind = kind
        self.together = together
        self.entries: dict[Hashable, KeyMeasurements] = {}
        self.shapes = 0  # unlike features, at least
        self._width = 0  # how many features the kernel declares
        self._stored: dict[str, KeyMeasurements] = {}  # loaded, and not asked for yet: by their text
        self._clock = 0
        self._changes = 0
        self._fitted = self._corrected = 0  # the changes that the fit and the correction know of
        self._seen_apart = (
            0,
            False,
        )  # of how many entries it is known whether they tell features apart, and the answer
        self._fit: Fit | None = None
        self._local: NearestSamples | None = None
        self._streak: list[tuple[KeyMeasurements, float]] = []  # the last measurements, as long as all were off one way

    def all(self) -> list[KeyMeasurements]:
        """Return every entry."""
        return [*self.entries.values(), *self._stored.values()]

    def entry(self, work: Work) -> KeyMeasurements | None:
        """Return the measurements of exactly such calls, or None."""
        found = self.entries.get(key_of(work))
        if found is None and self._stored:
            found = self._stored.pop(key_text(work), None)
            if found is not None:
                self.entries[key_of(work)] = found
        return found if found is not None and len(found.features) == len(work.features) else None

    def learn(self, work: Work, seconds: float) -> bool:
        """Take one measurement; say whether answers changed."""
        self._clock += 1
        entry = self.entry(work) or self._added(work)
        entry.last = self._clock
        drifting = self._drifting(entry, seconds)
        if not entry.learn(seconds) and not drifting:
            return False
        entry.changed = True
        if drifting:
            self._drift()
        moved = entry.moved(self._local.spread if self._local is not None and entry.count <= 2 else 0.0)
        self._changes += moved
        return moved > 0 or drifting

    def _added(self, work: Work) -> KeyMeasurements:
        if len(work.features) != self._width:
            self._forget(len(work.features))  # the kernel declares other features now
        if len(self.entries) + len(self._stored) >= KEYS:
            self._remove(min(self.all(), key=lambda e: e.last))
        entry = self.entries[key_of(work)] = KeyMeasurements(key_text(work), work.features)
        entry.announced = self._expected(work.features) or -1.0  # that is what plans were made with
        self._count_shapes()
        return entry

    def _forget(self, width: int) -> None:
        self._width = width
        self.entries, self._stored, self._streak = {}, {}, []
        self._fit = self._local = None
        self.shapes = 0

    def _remove(self, entry: KeyMeasurements) -> None:
        for table in (self.entries, self._stored):
            for key in [key for key, value in list(table.items()) if value is entry]:
                table.pop(key, None)  # type: ignore[call-overload]

    def _count_shapes(self) -> None:
        if self.shapes < SHAPES:
            self.shapes = len({entry.features for entry in self.all()})

    def load(self, samples: Sequence[Sample]) -> None:
        """Take what a store kept, the newest sample first; what does not fit in is left out."""
        known = {(e.key, e.features): e for e in self.all()}
        for age, sample in enumerate(samples):
            self._width = self._width or len(sample.features)
            if not sample.seconds or len(sample.features) != self._width:
                continue
            entry = known.get((sample.key, sample.features))
            if entry is None:
                if len(known) >= KEYS:
                    continue
                entry = known[sample.key, sample.features] = self._put(sample)
                entry.last = -age
            entry.load(sample.seconds[::-1])
            self._changes += entry.moved()
        self._count_shapes()

    def _put(self, sample: Sample) -> KeyMeasurements:
        entry = KeyMeasurements(sample.key, sample.features)
        if sample.key:
            self._stored[sample.key] = entry
        else:
            self.entries["", sample.features] = entry
        return entry

    def sample(self, entry: KeyMeasurements) -> Sample:
        """Return `entry` as a store keeps it."""
        return Sample(self.kind, entry.key, entry.features, entry.recent[::-1], self.together)

    # a device that changed its speed

    def _drifting(self, entry: KeyMeasurements, seconds: float) -> bool:
        """Note how far `seconds` is from what was expected; say whether the device's speed changed."""
        if not entry.cold and entry.low <= seconds <= entry.high:
            if self._streak:
                self._streak = []
            return False
        expected = entry.middle if not entry.cold else self._expected(entry.features)
        if not expected or seconds <= 0.0:
            return False
        factor = seconds / expected
        usual = max(0.15, 3.0 * self._local.spread) if entry.cold and self._local is not None else 0.0
        if 1.0 / (1.0 + usual) <= factor <= 1.0 + usual:
            self._streak = []
            return False
        streak = [s for s in self._streak if (s[1] > 1.0) == (factor > 1.0)][1 - DRIFT :]
        self._streak = [*streak, (entry, factor)]
        factors = [f for _, f in self._streak]
        return len(factors) == DRIFT and max(factors) <= CONSISTENT * min(factors)

    def _drift(self) -> None:
        """Restate what was measured before at the device's new speed."""
        streak, self._streak = self._streak, []
        factors = sorted(factor for _, factor in streak)
        factor = sqrt(factors[1] * factors[2])
        for entry in self.all():
            entry.drift(factor, sum(1 for recent, _ in streak if recent is entry))
            entry.moved()
        self._changes += FAR * DRIFT

    def _expected(self, features: tuple[float, ...]) -> float | None:
        if self._fit is None or self._local is None:
            return None
        return self._fit.seconds(features) * self._local.at(features)[0]

    # calls that were not measured

    def guess(self, features: tuple[float, ...], scales_with: int) -> Guess | None:
        """Return what regression says of `features`; with few shapes, time is proportional to one of the features.

        With a single shape that is feature `scales_with`.
        """
        if len(features) != self._width:
            return None
        if self.shapes < SHAPES or not self._told_apart():
            return _proportional(self.all(), features, scales_with)
        if not at_hand():
            return _scaled(self.all(), features, scales_with)
        base, local = self._refreshed()
        factor, distance = local.at(features)
        return Guess(base.seconds(features) * factor, min(local.spread * (1.0 + distance), 1.0))

    def _told_apart(self) -> bool:
        """Tell whether there are enough more unlike calls than ways in which their features differ.

        A fit to fewer goes through all of them, and anywhere beside them: four products, whose operands, result and operations
        are six features, make any other product as fast or slow as noise would have it.
        """
        entries = self.all()
        if len(entries) > MANY_PER_FEATURE * self._width:
            return True
        if self._seen_apart[0] != len(entries):
            rows = np.array(sorted({entry.features for entry in entries}))
            parts = rows / np.maximum(rows.max(axis=0), TINY)
            found = np.linalg.svd(np.hstack([np.ones((len(rows), 1)), parts]), compute_uv=False)
            ways = int(np.count_nonzero(found > FAINT * found[0]))
            self._seen_apart = len(entries), len(rows) >= ways + SPARE
        return self._seen_apart[1]

    def _refreshed(self) -> tuple[Fit, NearestSamples]:
        """Return the fit and the correction, made again if the measurements left them by enough steps."""
        changes, count = self._changes, len(self.entries) + len(self._stored)
        if self._local is None or changes - self._corrected >= max(1, count // 20):
            rows, times = self._measurements()
            if self._fit is None or changes - self._fitted >= max(1, count // 5):
                some = _spread_out(rows[:, 0])
                with np.errstate(all="ignore"):  # absurd times are weighed down, not reported
                    self._fit, self._fitted = fit(rows[some], times[some]), changes
            with np.errstate(all="ignore"):
                self._local, self._corrected = _correction(self._fit, rows, times), changes
        assert self._fit is not None
        return self._fit, self._local

    def _measurements(self) -> tuple[Matrix, Matrix]:
        entries = self.all()
        return np.array([e.features for e in entries]), np.maximum([e.middle for e in entries], TINY)

    def errors(self) -> list[tuple[float, float]]:
        """Return (predicted, measured) seconds of each sample, its prediction corrected by the others only."""
        if self.shapes < SHAPES:
            return []
        rows, times = self._measurements()
        predicted = times / np.exp(_correction(self._refreshed()[0], rows, times).left_out)
        return list(zip(predicted.tolist(), times.tolist(), strict=True))


def _correction(base: Fit, rows: Matrix, times: Matrix) -> NearestSamples:
    fitted = np.maximum([base.seconds(row) for row in rows.tolist()], TINY)
    return NearestSamples(rows, np.log(times / fitted))


def _spread_out(sizes: Matrix) -> NDArray[np.intp]:
    """Return which samples to fit: all, or as many as are enough, evenly from the smallest to the largest."""
    order = np.argsort(sizes, kind="stable")
    if len(order) <= ROWS:
        return np.arange(len(order))
    some: NDArray[np.intp] = order[np.linspace(0, len(order) - 1, ROWS).round().astype(int)]
    return some


def _proportional(entries: list[KeyMeasurements], features: tuple[float, ...], scales_with: int) -> Guess | None:
    """Return the nearest entry's seconds, scaled by feature `scales_with`, unless another one explains the times plainly better.

    Of six features one is near to three times by chance.
    """
    if not entries:
        return None
    sizes = [entry.features[scales_with] for entry in entries]
    if max(sizes) < APART * min(sizes):
        return _scaled(entries, features, scales_with)
    off = [_unexplained(entries, feature) for feature in range(len(features))]
    best = min(range(len(features)), key=lambda j: (off[j], j != scales_with))
    return _scaled(entries, features, best if off[best] <= PLAINLY * off[scales_with] else scales_with)


def _scaled(entries: list[KeyMeasurements], features: tuple[float, ...], feature: int) -> Guess | None:
    """Return the nearest entry's seconds, scaled by one of the features."""
    nearest = min(entries, key=lambda e: _distance(e.features, features))
    has, wanted = nearest.features[feature], features[feature]
    ratio = wanted / has if has > 0.0 else 1.0
    return Guess(nearest.middle * ratio, min(1.0, 0.25 * (1.0 + _distance(nearest.features, features))))


def _unexplained(entries: list[KeyMeasurements], feature: int) -> float:
    """Return how badly times in proportion to `feature` fit the entries."""
    logs = [(_log(e.middle), _log(e.features[feature])) for e in entries]
    off = sum(abs((logs[i][0] - t) - (logs[i][1] - f)) for i in range(len(logs)) for t, f in logs[:i])
    return round(off, 9)


def _distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return sqrt(sum((_log(x) - _log(y)) ** 2 for x, y in zip(a, b, strict=True)) / len(a))


def _log(value: float) -> float:
    return log(max(value, TINY))


def size_class(size: float) -> int:
    """Return the same number for sizes within a factor of two."""
    return frexp(size)[1]
