"""The last layer: from a plan, a read or a mark to its instructions, in batches.

Before: lower/, schedule/hold.py.  After: whoever drives the scheduler.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph.failure import not_lowered
from ..graph.instruction import Instruction
from ..graph.task import Task, mark_reported
from ..lower.lowering import Lowering
from ..lower.poison import poison
from ..lower.recipes import Recipes
from ..lower.touch import Draft
from ..plan.planned import Planned
from .events import Batch, Dropped, Mark, Over, Read, Refusal
from .layer import Moment

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class ReplayCounts(NamedTuple):
    """How many calls were replayed, that is neither planned nor analysed, and how many were not."""

    replayed: int
    analysed: int


class LowerLayer:
    """Lowers what the layers before it let go."""

    def __init__(self, lowering: Lowering, recipes: Recipes, moment: Moment) -> None:
        self.lowering = lowering
        self.recipes = recipes
        self._moment = moment
        self.replayed = 0  # calls that were, known ones among them
        self.analysed = 0  # calls that were not replayed, straight ones among them
        self.why = ("", False)  # the last call that was not replayed, and whether it was planned as before
        self._epochs: dict[Task, int] = {}  # the instruction of each that is not over

    def recall(self, planned: Planned) -> bool:
        """Lower a command as it was lowered before, if it was; tell whether that is so. Nothing before it is held."""
        command = planned.command
        recall = self.lowering.warm if command.task.shape is None else self.recipes.recall  # one kernel needs no recipe
        instructions = recall(command, planned.shares)
        if instructions is None:
            return False
        self._emit(planned, instructions, again=planned.again)
        return True

    def emit_again(self, planned: Planned, instructions: list[Instruction]) -> None:
        """Send on what a command that was planned as before has become, from a recipe."""
        self._emit(planned, instructions, again=True)

    def lower(self, planned: Planned, draft: Draft | None, *, late: bool = False) -> None:
        """Lower a command. `late`: others that come after it have come already."""
        instructions = self.recipes.lower(planned.command, planned.shares, draft, late=late)
        self._emit(planned, instructions, again=False)

    def _emit(self, planned: Planned, instructions: list[Instruction], *, again: bool) -> None:
        task = planned.command.task
        if again:
            self.replayed += 1
        else:
            self.analysed += 1
            self.why = task.name, planned.again
        arrays = task.arrays if planned.here else ()
        task.let_go()  # its arrays may be dropped from now on
        self._moment.out.append(_new(Batch, (instructions, task, planned, arrays, again, False, None)))

    def part(self, planned: Planned, *, more: bool) -> None:
        """Lower a part that is handed out."""
        command = planned.command
        instructions = self.lowering.lower(command, planned.shares)
        self._moment.out.append(Batch(instructions, command.task, planned, more=more))

    def on(self, item: Read | Mark | Dropped, *, late: bool = False) -> None:
        """Lower something other than a command."""
        if isinstance(item, Dropped):
            self.emit(self.lowering.drop(item.array))
            return
        task = item.task
        if isinstance(item, Read):
            instructions = self.recipes.fence(task, item.array, item.deliver, late=late)
        elif item.horizon:
            instructions = self.lowering.horizon(task, item.failed)
        else:
            instructions = self.lowering.epoch(task, at_once=False)
            self._epochs[task] = instructions[-1].id
        task.let_go()
        self._moment.out.append(Batch(instructions, task))

    def over(self, event: Over) -> None:
        """Let an epoch that is over stand for everything before it."""
        epoch = self._epochs.pop(event.task, None)
        if epoch is not None:
            self.lowering.passed(epoch, event.failed)

    def emit(self, instructions: list[Instruction]) -> None:
        """Send on instructions of no task."""
        if instructions:
            self._moment.out.append(Batch(instructions))

    def refuse(self, task: Task, error: Exception, *, told: bool = False) -> None:
        """Let a task fail that cannot be lowered: whoever wants its results is told.

        Its call has returned; or, where the program was `told`, it raises, and the failure need not be reported again.
        """
        emitter, failure = self.lowering.emitter, not_lowered(task, error)
        if told:
            mark_reported(failure)
        refused = Refusal(emitter.id(), failure)
        try:
            poison(self.lowering, task, refused.id)
        finally:
            task.let_go()
            self._moment.out.append(Batch(emitter.take(), task, refused=refused))

    @property
    def counts(self) -> ReplayCounts:
        """How many calls there were so far."""
        return ReplayCounts(self.replayed, self.analysed)

    def since(self, begun: ReplayCounts, *, left: bool) -> tuple[bool, str]:
        """Tell whether every call since then was replayed, and else why not. A step that was `left` did not end."""
        if left:
            return False, "an exception left it"
        if not self.recipes.on:
            return False, "replay is off"
        if self.analysed > begun.analysed:
            name, planned = self.why
            return False, f"{name} was {'analysed' if planned else 'planned'} anew"
        return self.replayed > begun.replayed, "nothing was called"

    def gather(self, arrays: Sequence[int], task: Task) -> None:
        """Bring arrays to the host, so that they outlive the devices."""
        self.emit(self.lowering.gather(arrays, task))
