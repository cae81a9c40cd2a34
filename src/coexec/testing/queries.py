"""Questions about emitted instructions: selections by kind, task or device, and how they are ordered.

Before: graph/instruction.py.  After: testing/graphs.py, tests.  Knows edges and boxes, never data.

    copies = graph.all.of("copy", to=2)
    assert copies.copied == Region([Box((0,), (5,))])
    assert graph.concurrent(a, b)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

from ..geometry import Box, Region
from ..graph.instruction import Alloc, Allocation, Copy, Fence, Fill, Free, Instruction, Launch, Reduce
from ..graph.task import Task


class InstructionGraph:
    """Instructions in the order they were emitted, with their edges and everything that follows from them."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.instructions = tuple(instructions)
        self.place = {instruction.id: number for number, instruction in enumerate(self.instructions)}
        self._before: list[int] = []  # per instruction: the places of all its ancestors, as bits
        for instruction in self.instructions:
            bits = 0
            for id in self.edges(instruction):
                bits |= 1 << self.place[id] | self._before[self.place[id]]
            self._before.append(bits)

    @property
    def all(self) -> Selection:
        """Every instruction."""
        return Selection(self, self.instructions)

    def edges(self, instruction: Instruction) -> tuple[int, ...]:
        """Return the ids it directly comes after, of those in this graph."""
        return tuple(id for id in (*instruction.needs, *instruction.after) if id in self.place)

    def ordered(self, first: Instruction, then: Instruction) -> bool:
        """Tell whether `then` can only begin when `first` is over."""
        return bool(self._before[self.place[then.id]] >> self.place[first.id] & 1)

    def concurrent(self, a: Instruction, b: Instruction) -> bool:
        """Tell whether neither waits for the other."""
        return a is not b and not self.ordered(a, b) and not self.ordered(b, a)

    def all_concurrent(self, instructions: Iterable[Instruction]) -> bool:
        """Tell whether no one of them waits for another."""
        these = list(instructions)
        return all(self.concurrent(a, b) for number, a in enumerate(these) for b in these[:number])

    def chain(self, instructions: Iterable[Instruction]) -> bool:
        """Tell whether each waits for the one before it, directly or not."""
        these = list(instructions)
        return all(self.ordered(a, b) for a, b in pairwise(these))

    def ancestors(self, instruction: Instruction) -> list[Instruction]:
        """Return everything that must be over before it begins."""
        bits = self._before[self.place[instruction.id]]
        return [other for number, other in enumerate(self.instructions) if bits >> number & 1]


