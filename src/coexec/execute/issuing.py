"""From a planned task to its instructions at work: lower, record, and issue, or run in the caller what is short.

Before: plan/planned.py, lower/, execute/executor.py.  After: runtime.py.  Everything here happens under the program's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ..graph.command import Command
from ..graph.instruction import Instruction
from ..lower.lowering import Lowering
from ..lower.touch import Draft
from ..plan.place import Loads
from ..plan.planned import Planned
from .executor import Executor


class Record(Protocol):
    """Where commands are recorded."""

    tracing: bool

    def command(self, command: Command, instructions: Iterable[Instruction]) -> None:
        """Record a command and its instructions."""


class Issuing:
    """Carries out planned tasks."""

    def __init__(self, lowering: Lowering, executor: Executor, loads: Loads, record: Record, cpu: Any) -> None:
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
        task.arrays = ()  # the arrays may be dropped from now on
        if self._record.tracing:
            self._record.command(command, instructions)
        if here and self._executor.nothing_else(instructions := self._executor.allocated(instructions)):
            self._executor.passed_by(ran := self._cpu.run_here(instructions[0]))
            task.scheduling = ran.start - ran.stop
            if isinstance(ran.error, KeyboardInterrupt):
                raise ran.error
        else:
            if here:
                self._loads.add(command.chunks[0].device, shares[0].seconds)
            self._executor.submit(instructions)

    def part(self, command: Command, instructions: list[Instruction]) -> None:
        """Issue a part that was handed out, and is lowered."""
        if self._record.tracing:
            self._record.command(command, instructions)
        self._executor.submit(instructions)
