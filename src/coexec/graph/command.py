"""The command graph's nodes: a task with a plan, cut into chunks for this rank's devices, and what ranks send each other.

Before: graph/task.py, cluster/ and plan/.  After: lower/.  Knows no memory and no allocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..geometry import Box, Grid
    from .task import Task


class Chunk(NamedTuple):
    """A box of a task's index space, and the device that computes it."""

    device: str
    box: Box
    slot: int = 0  # position among the task's chunks, or of its first piece
    pieces: tuple[Box, ...] = ()  # computed one after the other, if there are any: blocks of a reduction, or of a cache
    alike: bool = False  # bodies see compact arrays and one library thread: the same bits whoever computes it
    phase: int = 0  # of a ring: what it reads may come from whoever had it in the phase before


class Command(NamedTuple):
    """A task as this rank executes it: one chunk is not a special case."""

    id: int
    task: Task
    chunks: tuple[Chunk, ...]
    after: tuple[int, ...]  # ids of commands
    why: str  # why these devices


Boxes = tuple["Box", ...]


class Parcel(NamedTuple):
    """One box that is sent, and the strided sets in it that others wrote than wrote the rest, the oldest first."""

    box: Box
    over: tuple[tuple[Box, Grid], ...] = ()


Parcels = tuple[Parcel, ...]


class Push(NamedTuple):
    """What this rank sends of one argument before a task: to each rank the boxes that it lacks and reads.

    With `partial`, the boxes are of a reduction's private array, and are sent after the task.
    """

    argument: int  # the first of the task's arrays that is this array
    targets: tuple[tuple[int, Parcels], ...]  # rank, boxes in the array's coordinates
    partial: bool = False
    step: int = 0  # of what all ranks read, which they pass on in steps: what came in earlier ones goes out, too


class AwaitPush(NamedTuple):
    """What this rank gets of one argument before a task, and from whom."""

    argument: int
    sources: tuple[tuple[int, Parcels], ...]
    partial: bool = False
    step: int = 0

    @property
    def boxes(self) -> Boxes:
        """Everything that arrives."""
        return tuple([parcel.box for _, parcels in self.sources for parcel in parcels])


@dataclass(frozen=True, slots=True, eq=False)
class Deal:
    """What of a task is this rank's. Every rank knows the deals of all, so sends and receives meet.

    A call that is dealt like an earlier one gets the same object: replay compares by identity.
    """

    box: Box | None  # what this rank computes; None: nothing
    blocks: Boxes = ()  # the fixed blocks of a reduction in it
    first: int = 0  # the number of the first one
    slots: int = 0  # how many blocks all ranks have together
    pushes: tuple[Push, ...] = ()
    awaits: tuple[AwaitPush, ...] = ()
    stale: tuple[tuple[int, Boxes], ...] = ()  # argument, and the boxes of it that other ranks write
