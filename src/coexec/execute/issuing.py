"""From a planned task to its instructions at work: lower, record, and issue, or run in the caller what is short.

Before: plan/planned.py, lower/, execute/executor.py.  After: runtime.py.  Everything here happens under the program's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ..backend.base import Ran
from ..graph.command import Command
from ..graph.instruction import Instruction
from ..graph.task import Task
from ..lower.lookahead import Lookahead
from ..lower.lowering import Lowering
from ..lower.replay import Replay
from ..lower.template import Line
from ..lower.touch import Draft
from ..plan.place import Loads
from ..plan.planned import Planned
from ..program.array import Array
from .at_once import AtOnce, Failed
from .executor import Executor


class Record(Protocol):
    """Where commands are recorded."""

    tracing: bool

    def command(self, command: Command, instructions: Iterable[Instruction]) -> None:
        """Record a command and its instructions."""


class Issuing:
    """Carries out planned tasks."""

    def __init__(
        self,
        lowering: Lowering,
        executor: Executor,
        loads: Loads,
        record: Record,
        cpu: Any,
        lookahead: Lookahead,
        replay: Replay,
        at_once: AtOnce | None,
    ) -> None:
        self._lookahead = lookahead
        self._replay = replay
        self._at_once = at_once
        self._lowering = lowering
        self._executor = executor
        self._loads = loads
        self._record = record
        self._cpu = cpu  # what runs a kernel on the calling thread, or None

    def task(self, planned: Planned, draft: Draft | None = None, failed: Failed | None = None) -> None:
        """Lower and issue a planned task; with `failed`, it was run at once already."""
        command, shares, here, _, _ = planned
        task = command.task
        instructions = self._lowering.lower(command, shares, draft)
        arrays, task.arrays = task.arrays, ()  # they may be dropped from now on
        if self._record.tracing:
            self._record.command(command, instructions)
        late = self._lookahead.late
        if here and self._executor.nothing_else(rest := self._executor.allocated(instructions)):
            self._replay.skipped()
            self._run_here(task, rest[0], arrays, failed)
        else:
            self._replay.called(task, arrays, command, shares, instructions, late=late)
            if here:
                self._loads.add(command.chunks[0].device, shares[0].seconds)
                instructions = rest
            self._executor.submit(instructions)

    def _run_here(self, task: Task, kernel: Any, arrays: Sequence[Array], failed: Failed | None) -> None:
        """Run a short kernel on the calling thread, unless it has run already and failed."""
        if failed is None:
            ran = self._cpu.run_here(kernel)
        else:
            ran = Ran(kernel, kernel.device, 0, failed.start, self._cpu.clock(), 0.0, failed.error)
        self._executor.passed_by(ran)
        task.scheduling = ran.start - ran.stop
        if isinstance(ran.error, KeyboardInterrupt):
            raise ran.error
        if ran.error is None and self._at_once is not None and task.kernel is not None:
            self._at_once.note(task.kernel, arrays, kernel)

    def again(self, task: Task, line: Line, instructions: list[Instruction]) -> None:
        """Issue a task of a step that is replayed."""
        for device, seconds in line.loads:
            self._loads.add(device, seconds, 0.0, task.id)
        task.arrays = ()
        if self._record.tracing:
            task.why = f"{line.seen.why} (replayed)"
            self._record.command(Command(task.id, task, line.seen.chunks, task.after, task.why), instructions)
        self._executor.submit(instructions)

    def part(self, command: Command, instructions: list[Instruction]) -> None:
        """Issue a part that was handed out, and is lowered."""
        if self._record.tracing:
            self._record.command(command, instructions)
        self._executor.submit(instructions)
