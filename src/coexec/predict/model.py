"""How long one kernel variant takes on one speed class of devices, learnt from its runs; honest about the unknown.

Before: predict/roofline.py.  After: plan/.  Knows work and seconds; records are given to it.

How long runs wait for the interpreter lock, per second that they compute (`Waits`), is the median of the means of a few runs each.
Most runs hardly wait and some wait long, and waits add up: so means. But now and then another program takes the core for
a while, which tells nothing about the next run: so the median of several means.

One kind of call is measured alone and while other devices ran (`Conditions`): each condition helps where the other lacks data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from math import inf, log, sqrt
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from .regression import TINY, at_hand
from .roofline import Peaks
from .sample import Sample
from .table import SHAPES, MeasurementTable, size_class
from .window import SETTLED, centre
from .work import Estimate, Work

if TYPE_CHECKING:
    from .family import Family

RUNS = 8  # of which a mean is taken
MEANS = 7  # of which the median is taken


class Waits:
    """The waits of one kernel variant under one condition."""

    __slots__ = ("_computed", "_means", "_number", "_waited")

    def __init__(self) -> None:
        self._number, self._waited, self._computed = 0, 0.0, 0.0  # of the runs that are no mean yet
        self._means: deque[float] = deque(maxlen=MEANS)

    def learn(self, waited: float, computed: float) -> None:
        """Take one run."""
        self._number += 1
        self._waited += waited
        self._computed += computed
        if self._number == RUNS:
            self._means.append(self._share())
            self._number, self._waited, self._computed = 0, 0.0, 0.0

    @property
    def share(self) -> float:
        """Seconds waited per second computed."""
        return centre(self._means) if self._means else self._share()

    def _share(self) -> float:
        return self._waited / self._computed if self._computed else 0.0


NEAREST = 5  # calls known under both conditions that say what the condition costs


class Ratio(NamedTuple):
    """How much longer calls take under one condition than under the other."""

    factor: float = 1.0
    spread: float = 0.0


class Conditions:
    """Measurements of one kind of call, by condition."""

    def __init__(self, kind: str) -> None:
        self.alone = MeasurementTable(kind, together=False)
        self.together = MeasurementTable(kind, together=True)

    def tables(self, *, together: bool) -> tuple[MeasurementTable, MeasurementTable]:
        """Return the table of the condition asked for, and the other one."""
        return (self.together, self.alone) if together else (self.alone, self.together)

    def estimate(self, work: Work, *, together: bool, scales_with: int) -> Estimate | None:
        """Return the best prediction for `work`: measured as asked, measured otherwise, fitted, scaled; or None."""
        own, other = self.tables(together=together)
        for table in (own, other):
            entry = table.entry(work)
            if entry is not None:
                ratio = Ratio() if table is own else _ratio(own, other, work, scales_with)
                return Estimate(entry.middle * ratio.factor, entry.doubt + ratio.spread, "history")
        for table, least in ((own, SHAPES), (other, SHAPES), (own, 1), (other, 1)):
            if table.shapes < least:
                continue
            guess = table.guess(work.features, scales_with)
            if guess is not None:
                ratio = Ratio() if table is own else _ratio(own, other, work, scales_with)
                return Estimate(guess.seconds * ratio.factor, min(guess.spread + ratio.spread, 1.0), "regression")
        return None


def _ratio(own: MeasurementTable, other: MeasurementTable, work: Work, scales_with: int) -> Ratio:
    """Return how much longer calls of about this size take in `own` than in `other`, if any is known in both."""
    size = log(max(work.size, TINY))
    keys = {(e.key, e.features): e.middle for e in other.all()}
    found: list[float] = []
    for entry in sorted(own.all(), key=lambda e: abs(log(max(e.features[0], TINY)) - size)):
        reference = keys.get((entry.key, entry.features))
        if reference is None and other.shapes >= SHAPES:
            guess = other.guess(entry.features, scales_with)
            reference = guess.seconds if guess is not None else None
        if reference is not None and reference > 0.0:
            found.append(entry.middle / reference)
            if len(found) == NEAREST:
                break
    if not found:
        return Ratio()
    factor = centre(found)
    return Ratio(factor, centre(abs(f - factor) for f in found) / factor if factor else 0.0)


ANSWERS = 512  # predictions remembered until something changes

_Question = tuple[str, Hashable, tuple[float, ...], bool, bool]


class Errors(NamedTuple):
    """How far the fit lies from what was measured."""

    rmse_seconds: float
    median_relative: float
    count: int  # type: ignore[assignment]  # tuples count their items; nobody asks errors to


SHORT = 50e-6  # seconds
SHORT_NOISE = 4.0
ENOUGH = 64  # measurements that trusted peak rates are worth
QUIET = 32  # kinds of runs that are known to be settled


class KernelModel:
    """One kernel variant on one speed class of devices. Any thread may learn or ask."""

    def __init__(self, roofline: Peaks | None = None, flops_at: int | None = None, *, trusting: bool = False) -> None:
        self.version = 0  # grows when some answer has changed noticeably: plans made before are out of date
        self.roofline = roofline
        self._trusting = trusting  # peak rates count as measured: in simulations they are what kernels take
        self.how = ""  # how the variant is run, where there are several ways: "in cache"
        self.family: Family | None = None  # of an elementwise body: what the others on the device took
        self.flops_at = flops_at  # which feature counts the operations; None: none does
        self._kinds: dict[str, Conditions] = {}
        self._sizes: dict[tuple[str, int], int] = {}  # measurements by size class
        self._answers: dict[_Question, Estimate | None] = {}
        self.last: tuple[Work | None, bool, float | None] = (None, False, None)  # programs repeat themselves
        # By shapes, not by identity: what is the same object depends on what other runtimes have left behind.
        self._quiet: dict[Hashable, tuple[str, bool, float, float]] = {}  # settled, within these seconds
        self._skipped = 0
        self._waits: dict[bool, Waits] = {}  # by condition
        self._lock = Lock()  # of everything but `last`, `_quiet` and `_skipped`

    def learn(self, work: Work, seconds: float, *, together: bool = False) -> None:
        """Take one measurement of `work`, made while other devices ran (`together`) or alone."""
        self.learn_all(work, (seconds,), together=together)

    def learn_all(self, work: Work, measured: Sequence[float], *, together: bool = False) -> None:
        """Take measurements of `work` that were made one after the other, all `together` with other devices or all alone."""
        low, high = self._usual(work, together)
        for seconds in measured:
            if low <= seconds <= high:
                self._skipped += 1
                if self._skipped & 15:
                    continue  # one more of the same
            self._learn(work, seconds, together)
            low, high = self._usual(work, together)

    def _usual(self, work: Work, together: bool) -> tuple[float, float]:
        """Return between which seconds a measurement is one more of the same; nothing is, if nothing has settled."""
        quiet = self._quiet.get(work.key)
        return quiet[2:] if quiet is not None and quiet[0] == work.kind and quiet[1] is together else (inf, -inf)

    def _learn(self, work: Work, seconds: float, together: bool) -> None:
        if not 0.0 <= seconds < inf:
            return
        if self.family is not None:
            self.family.learn(work, seconds, together=together)
        with self._lock:
            known = self._kinds.get(work.kind)
            if known is None:
                known = self._kinds[work.kind] = Conditions(work.kind)
            group = (work.kind, size_class(work.features[0]))
            self._sizes[group] = self._sizes.get(group, 0) + 1
            table = known.together if together else known.alone
            if table.learn(work, seconds):
                self._changed()
                self.last = (None, False, None)
            entry = table.entry(work)
            if work.key is None:
                return
            if entry is not None and entry.count > SETTLED and entry.low <= seconds <= entry.high:
                # Of kernels shorter than their own scheduling only a lasting change matters.
                wide = SHORT_NOISE if entry.middle < SHORT else 1.0
                if len(self._quiet) >= QUIET:
                    self._quiet.clear()
                self._quiet[work.key] = (work.kind, together, entry.low / wide, entry.high * wide)
            else:  # the next good run is to be seen: it tells that this one was an outlier
                self._quiet.pop(work.key, None)

    def learn_wait(self, waited: float, seconds: float, *, together: bool = False) -> None:
        """Take how long a run waited for the interpreter lock, beside the seconds that it computed."""
        known = self._waits.get(together)
        if known is None:
            known = self._waits[together] = Waits()
        known.learn(waited, seconds)

    def waits(self) -> dict[bool, float]:
        """Return, by condition, how long runs waited per second that they computed."""
        return {together: known.share for together, known in self._waits.items()}

    def seconds(self, work: Work, *, together: bool = False) -> float | None:
        """Return the predicted seconds, or None (Unknown) if nothing comparable was measured."""
        last = self.last
        if last[1] is together and (last[0] is work or last[0] == work):
            return last[2]
        answer: float | None = None
        known = self._kinds.get(work.kind)
        entry = None
        if known is not None and work.key is not None:
            entry = (known.together if together else known.alone).entries.get(work.key)
        if entry is not None:
            answer = entry.middle
        else:
            estimate = self._measured_estimate(work, together)
            answer = estimate.seconds if estimate is not None else None
        if answer is None and self._trusting:
            answer = self._least(work)
        self.last = (work, together, answer)
        return answer

    def estimate(self, work: Work, *, together: bool = False) -> Estimate | None:
        """Return the prediction with its spread and source; what the device's peak rates allow if nothing is known."""
        found = self._measured_estimate(work, together)
        if found is not None or self.roofline is None:
            return found
        least = self._least(work)
        return Estimate(least, 0.0 if self._trusting else 1.0, "roofline") if least is not None else None

    def stated(self, work: Work) -> float | None:
        """Return the seconds that `work` takes by peak rates that are trusted, while nobody else uses what it uses; else None."""
        return self._least(work) if self._trusting else None

    def _least(self, work: Work) -> float | None:
        """Return what the device's peak rates allow, or None."""
        if self.roofline is None:
            return None
        return self.roofline.of(work.kind).seconds(work.flops(self.flops_at), work.size)

    def _measured_estimate(self, work: Work, together: bool) -> Estimate | None:
        known = self._kinds.get(work.kind)
        if known is None:
            return None if self.family is None else self.family.estimate(work, [], together=together)
        with self._lock:
            own = known.together if together else known.alone
            entry = own.entry(work)
            if entry is not None:  # not remembered: it changes with every measurement
                return Estimate(entry.middle, entry.doubt, "history")
            shapes = max(known.alone.shapes, known.together.shapes)
            if self.family is not None and shapes < SHAPES:
                measured = [(e.features, e.middle) for e in own.all() or known.alone.all()]
                found = self.family.estimate(work, measured, together=together)
                if found is not None:
                    return found
            fits = shapes >= SHAPES and at_hand()
            question = (work.kind, work.key, work.features, together, fits)
            if question not in self._answers:
                if len(self._answers) >= ANSWERS:
                    self._answers.clear()
                scales_with = self.flops_at if self.flops_at is not None else 0
                self._answers[question] = known.estimate(work, together=together, scales_with=scales_with)
            return self._answers[question]

    def fitted(self, work: Work, *, together: bool) -> Estimate | None:
        """Return the prediction if enough unlike calls of its kind were measured for a fit, else None.

        None, too, as long as there is nobody to make a fit: what one call took says little about another.
        """
        known = self._kinds.get(work.kind)
        if known is None or max(known.alone.shapes, known.together.shapes) < SHAPES or not at_hand():
            return None
        return self._measured_estimate(work, together)

    def measured(self, work: Work) -> int:
        """Return how many measurements there are of exactly such work, else of its size class."""
        if self._trusting and self._least(work) is not None:
            return ENOUGH
        with self._lock:
            known = self._kinds.get(work.kind)
            if known is None:
                return 0
            entries = (known.alone.entry(work), known.together.entry(work))
            exact = sum(entry.count for entry in entries if entry is not None)
            return exact or self._sizes.get((work.kind, size_class(work.features[0])), 0)

    def errors(self) -> Errors | None:
        """Return how far predictions lie from the measurements they were made from, or None without a fit."""
        with self._lock:
            pairs = [p for kind in self._kinds.values() for t in (kind.alone, kind.together) for p in t.errors()]
        if not pairs:
            return None
        rmse = sqrt(sum((predicted - seconds) ** 2 for predicted, seconds in pairs) / len(pairs))
        return Errors(rmse, centre(abs(predicted / seconds - 1.0) for predicted, seconds in pairs), len(pairs))

    def samples(self) -> list[Sample]:
        """Return all that a store should keep."""
        with self._lock:
            return [t.sample(e) for kind in self._kinds.values() for t in (kind.alone, kind.together) for e in t.all()]

    def changed(self) -> list[Sample]:
        """Return what was learnt since the last call."""
        found = []
        with self._lock:
            for kind in self._kinds.values():
                for table in (kind.alone, kind.together):
                    for entry in table.all():
                        if entry.changed:
                            entry.changed = False
                            found.append(table.sample(entry))
        return found

    def load(self, samples: Iterable[Sample]) -> None:
        """Take what a store kept, the newest sample first; it counts as measured, on a warm device."""
        groups: dict[tuple[str, bool], list[Sample]] = {}
        for sample in samples:
            groups.setdefault((sample.kind, sample.together), []).append(sample)
        with self._lock:
            for (kind, together), group in groups.items():
                known = self._kinds.setdefault(kind, Conditions(kind))
                (known.together if together else known.alone).load(group)
                for sample in group:
                    size = (kind, size_class(sample.features[0]))
                    self._sizes[size] = self._sizes.get(size, 0) + len(sample.seconds)
            if groups:
                self._changed()
                self.last = (None, False, None)

    def _changed(self) -> None:
        self.version += 1
        self._answers.clear()
