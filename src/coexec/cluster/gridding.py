"""Cut an index space along two axes among ranks, where each of them then lacks less of what it reads.

Before: plan/split.py, graph/mapped.py.  After: cluster/dealing.py.  Pure: from shapes and mappers alone, so every rank finds the same.

Cut along one axis, a part of a stencil has two neighbours, whose edges are as long as the array is wide. Cut along two, edges
are shorter, and there are up to eight neighbours, corners among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..geometry import Box, overlaps
from ..graph.mapped import Mapped, mapped
from ..graph.task import Task
from ..plan.split import spread

MESSAGE = 1 << 18
"""Bytes that could be sent in the time that one more message takes: some 30 us, at 9 GB/s."""
LEAST = 4
"""Ranks that can be arranged in more than one row and more than one column."""
GAIN = 0.1
"""Part of what a rank receives per call that a cut along two axes must save: other calls may be cut along one."""


def grid_for(task: Task, axes: Sequence[int], rows: Sequence[Box], granule: int) -> list[Box] | None:
    """Return as many parts as `rows`, which are cut along the first axis, cut along two; None if that gains nothing."""
    ranks = len(rows)
    if ranks < LEAST or len(axes) < 2:
        return None
    best, least = None, (1.0 - GAIN) * received(task, rows, ranks // 2)
    for down in range(2, ranks // 2 + 1):
        across = ranks // down
        if down * across != ranks:
            continue
        strips = spread(task.domain, axes[0], down, granule)
        parts = [part for strip in strips for part in spread(strip, axes[1], across, granule)]
        if len(parts) != ranks:
            continue
        found = received(task, parts, down // 2 * across + across // 2)
        if found < least:
            best, least = parts, found
    return best


def received(task: Task, parts: Sequence[Box], middle: int) -> float:
    """Return what the part in the middle gets from other ranks in each call: bytes, with those that messages stand for.

    It has its share of every array that it reads, if ranks divide what they write in the same way.
    """
    found = 0.0
    reads = [index for index, param in enumerate(task.accesses) if param.access.reads]
    own, everything = mapped(task, parts[middle]), mapped(task, task.domain)
    for index in reads:
        mine, whole = own[index], everything[index]
        if mine is not None and whole is not None:
            lacking = mine.box.volume - whole.box.volume / len(parts)
            found += max(0.0, lacking) * task.arrays[index].itemsize
    return found + MESSAGE * sum(_share(own, mapped(task, part), reads) for part in parts if part != parts[middle])


def _share(own: Sequence[Mapped | None], others: Sequence[Mapped | None], reads: Sequence[int]) -> bool:
    """Tell whether two parts read something that both of them read."""
    pairs = [(own[index], others[index]) for index in reads]
    return any(a is not None and b is not None and overlaps(a.box, b.box) for a, b in pairs)
