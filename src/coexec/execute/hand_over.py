"""Take batches from the scheduler: record them, and give their instructions to the executor, or run in the caller what is short.

Before: schedule/events.py, execute/executor.py.  After: pump.py.  Everything here happens under the program's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ..backend.base import Ran
from ..graph.command import Command
from ..graph.instruction import Alloc, Instruction
from ..graph.task import Task
from ..plan.planned import Planned
from ..schedule.events import Batch
from .executor import Executor
from .inline_calls import FailedInline, InlineCalls


class BatchRecorder(Protocol):
    """Where tasks, commands and instructions are recorded."""

    tracing: bool

    def task(self, task: Task) -> None:
        """Record a task."""

    def command(self, command: Command, instructions: Iterable[Instruction]) -> None:
        """Record a command and its instructions."""

    def fence(self, task: Task, instructions: Iterable[Instruction]) -> None:
        """Record a command without chunks."""

    def instructions(self, instructions: Iterable[Instruction]) -> None:
        """Record instructions of no command."""


class HandOver:
    """Gives batches to an executor."""

    def __init__(
        self,
        executor: Executor,
        record: BatchRecorder,
        cpu: Any,
        inline_calls: InlineCalls | None,
        queued: Callable[[Planned], None],
    ) -> None:
        self._executor = executor
        self._record = record
        self._cpu = cpu  # what runs a kernel on the calling thread, or None
        self._inline_calls = inline_calls
        self.unrecorded: set[Task] = set()  # tasks that were entered and are planned later
        self._queued = queued  # told of a kernel that goes to its device though the caller was asked to run it

    def take(self, batches: Sequence[Batch]) -> None:
        """Carry out batches, one after the other; all of them, even if one is interrupted."""
        if len(batches) == 1:
            self.one(batches[0])
            return
        for position, batch in enumerate(batches):
            try:
                self.one(batch)
            except BaseException:
                self.take(batches[position + 1 :])
                raise

    def one(self, batch: Batch) -> None:
        """Carry out a batch."""
        instructions, task, planned = batch.instructions, batch.task, batch.planned
        executor = self._executor
        if batch.refused is not None and task is not None:
            executor.refuse(task, batch.refused.id, batch.refused.failure)
        if self._record.tracing:
            self._note(batch)
        if planned is not None and planned.here and task is not None:
            if len(instructions) > 1:
                instructions = self._allocated(instructions)
            failed = executor.engine.failed
            if len(instructions) == 1 and (not failed or failed.keys().isdisjoint(instructions[0].needs)):
                self._run_here(task, instructions[0], batch)
                return
            self._queued(planned)
        if batch.more and task is not None:
            executor.keep_open(task)
        executor.submit(instructions)
        if task is not None and not batch.more and (not task.open or executor.kept_open):
            executor.submitted(task)

    def _allocated(self, instructions: list[Instruction]) -> list[Instruction]:
        """Make memory if that is all there is before the last instruction; return what is left to do."""
        if any(type(i.step) is not Alloc for i in instructions[:-1]):
            return instructions
        self._executor.submit(instructions[:-1])
        return instructions[-1:]

    def _note(self, batch: Batch) -> None:
        """Record a batch in the trace."""
        task, planned = batch.task, batch.planned
        if task in self.unrecorded and task is not None:
            self.unrecorded.remove(task)
            self._record.task(task)
        if batch.refused is not None:
            self._record.instructions(batch.instructions)
        elif planned is not None and task is not None:
            if batch.again:
                task.why = f"{task.why} (replayed)"
            self._record.command(planned.command, batch.instructions)
        elif task is not None:
            self._record.task(task)
            self._record.fence(task, batch.instructions)
        else:
            self._record.instructions(batch.instructions)

    def failed(self, instruction: Instruction, failed: FailedInline) -> None:
        """Let a kernel be over that was run in the caller, and raised. Nothing has happened since."""
        error, device = failed.error, instruction.device
        self._executor.passed_by(Ran(instruction, device, 0, failed.start, self._cpu.clock(), 0.0, error))
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _run_here(self, task: Task, kernel: Any, batch: Batch) -> None:
        """Run a short kernel on the calling thread."""
        ran = self._cpu.run_here(kernel)
        self._executor.passed_by(ran)
        task.scheduling = ran.start - ran.stop
        if isinstance(ran.error, KeyboardInterrupt):
            raise ran.error
        if ran.error is None and self._inline_calls is not None and task.kernel is not None:
            self._inline_calls.note(task.kernel, batch.arrays, kernel)
