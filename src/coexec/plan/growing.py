"""Calls that differ in the size of what every part reads whole, as a history that grows by a row in each step.

Before: graph/task.py.  After: plan/divider.py, which divides them alike.  Knows no device.
"""

from __future__ import annotations

from math import log2

from ..graph.command import Chunk
from ..graph.task import Task
from ..predict.features import work_of_part
from ..program.mapper import All
from .candidate import Share

PER_DOUBLING = 4  # sizes that are told apart while an extent doubles


def alike(task: Task) -> tuple[object, ...] | None:
    """Return what such calls have in common; None if nothing is read whole, so that equal calls have equal shapes."""
    found = False
    common: list[object] = []
    for param, array in zip(task.accesses, task.arrays, strict=True):
        shape: tuple[object, ...] = array.shape
        if shape and isinstance(param.access.mapper, All) and not param.access.writes:
            found = True
            shape = ("about", *[round(PER_DOUBLING * log2(extent)) if extent else -1 for extent in array.shape])
        common.append((shape, array.dtype.str))
    return tuple(common) if found else None


def fitted(task: Task, chunks: tuple[Chunk, ...], shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """Return the shares of a call like this one as those of this call: its own work, and its own prediction."""
    found = []
    for chunk, share in zip(chunks, shares, strict=True):
        work = work_of_part(task, chunk.box)
        seconds = None if share.model is None else share.model.seconds(work, together=share.together)
        found.append(share._replace(work=work, seconds=seconds))
    return tuple(found)
