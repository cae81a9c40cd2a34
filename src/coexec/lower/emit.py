"""The instruction graph as it grows: ids, the execution front, the effective epoch.

Before: graph/instruction.py.  After: lower/coherence.py, lower/lowering.py.  Knows no array.
"""

from __future__ import annotations

from collections.abc import Collection

from ..graph.instruction import Epoch, Horizon, Instruction
from ..graph.task import Task
from ..graph.tracker import Tracker


class Emitter:
    """Numbers instructions and hands them over in topological order."""

    def __init__(self) -> None:
        self._next = 0
        self.epoch = 0  # what an instruction without other dependencies comes after
        self.out: list[Instruction] = []
        self._front: dict[int, None] = {}
        self._touched: set[Tracker] = set()
        self._marked: list[set[Tracker]] = []
        self._previous = 0  # the last horizon, not yet collapsed

    def id(self) -> int:
        """Return a new instruction id."""
        self._next += 1
        return self._next

    def roots(self, found: set[int]) -> tuple[int, ...]:
        """Return `found` as a tuple; an instruction that waits for nothing comes after the epoch."""
        return tuple(found) if found else (self.epoch,)

    def emit(self, instruction: Instruction) -> None:
        """Hand over an instruction."""
        front = self._front
        for id in instruction.needs:
            front.pop(id, None)
        for id in instruction.after:
            front.pop(id, None)
        front[instruction.id] = None
        self.out.append(instruction)

    def touch(self, tracker: Tracker) -> None:
        """Remember that `tracker` has entries newer than the last mark."""
        self._touched.add(tracker)

    def take(self) -> list[Instruction]:
        """Return what was emitted since the last call."""
        out, self.out = self.out, []
        return out

    def horizon(self, task: Task, failed: Collection[int]) -> Horizon:
        """Emit a horizon and let the previous one stand for everything before it.

        A horizon acts one horizon late: by then it is over, so nothing that it replaces can still run. Failed
        instructions are not replaced: what they would have written stays poisoned.
        """
        horizon = Horizon(self.id(), "", task, (), tuple(self._front) or (self.epoch,), 5)
        self.emit(horizon)
        self._mark()
        if self._previous:
            self._collapse(self._previous, failed)
        self._previous = horizon.id
        return horizon

    def begin(self, task: Task) -> Epoch:
        """Emit an epoch that everything after it depends on at once."""
        epoch = Epoch(self.id(), "", task, (), tuple(self._front) or ((self.epoch,) if self.epoch else ()), 5)
        self.emit(epoch)
        return epoch

    def apply(self, epoch: Epoch, failed: Collection[int]) -> None:
        """Let `epoch` stand for everything before it, at once."""
        self._mark()
        while self._marked:
            self._collapse(epoch.id, failed)
        self._previous = 0

    def _mark(self) -> None:
        self._marked.append(self._touched)
        self._touched = set()

    def _collapse(self, id: int, failed: Collection[int]) -> None:
        self.epoch = id
        for tracker in self._marked.pop(0):
            tracker.collapse(id, failed)
