"""From a planned task to its instructions at work: lower, record, and issue, or run in the caller what is short.

Before: plan/planned.py, lower/, execute/executor.py.  After: runtime.py.  Everything here happens under the program's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..backend.base import Ran
from ..graph.command import Command
from ..graph.instruction import Instruction
from ..graph.task import Task
from ..lower.lookahead import Lookahead
from ..lower.lowering import Lowering
from ..lower.recipes import Recipes
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


class Counts(NamedTuple):
    """How many calls were replayed, that is neither planned nor analysed, and how many were not."""

    replayed: int
    analysed: int


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
        recipes: Recipes,
        at_once: AtOnce | None,
    ) -> None:
        self._lookahead = lookahead
        self._recipes = recipes
        self._at_once = at_once
        self._lowering = lowering
        self._executor = executor
        self._loads = loads
        self._record = record
        self._cpu = cpu  # what runs a kernel on the calling thread, or None
        self._replayed = self._analysed = 0
        self._why = ("", False)  # the last call that was not replayed, and whether it was planned as before

    def task(self, planned: Planned) -> None:
        """Lower and issue a planned task, now or when lookahead lets it go."""
        command, look = planned.command, self._lookahead
        recalled = None if look.holding else self._recipes.recall(command, planned.shares)
        if recalled is not None:
            self._issue(planned, recalled, again=planned.again)
        elif look.passes(command):
            self._lower(planned)
        else:
            look.command(command, partial(self._lower, planned))

    def _lower(self, planned: Planned, draft: Draft | None = None) -> None:
        late = self._lookahead.late
        self._issue(planned, self._recipes.lower(planned.command, planned.shares, draft, late=late), again=False)

    def _issue(self, planned: Planned, instructions: list[Instruction], *, again: bool) -> None:
        command, shares, here = planned[:3]
        task = command.task
        arrays = task.arrays
        task.let_go()  # they may be dropped from now on
        if again:
            self._replayed += 1
        else:
            self._analysed += 1
            self._why = task.name, planned.again
        if self._record.tracing:
            if again:
                task.why = f"{task.why} (replayed)"
            self._record.command(command, instructions)
        if here and self._executor.nothing_else(rest := self._executor.allocated(instructions)):
            self._run_here(task, rest[0], arrays)
        else:
            if here:
                self._loads.add(command.chunks[0].device, shares[0].seconds)
                instructions = rest
            self._executor.submit(instructions)
            if not command.chunks:
                self._executor.elsewhere(task)

    @property
    def counts(self) -> Counts:
        """How many calls there were so far."""
        return Counts(self._replayed, self._analysed)

    def since(self, begun: Counts, *, left: bool) -> tuple[bool, str]:
        """Tell whether every call since then was replayed, and else why not. A step that was `left` did not end."""
        if left:
            return False, "an exception left it"
        if not self._recipes.on:
            return False, "replay is off"
        if self._analysed > begun.analysed:
            name, planned = self._why
            return False, f"{name} was {'analysed' if planned else 'planned'} anew"
        return self._replayed > begun.replayed, "nothing was called"

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

    def part(self, command: Command, instructions: list[Instruction]) -> None:
        """Issue a part that was handed out, and is lowered."""
        if self._record.tracing:
            self._record.command(command, instructions)
        self._executor.submit(instructions)
