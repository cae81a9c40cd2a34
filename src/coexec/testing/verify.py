"""What every instruction list must keep, whoever emitted it: checked element by element.

Before: graph/instruction.py, lower/.  After: testing/graphs.py, tests.  Knows boxes and edges, never values.

Walked in the order of emission, each element of each allocation remembers which write it holds. Reads must find the
present one, and any two accesses of which one writes must be ordered by edges: then every legal order computes the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import InvariantError
from ..geometry import Box, whole
from ..graph.instruction import Alloc, Allocation, Binding, Copy, Fence, Fill, Free, Instruction, Launch, Reduce
from ..program.view import extract
from .queries import InstructionGraph, allocations

NOTHING = 0  # the version of what was never written
FILLED = -1  # the version of an array's initial value
GIVEN = -2  # the version of contents from before the first instruction

Elements = np.ndarray[Any, Any]
"""Flat positions of elements: in an allocation, or in an array."""


def verify(
    instructions: Sequence[Instruction],
    *,
    given: Iterable[Allocation] = (),
    filled: Container[int] = (),
    capacities: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Raise InvariantError unless the instructions, from the first epoch on, are right in whatever legal order they run.

    `given` are allocations that hold contents from the beginning, `filled` the arrays that begin with one value.
    `capacities` are the bytes that each memory holds at most.
    """
    check_edges(instructions)
    graph, given = InstructionGraph(instructions), list(given)
    checker = _Checker(graph, given, filled)
    for instruction in instructions:
        checker.step(instruction)
    check_capacities(graph, given, capacities)


def check_capacities(graph: InstructionGraph, given: Iterable[Allocation], capacities: Mapping[int, int]) -> None:
    """Raise InvariantError unless no legal order has more live bytes in a memory than it holds.

    Look at the last allocation, in the order of emission, that some order has made: whatever was freed before it can
    be made must leave room for everything allocated up to it.
    """
    allocated = dict.fromkeys(capacities, 0)
    frees: dict[int, list[tuple[Instruction, int]]] = {memory: [] for memory in capacities}
    for allocation in given:
        if allocation.memory in capacities:
            allocated[allocation.memory] += allocation.nbytes
    for instruction in graph.instructions:
        for memory, nbytes, lasts in _taken(instruction, capacities):
            over = sum(freed for free, freed in frees[memory] if graph.ordered(free, instruction))
            allocated[memory] += nbytes
            if (live := allocated[memory] - over) > capacities[memory]:
                raise InvariantError(
                    f"{instruction!r} can begin while {live} bytes are live in memory {memory}, which holds "
                    f"{capacities[memory]}"
                )
            if not lasts:
                frees[memory].append((instruction, nbytes))
        step = instruction.step
        if isinstance(step, Free) and step.allocation.memory in capacities:
            frees[step.allocation.memory].append((instruction, step.nbytes))


def _taken(instruction: Instruction, memories: Container[int]) -> Iterator[tuple[int, int, bool]]:
    """Yield the memory and bytes that an instruction takes, and whether it keeps them when it is over."""
    step = instruction.step
    if isinstance(step, Alloc) and step.allocation.memory in memories:
        yield step.allocation.memory, step.nbytes, True
    elif isinstance(step, Launch) and step.scratch and step.scratch[0] in memories:
        yield *step.scratch, False


def check_edges(instructions: Sequence[Instruction]) -> None:
    """Raise InvariantError unless edges lead backwards, to known instructions, and all but the first have one."""
    seen: set[int] = set()
    for number, instruction in enumerate(instructions):
        edges = (*instruction.needs, *instruction.after)
        if instruction.id in seen:
            raise InvariantError(f"{instruction!r} was emitted twice")
        if unknown := [id for id in edges if id not in seen]:
            raise InvariantError(f"{instruction!r} comes after I{unknown[0]}, which was not emitted before it")
        if number and not edges:
            raise InvariantError(f"{instruction!r} comes after nothing, not even an epoch")
        seen.add(instruction.id)


class _Held:
    """What one allocation holds, and who touched it."""

    def __init__(self, allocation: Allocation, alloc: Instruction | None, version: int) -> None:
        self.allocation = allocation
        self.alloc = alloc  # None: it was given
        self.versions = np.full(allocation.box.volume, version, np.int64)
        self.touched: list[tuple[Instruction, Elements, bool]] = []
        self.freed: Instruction | None = None
        self.origin = np.arange(allocation.box.volume).reshape(allocation.box.shape)

    def elements(self, box: Box, cut: Any = None) -> Elements:
        """Return the flat positions of a box, or of what a view sees of it."""
        return np.asarray(extract(self.origin, self.allocation.box.lo, box, cut)).ravel()


