"""What a rank takes for its parts of the calls that ranks divide, and for those that it computes whole.

Before: backend/base.py's Ran, predict/features.py.  After: joined.py, ranked.py, which tell it to all ranks.  Decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from ..backend.base import Ran
from ..cluster.speeds import WHOLE
from ..cluster.staying import kind_of
from ..graph.instruction import Launch
from ..predict.features import share_of_work

KINDS, KEPT, OPEN = 64, 32, 512
"""Kinds of calls that ranks tell each other of; measurements of each; calls whose parts may still be under way."""


class RankSpan(NamedTuple):
    """One call on this rank: from the first kernel of its part to the end of the last one, in seconds of the clock."""

    kind: str
    share: float  # of the work of the whole call
    start: float
    stop: float


class Paces:
    """What this rank takes for calls, divided among ranks or not. Is given what ran, as an observer."""

    def __init__(self, observe: Callable[[Paces], None]) -> None:
        """`observe` lets it have what ran from now on."""
        self._spans: dict[int, RankSpan] = {}  # by the call's number
        self._seconds: dict[str, deque[float]] = {}  # of whole calls, had this rank all of them
        self._counts: dict[str, int] = {}
        observe(self)

    def ran(self, records: Sequence[Ran]) -> None:
        """Take what ran since the last time."""
        for record in records:
            task, step = record.instruction.task, record.instruction.step
            if type(step) is not Launch or record.error is not None or task.deal is None or task.deal.box is None:
                continue
            before = self._spans.get(task.round)
            if before is not None:
                now = before._replace(start=min(before.start, record.start), stop=max(before.stop, record.stop))
            elif task.deal.box == task.domain:
                now = RankSpan(f"{kind_of(task)}{WHOLE}", 1.0, record.start, record.stop)
            else:
                now = RankSpan(kind_of(task), share_of_work(task, task.deal.box), record.start, record.stop)
            self._spans[task.round] = now
        while len(self._spans) > OPEN:
            self._note(self._spans.pop(next(iter(self._spans))))

    def _note(self, span: RankSpan) -> None:
        if span.share > 0.0:
            whole = (span.stop - span.start) / span.share
            self._seconds.setdefault(span.kind, deque(maxlen=KEPT)).append(whole)
            self._counts[span.kind] = self._counts.get(span.kind, 0) + 1

    def told(self) -> dict[str, tuple[int, float]]:
        """Return how often each kind of call ran, and the seconds that this rank would take for one of them alone."""
        for span in self._spans.values():
            self._note(span)
        self._spans.clear()
        found = {kind: (self._counts[kind], _rounded(median(seconds))) for kind, seconds in self._seconds.items()}
        most = sorted(found, key=lambda kind: -found[kind][0] * found[kind][1])[:KINDS]
        return {kind: found[kind] for kind in most}

    def forget(self) -> None:
        """Begin anew: shares have changed, or it was looked at."""
        self._seconds.clear()
        self._counts.clear()


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.3g}")
