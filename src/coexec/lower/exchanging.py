"""What ranks send each other, as instructions: from host memory to host memory, one message per box.

Strided sets travel with the box around them. Then the box arrives whatever became of its writers, and beside it is a
message without contents for what lies below the sets and for each of them, which fails if their writers did: so one is not
lost with another.

Before: lower/coherence.py, graph/command.py's Deal.  After: lower/lowering.py.  Knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..geometry import Box, Grid, every_point, grid_covers
from ..graph.command import AwaitPush, Deal, Parcel, Parcels, Push
from ..graph.instruction import Instruction, Join
from ..graph.message import MessageKey, Receive, Send
from ..graph.task import Task
from ..graph.tracker import Tracker
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
        passed_on = set()
        for move in _in_order(deal, partial=False):
            state = states[move.argument]
            if isinstance(move, Push):
                self._push(task, state, move.argument, move.targets)
            else:
                self._await(task, state, move.argument, move.sources)
            if move.step:
                passed_on.add(move.argument)
        for argument in sorted(passed_on):
            self._join(task, states[argument], argument, deal)

    def after(self, task: Task, deal: Deal, partials: Mapping[str, ArrayState]) -> None:
        """Gather the partial results of reductions, step by step: what arrives in one is passed on in the next."""
        names = [param.name for param in task.accesses]
        for move in _in_order(deal, partial=True):
            state = partials[names[move.argument]]
            if isinstance(move, Push):
                self._push(task, state, move.argument, move.targets, partial=True)
            else:
                self._await(task, state, move.argument, move.sources, partial=True)

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
            route = MessageKey(self.rank, target, argument, partial, 0)
            for parcel in parcels:
                backing = self._coherence.back(state, self._memory(state, parcel.box), parcel.box, task)
                route = self._send(task, backing, parcel, route)

    def _send(self, task: Task, backing: Backing, parcel: Parcel, route: MessageKey) -> MessageKey:
        """Send a box, and tell what became of strided sets in it; return the route of the message after these."""
        box, tracker, told = parcel.box, backing.tracker, _told(parcel)
        writers: set[int] = set()
        if told:
            writers.update([id for _, id in tracker.writers(box)], [id for *_, id in tracker.strided_writers(box)])
        else:
            tracker.before_read(box, None, writers)
        id, ids = self._emitter.id(), self._emitter.roots(writers)
        needs, after = ((), ids) if told or not writers else (ids, ())
        self._emitter.emit(Instruction(id, Send(backing.allocation, box, route), task, needs, after))
        tracker.did_read(box, None, id)
        self._emitter.touch(backing)
        for number, (part, grid) in enumerate(told):
            writers = set() if number else _writers_below(tracker, parcel)
            if number:
                tracker.before_read(part, grid, writers)
            route = route._replace(position=route.position + 1, grid=grid)
            step = Send(backing.allocation, part, route)
            self._emitter.emit(Instruction(self._emitter.id(), step, task, tuple(writers)))
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
            for parcel in parcels:
                box = parcel.box
                backing = self._coherence.back(state, HOST, box, task)
                for part, grid in ((box, None), *_told(parcel)):
                    after: set[int] = set()
                    backing.tracker.before_write(part, grid, after)
                    id = self._emitter.id()
                    route = MessageKey(source, self.rank, argument, partial, position, grid)
                    roots = self._emitter.roots(after)
                    step = Receive(backing.allocation, part, route)
                    self._emitter.emit(Instruction(id, step, task, (), roots))
                    backing.tracker.did_write(part, grid, id)
                    position += 1
                self._emitter.touch(backing)
                state.wrote(HOST, box)

    def _join(self, task: Task, state: ArrayState, argument: int, deal: Deal) -> None:
        """Let what ranks passed on be one result, on every rank: boxes of several travel as one, and fail as one.

        Else a rank would know elements as failed that another one can read.
        """
        awaits = [move for move in deal.awaits if move.argument == argument and not move.partial]
        pushes = [move for move in deal.pushes if move.argument == argument and not move.partial]
        got = [box for awaited in awaits for box in awaited.boxes]
        first = next((push for push in pushes if not push.step), None)
        own = [parcel.box for parcel in first.targets[0][1]] if first is not None else []
        needs: set[int] = set()
        after: set[int] = set()
        places = [(HOST, box) for box in got] + [(self._memory(state, box), box) for box in own]
        joined = [(self._coherence.back(state, memory, box, task), box) for memory, box in places]
        for backing, box in joined:
            backing.tracker.before_read(box, None, needs)
            backing.tracker.before_write(box, None, after)
        id = self._emitter.id()
        self._emitter.emit(Instruction(id, Join(), task, self._emitter.roots(needs), self._emitter.roots(after)))
        for backing, box in joined:
            backing.tracker.did_write(box, None, id)
            self._emitter.touch(backing)


def _in_order(deal: Deal, *, partial: bool) -> list[Push | AwaitPush]:
    """Return what is sent and received, step by step; of one step, pushes come first."""
    both: tuple[Push | AwaitPush, ...] = (*deal.pushes, *deal.awaits)
    return sorted([move for move in both if move.partial == partial], key=lambda move: move.step)


def _told(parcel: Parcel) -> tuple[tuple[Box, Grid], ...]:
    """Return the sets of a box of which messages of their own tell; nothing if the box itself does."""
    return ((parcel.box, every_point(parcel.box)), *parcel.over) if parcel.over else ()


def _writers_below(tracker: Tracker, parcel: Parcel) -> set[int]:
    """Return who wrote what lies below the sets that a box names: boxes, and sets that it does not name."""
    box, over = parcel
    found = {id for _, id in tracker.writers(box)}
    for part, lattice, id in tracker.strided_writers(box):
        if not any(grid_covers(*entry, part, lattice) for entry in over):
            found.add(id)
    return found
