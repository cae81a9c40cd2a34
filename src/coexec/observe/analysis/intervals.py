"""Sets of time as sorted, disjoint intervals, and their algebra.

Before: nothing.  After: overlap.py, idle.py, report.py.  Knows nothing of what happens in an interval.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

Interval = tuple[float, float]


def merge(intervals: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """Return the union, sorted and disjoint; intervals at most `gap` seconds apart become one. Empty ones vanish."""
    merged: list[Interval] = []
    for start, stop in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """Return the sum of the lengths in seconds, counting overlaps as often as they occur."""
    return sum(stop - start for start, stop in intervals)


def intersect(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Return what is in both merged sets."""
    common: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, stop = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < stop:
            common.append((start, stop))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Return what is in merged set `a` and not in merged set `b`."""
    left: list[Interval] = []
    j = 0
    for start, stop in a:
        while j < len(b) and b[j][1] <= start:
            j += 1
        at, k = start, j
        while k < len(b) and b[k][0] < stop:
            if b[k][0] > at:
                left.append((at, b[k][0]))
            at = max(at, b[k][1])
            k += 1
        if at < stop:
            left.append((at, stop))
    return left


def covered(intervals: Iterable[Interval], cover: Sequence[Interval]) -> float:
    """Return how many seconds of `intervals`, each on its own, lie inside the merged set `cover`."""
    if not cover:
        return 0.0
    starts = [start for start, _ in cover]
    before = list(accumulate((stop - start for start, stop in cover), initial=0.0))

    def below(t: float) -> float:
        i = bisect_right(starts, t)
        return before[i] - max(0.0, cover[i - 1][1] - t) if i else 0.0

    return sum(below(stop) - below(start) for start, stop in intervals if stop > start)
