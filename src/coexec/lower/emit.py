"""The instruction graph as it grows: ids, the execution front, the effective epoch.

Before: graph/instruction.py.  After: lower/coherence.py, lower/lowering.py.  Knows no array.
"""

from __future__ import annotations

from collections.abc import Collection

from ..graph.instruction import Epoch, Horizon, Instruction
from ..graph.marks import Marks, Remembering
from ..graph.task import Task


class Emitter:
    """Numbers instructions and hands them over in topological order."""

    def __init__(self) -> None:
        self.last = 0  # the last number given to an instruction
        self.epoch = 0  # what an instruction without other dependencies comes after
        self.out: list[Instruction] = []
        self.front: dict[int, None] = {}
        self.marks = Marks()

    def id(self) -> int:
        """Return a new instruction id."""
        self.last += 1
        return self.last

    def roots(self, found: set[int]) -> tuple[int, ...]:
        """Return `found` as a tuple; an instruction that waits for nothing comes after the epoch."""
        return tuple(found) if found else (self.epoch,)

    def emit(self, instruction: Instruction) -> None:
        """Hand over an instruction."""
        self.lead(instruction)
        self.out.append(instruction)

    def lead(self, instruction: Instruction) -> None:
        """Let an instruction be at the front, and none that it comes after."""
        front = self.front
        if front:
            for id in instruction.needs:
                front.pop(id, None)
            for id in instruction.after:
                front.pop(id, None)
        front[instruction.id] = None

    def touch(self, backing: Remembering) -> None:
        """Remember that a backing was touched since the last mark."""
        self.marks.touched.add(backing)

    def take(self) -> list[Instruction]:
        """Return what was emitted since the last call."""
        out, self.out = self.out, []
        return out

    def horizon(self, task: Task, failed: Collection[int]) -> Horizon:
        """Emit a horizon, and let the mark before it stand for everything older.

        A horizon takes effect one horizon late: by then it is over, so nothing that it replaces can still run. Failed
        instructions are not replaced: what they would have written stays poisoned.
        """
        horizon = Horizon(self.id(), "", task, (), tuple(self.front) or (self.epoch,), 5)
        self.emit(horizon)
        if self.marks.last is not None:
            self.passed(self.marks.last, failed)
        self.marks.mark(horizon.id)
        return horizon

    def begin(self, task: Task) -> Epoch:
        """Emit an epoch."""
        epoch = Epoch(self.id(), "", task, (), tuple(self.front) or ((self.epoch,) if self.epoch else ()), 5)
        self.emit(epoch)
        self.marks.mark(epoch.id)
        return epoch

    def passed(self, mark: int, failed: Collection[int]) -> None:
        """Let a horizon or an epoch stand for everything before it."""
        self.epoch = max(self.epoch, mark)
        self.marks.passed(mark, failed)
