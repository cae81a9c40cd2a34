"""Cut each device's part again, so that the copies of one piece overlap the computation of another: `oversubscribe=k`.

Before: plan/split.py, predict/features.py.  After: plan/planner.py, testing/.  Pure: knows boxes and shares of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from ..geometry import Box, bounding
from ..graph.command import Chunk
from ..graph.task import Task
from ..machine.platform import Platform
from ..predict.features import Rows, part_of, work_of_part
from .candidate import Share
from .split import in_cache

Granule = Callable[[str], int]
"""The granule of a device, by name."""


class Piece(NamedTuple):
    """A piece of what a device was given."""

    chunk: Chunk
    of: tuple[int, ...]  # the chunks that it is a piece of, by number
    axis: int
    part: float  # of their work


def granules(task: Task, platform: Platform) -> Granule:
    """Return the granule that task and device ask for together, for each device."""
    return lambda device: lcm(task.granule, max(1, platform.device(device).granule))


def cut_again(task: Task, chunks: Sequence[Chunk], count: int, granule: Granule) -> list[Piece]:
    """Return the chunks, each device's cut into `count` pieces of equal work; fewer if it has not so many granules."""
    assert task.kernel is not None
    found: list[Piece] = []
    for of, box in _of_one_device(chunks):
        device = chunks[of[0]].device
        step = granule(device)
        axis = _axis(box, task.axes, count, step)
        rows = Rows(task, box, axis)
        for low, high in spans(rows, count, step):
            work = rows.work(high) - rows.work(low)
            chunk = Chunk(device, part_of(box, axis, low, high), len(found))
            found.append(Piece(chunk, of, axis, work / rows.rows))
    return found


def spans(rows: Rows, count: int, granule: int = 1) -> list[tuple[int, int]]:
    """Return at most `count` runs of rows of about equal work, none empty, cut at multiples of `granule`."""
    total = rows.rows
    granules = -(-total // granule)
    count = min(count, granules)
    cuts = [0]
    for i in range(1, count):
        wanted = round(rows.position(total * i / count) / granule)
        cuts.append(min(max(wanted, cuts[-1] + 1), granules - (count - i)))
    ends = [cut * granule for cut in cuts] + [total]
    return list(pairwise(ends))


def with_shares(
    task: Task, shares: Sequence[Share], pieces: Sequence[Piece], cache: int
) -> tuple[tuple[Chunk, ...], tuple[Share, ...]]:
    """Return the pieces as chunks, and for each its share of the work and of the predicted seconds."""
    made, given = [], []
    for piece in pieces:
        share = shares[piece.of[0]]
        known = [seconds for i in piece.of if (seconds := shares[i].seconds) is not None]
        seconds = sum(known) * piece.part if len(known) == len(piece.of) else None
        work = work_of_part(task, piece.chunk.box)
        made.append(in_cache(piece.chunk, piece.axis, work.size, cache, task.granule) if share.blocked else piece.chunk)
        given.append(share._replace(work=work, seconds=seconds))
    return tuple(made), tuple(given)


def _of_one_device(chunks: Sequence[Chunk]) -> list[tuple[tuple[int, ...], Box]]:
    """Return runs of chunks that are one box of one device: its part may have been cut already."""
    found: list[tuple[tuple[int, ...], Box]] = []
    for number, chunk in enumerate(chunks):
        if found and chunks[found[-1][0][0]].device == chunk.device:
            before, box = found[-1]
            hull = bounding([box, chunk.box])
            if hull.volume == box.volume + chunk.box.volume:
                found[-1] = ((*before, number), hull)
                continue
        found.append(((number,), chunk.box))
    return found


def _axis(box: Box, axes: Sequence[int], count: int, granule: int) -> int:
    """Return the first of the axes that has enough granules, else the one that has most."""
    granules = {axis: -(-(box.hi[axis] - box.lo[axis]) // granule) for axis in axes}
    return next((axis for axis in axes if granules[axis] >= count), max(axes, key=lambda axis: granules[axis]))
