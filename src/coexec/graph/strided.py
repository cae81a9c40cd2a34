"""Strided sets that were written or read over dense boxes (red-black): whose elements a read sees, what a horizon leaves.

Before: geometry/.  After: graph/tracker.py.  Knows ids and sets; a list of them has the oldest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ..geometry import Box, Grid, grids_meet, last_holders, overlap

READ, WROTE, CARRIED = 0, 1, 2
"""What was done to a set: it was read, written, or brought here together with its writer's name.

Who reads a set that was brought needs its writer, and whoever brought it, which does not fail when its writer did.
"""
OUTLIVING = 64  # sets that are remembered beyond a horizon because they lie over what has failed


class Strided(NamedTuple):
    """A set, and who did what to it. Sets alike are one: a later write of one takes the place of the earlier."""

    box: Box
    grid: Grid
    id: int
    how: int = WROTE


def meets(box: Box, grid: Grid | None, entry: Strided) -> bool:
    """Tell whether an entry has a point of `box` on `grid`."""
    common = overlap(entry[0], box)
    return common is not None and grids_meet(common, entry[1], grid)


def shares(other: Box, box: Box, grid: Grid | None) -> bool:
    """Tell whether a box shares a point with the lattice in another one that it overlaps."""
    common = overlap(other, box)
    return common is not None and grids_meet(common, None, grid)


def last_writers(entries: Iterable[Strided], dense: Sequence[tuple[Box, int]], box: Box, grid: Grid | None) -> set[int]:
    """Return who wrote the elements of `box` on `grid` last: `dense` says who wrote the boxes below the entries."""
    ids: dict[tuple[Box, Grid], list[int]] = {}
    for entry in entries:
        if entry[3] != READ and meets(box, grid, entry):
            ids.setdefault((entry[0], entry[1]), []).append(entry[2])
    sets = tuple(ids)
    found: set[int] = set()
    for other, id in dense:
        if (part := overlap(other, box)) is not None and grids_meet(part, None, grid):
            for at in last_holders(part, grid, sets) if sets else (-1,):
                found.update((id,) if at < 0 else ids[sets[at]])
    return found


def outliving(entries: Iterable[Strided], horizon: int, keep: Collection[int], failed: Sequence[Box]) -> list[Strided]:
    """Return what a horizon leaves: newer entries, those in `keep`, and older writes that hide one of those from reads.

    `failed` are boxes whose dense writers are in `keep`. Beyond a number the oldest are forgotten: what they hide is then
    seen again, which makes elements unreadable that need not be, and never the other way around.
    """
    left: list[Strided] = []
    lost: list[Strided] = []
    old = 0
    for entry in entries:
        box, grid, id, how = entry
        if id >= horizon:
            left.append(entry)
        elif id in keep:
            left.append(entry)
            lost.append(entry)
        elif how == WROTE and (
            any(meets(other, None, entry) for other in failed) or any(meets(box, grid, other) for other in lost)
        ):
            left.append(Strided(box, grid, horizon))
            old += 1
    while old > OUTLIVING:
        left.remove(next(entry for entry in left if entry.id == horizon))
        old -= 1
    return left
