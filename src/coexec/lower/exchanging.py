"""What ranks send each other, as instructions: from host memory to host memory, one message per box.

Strided sets travel with the box around them. Each has a message of its own beside it, without contents, which fails if
they did: so elements between the steps of a failed view are not lost with it.

Before: lower/coherence.py, graph/command.py's Deal.  After: lower/lowering.py.  Knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..geometry import Box, grid_covers
from ..graph.command import Deal, Parcel, Parcels
from ..graph.instruction import Receive, Route, Send
from ..graph.task import Task
from ..machine.platform import HOST, USER
from .coherence import Coherence
from .emit import Emitter
from .state import ArrayState, Backing


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
        targets: tuple[tuple[int, Parcels], ...],
        *,
        partial: bool = False,
    ) -> None:
        wanted = dict.fromkeys(parcel.box for _, parcels in targets for parcel in parcels)
        for box in wanted:
            memory = self._memory(state, box)
            self._coherence.back(state, memory, box, task)
            self._coherence.validate(state, memory, [box], "host", task)
        for target, parcels in targets:
            route = Route(self.rank, target, argument, partial, 0)
            for parcel in parcels:
                backing = self._coherence.back(state, self._memory(state, parcel.box), parcel.box, task)
                route = self._send(task, backing, parcel, route)

    def _send(self, task: Task, backing: Backing, parcel: Parcel, route: Route) -> Route:
        """Send a box, and tell what became of strided sets in it; return the route of the message after these."""
        box, over = parcel
        needs, after = _writers(backing, parcel)
        id = self._emitter.id()
        roots = tuple(after) if needs else self._emitter.roots(after)
        self._emitter.emit(Send(id, task, backing.allocation, box, route, tuple(needs), roots))
        backing.tracker.did_read(box, None, id)
        self._emitter.touch(backing)
        for part, grid in over:
            route = route._replace(position=route.position + 1, grid=grid)
            needs = set()
            backing.tracker.before_read(part, grid, needs)
            self._emitter.emit(Send(self._emitter.id(), task, backing.allocation, part, route, tuple(needs), ()))
        return route._replace(position=route.position + 1, grid=None)

    def _memory(self, state: ArrayState, box: Box) -> int:
        return USER if USER in state.backings and state.holds(USER, box) else HOST

    def _await(
        self,
        task: Task,
        state: ArrayState,
        argument: int,
        sources: tuple[tuple[int, Parcels], ...],
        *,
        partial: bool = False,
    ) -> None:
        for source, parcels in sources:
            position = 0
            for box, over in parcels:
                backing = self._coherence.back(state, HOST, box, task)
                for part, grid in ((box, None), *over):
                    after: set[int] = set()
                    backing.tracker.before_write(part, grid, after)
                    id = self._emitter.id()
                    route = Route(source, self.rank, argument, partial, position, grid)
                    roots = self._emitter.roots(after)
                    self._emitter.emit(Receive(id, task, backing.allocation, part, route, (), roots))
                    backing.tracker.did_write(part, grid, id)
                    position += 1
                self._emitter.touch(backing)
                state.wrote(HOST, box)


def _writers(backing: Backing, parcel: Parcel) -> tuple[set[int], set[int]]:
    """Return whose results are sent, and who else must be over: those of whom other messages tell."""
    box, over = parcel
    if not backing.tracker.strided:
        needs: set[int] = set()
        backing.tracker.before_read(box, None, needs)
        return needs, set()
    needs = {id for _, id in backing.tracker.writers(box)}
    after: set[int] = set()
    for part, lattice, id in backing.tracker.strided_writers(box):
        told = any(grid_covers(*entry, part, lattice) for entry in over)
        (after if told else needs).add(id)
    return needs, after - needs
