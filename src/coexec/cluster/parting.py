"""Cut what ranks divide: an index space, and the fixed blocks of a reduction, as the ranks' shares say.

Before: geometry/, predict/features.py.  After: cluster/dealing.py.  Pure: every rank cuts alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate

from ..geometry import Box
from ..graph.task import Task
from ..plan.split import spread
from ..predict.features import Rows, part_of


def cut_for(
    task: Task, axis: int, ranks: Sequence[int], shares: Sequence[float] | None, granule: int
) -> list[tuple[int, Box]]:
    """Return the part of each rank along one axis, in multiples of a granule; a rank may have none.

    `shares` are the ranks' own, of the work; None for equal ones.
    """
    rows = Rows(task, task.domain, axis)
    if rows.even and shares is None:
        return list(zip(ranks, spread(task.domain, axis, len(ranks), granule), strict=False))
    ends = accumulate(shares or [1.0 / len(ranks)] * len(ranks))
    at = [min(rows.rows, round(rows.position(rows.rows * end) / granule) * granule) for end in ends]
    at[-1] = rows.rows
    spans = zip([0, *at], at, strict=False)
    return [(rank, part_of(task.domain, axis, lo, hi)) for rank, (lo, hi) in zip(ranks, spans, strict=True) if lo < hi]


def runs_for(number: int, ranks: Sequence[int], shares: Sequence[float] | None) -> list[tuple[int, int, int]]:
    """Return who has which of so many blocks: a rank, its first block, and the one after its last. A rank may have none."""
    if shares is None:
        count = min(len(ranks), number)
        return [(ranks[i], i * number // count, (i + 1) * number // count) for i in range(count)]
    at = [min(number, round(end * number)) for end in accumulate(shares)]
    at[-1] = number
    return [
        (rank, first, last)
        for rank, (first, last) in zip(ranks, zip([0, *at], at, strict=False), strict=True)
        if first < last
    ]


def span_of(box: Box, parts: Sequence[Box], axis: int) -> tuple[int, int]:
    """Return the rows of a box, from its first, over which parts that follow each other reach."""
    return parts[0].lo[axis] - box.lo[axis], parts[-1].hi[axis] - box.lo[axis]


def named_devices(task: Task) -> list[str]:
    """Return the devices that a call names."""
    given = task.options.devices if task.options is not None else None
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def division_key(task: Task) -> Hashable | None:
    """Return what the division of a task depends on; None if that may change from call to call."""
    kernel = task.kernel
    if task.key is None or kernel is None or not all(param.access.mapper.fixed for param in task.accesses):
        return None
    numbers: dict[int, int] = {}
    arrays = [(numbers.setdefault(id(a._storage), len(numbers)), a._box, a._cut) for a in task.arrays]
    return kernel, task.key, task.options, tuple(arrays), len(task.accesses)
