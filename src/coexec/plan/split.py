"""Cut a task's index space: evenly over devices, into fixed blocks for reductions, and each part again (`oversubscribe=k`).

Before: geometry/, predict/features.py.  After: plan/planner.py, testing/.  Pure: knows boxes and shares of work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from itertools import combinations, pairwise
from math import isqrt, lcm
from typing import TYPE_CHECKING, NamedTuple

from ..geometry import Box, bounding, covers, cut, overlaps
from ..graph.command import Chunk
from ..graph.mapped import remembered
from ..graph.task import Task
from ..machine.platform import Platform
from ..predict.features import Rows, part_of, work_of_part
from .candidate import Share

if TYPE_CHECKING:
    from .candidate import Candidate

BLOCKS = 32
"""Blocks of a reduction, unless each would have more than LARGE_BLOCK points: then there are twice, four times, ... as many."""
BLOCK_ELEMENTS = 1 << 15
LARGE_BLOCK = 1 << 21
"""Points of a block from which on it is worth a message and a launch of its own: some 20 microseconds of a large GPU."""
MOST_BLOCKS = 1 << 10
"""Blocks of the largest reductions: as many ranks can share one."""
PRIVATE_ELEMENTS = 1 << 15
"""Elements of all private targets of a reduction with more than BLOCKS blocks: every block has its own."""
SEVERAL_BLOCKS = 2 * BLOCK_ELEMENTS
"""Points from which a reduction has more than one block."""
SQUARE = 0.95  # extents whose ratio is closer to one than this are nearly square


def even(box: Box, axes: Sequence[int], devices: Sequence[str], granule: int = 1) -> tuple[Chunk, ...]:
    """Cut `box` into parts of equal size, one per device, fewer if there are not enough granules.

    Along one axis, or into tiles along the first two.
    """
    if len(axes) < 2:
        parts = cut(box, axes[0], len(devices), granule)
    else:
        parts = even_2d(box, axes[0], axes[1], len(devices), granule)
    return tuple(Chunk(devices[i], part, i) for i, part in enumerate(parts))


def evenly(task: Task, axes: Sequence[int], group: Sequence[Candidate]) -> tuple[Chunk, ...]:
    """Cut the index space of a task into equal parts for the devices of a group; granules as task and devices ask."""
    names = tuple([candidate.name for candidate in group])
    granule = lcm(task.granule, *{max(1, c.device.granule) for c in group})
    known, key = remembered(task), ("even", granule, names, task.mine)
    chunks: tuple[Chunk, ...] | None = known.get(key) if known is not None else None
    if chunks is None:
        chunks = even(task.mine, axes, names, granule)
        if known is not None:
            known[key] = chunks
    return chunks


def even_2d(box: Box, first: int, second: int, count: int, granule: int = 1) -> list[Box]:
    """Cut `box` along two axes into at most `count` tiles that are about square, row by row; none is empty."""
    if box.empty:
        return []
    bands, columns = tiling(box.shape[first], box.shape[second], count, granule)
    return [tile for band in cut(box, first, bands, granule) for tile in cut(band, second, columns, granule)]


def tiling(rows: int, columns: int, count: int, granule: int = 1) -> tuple[int, int]:
    """Return into how many parts to cut either extent: the two factors of `count` that make most parts.

    Factors close to each other are tried first. Of the two ways round, the larger one goes to the first axis of an
    extent that is nearly square, else the way with the shorter edges wins. As in Celerity.
    """
    most = (-(-rows // granule), -(-columns // granule))
    square = SQUARE < rows / columns < 1 / SQUARE
    best = (0, 0)
    for small in range(isqrt(count), 0, -1):
        if count % small:
            continue
        ways = [(min(a, most[0]), min(b, most[1])) for a, b in ((count // small, small), (small, count // small))]
        found = max(ways, key=lambda way: (way[0] * way[1], not square and -(rows / way[0] + columns / way[1])))
        if found[0] * found[1] > best[0] * best[1]:
            best = found
        if best[0] * best[1] == count:
            break
    return best


def blocks(box: Box, axis: int, granule: int = 1, target: int = 1) -> list[Box]:
    """Cut `box` into blocks that depend on its shape, and on the elements of the `target`, alone.

    A reduction combines the blocks in their order, so its bits do not depend on who computed which.
    """
    return spread(box, axis, max(1, min(_most_blocks(box.volume, target), box.volume // BLOCK_ELEMENTS)), granule)


def _most_blocks(points: int, target: int) -> int:
    """Return how many blocks so many points may have: large index spaces more of them, for as many ranks."""
    most = BLOCKS
    while most < MOST_BLOCKS and points > most * LARGE_BLOCK and 2 * most * target <= PRIVATE_ELEMENTS:
        most *= 2
    return most


def blocks_of(task: Task, box: Box, axis: int) -> list[Box]:
    """Return the fixed blocks of a task that reduces, of `box` along an axis."""
    assert task.kernel is not None
    targets = [a.size for p, a in zip(task.accesses, task.arrays, strict=True) if p.access.mode == "reduce"]
    return blocks(box, axis, task.kernel.granule, max(1, sum(targets)))


def spread(box: Box, axis: int, parts: int, granule: int = 1) -> list[Box]:
    """Cut a box into at most so many parts, the larger ones spread among the others, in multiples of a granule.

    Half of the parts are half of the box, and so on: cuts into fewer parts are among those into more of them. So a call that
    is divided by rows and a reduction whose blocks are dealt in runs have the same cuts, and nothing is sent between them.
    """
    if box.empty:
        return []
    rows = box.hi[axis] - box.lo[axis]
    granules = -(-rows // granule)
    parts = min(parts, granules)
    at = [min(rows, -(-number * granules // parts) * granule) for number in range(parts + 1)]
    return [part_of(box, axis, lo, hi) for lo, hi in pairwise(at)]


def deal_evenly(parts: Sequence[Box], devices: Sequence[str]) -> tuple[Chunk, ...]:
    """Deal blocks to the devices in contiguous runs of about equal length."""
    return tuple(Chunk(devices[i * len(devices) // len(parts)], part, i) for i, part in enumerate(parts))


def deal(parts: Sequence[Box], axis: int, devices: Sequence[str], cuts: Sequence[float]) -> tuple[Chunk, ...]:
    """Deal blocks to the devices by where their middles lie between the cuts."""
    dealt = []
    for i, part in enumerate(parts):
        middle = (part.lo[axis] + part.hi[axis]) / 2 if part.lo else 0
        owner = min(len(devices) - 1, max(0, bisect_right(cuts, middle) - 1))
        dealt.append(Chunk(devices[owner], part, i))
    return tuple(dealt)


def tiles(box: Box, parts: Sequence[Box]) -> bool:
    """Tell whether the parts make up `box`, each point once."""
    if any(len(part.lo) != box.ndim or len(part.hi) != box.ndim or not covers(box, part) for part in parts):
        return False
    apart = not any(overlaps(a, b) for a, b in combinations(parts, 2))
    return apart and sum(part.volume for part in parts) == box.volume


def in_runs(chunks: Sequence[Chunk], loops: Container[str]) -> tuple[Chunk, ...]:
    """Join neighbouring blocks of one device to one chunk with pieces, on devices that loop over pieces themselves."""
    joined: list[Chunk] = []
    for chunk in chunks:
        last = joined[-1] if joined else None
        if last is not None and last.device == chunk.device and chunk.device in loops and _neighbours(last, chunk):
            pieces = (*(last.pieces or (last.box,)), chunk.box)
            joined[-1] = last._replace(box=bounding([last.box, chunk.box]), pieces=pieces)
        else:
            joined.append(chunk)
    return tuple(joined)


def _neighbours(one: Chunk, other: Chunk) -> bool:
    """Tell whether two chunks make up a box and follow each other in one phase."""
    hull = bounding([one.box, other.box])
    follows = other.slot == one.slot + (len(one.pieces) or 1) and one.phase == other.phase
    return follows and hull.volume == one.box.volume + other.box.volume


def in_cache(chunk: Chunk, axis: int, nbytes: float, cache: int, granule: int = 1) -> Chunk:
    """Return the chunk in pieces along `axis` whose share of its bytes fits into a cache."""
    rows = chunk.box.hi[axis] - chunk.box.lo[axis]
    count = min(rows, int(nbytes // cache) + 1)
    parts = cut(chunk.box, axis, count, granule) if count > 1 else []
    return chunk._replace(pieces=tuple(parts)) if len(parts) > 1 else chunk


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