class _Checker:
    def __init__(self, graph: InstructionGraph, given: list[Allocation], filled: Container[int]) -> None:
        self._graph = graph
        self._held = {a.id: _Held(a, None, GIVEN) for a in given}
        self._filled = filled
        self._extents = _extents(graph, given)
        self._present: dict[int, Elements] = {}  # per array: the version every element should have
        for allocation in given:
            self._now(allocation.array)[...] = GIVEN

    def _now(self, array: int) -> Elements:
        known = self._present.get(array)
        if known is None:
            start = FILLED if array < 0 or array in self._filled else NOTHING
            known = self._present[array] = np.full(self._extents[array].shape, start, np.int64)
        return known

    def step(self, instruction: Instruction) -> None:
        match step := instruction.step:
            case Alloc(allocation=allocation):
                if allocation.id in self._held:
                    raise InvariantError(f"{instruction!r}: {allocation!r} is allocated twice")
                self._held[allocation.id] = _Held(allocation, instruction, NOTHING)
            case Free(allocation=allocation):
                self._free(instruction, allocation)
            case Fill(allocation=allocation, boxes=boxes):
                for box in boxes:
                    held, elements = self._touch(instruction, allocation, box, None, writes=True)
                    held.versions[elements] = FILLED
            case Copy(source=source, target=target, boxes=boxes):
                for box in boxes:
                    held, elements = self._touch(instruction, source, box, None, writes=False)
                    into, places = self._touch(instruction, target, box, None, writes=True)
                    self._check_present(instruction, held, elements, box, None)
                    into.versions[places] = held.versions[elements]
            case Launch():
                self._kernel(instruction, step)
            case Reduce(partials=partials, target=target, operator=operator):
                self._read(instruction, partials)
                if not operator.fresh:
                    self._read(instruction, target)
                self._write(instruction, target)
            case Fence(binding=binding):
                self._read(instruction, binding)

    def _kernel(self, instruction: Instruction, step: Launch) -> None:
        modes = {param.name: param.access.mode for param in instruction.task.accesses}
        for binding in step.bindings:
            if modes[binding.name] != "write":
                self._read(instruction, binding)
        for binding in step.bindings:
            if binding.writes:
                self._write(instruction, binding)

    def _read(self, instruction: Instruction, binding: Binding) -> None:
        for allocation, box in binding.touched():
            held, elements = self._touch(instruction, allocation, box, binding.cut, writes=False)
            self._check_present(instruction, held, elements, box, binding.cut)

    def _write(self, instruction: Instruction, binding: Binding) -> None:
        for allocation, box in binding.touched():
            held, elements = self._touch(instruction, allocation, box, binding.cut, writes=True)
            held.versions[elements] = instruction.id
            now = self._now(allocation.array)
            extract(now, (0,) * now.ndim, box, binding.cut)[...] = instruction.id

    def _touch(
        self, instruction: Instruction, allocation: Allocation, box: Box, cut: Any, *, writes: bool
    ) -> tuple[_Held, Elements]:
        held = self._held.get(allocation.id)
        if held is None:
            raise InvariantError(f"{instruction!r} uses {allocation!r}, which was never allocated")
        if held.freed is not None:
            raise InvariantError(f"{instruction!r} uses {allocation!r}, which {held.freed!r} has freed")
        if held.alloc is not None and not self._graph.ordered(held.alloc, instruction):
            raise InvariantError(f"{instruction!r} does not wait for {held.alloc!r} of {allocation!r}")
        elements = held.elements(box, cut)
        for other, theirs, wrote in held.touched:
            if other is instruction or not (writes or wrote) or self._graph.ordered(other, instruction):
                continue
            if np.isin(elements, theirs).any():
                verb = "writes" if writes else "reads"
                raise InvariantError(f"{instruction!r} {verb} {box} of {allocation!r} and does not wait for {other!r}")
        held.touched.append((instruction, elements, writes))
        return held, elements

    def _check_present(self, instruction: Instruction, held: _Held, elements: Elements, box: Box, cut: Any) -> None:
        """Raise unless the elements hold their present version; what was never written may hold anything."""
        now = self._now(held.allocation.array)
        wanted = np.asarray(extract(now, (0,) * now.ndim, box, cut)).ravel()
        found = held.versions[elements]
        wrong = np.flatnonzero((found != wanted) & (wanted != NOTHING))
        if len(wrong):
            at = wrong[0]
            raise InvariantError(
                f"{instruction!r} reads element {at} of {box} of {held.allocation!r}, which holds what "
                f"{_writer(found[at])} wrote; the present value is that of {_writer(wanted[at])}"
            )

    def _free(self, instruction: Instruction, allocation: Allocation) -> None:
        held = self._held.get(allocation.id)
        if held is None or held.freed is not None:
            raise InvariantError(f"{instruction!r} frees {allocation!r}, which is not allocated")
        users = [other for other, _, _ in held.touched] + ([held.alloc] if held.alloc is not None else [])
        for other in users:
            if not self._graph.ordered(other, instruction):
                raise InvariantError(f"{instruction!r} frees {allocation!r} and does not wait for {other!r}")
        held.freed = instruction


def _writer(version: int) -> str:
    return {NOTHING: "nobody", FILLED: "the fill", GIVEN: "the host program"}.get(int(version), f"I{version}")


def _extents(graph: InstructionGraph, given: list[Allocation]) -> dict[int, Box]:
    """Return, per array, a box from the origin that holds all its allocations."""
    extents: dict[int, Box] = {}
    for allocation in [*given, *(a for i in graph.instructions for a in allocations(i))]:
        known = extents.get(allocation.array)
        top = allocation.box.hi if known is None else tuple(map(max, known.hi, allocation.box.hi))
        extents[allocation.array] = whole(top)
    return extents
