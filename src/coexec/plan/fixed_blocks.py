"""Results that do not depend on who computes what: fixed blocks of the index space, and who may compute them.

Before: plan/split.py, plan/conflicts.py, plan/candidate.py.  After: plan/planner.py, cluster/dealing.py, lower/.  Pure.

A body may give other bits for another number of rows: matrix products, sums and vector loops do. So with
`reproducible=True` every body is called on the same blocks, which depend on shapes and declarations alone, in compact
arrays, and a division only decides who computes which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ..errors import InvariantError
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.mapped import mapped, remembered
from ..graph.task import Task
from ..predict.features import flops_at, part_of, work_of
from ..program.fuse import BLOCK, Fused
from ..program.kernel import Kernel
from ..program.ufunc import Elementwise
from .split import blocks_of

POINTS = 1 << 13
"""Points of the index space that a block has at least, unless the kernel declares how much work a point is."""
FLOPS = 1 << 22
"""Operations that are worth a block."""
BLOCKS = 64
"""Blocks that a task has at most, unless they would have more than `program.fuse.BLOCK` points."""
SHARED = 16
"""The same for a task of which every block reads one array whole: products would read it again and again."""
LONG_ENOUGH = 16
"""Rows from which the first of several axes is the one that is cut."""

Independent = Callable[[Task, Sequence[Chunk]], bool]


def set_grain(task: Task, independent: Independent) -> None:
    """Note of which blocks the parts of a task are made: one block if blocks would touch what others write."""
    kernel = task.kernel
    if kernel is None or kernel.host or task.domain.empty or task.grain is not None:
        return
    known = remembered(task) if not kernel.looked_at else None
    grain: tuple[int, int] | None = known.get("grain") if known is not None else None
    if grain is None:
        grain = _grain(task, kernel)
        if known is not None and grain is not None:
            known["grain"] = grain
    if grain is None:
        return
    axis, rows = grain
    extent = task.domain.hi[axis] - task.domain.lo[axis]
    visited = task.space
    if rows < extent and not kernel.reduces:
        task.space = task.domain  # blocks are mapped one by one
        if not independent(task, [Chunk("", box) for box in boxes_of(task.domain, task.domain, (axis, rows))]):
            rows = extent
        task.space = visited
    task.grain = (axis, rows)


def _grain(task: Task, kernel: Kernel) -> tuple[int, int] | None:
    box = task.domain
    axes = [axis for axis in kernel.split if box.hi[axis] - box.lo[axis] > 1]
    if not axes:
        return None
    if kernel.reduces:  # blocks of its own, in `plan/split.py`
        found = blocks_of(task, box, axes[0])
        return axes[0], max([block.hi[axes[0]] - block.lo[axes[0]] for block in found])
    extents = box.shape
    axis = axes[0] if extents[axes[0]] >= LONG_ENOUGH else max(axes, key=lambda a: (extents[a], -a))
    extent, granule = extents[axis], kernel.granule
    if isinstance(kernel.function, Elementwise | Fused):
        rows = max(1, BLOCK // max(1, box.volume // extent))  # as many as a chain computes at once
    else:
        rows = -(-extent // min(extent, _count(task, kernel, axis)))
    return axis, min(extent, -(-rows // granule) * granule)


def _count(task: Task, kernel: Kernel, axis: int) -> int:
    """Return of how many blocks a task is made, as far as what was declared tells how much work it is."""
    points = task.domain.volume
    worth, at = points // POINTS, flops_at(kernel)
    if at is not None:
        worth = max(worth, int(work_of(task).features[at]) // FLOPS)
    most = SHARED if _shares(task, axis) else max(BLOCKS, points // BLOCK)
    return max(1, min(most, worth))


def _shares(task: Task, axis: int) -> bool:
    """Tell whether half of a task reads most of some array that has more than a row."""
    extent = task.domain.shape[axis]
    half = mapped(task, part_of(task.domain, axis, 0, extent // 2))
    every = mapped(task, task.domain)
    return any(
        some is not None
        and entire is not None
        and entire.box.volume > 1
        and 4 * some.box.volume > 3 * entire.box.volume
        for some, entire in zip(half, every, strict=True)
    )


def boxes_of(part: Box, box: Box, grain: tuple[int, int]) -> tuple[Box, ...]:
    """Return the blocks of an index space `box` that make up `part` of it."""
    axis, rows = grain
    first, last = part.lo[axis] - box.lo[axis], part.hi[axis] - box.lo[axis]
    end = box.hi[axis] - box.lo[axis]
    if first % rows or (last % rows and last != end):
        raise InvariantError(f"part {part} of {box} is not made of blocks of {rows} rows along axis {axis}")
    cuts = [*range(first, last, rows), last]
    whole = part_of(part, axis, -first, end - first)
    return tuple([part_of(whole, axis, low, high) for low, high in pairwise(cuts)])


def in_blocks(task: Task, chunk: Chunk) -> Chunk:
    """Return a chunk of a reproducible task in its blocks, which bodies compute one after the other."""
    grain, kernel = task.grain, task.kernel
    if grain is None or chunk.box.empty or kernel is None or kernel.reduces:  # a reduction has blocks already
        return chunk if chunk.alike else chunk._replace(alike=True)
    pieces = boxes_of(chunk.box, task.domain, grain)
    return chunk._replace(pieces=pieces if len(pieces) > 1 else (), alike=True)
