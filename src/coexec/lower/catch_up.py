"""Where a replay has got to; and how lowering and task graph catch up with it when it ends.

Before: lower/template.py, lower/snapshot.py.  After: lower/replay.py.  Pure, as all of lower/.

The state at the end of a step is the recorded one with other names. In the middle of a step, what the step has done so
far is lowered once more from there: the instructions are known, and have the same numbers, so they are thrown away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..geometry import Box
from ..geometry.box import covers
from ..graph.command import Command
from ..graph.instruction import Alloc, Allocation, Instruction
from ..graph.task import Task
from ..graph.task_graph import TaskGraph
from .lowering import Lowering
from .snapshot import Counters, Renaming, Same, Snapshot, load
from .state import ArrayState, Foreseen
from .template import BACK, Line, Numbers, Seen, back


class Position:
    """A step that is being replayed: its lines, the numbers of the latest repetitions, and the next line."""

    def __init__(
        self,
        lines: tuple[Line, ...],
        tables: list[list[Allocation]],
        snapshot: Snapshot,
        renaming: Renaming,
        arrays: dict[int, int],
        front: dict[int, None],
    ) -> None:
        self.lines = lines
        self.made = made = renaming.made
        self.snapshot = snapshot
        end = snapshot.counters
        starts = [Counters(*[c - n * m for c, m in zip(end, made, strict=True)]) for n in range(1, BACK + 2)]
        self.start = starts[0]  # of the recorded step
        self._instructions = Moving(renaming.instructions, self.start.instructions, made.instructions)
        self._tasks = Moving(renaming.tasks, self.start.tasks, made.tasks)
        self._moving_allocations = {later.id for id, later in renaming.allocations.items() if later.id != id}
        self._moving_arrays = {later for id, later in arrays.items() if later != id}
        self._check()
        self.numbers = Numbers(starts, self._tables(tables), made)
        self._sooner = _sooner(lines)
        edges = [ref for line in lines for proto in line.protos for ref in (*proto.needs.refs, *proto.after.refs)]
        self._reach = max(0, max([steps for steps, _ in edges], default=0) - 1)  # steps before the last one
        self._front = dict(front)
        self._ahead = [start.instructions + 1 for start in starts[:2]]  # steps whose instructions are in that front
        self._begun: list[int] = []  # where the steps begin whose instructions are not in the front yet
        self.replayed = 0
        self.at = 0  # the next line
        self.open = False  # whether a step has begun and not ended
        self.done: list[Task | None] = []
        self.gone: dict[int, ArrayState] = {}  # arrays that the present step has dropped

    def _check(self) -> None:
        """Raise Unrepeatable if the state refers to something too far back."""
        start, made = self.start, self.made
        for ids, first, step in (
            (self._instructions.moving, start.instructions, made.instructions),
            (self._tasks.moving, start.tasks, made.tasks),
            (self._moving_arrays, start.arrays, made.arrays),
            (self._moving_allocations, start.allocations, made.allocations),
        ):
            for id in ids:
                back(id, first, step)

    def _tables(self, tables: list[list[Allocation]]) -> list[list[Allocation]]:
        """Return the allocations of the latest steps: all of the given ones, of those before what is still there."""
        older: list[dict[int, Allocation]] = [{} for _ in range(BACK + 1)]
        for held in self.snapshot.arrays.values():
            for allocation, _ in held.backings:
                if allocation.id in self._moving_allocations:
                    steps, position = back(allocation.id, self.start.allocations, self.made.allocations)
                    older[steps][position] = allocation
        far: list[Any] = older[len(tables) :]  # looked up by position, as lists are
        return [*tables, *far]

    def begin(self, now: Counters, lowering: Lowering, graph: TaskGraph) -> None:
        """Reserve the numbers of one step."""
        self.numbers.begin(now)
        self._begun.append(now.instructions + 1)
        self._instructions.begin(now.instructions + 1)
        self._tasks.begin(now.tasks + 1)
        lowering.emitter.last += self.made.instructions
        lowering.coherence.last_allocation += self.made.allocations
        lowering.last_private += self.made.privates
        graph.last += self.made.tasks
        self.done, self.gone, self.open = [], {}, True

    def advance(self) -> bool:
        """Go to the next line; tell whether the step has ended."""
        self.at += 1
        if self.at < len(self.lines):
            return False
        self.at, self.open = 0, False
        self.replayed += 1
        return True

    def fill(self, line: Line, task: Task | None, graph: TaskGraph) -> list[Instruction]:
        """Return the instructions of a line."""
        numbers = self.numbers
        if task is not None:
            starts = numbers.tasks
            task.id = starts[0] + line.position
            graph.link(task, (*[starts[k] + i for k, i in line.after], *line.always_after))
        self.done.append(task)
        return [proto.fill(task, numbers) for proto in line.protos]

    # Names of the recorded state, as they are now -------------------------------------------------------------------

    def instructions(self) -> Now:
        """Return what instructions of the recorded state are called now."""
        return Now(self._instructions, self.numbers.instructions[self.open :], self._instructions.whole(self.open))

    def tasks(self) -> Now:
        """Return what tasks of the recorded state are called now."""
        return Now(self._tasks, self.numbers.tasks[self.open :], self._tasks.whole(self.open))

    def array(self, id: int) -> int:
        """Return the array that stands for one of the recorded state now."""
        if id not in self._moving_arrays:
            return id
        steps, position = back(id, self.start.arrays, self.made.arrays)
        return self.numbers.arrays[steps + self.open] + position

    def allocation(self, allocation: Allocation) -> Allocation:
        """Return the allocation that stands for one of the recorded state now."""
        if allocation.id not in self._moving_allocations:
            return allocation
        steps, position = back(allocation.id, self.start.allocations, self.made.allocations)
        return self.numbers.allocations[steps + self.open][position]

    def front(self) -> dict[int, None]:
        """Return the instructions that nothing comes after, at the end of the last whole step."""
        whole = self._begun[:-1] if self.open else self._begun
        count = len(whole)
        front = dict(self._front)
        for back_then, first in enumerate(self._ahead):
            for position, steps in self._sooner.items():
                if back_then < steps <= count + back_then:
                    front.pop(first + position, None)
        for number, first in enumerate(whole):
            later = count - 1 - number  # steps since
            free = [i for i in range(self.made.instructions) if self._sooner.get(i, later + 1) > later]
            front.update({first + i: None for i in free})
        return front

    def behind(self, mark: int) -> bool:
        """Tell whether a mark stands for a step that the next one refers to."""
        return self.numbers.instructions[self._reach] <= mark

    def passed(self, front: dict[int, None], instruction: int, task: int, failed: Collection[int]) -> None:
        """Note that a horizon came after everything so far, and what now stands for everything before it."""
        self._front = dict(front)
        self._ahead, self._begun = [], []
        self._instructions.passed(instruction, failed)
        self._tasks.passed(task, ())
        for line in self.lines:
            for proto in line.protos:
                proto.renew(self._instructions.renewed)
        renewed = self._tasks.renewed
        self.lines = tuple(
            [
                line._replace(always_after=tuple(dict.fromkeys([renewed(id) for id in line.always_after])))
                if line.always_after
                else line
                for line in self.lines
            ]
        )


class Moving:
    """Numbers of the recorded state that each step renames, and lists of readers that each step makes longer."""

    def __init__(self, same: Same, start: int, made: int) -> None:
        self.start = start
        self.made = made
        self.moving = {later for id, later in same.renamed.items() if later != id}
        self.longer = same.longer
        self.mark = 0  # what stands for everything before it
        self._failed: Collection[int] = ()  # but not for these
        self._steps: list[int] = []  # where the steps since the recorded one begin
        self._forgotten = 0  # steps of those that are not in the list any more

    def begin(self, first: int) -> None:
        """Note the beginning of a step."""
        self._steps.append(first)

    def whole(self, within: bool) -> list[int]:
        """Return where the whole steps since the recorded one begin; for those long over, some number before the mark."""
        steps = self._steps[:-1] if within else self._steps
        return [0] * self._forgotten + steps

    def renewed(self, id: int) -> int:
        """Return the mark that stands for `id`, or `id`."""
        return id if id >= self.mark or id in self._failed else self.mark

    def passed(self, mark: int, failed: Collection[int]) -> None:
        """Forget what a mark stands for."""
        self.mark, self._failed = mark, failed
        gone = sum(first + self.made <= mark for first in self._steps)
        self._forgotten += gone
        del self._steps[:gone]


class Now:
    """What numbers of the recorded state are called at the end of the last whole step."""

    def __init__(self, moving: Moving, starts: Sequence[int], whole: list[int]) -> None:
        self._moving = moving
        self._starts = starts  # of steps, the latest first
        self._whole = whole  # of all steps since the recorded one, the latest last

    def writer(self, id: int) -> int:
        """Return the number that stands for `id` now."""
        moving = self._moving
        if id not in moving.moving:
            return moving.renewed(id)
        steps, position = back(id, moving.start, moving.made)
        return self._starts[steps] + position

    def readers(self, ids: tuple[int, ...]) -> list[int]:
        """Return the readers that there are now for those of the recorded state."""
        more = self._moving.longer.get(id(ids))
        if more is None:
            return [self.writer(id) for id in ids]
        found = [*ids]
        for last in ids[-more:]:
            found += self._further(last)
        return [id for id in found if id >= self._moving.mark]

    def strided(self, entries: tuple[Any, ...]) -> list[Any]:
        """Return strided entries with the numbers of now."""
        more = self._moving.longer.get(id(entries))
        if more is None:
            return [(box, grid, self.writer(id), writes) for box, grid, id, writes in entries]
        found = [(box, grid, self.writer(id) if writes else id, writes) for box, grid, id, writes in entries]
        for box, grid, last, writes in entries[-more:]:
            found += [(box, grid, id, writes) for id in self._further(last)]
        return [entry for entry in found if entry[3] or entry[2] >= self._moving.mark]

    def _further(self, last: int) -> list[int]:
        """Return who joined a list since, as `last` did in the recorded step: one in each step."""
        moving = self._moving
        steps, position = back(last, moving.start, moving.made)
        earlier = [moving.start + 1 - n * moving.made for n in range(steps - 1, -1, -1)]  # up to the recorded step
        starts = [*earlier, *self._whole]
        return [starts[n] + position for n in range(len(self._whole))]


def _sooner(lines: Sequence[Line]) -> dict[int, int]:
    """Return after how many steps something comes after an instruction, by position; those that nothing does are not."""
    found: dict[int, int] = {}
    for line in lines:
        for proto in line.protos:
            for steps, position in (*proto.needs.refs, *proto.after.refs):
                found[position] = min(steps, found.get(position, steps))
    return found


def allocations(step: Sequence[Seen]) -> list[Allocation]:
    """Return what a step allocated, in order."""
    found: list[Allocation] = []
    for entry in step:
        if entry.given is not None:
            found.append(entry.given)
        found += [i.allocation for i in entry.instructions if i.kind == "alloc"]  # type: ignore[attr-defined]
    return found


class GhostStorage:
    """What is left of a storage that may be gone."""

    __slots__ = ("cuts", "id", "state", "tracker")

    def __init__(self, state: ArrayState) -> None:
        self.id = state.id
        self.state = state
        self.tracker = state.tasks
        self.cuts = None


class Ghost:
    """An array that may be gone, as lowering sees it."""

    __slots__ = ("_box", "_cut", "_grid", "_storage", "dtype", "nbytes", "shape", "size")

    def __init__(self, storage: GhostStorage, like: tuple[Any, ...]) -> None:
        self._storage = storage
        self._box, self._cut, self._grid, self.shape, self.size, self.dtype, self.nbytes = like


def catch_up(position: Position, lowering: Lowering, graph: TaskGraph) -> None:
    """Let lowering and task graph know everything that was replayed."""
    states = lowering.states()
    instructions, tasks = position.instructions(), position.tasks()
    states.update(position.gone)
    for id, held in position.snapshot.arrays.items():
        state = states[position.array(id)]
        graph.marks.touched.add(load(held, state, instructions, tasks, position.allocation))
        for backing in state.all_backings():
            lowering.emitter.touch(backing.tracker)
    for order, instruction, task in position.snapshot.orders:
        lowering.orders[order], graph.orders[order] = instructions.writer(instruction), tasks.writer(task)
    lowering.emitter.front = position.front()
    if position.open:
        _again(position, lowering, graph)


def _again(position: Position, lowering: Lowering, graph: TaskGraph) -> None:
    """Lower once more what the present step has done so far."""
    emitter, coherence = lowering.emitter, lowering.coherence
    ends = emitter.last, coherence.last_allocation, lowering.last_private, graph.last, graph.since_horizon
    start = position.numbers.starts[0]
    emitter.last, coherence.last_allocation = start.instructions, start.allocations
    lowering.last_private, graph.last = start.privates, start.tasks
    starts = position.numbers.arrays
    for line, task in zip(position.lines[: position.at], position.done, strict=True):
        ids = [ref if isinstance(ref, int) else starts[ref[0]] + ref[1] for ref in line.arrays]
        _lower_again(line, task, ids, lowering, graph)
    made = position.numbers.allocations[0]
    for state in lowering.states().values():
        for backing in state.all_backings():
            number = backing.allocation.id - start.allocations - 1
            if 0 <= number < len(made):
                backing.allocation = made[number]
                backing.bindings.clear()
    emitter.last, coherence.last_allocation, lowering.last_private, graph.last, graph.since_horizon = ends


def _lower_again(line: Line, task: Task | None, ids: Sequence[int], lowering: Lowering, graph: TaskGraph) -> None:
    """Do to the states what the line did; its instructions are out already."""
    seen, states = line.seen, lowering.states()
    if line.kind == "made":
        lowering.coherence.last_allocation += seen.given is not None
        return
    if line.kind == "dropped":
        lowering.drop(ids[0])
        return
    assert task is not None
    ghosts: list[Any] = [Ghost(GhostStorage(states[id]), like) for id, like in zip(ids, seen.slots, strict=True)]
    visited = task.visited
    task.arrays = ghosts
    task.visited = None if task.kernel is None or task.kernel.simple else task.box
    graph.add(task)
    task.visited = visited
    with _as_large(seen, {id: states[now] for id, now in zip(seen.event.arrays, ids, strict=True)}):
        if line.kind == "read":
            lowering.fence(task, ghosts[0], _nobody)
        else:
            lowering.lower(Command(task.id, task, seen.chunks, task.after, seen.why), seen.shares)
    task.let_go()


class AsBefore(Foreseen):
    """Boxes that were allocated, each for itself."""

    __slots__ = ()

    def take(self, box: Box) -> Box:
        """Return the box that was allocated for `box`."""
        return next((known for known in self.boxes if covers(known, box)), box)


@contextmanager
def _as_large(seen: Seen, states: Mapping[int, ArrayState]) -> Iterator[None]:
    """Let allocations be as large as they were: lookahead may have foreseen more than one command needs."""
    known = [i.allocation for i in seen.instructions or () if isinstance(i, Alloc) and i.allocation.array in states]
    before = {states[allocation.array]: states[allocation.array].foreseen for allocation in known}
    for state in before:
        state.foreseen = {}
    for allocation in known:
        foreseen = states[allocation.array].foreseen
        assert foreseen is not None
        foreseen.setdefault(allocation.memory, AsBefore(0, 0)).boxes.append(allocation.box)
    try:
        yield
    finally:
        for state, earlier in before.items():
            state.foreseen = earlier


def _nobody(values: Any) -> None:
    del values