class Selection(Sequence[Any]):
    """Some instructions of a graph, in the order they were emitted. Which kind a member is, the test knows."""

    def __init__(self, graph: InstructionGraph, members: Iterable[Instruction]) -> None:
        self.graph = graph
        self._members = tuple(sorted(set(members), key=lambda i: graph.place[i.id]))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Selection: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Selection(self.graph, self._members[index])
        return self._members[index]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __or__(self, other: Iterable[Instruction]) -> Selection:
        return Selection(self.graph, [*self, *other])

    def __sub__(self, other: Iterable[Instruction]) -> Selection:
        unwanted = set(other)
        return Selection(self.graph, [i for i in self if i not in unwanted])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iterable) and set(self._members) == set(other)

    def __hash__(self) -> int:
        return hash(self._members)

    def __repr__(self) -> str:
        return f"<{', '.join(map(repr, self._members)) or 'nothing'}>"

    # Narrower ---------------------------------------------------------------------------------------------------------

    def where(self, condition: Callable[[Any], bool]) -> Selection:
        """Return those for which `condition` holds."""
        return Selection(self.graph, filter(condition, self))

    def of(
        self,
        *kinds: str,
        task: Task | str | None = None,
        device: str | None = None,
        array: Any = None,
        to: int | None = None,
        source: int | None = None,
        reason: str | None = None,
    ) -> Selection:
        """Return those of the given kinds, task (or task name), device, array, memory (`to`, `source`) and reason."""
        found = self.where(lambda i: not kinds or i.kind in kinds)
        if task is not None:
            found = found.where(lambda i: i.task is not None and task in (i.task, i.task.name))
        if device is not None:
            found = found.where(lambda i: i.device == device)
        if array is not None:
            id = array._storage.id
            found = found.where(lambda i: any(allocation.array == id for allocation in allocations(i)))
        if to is not None:
            found = found.where(lambda i: any(a.memory == to for a in written_by(i)))
        if source is not None:
            found = found.where(lambda i: isinstance(i.step, Copy) and i.step.source.memory == source)
        return found if reason is None else found.where(lambda i: isinstance(i.step, Copy) and i.step.reason == reason)

    def only(self) -> Any:
        """Return the single instruction selected, or raise AssertionError."""
        if len(self) != 1:
            raise AssertionError(f"expected one instruction, found {self!r}")
        return self[0]

    # Neighbours -------------------------------------------------------------------------------------------------------

    def predecessors(self) -> Selection:
        """Return what they directly come after."""
        graph = self.graph
        return Selection(graph, [graph.instructions[graph.place[id]] for i in self for id in graph.edges(i)])

    def successors(self) -> Selection:
        """Return what directly comes after them."""
        mine = {i.id for i in self}
        return Selection(self.graph, [i for i in self.graph.instructions if mine & {*self.graph.edges(i)}])

    def ancestors(self) -> Selection:
        """Return everything that must be over before the last of them begins."""
        return Selection(self.graph, [other for i in self for other in self.graph.ancestors(i)])

    def descendants(self) -> Selection:
        """Return everything that waits for one of them."""
        return Selection(
            self.graph, [i for i in self.graph.instructions if any(self.graph.ordered(m, i) for m in self)]
        )

    # Facts ------------------------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> list[str]:
        """Their kinds, in order."""
        return [i.kind for i in self]

    @property
    def names(self) -> list[str]:
        """The names of their tasks, in order."""
        return [i.task.name if i.task is not None else "" for i in self]

    @property
    def copied(self) -> Region:
        """The elements that copies among them move."""
        return Region([box for i in self if isinstance(i.step, Copy) for box in i.step.boxes])

    @property
    def chunks(self) -> list[Box]:
        """The boxes of the index space that kernels among them compute."""
        return [i.step.chunk.box for i in self if isinstance(i.step, Launch)]

    @property
    def allocated(self) -> list[Box]:
        """The boxes that allocations among them hold."""
        return [i.step.allocation.box for i in self if isinstance(i.step, Alloc)]

    @property
    def nbytes(self) -> int:
        """Bytes they allocate or move."""
        return sum(i.nbytes for i in self)

    def all_concurrent(self) -> bool:
        """Tell whether no one of them waits for another."""
        return self.graph.all_concurrent(self)

    def chain(self) -> bool:
        """Tell whether each waits for the one before it."""
        return self.graph.chain(self)


def allocations(instruction: Instruction) -> list[Allocation]:
    """Return the allocations an instruction touches."""
    match step := instruction.step:
        case Alloc() | Free() | Fill():
            return [step.allocation]
        case Copy():
            return [step.source, step.target]
        case Launch():
            return [place for b in step.bindings for place, _ in b.places()]
        case Reduce():
            return [b.allocation for b in (step.partials, step.target) if b.allocation is not None]
        case Fence() if step.binding.allocation is not None:
            return [step.binding.allocation]
    return []


def written_by(instruction: Instruction) -> list[Allocation]:
    """Return the allocations an instruction makes or writes to."""
    match step := instruction.step:
        case Alloc() | Fill():
            return [step.allocation]
        case Copy():
            return [step.target]
        case Launch():
            return [b.allocation for b in step.bindings if b.writes and b.allocation is not None]
        case Reduce() if step.target.allocation is not None:
            return [step.target.allocation]
    return []
