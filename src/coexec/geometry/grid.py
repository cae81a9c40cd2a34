"""Strided sets: do two lattices meet inside a box, does one strided set hold another.

Before: geometry/box.py.  After: graph/, which lets red and black points be written at once.  Knows nothing of views.
A grid holds, per axis, the points x with x = start modulo step; the box beside it says from where to where.
"""

from __future__ import annotations

from math import gcd

from .box import Box

Grid = tuple[tuple[int, int] | None, ...]
"""One (start, step) per axis; None = every point. The step's sign does not matter."""


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
