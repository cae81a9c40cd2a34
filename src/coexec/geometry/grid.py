"""Strided sets: do two lattices meet inside a box, does one strided set hold another.

Before: geometry/box.py.  After: graph/, which lets red and black points be written at once.  Knows nothing of views.
A grid holds, per axis, the points x with x = start modulo step; the box beside it says from where to where.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd, lcm

from .box import Box

Grid = tuple[tuple[int, int] | None, ...]
"""One (start, step) per axis; None = every point. The step's sign does not matter."""
MOST = 1 << 10  # points along one axis, or combinations of sets, that are looked at
REMEMBERED = 4096  # answers: programs repeat their questions


def every_point(box: Box) -> Grid:
    """Return the grid that holds every point of a box."""
    return (None,) * box.ndim


def grids_meet(overlap: Box, a: Grid | None, b: Grid | None) -> bool:
    """Tell whether a point of `overlap` lies on both grids."""
    for axis, low in enumerate(overlap.lo):
        first = _first_common(low, a[axis] if a is not None else None, b[axis] if b is not None else None)
        if first is None or first >= overlap.hi[axis]:
            return False
    return True


def grid_covers(box_a: Box, grid_a: Grid | None, box_b: Box, grid_b: Grid | None) -> bool:
    """Tell whether the points of `box_a` on `grid_a` include all points of `box_b` on `grid_b`."""
    if not grids_meet(box_b, grid_b, None):
        return True
    for axis in range(box_b.ndim):
        start, step = (grid_b[axis] if grid_b is not None else None) or (0, 1)
        step = abs(step)
        first = _first(box_b.lo[axis], start, step)
        last = first + (box_b.hi[axis] - 1 - first) // step * step
        if first < box_a.lo[axis] or last >= box_a.hi[axis]:
            return False
        on = grid_a[axis] if grid_a is not None else None
        if on is not None and ((first - on[0]) % on[1] or (first != last and step % on[1])):
            return False
    return True


@lru_cache(REMEMBERED)
def last_holders(box: Box, grid: Grid | None, sets: tuple[tuple[Box, Grid], ...]) -> frozenset[int]:
    """Return which of some strided sets is the last that holds a point of `box` on `grid`, over all such points.

    -1 stands for none of them. Exact, but for sets of which there are too many, or whose steps have no small multiple in
    common: then every one that may be.

    A point is in a set if it is so along each axis. Along one axis few combinations of sets occur.
    """
    if box.empty:
        return frozenset({-1})
    found = {(1 << len(sets)) - 1}
    for axis, (low, high) in enumerate(zip(*box, strict=True)):
        along = [(other.lo[axis], other.hi[axis], *(lattice[axis] or (0, 1))) for other, lattice in sets]
        masks = _held_along(low, high, (grid[axis] if grid is not None else None) or (0, 1), along)
        found = {a & b for a in found for b in masks}
        if not masks or len(found) > MOST:
            return frozenset(range(-1, len(sets)))
    return frozenset([mask.bit_length() - 1 for mask in found])


def _held_along(low: int, high: int, own: tuple[int, int], sets: Sequence[tuple[int, int, int, int]]) -> set[int]:
    """Return which combinations of sets, as bits, hold points of one axis; nothing if there are too many to look at."""
    found: set[int] = set()
    start, step = own[0], abs(own[1])
    edges = sorted({low, high, *[edge for lo, hi, _, _ in sets for edge in (lo, hi) if low < edge < high]})
    for here, there in pairwise(edges):
        inside = [(1 << i, s[2], abs(s[3])) for i, s in enumerate(sets) if s[0] <= here and there <= s[1]]
        period = lcm(step, *[stride for _, _, stride in inside])
        if min(period, there - here) > MOST * step:
            return set()
        for x in range(_first(here, start, step), min(there, here + period), step):
            found.add(sum([bit for bit, other, stride in inside if (x - other) % stride == 0]))
    return found or {0}


def _first(low: int, start: int, step: int) -> int:
    return low + (start - low) % step


def _first_common(low: int, a: tuple[int, int] | None, b: tuple[int, int] | None) -> int | None:
    """Return the least x >= low on both lattices, or None if they never meet (Chinese remainder theorem)."""
    if a is None or b is None:
        start, step = a or b or (0, 1)
        return _first(low, start, abs(step))
    (start, step), (other, stride) = a, b
    step, stride = abs(step), abs(stride)
    common = gcd(step, stride)
    if (other - start) % common:
        return None
    stride //= common
    turns = (other - start) // common * pow(step // common, -1, stride) % stride
    return _first(low, start + step * turns, step * stride)
