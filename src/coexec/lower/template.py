"""A step of a program, lowered once: its instructions with holes for numbers, to be made again by filling them in.

Before: lower/snapshot.py, lower/repeats.py.  After: lower/replay.py.  Knows no state: it is told where numbers begin.

Numbers are references: so many steps back, and the position within that step. What no step makes is meant itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph.instruction import Alloc, Allocation, Binding, Fence, Instruction, Kernel
from ..graph.task import Task
from ..plan.candidate import Share
from .repeats import Event
from .snapshot import Counters, Renaming, Same

Ref = tuple[int, int]
"""How many steps back, and the position in that step."""
BACK = 3  # steps that a reference may go back
RUN_TIME = ("failure", "eager", "redone")  # what an instruction gets while it runs
_new: Callable[..., Any] = tuple.__new__


class Seen(NamedTuple):
    """One event and what it was lowered to."""

    event: Event
    kind: str  # made, called, read, dropped
    counters: Counters  # afterwards
    instructions: Sequence[Instruction] = ()
    task: Task | None = None
    chunks: tuple[Any, ...] = ()
    shares: tuple[Share, ...] = ()
    why: str = ""
    slots: tuple[Any, ...] = ()  # what a task saw of its arrays: for a task that is lowered again
    mapped: tuple[Any, ...] = ()  # what the user's range mappers answered
    given: Allocation | None = None  # of an array that was made with its contents


class Unrepeatable(Exception):
    """A step refers to something that a repetition of it could not name."""


class Numbers:
    """The beginnings of the present step and of those before it, the present one first."""

    def __init__(self, starts: Sequence[Counters], allocations: Sequence[list[Allocation]]) -> None:
        self.starts = list(starts)
        self.instructions = [s.instructions + 1 for s in starts]
        self.arrays = [s.arrays + 1 for s in starts]
        self.tasks = [s.tasks + 1 for s in starts]
        self.allocations = list(allocations)

    def begin(self, start: Counters) -> None:
        """Enter the next step."""
        self.starts = [start, *self.starts[:BACK]]
        self.instructions = [start.instructions + 1, *self.instructions[:BACK]]
        self.arrays = [start.arrays + 1, *self.arrays[:BACK]]
        self.tasks = [start.tasks + 1, *self.tasks[:BACK]]
        self.allocations = [[], *self.allocations[:BACK]]


class Names:
    """Finds what a number of the recorded step refers to."""

    def __init__(self, start: Counters, renaming: Renaming, arrays: dict[int, int]) -> None:
        self._start = start
        self._made = renaming.made
        self._instructions = renaming.instructions
        self._tasks = renaming.tasks
        self._allocations = renaming.allocations
        self._arrays = arrays

    def instruction(self, id: int) -> Ref | int:
        """Return the reference, or the number itself if every step names the same."""
        return _name(id, self._start.instructions, self._made.instructions, self._instructions)

    def task(self, id: int) -> Ref | int:
        """Return the reference to a task, or its number."""
        return _name(id, self._start.tasks, self._made.tasks, self._tasks)

    def position(self, task: int) -> int:
        """Return the position of a task in the recorded step."""
        return task - self._start.tasks - 1

    def private(self, id: int) -> int:
        """Return the position of a private array in the recorded step."""
        return -id - self._start.privates - 1

    def array(self, id: int) -> Ref | int:
        """Return the reference to an array, or its number."""
        start = self._start.arrays
        if id <= start and self._arrays.get(id) == id:
            return id
        return back(id, start, self._made.arrays)

    def allocation(self, allocation: Allocation) -> Ref | Allocation:
        """Return the reference to an allocation, or itself."""
        id = allocation.id
        if id <= self._start.allocations:
            later = self._allocations.get(id)
            if later is None or later is allocation:
                return allocation
        found = back(id, self._start.allocations, self._made.allocations)
        if found[0] > 2:
            raise Unrepeatable  # nobody kept what was made so long ago
        return found


def _name(id: int, start: int, made: int, same: Same) -> Ref | int:
    if id <= start:
        later = same.renamed.get(id)
        if later is None and id in same.piling:
            raise Unrepeatable  # the next step would come after one more
        if later == id or (later is None and id <= start - made):
            return id
        if later is None:
            raise Unrepeatable
    return back(id, start, made)


def back(id: int, start: int, made: int) -> Ref:
    """Return the reference to a number, where the present step's numbers begin after `start` and each step makes so many."""
    steps = 0 if id > start else -((id - 1 - start) // made)
    if steps > BACK:
        raise Unrepeatable
    return steps, id - (start + 1 - steps * made)


class Proto(NamedTuple):
    """An instruction with holes."""

    kind: type[Instruction]
    fields: dict[str, Any]
    position: int
    needs: tuple[Ref, ...]
    always_needs: tuple[int, ...]
    after: tuple[Ref, ...]
    always_after: tuple[int, ...]
    places: tuple[tuple[str, Ref], ...] = ()  # fields that are allocations
    bindings: tuple[tuple[str, Ref], ...] = ()  # fields that are one binding
    parameters: tuple[Ref | None, ...] = ()  # allocations of a kernel's bindings that change
    array: Ref | int = 0  # whose allocation is made
    private: int = -1  # if it is a private one: its position in the step

    def fill(self, task: Task | None, numbers: Numbers) -> Instruction:
        """Return the instruction of the present step."""
        (
            kind,
            fields,
            position,
            needs,
            always_needs,
            after,
            always_after,
            places,
            bindings,
            parameters,
            array,
            private,
        ) = self
        starts = numbers.instructions
        new: Instruction = object.__new__(kind)
        own = new.__dict__
        own.update(fields)
        own["id"] = starts[0] + position
        own["task"] = task
        own["needs"] = (*[starts[k] + i for k, i in needs], *always_needs)
        own["after"] = (*[starts[k] + i for k, i in after], *always_after)
        if kind is Alloc:
            if private >= 0:
                array = -(numbers.starts[0].privates + 1 + private)
            own["allocation"] = _allocation(fields["allocation"], array, numbers)
        elif places:
            for name, (k, i) in places:
                own[name] = numbers.allocations[k][i]
        elif bindings:
            for name, (k, i) in bindings:
                own[name] = fields[name]._replace(allocation=numbers.allocations[k][i])
        elif parameters:
            own["bindings"] = tuple(
                [
                    binding if ref is None else _rebound(binding, numbers.allocations[ref[0]][ref[1]])
                    for binding, ref in zip(fields["bindings"], parameters, strict=True)
                ]
            )
        return new

    def renewed(self, now: Callable[[int], int]) -> Proto:
        """Return the same, with other numbers for what every step names the same."""
        if not self.always_needs and not self.always_after:
            return self
        needs, after = _each(self.always_needs, now), _each(self.always_after, now)
        return self._replace(always_needs=needs, always_after=tuple([id for id in after if id not in needs]))


def _rebound(binding: Binding, allocation: Allocation) -> Binding:
    rebound: Binding = _new(Binding, (binding[0], allocation, *binding[2:]))
    return rebound


def _allocation(old: Allocation, array: Ref | int, numbers: Numbers) -> Allocation:
    made = numbers.allocations[0]
    owner = array if isinstance(array, int) else numbers.arrays[array[0]] + array[1]
    id = numbers.starts[0].allocations + 1 + len(made)
    new = Allocation(id, old.memory, owner, old.box, old.dtype)
    made.append(new)
    return new


def _each(ids: Sequence[int], now: Callable[[int], int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys([now(id) for id in ids]))


def proto(instruction: Instruction, names: Names, start: int) -> Proto:
    """Return an instruction with holes for its numbers."""
    fields = {k: v for k, v in instruction.__dict__.items() if k not in RUN_TIME and k not in ("id", "task")}
    needs, always_needs = _refs(fields.pop("needs"), names)
    after, always_after = _refs(fields.pop("after"), names)
    places, bindings = [], []
    parameters: tuple[Ref | None, ...] = ()
    array: Ref | int = 0
    private = -1
    for name in ("allocation", "source", "target"):
        value = fields.get(name)
        if isinstance(value, Allocation) and isinstance(ref := names.allocation(value), tuple):
            places.append((name, ref))
    for name in ("binding", "partials", "target"):
        value = fields.get(name)
        place = value.allocation if isinstance(value, Binding) else None
        if place is not None and isinstance(ref := names.allocation(place), tuple):
            bindings.append((name, ref))
    if isinstance(instruction, Kernel):
        refs = [None if b.allocation is None else names.allocation(b.allocation) for b in instruction.bindings]
        changing = [ref if isinstance(ref, tuple) else None for ref in refs]
        parameters = tuple(changing) if any(ref is not None for ref in changing) else ()
    if isinstance(instruction, Alloc):
        owner = instruction.allocation.array
        array, private = (names.array(owner), -1) if owner > 0 else (0, names.private(owner))
    position = instruction.id - start
    return Proto(
        type(instruction), fields, position, needs, always_needs, after, always_after,
        tuple(places), tuple(bindings), parameters, array, private
    )  # fmt: skip


def _refs(ids: Sequence[int], names: Names) -> tuple[tuple[Ref, ...], tuple[int, ...]]:
    found = [names.instruction(id) for id in ids]
    return tuple([f for f in found if isinstance(f, tuple)]), tuple([f for f in found if isinstance(f, int)])


class Line(NamedTuple):
    """One event of a step: how to recognise it, and what it is lowered to."""

    kind: str
    what: Any
    views: tuple[Any, ...]
    arrays: tuple[Ref | int, ...]
    protos: tuple[Proto, ...]
    seen: Seen
    after: tuple[Ref, ...] = ()  # tasks
    always_after: tuple[int, ...] = ()
    position: int = 0  # of the task in its step
    loads: tuple[tuple[str, float | None], ...] = ()  # devices and predicted seconds of its kernels

    def meets(self, what: Any, arrays: Sequence[int], views: Sequence[Any], starts: Sequence[int]) -> bool:
        """Tell whether an event is this one; `starts` says where the arrays of each step begin."""
        if what != self.what or len(arrays) != len(self.arrays):
            return False
        for id, ref in zip(arrays, self.arrays, strict=True):
            if id != (ref if type(ref) is int else starts[ref[0]] + ref[1]):  # type: ignore[index]
                return False
        return tuple(views) == self.views


def build(
    earlier: Sequence[Seen],
    seen: Sequence[Seen],
    start: Counters,
    renaming: Renaming,
    arrays: dict[int, int],
) -> tuple[Line, ...]:
    """Return the lines of a step that began at `start` and is the `earlier` one again, or raise Unrepeatable."""
    if [_edges(entry) for entry in earlier] != [_edges(entry) for entry in seen]:
        raise Unrepeatable  # what an instruction comes after becomes more and more
    names = Names(start, renaming, arrays)
    first = start.instructions + 1
    ids = [i.id for entry in seen for i in entry.instructions]
    if ids != list(range(first, first + renaming.made.instructions)):
        raise Unrepeatable  # something else was lowered in between
    lines = tuple([_line(entry, names, first) for entry in seen])
    far = any(steps > 1 for line in lines for p in line.protos for steps, _ in (*p.needs, *p.after))
    if far and [i.id for entry in earlier for i in entry.instructions] != list(range(first - len(ids), first)):
        raise Unrepeatable  # what the step before the last made is not where it is looked for
    return lines


def _edges(entry: Seen) -> list[tuple[int, int]]:
    """Return how many others each instruction comes after."""
    return [(len(i.needs), len(i.after)) for i in entry.instructions]


def _line(entry: Seen, names: Names, first: int) -> Line:
    event, task = entry.event, entry.task
    parents = [names.task(id) for id in task.after] if task is not None else []
    kernels = [i for i in entry.instructions if type(i) is Kernel]
    return Line(
        entry.kind,
        event.what,
        event.views,
        tuple([names.array(id) for id in event.arrays]),
        tuple([proto(i, names, first) for i in entry.instructions]),
        entry,
        tuple([p for p in parents if isinstance(p, tuple)]),
        tuple([p for p in parents if isinstance(p, int)]),
        0 if task is None else names.position(task.id),
        tuple([(i.device, i.predicted) for i in kernels]),
    )


def deliver(instructions: Sequence[Instruction], to: Callable[[Any], None]) -> None:
    """Let a read's values go to `to`."""
    for instruction in instructions:
        if isinstance(instruction, Fence):
            instruction.deliver = to
