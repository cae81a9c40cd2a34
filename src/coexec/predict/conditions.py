"""One kind of call, measured alone and while other devices ran: each condition helps where the other lacks data.

Before: predict/table.py.  After: predict/model.py.  Knows no device.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

from .regression import TINY
from .table import SHAPES, Table
from .window import centre
from .work import Estimate, Work

NEAREST = 5  # calls known under both conditions that say what the condition costs


class Ratio(NamedTuple):
    """How much longer calls take under one condition than under the other."""

    factor: float = 1.0
    spread: float = 0.0


class Conditions:
    """Measurements of one kind of call, by condition."""

    def __init__(self, kind: str) -> None:
        self.alone = Table(kind, together=False)
        self.together = Table(kind, together=True)

    def tables(self, *, together: bool) -> tuple[Table, Table]:
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


def _ratio(own: Table, other: Table, work: Work, scales_with: int) -> Ratio:
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
