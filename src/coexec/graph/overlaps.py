"""Arguments of one call that share elements: what is written through one parameter is seen through another.

Before: program/overlap.py, graph/mapped.py.  After: plan/, which asks who may compute such a call, and how it may be cut.

What comes out of such a call depends on the order in which elements are read and written. The Python body on NumPy
arrays that overlap says what is right; compiled variants and other libraries have orders of their own.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from ..geometry import Box, Grid, grids_meet, overlap
from ..program.overlap import same_place
from ..program.view import grid_of
from .mapped import mapped
from .task import Task


class Overlap(NamedTuple):
    """Two parameters, by number, one of which writes inside the hull of the other."""

    first: int
    second: int
    both_write: bool
    meet: bool  # they have elements in common; else only their hulls overlap, as those of even and odd points do
    same: bool  # they were given the same elements in the same order


def overlaps_of(task: Task) -> list[Overlap]:
    """Return the parameters of a task that overlap. A reduction goes into a private array, which overlaps nothing."""
    if task.once:
        return []
    found = []
    for (i, a), (j, b) in combinations(enumerate(zip(task.accesses, task.arrays, strict=True)), 2):
        (one, first), (other, second) = a, b
        writes = one.access.writes, other.access.writes
        if first._storage is second._storage and any(writes) and "reduce" not in (one.access.mode, other.access.mode):
            same = same_place(first, second)
            hulls, meet = _compared(task, i, j)
            if hulls:
                found.append(Overlap(i, j, all(writes), meet, same))
    return found


def sees_itself(task: Task) -> bool:
    """Tell whether a body may see through one parameter what it writes through another, at another point or time."""
    if task.once:
        return False
    pointwise = task.kernel is not None and task.kernel.pointwise
    return any(pair.meet and not (pointwise and pair.same) for pair in overlaps_of(task))


def _compared(task: Task, first: int, second: int) -> tuple[bool, bool]:
    """Tell whether the hulls of what two parameters touch overlap, and whether elements do."""
    hulls = False
    for box, grid in _touched(task, first):
        for other, lattice in _touched(task, second):
            where = overlap(box, other)
            if where is not None:
                hulls = True
                if grids_meet(where, grid, lattice):
                    return True, True
    return hulls, False


def _touched(task: Task, parameter: int) -> list[tuple[Box, Grid | None]]:
    """Return the boxes of the array behind it that a task touches through one parameter, and the lattice in each."""
    array = task.arrays[parameter]
    if not array.size:
        return []
    part = mapped(task, task.space)[parameter] if task.space is not None else None
    if part is None:
        return [(array._box, array._grid)]
    if part.empty:
        return []
    hull, boxes = part.of(array)
    return [(box, None if array._grid is None else grid_of(box, array._cut)) for box in boxes or (hull,)]
