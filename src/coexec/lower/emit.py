"""The instruction graph as it grows: ids, the execution front, the effective epoch.

Before: graph/instruction.py.  After: lower/coherence.py, lower/lowering.py.  Knows no array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..graph.instruction import Epoch, Horizon, Instruction
from ..graph.marks import Marks, Remembering
from ..graph.task import Task

MOST_EDGES = 1 << 14  # lists of edges that are kept before the front is worked out


class Emitter:
    """Numbers instructions and hands them over in topological order."""

    def __init__(self) -> None:
        self.last = 0  # the last number given to an instruction
        self.epoch = 0  # what an instruction without other dependencies comes after
        self.out: list[Instruction] = []
        self.marks = Marks()
        self.led: list[int] = []  # since the last mark; the first may be the mark
        self.edges: list[tuple[int, ...]] = []  # what those come after

    def become(self, other: Emitter, twins: Mapping[Any, Remembering]) -> None:
        """Go on as another one would, on backings with a twin."""
        self.last, self.epoch = other.last, other.epoch
        self.led, self.edges = list(other.led), list(other.edges)
        self.marks = other.marks.copy(twins)

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
        self.led.append(instruction.id)
        self.edges += (instruction.needs, instruction.after)
        if len(self.edges) > MOST_EDGES:
            self.work_out_front()

    def work_out_front(self) -> tuple[int, ...]:
        """Return what nothing comes after yet."""
        behind = set().union(*self.edges)
        self.led = [id for id in self.led if id not in behind]
        self.edges.clear()
        return tuple(self.led)

    @contextmanager
    def aside(self, epoch: int) -> Iterator[None]:
        """Call the epoch by another id, and forget at the end what was at the front meanwhile."""
        kept = self.led, self.edges, self.epoch
        self.led, self.edges, self.epoch = [], [], epoch
        try:
            yield
        finally:
            self.led, self.edges, self.epoch = kept

    def touch(self, backing: Remembering) -> None:
        """Remember that a backing was touched since the last mark."""
        self.marks.touched.add(backing)

    def take(self) -> list[Instruction]:
        """Return what was emitted since the last call."""
        out, self.out = self.out, []
        return out

    def horizon(self, task: Task, failed: Collection[int]) -> Instruction:
        """Emit a horizon, and let the mark before it stand for everything older.

        A horizon takes effect one horizon late: by then it is over, so nothing that it replaces can still run. Failed
        instructions are not replaced: what they would have written stays poisoned.
        """
        horizon = Instruction(self.id(), Horizon(), task, (), self.work_out_front() or (self.epoch,))
        self.emit(horizon)
        if self.marks.last is not None:
            self.passed(self.marks.last, failed)
        self.marks.mark(horizon.id)
        return horizon

    def begin(self, task: Task) -> Instruction:
        """Emit an epoch."""
        after = self.work_out_front() or ((self.epoch,) if self.epoch else ())
        epoch = Instruction(self.id(), Epoch(), task, (), after)
        self.emit(epoch)
        self.marks.mark(epoch.id)
        return epoch

    def passed(self, mark: int, failed: Collection[int]) -> None:
        """Let a horizon or an epoch stand for everything before it."""
        self.epoch = max(self.epoch, mark)
        self.marks.passed(mark, failed)
