"""What a task would have written, when it cannot be lowered: the result of an instruction that has failed.

Before: lower/lowering.py.  After: schedule/lower.py.  Knows no error: only whose result nobody can read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..geometry import Box, Grid, Region, overlap
from ..graph.instruction import Instruction, Join
from ..graph.task import Task
from ..graph.task_graph import touched_boxes
from ..machine.platform import HOST, USER
from ..program.array import Array
from ..program.view import grid_of
from .lowering import Lowering
from .state import ArrayState, Backing


def poison(lowering: Lowering, task: Task, id: int) -> None:
    """Give what `task` would write to an instruction that needs `id`, which has failed; exactly those elements.

    It comes after whoever still uses them, as a writer would: who overwrites them next waits for it, and so for those.
    Raises DoesNotFit if the host has no room for what is in no memory yet.
    """
    part = task.mine if task.deal is not None and task.space is not None else None  # others have written the rest
    spoilt: list[Spoilt] = []
    try:
        for param, array in zip(task.accesses, task.arrays, strict=True):
            if param.access.writes:
                hull, boxes = touched_boxes(task, param.access, array, part)
                for box in boxes or (() if hull.empty else (hull,)):
                    _find(lowering, task, array, box, spoilt)
    finally:
        if spoilt:
            _spoil(lowering, spoilt, id)


class Spoilt(NamedTuple):
    """Elements that a task would have written, where they are backed."""

    state: ArrayState
    backing: Backing
    box: Box
    grid: Grid | None


def _find(lowering: Lowering, task: Task, array: Array, box: Box, spoilt: list[Spoilt]) -> None:
    """Add where the elements of a box are backed; on the host if they are in no memory."""
    state: ArrayState = array._storage.state
    grid = None if array._grid is None else grid_of(box, array._cut)
    left = Region([box])
    for backing, piece in _backed(state, box, whole=grid is not None):
        spoilt += [Spoilt(state, backing, mine, grid) for mine in left.intersection(Region([piece])).boxes]
        left = left.difference(Region([piece]))
    for piece in left.boxes:
        backing = lowering.coherence.back(state, HOST, piece, task)
        if grid is not None:  # what lies between stays as it is
            lowering.coherence.validate(state, HOST, [piece], "host", task)
        spoilt.append(Spoilt(state, backing, piece, grid))


def _spoil(lowering: Lowering, spoilt: list[Spoilt], id: int) -> None:
    """Let one instruction, which needs the failed `id`, be the last that wrote all of this."""
    emitter, after = lowering.emitter, set[int]()
    for _, backing, box, grid in spoilt:
        backing.tracker.before_write(box, grid, after)
    failing = Instruction(emitter.id(), Join(), None, (id,), tuple(after))
    emitter.emit(failing)
    for state, backing, box, grid in spoilt:
        backing.tracker.did_write(box, grid, failing.id)
        emitter.touch(backing)
        state.wrote(backing.allocation.memory, box)


def _backed(state: ArrayState, box: Box, *, whole: bool) -> Iterator[tuple[Backing, Box]]:
    """Return where parts of a box are backed, and, if it matters, wholly valid; the host first."""
    for memory in sorted(state.backings):
        if memory != USER:
            for backing in list(state.backings[memory]):
                piece = overlap(backing.box, box)
                if piece is not None and (not whole or state.holds(memory, piece)):
                    yield backing, piece
