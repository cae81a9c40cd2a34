"""The command graph's nodes: a task with a plan, cut into chunks for this rank's devices.

Before: graph/task.py and plan/.  After: lower/.  Knows no memory and no allocation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..geometry import Box
    from .task import Task


class Chunk(NamedTuple):
    """A box of a task's index space, and the device that computes it."""

    device: str
    box: Box
    slot: int = 0  # position among the task's chunks, or of its first piece
    pieces: tuple[Box, ...] = ()  # computed one after the other, if there are any: blocks of a reduction, or of a cache


class Command(NamedTuple):
    """A task as this rank executes it: one chunk is not a special case."""

    id: int
    task: Task
    chunks: tuple[Chunk, ...]
    after: tuple[int, ...]  # ids of commands
    why: str  # why these devices
