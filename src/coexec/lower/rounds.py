"""Divide a command further, so that what runs at once fits into the memories: rounds, lowered one after the other.

Before: graph/command.py, plan/.  After: lower/lowering.py.  Knows boxes and sizes; is told whether chunks fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ..geometry import Box, bounding, cut
from ..graph.command import Chunk
from ..graph.task import Task
from ..plan.candidate import Share
from ..plan.conflicts import apart, find_conflict
from ..predict.features import work_of_part

FINER = 4  # times as many rounds as must be, at most, to have two of them fit at once

Lacks = Callable[[Sequence[Chunk]], bool]
"""Tells whether chunks, all at once, need more than their memories can give."""


class Part(NamedTuple):
    """A chunk, or a part of one."""

    chunk: Chunk
    share: Share
    more: bool = False  # further parts of the same chunk follow


Cuts = list[list[tuple[int, Chunk]]]
"""Rounds of (which chunk, part of it)."""


def in_rounds(
    task: Task, chunks: Sequence[Chunk], shares: Sequence[Share], memories: Sequence[int], lacks: Lacks
) -> list[list[Part]] | None:
    """Return rounds whose parts fit together, or None if nothing does. `memories` says where each chunk computes.

    Two rounds fit at once, if that is possible: then the inputs of the next are copied while this one runs.
    """
    axes = split_axes(task)
    by_memory = []
    for memory in dict.fromkeys(memories):
        mine = [number for number, m in enumerate(memories) if m == memory]
        cuts = _fitting([chunks[number] for number in mine], axes, granule_of(task), lacks)
        if cuts is None:
            return None
        by_memory.append([[(mine[place], part) for place, part in entry] for entry in cuts])
    found = [
        [entry for cuts in by_memory if number < len(cuts) for entry in cuts[number]]
        for number in range(max(map(len, by_memory)))
    ]
    return _numbered(task, chunks, shares, found)


def split_axes(task: Task) -> Sequence[int]:
    """Return the axes along which a task may be cut."""
    if task.kernel is None or (task.options is not None and not task.options.split):
        return ()
    return [axis for axis in task.kernel.split if axis < task.box.ndim]


def granule_of(task: Task) -> int:
    """Return of how many rows the parts of a task are multiples."""
    return task.kernel.granule if task.kernel is not None else 1


def _fitting(chunks: list[Chunk], axes: Sequence[int], granule: int, lacks: Lacks) -> Cuts | None:
    """Return rounds for the chunks of one memory: as few as fit two at a time, or else one at a time."""
    if any(lacks([_smallest_of(chunk, axes, granule)]) for chunk in chunks):
        return None
    most = max(_parts_at_most(chunk, axes, granule) for chunk in chunks)
    once: Cuts | None = None
    count, last = 1, most
    while True:
        parts = [_parts(chunk, axes, granule, min(count, most)) for chunk in chunks]
        rounds = [
            [(number, mine[place]) for number, mine in enumerate(parts) if place < len(mine)]
            for place in range(max(map(len, parts)))
        ]
        if _fit(rounds, lacks, at_once=2):
            return rounds
        if once is None and _fit(rounds, lacks, at_once=1):
            once, last = rounds, min(most, count * FINER)
        if count >= last:
            break
        count *= 2
    if once is None:  # even the smallest parts of all chunks are too much at once: one after the other
        once = [[(number, part)] for number, mine in enumerate(parts) for part in mine]
        return once if _fit(once, lacks, at_once=1) else None
    return once


def _fit(rounds: Cuts, lacks: Lacks, *, at_once: int) -> bool:
    return not any(
        lacks([part for entry in rounds[first : first + at_once] for _, part in entry]) for first in range(len(rounds))
    )


def _smallest_of(chunk: Chunk, axes: Sequence[int], granule: int) -> Chunk:
    return chunk._replace(box=smallest_part((chunk.pieces or (chunk.box,))[0], axes, granule), pieces=())


def _parts_at_most(chunk: Chunk, axes: Sequence[int], granule: int) -> int:
    """Return into how many parts a chunk can be cut."""
    units = chunk.pieces or (chunk.box,)
    return len(units) * max(1, *[prod([-(-unit.shape[axis] // granule) for axis in axes]) for unit in units])


def smallest_part(box: Box, axes: Sequence[int], granule: int) -> Box:
    """Return the first of the smallest parts that a box can be cut into."""
    return Box(box.lo, tuple(min(hi, box.lo[a] + granule) if a in axes else hi for a, hi in enumerate(box.hi)))


def _parts(chunk: Chunk, axes: Sequence[int], granule: int, count: int) -> list[Chunk]:
    """Return a chunk in about `count` parts: runs of its pieces, or pieces cut along the axes."""
    units = chunk.pieces or (chunk.box,)
    if count < 2 or (len(units) == 1 and not axes):
        return [chunk]
    if count <= len(units):
        runs = [units[len(units) * i // count : len(units) * (i + 1) // count] for i in range(count)]
        return [chunk._replace(box=bounding(run), pieces=run if len(run) > 1 else ()) for run in runs]
    boxes = [part for unit in units for part in _cut(unit, axes, granule, -(-count // len(units)))]
    return [chunk._replace(box=box, pieces=()) for box in boxes]


def _cut(box: Box, axes: Sequence[int], granule: int, count: int) -> list[Box]:
    if not axes or count < 2:
        return [box]
    parts = cut(box, axes[0], count, granule)
    rest = -(-count // max(1, len(parts)))
    return [smaller for part in parts for smaller in _cut(part, axes[1:], granule, rest)]


def _numbered(task: Task, chunks: Sequence[Chunk], shares: Sequence[Share], found: Cuts) -> list[list[Part]] | None:
    """Give parts their slots, in the order of the index space, and their part of what is known of the chunk."""
    parts: dict[int, list[tuple[int, Chunk]]] = {}
    for number, entry in enumerate(found):
        for which, part in entry:
            parts.setdefault(which, []).append((number, part))
    rounds: list[list[Part]] = [[] for _ in found]
    slot = 0
    for which in sorted(parts, key=lambda which: chunks[which].slot):
        mine = parts[which]
        for place, (number, part) in enumerate(mine):
            share = shares[which] if len(mine) == 1 else _portion(task, chunks[which], part, shares[which])
            rounds[number].append(Part(part._replace(slot=slot), share, place + 1 < len(mine)))
            slot += len(part.pieces) or 1
    every = [part.chunk.box for entry in rounds for part in entry]
    return rounds if len(every) == len(chunks) or _independent(task, every) else None


def _independent(task: Task, boxes: Sequence[Box]) -> bool:
    """Tell whether no part touches what another one writes."""
    distinct = len({id(array._storage) for array in task.arrays}) == len(task.arrays)
    return (distinct and apart(task)) or find_conflict(task, boxes) is None


def _portion(task: Task, chunk: Chunk, part: Chunk, share: Share) -> Share:
    if share.work is None:
        return share
    seconds = None if share.seconds is None else share.seconds * part.box.volume / max(1, chunk.box.volume)
    return share._replace(work=work_of_part(task, part.box), seconds=seconds)
