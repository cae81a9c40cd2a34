"""What lowering remembers of some arrays, as plain data; and whether it is the same as before, but for names.

Before: lower/state.py, graph/.  After: lower/template.py, lower/replay.py.  Changes nothing but what it loads.

Lowering does not look at the numbers of instructions, allocations and arrays, only at which are equal. So a state that is
an earlier one with other numbers leads to the same instructions, with other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..geometry import Box
from ..graph.instruction import Allocation
from ..graph.task_graph import TaskGraph
from ..graph.tracker import Entries, Names, Tracker
from .lowering import Lowering
from .state import ArrayState, Backing


class Held(NamedTuple):
    """One array: where it is valid, what backs it, who touched it last, as an array and per backing."""

    valid: tuple[tuple[Box, int], ...]
    backings: tuple[tuple[Allocation, Entries], ...]
    tasks: Entries


class Counters(NamedTuple):
    """The last number given so far: to instructions, allocations, arrays, tasks and private arrays."""

    instructions: int
    allocations: int
    arrays: int
    tasks: int
    privates: int

    def since(self, before: Counters) -> Counters:
        """Return how many of each were made since."""
        return Counters(*[a - b for a, b in zip(self, before, strict=True)])


class Snapshot(NamedTuple):
    """Some arrays by id, the orders of host tasks, and how far numbers have got."""

    counters: Counters
    arrays: dict[int, Held]
    orders: tuple[tuple[Any, int, int], ...]  # order, last instruction, last task
    budget: tuple[Any, ...] = ()  # of memories with a limit: what is held and freed; a repeated step does neither


def take(arrays: Iterable[int], counters: Counters, lowering: Lowering, graph: TaskGraph) -> Snapshot:
    """Return what is remembered of those arrays that are still there."""
    states = lowering.states()
    held = {id: dump(states[id]) for id in dict.fromkeys(arrays) if id in states}
    orders = tuple([(order, id, graph.orders[order]) for order, id in lowering.orders.items()])
    budget = [(a.held, tuple(a.freed), frozenset(a.gate)) for a in lowering.coherence.budget.open]
    return Snapshot(counters, held, orders, tuple(budget))


def dump(state: ArrayState) -> Held:
    """Return one array's state as data."""
    assert state.tasks is not None, "private arrays do not outlive their task"
    backings = [
        (backing.allocation, backing.tracker.dump()) for memory in state.backings.values() for backing in memory
    ]
    return Held(tuple(state.valid.entries()), tuple(backings), state.tasks.dump())


class Same:
    """Whether numbers of one kind are the same, but for names: each stays, or grows by as many as were made between.

    Readers that nobody waits for pile up until the next horizon: such a list may also have become longer, and each
    further step will make it longer by the same ones under their next names.
    """

    def __init__(self, start: int, made: int) -> None:
        self._recent = start - 2 * made  # who reads for the first time now began to matter after this one
        self._made = made
        self.renamed: dict[int, int] = {}
        self.piling: set[int] = set()  # numbers in lists that become longer
        self.longer: dict[int, int] = {}  # such lists in the later state, by identity, and by how many

    def one(self, a: int, b: int) -> bool:
        """Tell whether a number is the same."""
        return (a == b or b - a == self._made) and self.renamed.setdefault(a, b) == b

    def readers(self, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        """Tell whether a list of readers is the same, or longer."""
        if len(a) == len(b):
            return all(self.one(i, j) for i, j in zip(a, b, strict=True))
        if len(b) < len(a) or b[: len(a)] != a or any(id <= self._recent for id in b[len(a) :]):
            return False
        self.piling.update(b)
        self.longer[id(b)] = len(b) - len(a)
        return True

    def entries(self, a: Entries, b: Entries) -> bool:
        """Tell whether two trackers remember the same."""
        if a.boxes != b.boxes:
            return False
        if not a.boxes:
            return self.one(a.one_writer, b.one_writer) and self.readers(a.whole_readers, b.whole_readers)
        if len(a.writers) != len(b.writers) or len(a.readers) != len(b.readers):
            return False
        for (box, i), (other, j) in zip(a.writers, b.writers, strict=True):
            if box != other or not self.one(i, j):
                return False
        for (box, them), (other, those) in zip(a.readers, b.readers, strict=True):
            if box != other or not self.readers(them, those):
                return False
        return self._strided(a.strided, b.strided)

    def _strided(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
        if len(b) == len(a):
            return all(
                (p, q, v) == (r, s, w) and self.one(i, j) for (p, q, i, v), (r, s, j, w) in zip(a, b, strict=True)
            )
        more = b[len(a) :]
        if len(b) < len(a) or b[: len(a)] != a or any(writes or id <= self._recent for _, _, id, writes in more):
            return False
        self.piling.update(id for _, _, id, writes in b if not writes)
        self.longer[id(b)] = len(more)
        return True


class Renaming:
    """Maps the numbers of one snapshot to those of the next."""

    def __init__(self, start: Counters, made: Counters) -> None:
        self.made = made
        self.instructions = Same(start.instructions, made.instructions)
        self.tasks = Same(start.tasks, made.tasks)
        self.allocations: dict[int, Allocation] = {}

    def holds(self, before: Snapshot, after: Snapshot, arrays: dict[int, int]) -> bool:
        """Tell whether `after` is `before` with other numbers; `arrays` maps the ids of the arrays."""
        if {arrays[id] for id in before.arrays} != set(after.arrays):
            return False
        if len(before.orders) != len(after.orders) or before.budget != after.budget:
            return False
        for (a, i, t), (b, j, u) in zip(before.orders, after.orders, strict=True):
            if a != b or not self.instructions.one(i, j) or not self.tasks.one(t, u):
                return False
        return all(self._held(held, after.arrays[arrays[id]]) for id, held in before.arrays.items())

    def _held(self, a: Held, b: Held) -> bool:
        if a.valid != b.valid or len(a.backings) != len(b.backings) or not self.tasks.entries(a.tasks, b.tasks):
            return False
        return all(
            self._allocation(x, y) and self.instructions.entries(p, q)
            for (x, p), (y, q) in zip(a.backings, b.backings, strict=True)
        )

    def _allocation(self, a: Allocation, b: Allocation) -> bool:
        if self.allocations.setdefault(a.id, b) is not b:
            return False
        if a is b:
            return True
        alike = (a.memory, a.box, a.dtype) == (b.memory, b.box, b.dtype)
        return alike and b.id - a.id == self.made.allocations


def load(
    held: Held,
    state: ArrayState,
    instructions: Names,
    tasks: Names,
    allocation: Callable[[Allocation], Allocation],
) -> Tracker:
    """Let `state` be what `held` says, with other numbers; return the tracker of its tasks."""
    assert state.tasks is not None, "private arrays do not outlive their task"
    state.tasks.load(held.tasks, tasks)
    known = {backing.allocation.id: backing for backing in state.all_backings()}
    state.backings.clear()
    state.complete.clear()
    for old, entries in held.backings:
        new = allocation(old)
        backing = known.get(new.id) or Backing(new, 0)
        backing.tracker.load(entries, instructions)
        state.add(backing)
    for box, mask in held.valid:
        state.valid.set(box, mask)
    return state.tasks
