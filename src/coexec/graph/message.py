"""Steps that send parts of arrays to other ranks, and take what these send.

Before: graph/instruction.py.  After: lower/exchanging.py, cluster/.  Knows allocations and routes, no transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..geometry import Box, Grid
from .instruction import Allocation, Relocate, Step

if TYPE_CHECKING:
    from .task import Task


class Message(Step):
    """One box that one rank sends another."""

    __slots__ = ("allocation", "box", "route")
    device = "network"
    priority = 7

    def __init__(self, allocation: Allocation, box: Box, route: MessageKey) -> None:
        self.allocation = allocation  # in host memory
        self.box = box
        self.route = route

    def key(self, task: Task) -> tuple[int, MessageKey]:
        """Return what a transport finds the other side by: the same on both sides."""
        return task.round, self.route

    @property
    def nbytes(self) -> int:
        return 0 if self.route.grid is not None else self.box.volume * self.allocation.dtype.itemsize

    def on(self, where: Relocate) -> Step:
        return type(self)(where(self.allocation), self.box, self.route)


class MessageKey(NamedTuple):
    """Which message of a task it is."""

    sender: int  # ranks
    receiver: int
    argument: int
    partial: bool  # of a reduction's private array
    position: int  # among the messages that go the same way
    grid: Grid | None = None  # it only tells whether these elements are valid: they came with the box around them


class Send(Message):
    """Send a box. Issued even if what it needs has failed: the other side waits for it, and must be told."""

    __slots__ = ()
    kind = "send"
    tells = True


class Receive(Message):
    """Take a box that another rank sends."""

    __slots__ = ()
    kind = "receive"
