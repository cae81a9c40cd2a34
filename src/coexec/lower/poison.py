"""What a task would have written, when it cannot be lowered: the result of an instruction that has failed.

Before: lower/lowering.py.  After: execute/holding.py.  Knows no error: only whose result nobody can read.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..geometry import Box, Grid, Region, overlap
from ..graph.task import Task
from ..graph.task_graph import touched_boxes
from ..machine.platform import HOST, USER
from ..program.array import Array
from ..program.view import grid_of
from .lowering import Lowering
from .state import ArrayState, Backing


def poison(lowering: Lowering, task: Task, id: int) -> None:
    """Give what `task` would write to instruction `id`, which never runs; exactly those elements.

    Raises DoesNotFit if the host has no room for what is in no memory yet.
    """
    part = task.part if task.deal is not None and task.visited is not None else None  # others have written the rest
    for param, array in zip(task.accesses, task.arrays, strict=True):
        if param.access.writes:
            hull, boxes = touched_boxes(task, param.access, array, part)
            for box in boxes or (() if hull.empty else (hull,)):
                _spoil(lowering, task, array, box, id)


def _spoil(lowering: Lowering, task: Task, array: Array, box: Box, id: int) -> None:
    state: ArrayState = array._storage.state
    grid = None if array._grid is None else grid_of(box, array._cut)
    left = Region([box])
    for backing, piece in _backed(state, box, whole=grid is not None):
        for mine in left.intersection(Region([piece])).boxes:
            _note(lowering, state, backing, mine, grid, id)
        left = left.difference(Region([piece]))
    for piece in left.boxes:
        backing = lowering.coherence.back(state, HOST, piece, task)
        if grid is not None:  # what lies between stays as it is
            lowering.coherence.validate(state, HOST, [piece], "host", task)
        _note(lowering, state, backing, piece, grid, id)


def _backed(state: ArrayState, box: Box, *, whole: bool) -> Iterator[tuple[Backing, Box]]:
    """Return where parts of a box are backed, and, if it matters, wholly valid; the host first."""
    for memory in sorted(state.backings):
        if memory != USER:
            for backing in list(state.backings[memory]):
                piece = overlap(backing.box, box)
                if piece is not None and (not whole or state.holds(memory, piece)):
                    yield backing, piece


def _note(lowering: Lowering, state: ArrayState, backing: Backing, piece: Box, grid: Grid | None, id: int) -> None:
    backing.tracker.did_write(piece, grid, id)
    lowering.emitter.touch(backing)
    state.wrote(backing.allocation.memory, piece)
