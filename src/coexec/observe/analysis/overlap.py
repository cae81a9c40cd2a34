"""How much of the work ran at the same time as other work: the four figures of GrCUDA.

Before: intervals.py.  After: report.py.  Knows intervals and directions, no trace.

CT  kernel time during which some transfer ran, of all kernel time
TC  transfer time during which some kernel ran, of all transfer time
CC  kernel time during which a kernel listed earlier ran, of all kernel time
TOT operation time during which any operation listed earlier ran, of all operation time

Each piece of time in the union of n operations is new to exactly one of them, whatever their order. So the time
shared with operations listed earlier is the sum of all lengths less the length of the union.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .intervals import Interval, covered, length, merge


class OverlapShares(NamedTuple):
    """The four figures, each from 0 to 1. A figure without any time to divide by is 0."""

    ct: float
    tc: float
    cc: float
    tot: float


def overlap(
    kernels: Sequence[Interval], transfers: Mapping[str, Iterable[Interval]], gap: float = 0.0
) -> OverlapShares:
    """Return CT, TC, CC and TOT of kernels and of transfers by direction.

    Transfers of one direction at most `gap` seconds apart count as one (GrCUDA's scripts take 1e-4).
    """
    moves = [move for direction in transfers.values() for move in merge(direction, gap)]
    runs = [run for run in kernels if run[1] > run[0]]
    kernel_time, move_time = length(runs), length(moves)
    busy, moving = merge(runs), merge(moves)
    total = kernel_time + move_time
    return OverlapShares(
        ct=_share(covered(runs, moving), kernel_time),
        tc=_share(covered(moves, busy), move_time),
        cc=_share(kernel_time - length(busy), kernel_time),
        tot=_share(total - length(merge(runs + moves)), total),
    )


def _share(part: float, whole: float) -> float:
    """Return part / whole, kept within 0 and 1 against rounding."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0
