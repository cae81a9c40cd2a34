"""What ranks send each other, as instructions: from host memory to host memory, one message per box.

Before: lower/coherence.py, graph/command.py's Deal.  After: lower/lowering.py.  Knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..geometry import Box
from ..graph.command import Deal
from ..graph.instruction import Receive, Route, Send
from ..graph.task import Task
from ..machine.platform import HOST, USER
from .coherence import Coherence
from .emit import Emitter
from .state import ArrayState


class Exchanging:
    """Emits sends and receives, and what brings data to the host for them."""

    def __init__(self, coherence: Coherence, emitter: Emitter, rank: int) -> None:
        self._coherence = coherence
        self._emitter = emitter
        self.rank = rank

    def before(self, task: Task, deal: Deal) -> None:
        """Send what others read of this task's arrays, and receive what this rank reads and lacks."""
        states: list[ArrayState] = [array._storage.state for array in task.arrays]
        for push in deal.pushes:
            if not push.partial:
                self._push(task, states[push.argument], push.argument, push.targets)
        for awaited in deal.awaits:
            if not awaited.partial:
                self._await(task, states[awaited.argument], awaited.argument, awaited.sources)

    def after(self, task: Task, deal: Deal, partials: Mapping[str, ArrayState]) -> None:
        """Gather the partial results of reductions."""
        names = [param.name for param in task.accesses]
        for push in deal.pushes:
            if push.partial:
                self._push(task, partials[names[push.argument]], push.argument, push.targets, partial=True)
        for awaited in deal.awaits:
            if awaited.partial:
                self._await(task, partials[names[awaited.argument]], awaited.argument, awaited.sources, partial=True)

    def forget(self, task: Task, deal: Deal) -> None:
        """Note that what this rank has of boxes that others write is no longer true."""
        for argument, boxes in deal.stale:
            state: ArrayState = task.arrays[argument]._storage.state
            for box in boxes:
                state.valid.set(box, 0)

    def _push(
        self,
        task: Task,
        state: ArrayState,
        argument: int,
        targets: tuple[tuple[int, tuple[Box, ...]], ...],
        *,
        partial: bool = False,
    ) -> None:
        wanted = dict.fromkeys(box for _, boxes in targets for box in boxes)
        for box in wanted:
            memory = self._memory(state, box)
            self._coherence.back(state, memory, box, task)
            self._coherence.validate(state, memory, [box], "host", task)
        for target, boxes in targets:
            for position, box in enumerate(boxes):
                backing = self._coherence.back(state, self._memory(state, box), box, task)
                needs: set[int] = set()
                backing.tracker.before_read(box, None, needs)
                id = self._emitter.id()
                route = Route(self.rank, target, argument, partial, position)
                after = () if needs else (self._emitter.epoch,)
                self._emitter.emit(Send(id, task, backing.allocation, box, route, tuple(needs), after))
                backing.tracker.did_read(box, None, id)
                self._emitter.touch(backing)

    def _memory(self, state: ArrayState, box: Box) -> int:
        return USER if USER in state.backings and state.holds(USER, box) else HOST

    def _await(
        self,
        task: Task,
        state: ArrayState,
        argument: int,
        sources: tuple[tuple[int, tuple[Box, ...]], ...],
        *,
        partial: bool = False,
    ) -> None:
        for source, boxes in sources:
            for position, box in enumerate(boxes):
                backing = self._coherence.back(state, HOST, box, task)
                after: set[int] = set()
                backing.tracker.before_write(box, None, after)
                id = self._emitter.id()
                route = Route(source, self.rank, argument, partial, position)
                self._emitter.emit(Receive(id, task, backing.allocation, box, route, (), self._emitter.roots(after)))
                backing.tracker.did_write(box, None, id)
                self._emitter.touch(backing)
                state.wrote(HOST, box)
