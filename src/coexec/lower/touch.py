"""What one parameter of one chunk touches.

Before: lower/state.py.  After: lower/capacity.py, lower/lowering.py, schedule/hold.py.  Plain data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..geometry import Box, Grid
from ..graph.command import Chunk
from ..graph.task import Task
from ..program.array import Array
from ..program.padding import Pad
from ..program.view import Cut, grid_of
from .oversized import RoundPart
from .state import ArrayState


class Touch(NamedTuple):
    """One array parameter of one chunk."""

    name: str
    state: ArrayState
    box: Box
    grid: Grid | None
    cut: Cut | None
    memory: int
    reads: bool  # the old values are needed
    writes: bool
    strict: bool  # reads=True only because a strided write leaves elements between untouched
    pad: Pad | None
    boxes: tuple[Box, ...] | None = None  # what of the box is touched, if not all of it
    empty: bool = False  # nothing is touched at all
    spans: tuple[tuple[Box, Box], ...] = ()  # what may be backed apart, in coordinates of the array and of the view

    def parts(self) -> tuple[Box, ...]:
        """Return the boxes that are touched."""
        return self.boxes or (self.box,)

    def backed(self) -> tuple[Box, ...]:
        """Return the boxes that must each be in one allocation: the hull if that is there, else what may be apart."""
        if self.spans and self.state.find(self.memory, self.box) is None:
            return tuple([span for span, _ in self.spans])
        return (self.box,)

    def part_grid(self, part: Box) -> Grid | None:
        """Return the lattice of one of the boxes."""
        return self.grid if self.grid is None or self.boxes is None else grid_of(part, self.cut)


class Draft(NamedTuple):
    """What a command touches: per chunk its parameters, and the private arrays of its reductions."""

    chunks: list[list[Touch]]
    partials: dict[str, ArrayState]
    backed: bool = False  # everything is known to be allocated

    def is_backed(self) -> bool:
        """Tell whether everything is allocated that is touched."""
        for touches in self.chunks:
            for touch in touches:
                for box in touch.backed():
                    if touch.state.find(touch.memory, box) is None and not box.empty:
                        return False
        return True


def slots_of(name: str, partial: ArrayState, chunk: Chunk, memory: int) -> Touch:
    """Return the touch of one chunk's slot of a private array, or of the slots of all its pieces."""
    count = len(chunk.pieces) or 1
    box = Box((chunk.slot, *partial.box.lo[1:]), (chunk.slot + count, *partial.box.hi[1:]))
    cut = None if chunk.pieces else Cut((1,) * box.ndim, tuple(range(1, box.ndim)))
    return Touch(name, partial, box, None, cut, memory, reads=True, writes=True, strict=True, pad=None, empty=box.empty)


def by_array(
    parts: Sequence[RoundPart], touches: Sequence[Sequence[Touch]]
) -> dict[ArrayState, list[tuple[Touch, str]]]:
    """Return what chunks touch of each array, and the devices that they are for."""
    found: dict[ArrayState, list[tuple[Touch, str]]] = {}
    for part, of_part in zip(parts, touches, strict=True):
        for touch in of_part:
            if not touch.empty:
                found.setdefault(touch.state, []).append((touch, part.chunk.device))
    return found


def is_written(task: Task, array: Array) -> bool:
    """Tell whether a task writes an array through some parameter: then a body sees one memory through all of them."""
    return any(
        p.access.writes and a._storage is array._storage for p, a in zip(task.accesses, task.arrays, strict=True)
    )
