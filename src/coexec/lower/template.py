"""A step of a program, lowered once: its instructions with holes for numbers, to be made again by filling them in.

Before: lower/snapshot.py, lower/repeats.py.  After: lower/replay.py.  Knows no state: it is told where numbers begin.

Numbers are references: so many steps back, and the position within that step. What no step makes is meant itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph.instruction import Alloc, Allocation, Binding, Copy, Fence, Instruction, Kernel
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

    def __init__(self, starts: Sequence[Counters], allocations: Sequence[list[Allocation]], made: Counters) -> None:
        self._made = made.instructions
        self._row = len(starts)  # steps that began where the one before them ended
        self.in_a_row = False  # whether that is so for all that can be referred to
        self.starts = list(starts)
        self.instructions = [s.instructions + 1 for s in starts]
        self.arrays = [s.arrays + 1 for s in starts]
        self.tasks = [s.tasks + 1 for s in starts]
        self.allocations = list(allocations)

    def begin(self, start: Counters) -> None:
        """Enter the next step."""
        kept = BACK + 1  # in the middle of a step, the state at its beginning goes back as far
        first = start.instructions + 1
        self._row = self._row + 1 if first - self.instructions[0] == self._made else 0
        self.in_a_row = self._row >= BACK
        self.starts = [start, *self.starts[:kept]]
        self.instructions = [first, *self.instructions[:kept]]
        self.arrays = [start.arrays + 1, *self.arrays[:kept]]
        self.tasks = [start.tasks + 1, *self.tasks[:kept]]
        self.allocations = [[], *self.allocations[:kept]]

    def allocate(self, like: Allocation, owner: tuple[bool, Ref]) -> Allocation:
        """Return a new allocation of the present step, for an array of some step or a private one."""
        made, (private, (steps, position)) = self.allocations[0], owner
        start = self.starts[0]
        array = position if steps < 0 else self.arrays[steps] + position
        if private:
            array = -(start.privates + 1 + position)
        new = Allocation(start.allocations + 1 + len(made), like.memory, array, like.box, like.dtype)
        made.append(new)
        return new


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

    def edges(self, ids: Sequence[int]) -> Edges:
        """Return references to instructions."""
        found = [self.instruction(id) for id in ids]
        refs = tuple([ref for ref in found if isinstance(ref, tuple)])
        near = tuple([i - k * self._made.instructions for k, i in refs])
        return Edges(refs, tuple([id for id in found if isinstance(id, int)]), near)

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


class Edges(NamedTuple):
    """What an instruction comes after."""

    refs: tuple[Ref, ...]
    always: tuple[int, ...]  # what every step names the same
    near: tuple[int, ...]  # the refs as distances from the beginning of the step, if steps follow each other closely

    def fill(self, numbers: Numbers) -> tuple[int, ...]:
        """Return the numbers of the present step."""
        starts = numbers.instructions
        return (*[starts[k] + i for k, i in self.refs], *self.always)

    def renewed(self, now: Callable[[int], int]) -> Edges:
        """Return the same, with other numbers for what every step names the same."""
        return self._replace(always=tuple(dict.fromkeys([now(id) for id in self.always]))) if self.always else self


class Proto:
    """An instruction with holes."""

    __slots__ = (
        "_bindings",
        "_fields",
        "_kind",
        "_moves",
        "_owner",
        "_parameters",
        "_places",
        "after",
        "needs",
        "position",
    )

    def __init__(self, instruction: Instruction, names: Names, start: int) -> None:
        if isinstance(instruction, Copy):
            _ = instruction.nbytes  # worked out once for all steps
        fields = {k: v for k, v in instruction.__dict__.items() if k not in RUN_TIME}
        self.position = instruction.id - start
        self.needs = names.edges(fields["needs"])
        self.after = names.edges(fields["after"])
        self._kind = type(instruction)
        self._fields = fields
        self._owner = _owner(instruction, names)  # whose allocation is made
        self._places = _moving([(name, fields.get(name)) for name in ("allocation", "source", "target")], names)
        bindings = [(name, fields.get(name)) for name in ("binding", "partials", "target")]
        self._bindings = _moving([(n, b.allocation) for n, b in bindings if isinstance(b, Binding)], names)
        self._parameters = _parameters(instruction, names)
        self._moves = bool(self._owner or self._places or self._bindings or self._parameters)

    def fill(self, task: Task | None, numbers: Numbers) -> Instruction:
        """Return the instruction of the present step."""
        own = self._fields.copy()
        first = numbers.instructions[0]
        own["id"] = first + self.position
        own["task"] = task
        needs, after = self.needs, self.after
        if numbers.in_a_row:
            ids = tuple([first + i for i in needs.near])
            own["needs"] = ids + needs.always if needs.always else ids
            ids = tuple([first + i for i in after.near])
            own["after"] = ids + after.always if after.always else ids
        else:
            own["needs"], own["after"] = needs.fill(numbers), after.fill(numbers)
        if self._moves:
            self._place(own, numbers)
        new: Instruction = object.__new__(self._kind)
        new.__dict__ = own
        return new

    def _place(self, own: dict[str, Any], numbers: Numbers) -> None:
        """Put the allocations of the present step into an instruction."""
        tables = numbers.allocations
        if self._owner is not None:
            own["allocation"] = numbers.allocate(own["allocation"], self._owner)
            return
        for name, (k, i) in self._places:
            own[name] = tables[k][i]
        for name, (k, i) in self._bindings:
            own[name] = _rebound(own[name], tables[k][i])
        if self._parameters:
            own["bindings"] = tuple(
                [
                    binding if ref is None else _rebound(binding, tables[ref[0]][ref[1]])
                    for binding, ref in zip(own["bindings"], self._parameters, strict=True)
                ]
            )

    def renew(self, now: Callable[[int], int]) -> None:
        """Use other numbers for what every step names the same."""
        self.needs, self.after = self.needs.renewed(now), self.after.renewed(now)


def _owner(instruction: Instruction, names: Names) -> tuple[bool, Ref] | None:
    """Return whose allocation an instruction makes: whether it is private, and which; None if it makes none."""
    if not isinstance(instruction, Alloc):
        return None
    array = instruction.allocation.array
    if array < 0:
        return True, (0, names.private(array))
    ref = names.array(array)
    return False, ref if isinstance(ref, tuple) else (-1, ref)


def _moving(places: Sequence[tuple[str, Any]], names: Names) -> tuple[tuple[str, Ref], ...]:
    """Return those fields that are another allocation in each step."""
    found = [(name, names.allocation(place)) for name, place in places if isinstance(place, Allocation)]
    return tuple([(name, ref) for name, ref in found if isinstance(ref, tuple)])


def _parameters(instruction: Instruction, names: Names) -> tuple[Ref | None, ...]:
    """Return the allocations of a kernel's bindings that change; nothing if none does."""
    if not isinstance(instruction, Kernel):
        return ()
    refs = [None if b.allocation is None else names.allocation(b.allocation) for b in instruction.bindings]
    changing = [ref if isinstance(ref, tuple) else None for ref in refs]
    return tuple(changing) if any(ref is not None for ref in changing) else ()


def _rebound(binding: Binding, allocation: Allocation) -> Binding:
    rebound: Binding = _new(Binding, (binding[0], allocation, *binding[2:]))
    return rebound


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
    far = any(steps > 1 for line in lines for p in line.protos for steps, _ in (*p.needs.refs, *p.after.refs))
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
        tuple([Proto(i, names, first) for i in entry.instructions]),
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
