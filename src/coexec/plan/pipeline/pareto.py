"""Which of many labels are worth keeping: those that no other is at least as good as in everything.

Before: nothing.  After: plan/pipeline/consecutive.py, plan/pipeline/shared.py.  Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
FEW = 96
"""Labels that are compared each with each: below, that is quicker than sorting."""
BLOCK = 256
"""Labels that are compared at once with those kept before them."""
EARLIER = np.tri(max(FEW, BLOCK), k=-1, dtype=bool)
"""Which of so many labels come before which: a row per label."""
MOST_CELLS = 1 << 21
"""Entries of the table that compares labels of different counts: 16 MB."""


def kept(coordinates: Sequence[Floats | Ints]) -> Ints:
    """Return the positions of labels that no other dominates, in rising order of the first coordinate.

    A label dominates another if none of its coordinates is larger. Of equal ones the first is kept.
    """
    points: Floats = np.empty((len(coordinates[0]), len(coordinates)))
    for axis, coordinate in enumerate(coordinates):
        points[:, axis] = coordinate
    order: Ints = np.lexsort(points.T[::-1])
    points = points[order]
    if len(points) <= FEW:
        few: Ints = order[_undominated(points)]
        return few
    archive, found = points[:0], [order[:0]]
    for begin in range(0, len(points), BLOCK):
        block, places = points[begin : begin + BLOCK], order[begin : begin + BLOCK]
        if len(archive):
            free = _free(block, archive)
            block, places = block[free], places[free]
        free = _undominated(block)
        archive = np.concatenate([archive, block[free]])
        found.append(places[free])
    return np.concatenate(found)


def _free(block: Floats, archive: Floats) -> Any:
    """Tell which points of a block no point of the archive dominates."""
    worse = np.ones((len(block), len(archive)), dtype=bool)
    for axis in range(1, block.shape[1]):  # by the sort, none of the archive is larger along the first
        worse &= archive[:, axis] <= block[:, axis, None]
    return ~worse.any(axis=1)


def _undominated(points: Floats) -> Any:
    """Tell which of some sorted points no earlier one dominates."""
    n = len(points)
    worse = EARLIER[:n, :n].copy()
    for axis in range(1, points.shape[1]):
        worse &= points[:, axis] <= points[:, axis, None]
    return ~worse.any(axis=1)


def kept_by_count(counts: Ints, shape: Sequence[int], first: Floats | Ints, second: Floats) -> Ints:
    """Return what `kept` does for two coordinates and a count of each budget, given as one number for all."""
    if len(first) <= FEW:
        return kept([first, second, *np.unravel_index(counts, shape)])
    order = np.lexsort((second, first, counts))
    c, key, value = counts[order], first[order], second[order]
    ranks = np.unique(value, return_inverse=True)[1]
    falling = np.minimum.accumulate(ranks - c * len(c))  # begins anew with each count: it is lower than all before
    free = np.ones(len(c), dtype=bool)
    free[1:] = (ranks - c * len(c))[1:] < falling[:-1]
    order, c, key, value = order[free], c[free], key[free], value[free]
    steps, at = np.unique(key, return_inverse=True)
    if len(steps) * int(np.prod(shape)) > MOST_CELLS:
        return order
    return order[value < _best_below(c, shape, at, len(steps), value)]


def _best_below(counts: Ints, shape: Sequence[int], at: Ints, steps: int, value: Floats) -> Floats:
    """Return for each label the least value of labels that are no larger in count and key, and smaller in one of them."""
    table = np.full((int(np.prod(shape)), steps), np.inf)
    table[counts, at] = value
    table = table.reshape(*shape, steps)
    for axis in range(table.ndim):
        np.minimum.accumulate(table, axis=axis, out=table)
    places = (*np.unravel_index(counts, shape), at)
    below = np.full(len(value), np.inf)
    for axis, place in enumerate(places):
        inner = place > 0
        before = tuple(p[inner] - (1 if a == axis else 0) for a, p in enumerate(places))
        below[inner] = np.minimum(below[inner], table[before])
    return below
