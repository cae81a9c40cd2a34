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
from ..plan.candidate import Share
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

    def task(self, planned: Planned, draft: Draft | None = None) -> None:
        """Lower and issue a planned task."""
        command, shares, here, _, _ = planned
        task = command.task
        instructions = self._lowering.lower(command, shares, draft)
        arrays = task.arrays
        task.let_go()  # they may be dropped from now on
        if self._record.tracing:
            self._record.command(command, instructions)
        late = self._lookahead.late
        if here and self._executor.nothing_else(rest := self._executor.allocated(instructions)):
            self._replay.skipped()
            self._run_here(task, rest[0], arrays)
        else:
            self._replay.called(task, arrays, command, shares, instructions, late=late)
            if here:
                self._loads.add(command.chunks[0].device, shares[0].seconds)
                instructions = rest
            self._executor.submit(instructions)
            if not command.chunks:
                self._executor.elsewhere(task)

    def _run_here(self, task: Task, kernel: Any, arrays: Sequence[Array]) -> None:
        """Run a short kernel on the calling thread."""
        ran = self._cpu.run_here(kernel)
        self._executor.passed_by(ran)
        task.scheduling = ran.start - ran.stop
        if isinstance(ran.error, KeyboardInterrupt):
            raise ran.error
        if ran.error is None and self._at_once is not None and task.kernel is not None:
            self._at_once.note(task.kernel, arrays, kernel)

    def failed(self, task: Task, failed: Failed) -> None:
        """Let a call that was run at once, and raised, be a task like any other. Nothing has happened since."""
        self._replay.stop("a call that was run at once has failed")
        known = failed.known
        share = Share(known.body, known.model, known.work, known.predicted, known.together)
        why = "runs in the caller"
        instructions = self._lowering.lower(Command(task.id, task, (known.chunk,), task.after, why), [share])
        task.let_go()
        self._executor.passed_by(
            Ran(instructions[-1], known.device, 0, failed.start, self._cpu.clock(), 0.0, failed.error)
        )
        if isinstance(failed.error, KeyboardInterrupt):
            raise failed.error

    def again(self, task: Task, line: Line, instructions: list[Instruction]) -> None:
        """Issue a task of a step that is replayed."""
        self._loads.again(line.loads, task.id)
        task.let_go()
        if self._record.tracing:
            task.why = f"{line.seen.why} (replayed)"
            self._record.command(Command(task.id, task, line.seen.chunks, task.after, task.why), instructions)
        self._executor.submit(instructions)
        if not line.seen.chunks:
            self._executor.elsewhere(task)

    def part(self, command: Command, instructions: list[Instruction]) -> None:
        """Issue a part that was handed out, and is lowered."""
        if self._record.tracing:
            self._record.command(command, instructions)
        self._executor.submit(instructions)
