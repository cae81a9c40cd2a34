"""Compute a device's share in pieces: so that copies overlap compute, or so that a piece fits into a cache.

Before: plan/division/offers.py, plan/candidate.py.  After: plan/division/divider.py, plan/planner.py.  The pieces themselves are
run by backends.

NumPy makes one pass over its arrays per operation, so a body of ten operations reads main memory ten times, unless its
arrays are so small that they stay in the cache from one operation to the next. Whether that is faster is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...geometry import Box
from ...graph.command import Chunk
from ...graph.task import Task
from ...predict.table import size_class
from ...predict.work import Work
from ..candidate import Candidate, Share
from .make_offers import Site
from .offers import Offer

MOST_PIECES = 16
WORTH_A_PIECE = 0.01  # more pieces must gain this part of the time


def pieces(offer: Offer, rows: int, most: int = MOST_PIECES) -> int:
    """Return into how many equal pieces to cut `rows` rows of this device: one if more would not end sooner."""
    best, seconds = 1, seconds_in_pieces(offer, rows, 1)
    for count in range(2, min(most, rows // max(offer.granule, offer.least)) + 1):
        if (t := seconds_in_pieces(offer, rows, count)) < seconds * (1 - WORTH_A_PIECE):
            best, seconds = count, t
    return best


def seconds_in_pieces(offer: Offer, rows: int, count: int) -> float:
    """Return when a share in `count` pieces is done: each is copied, computed and copied back, one behind the other.

    What must be copied whatever the share comes first. Every piece costs a launch: the curve at its size has it.
    """
    lo, hi = offer.there
    copying = offer.in_per_row * max(0, rows - max(0, hi - lo)) / count
    computing = offer.compute.seconds(rows / count)
    returning = offer.out_per_row * rows / count
    copied, computed, returned = offer.fixed_in, offer.wait, 0.0
    for _ in range(count):
        copied += copying
        computed = max(copied, computed) + computing
        returned = max(computed, returned) + returning
    return returned + offer.fixed_out


WORTH_A_LOOK = 1e-3  # seconds: below, blocking can save too little to be tried
LOOKS = 2  # runs of each way before one is preferred: the first of each is cold
GAIN = 0.97  # blocking must be faster by this: pieces cost a little interpreter time each


class Blocking:
    """Chooses between whole chunks and cache-sized pieces, device by device."""

    def __init__(self, cache: int) -> None:
        self.cache = cache  # bytes of arrays that a piece may touch
        self.trying = False  # whether what was chosen last is to be measured: the next call may be planned otherwise

    def choose(self, candidates: Sequence[Candidate], blocked: Sequence[Candidate], work: Work) -> list[Candidate]:
        """Return the candidates, those replaced by their twins that are faster in pieces or should be tried so."""
        self.trying = False
        if work.size <= 2 * self.cache or not blocked:
            return list(candidates)
        twins = {(c.name, c.variant.name): c for c in blocked}
        return [self._better(c, twins.get((c.name, c.variant.name)), work) for c in candidates]

    def _better(self, plain: Candidate, twin: Candidate | None, work: Work) -> Candidate:
        if twin is None:
            return plain
        seconds, in_pieces = plain.model.seconds(work), twin.model.seconds(work)
        size = size_class(work.size)  # what was tried with little work says nothing about much
        tried, in_vain = plain.tries.get(size, 0), twin.tries.get(size, 0)
        if seconds is None or (tried < LOOKS and plain.model.measured(work) < LOOKS):
            self.trying |= tried < LOOKS
            plain.tries[size] = tried + 1
            return plain
        if in_pieces is None or (in_vain < LOOKS and twin.model.measured(work) < LOOKS):
            if seconds < WORTH_A_LOOK or in_vain >= 2 * LOOKS:
                return plain
            self.trying = True
            twin.tries[size] = in_vain + 1
            return twin
        return twin if in_pieces < GAIN * seconds else plain


def in_pieces(task: Task, box: Box, chosen: Candidate, share: Share, cache: int) -> Chunk | None:
    """Return a task on one device, which computes one cache-sized piece after the other; None if it cannot be cut."""
    assert task.kernel is not None
    axis = next((a for a in task.kernel.split if box.hi[a] - box.lo[a] > 1), None)
    if axis is None:
        return None
    site = Site.of(task, box, axis)
    return site.chunk(chosen.name, 0, site.rows.rows, 0, share, cache)
