"""Python loops over blocks of rows, `for lo in range(0, n, rows)`: traced once, for a block whose place is not known.

Before: compile/cells.py.  After: compile/scope.py; compile/blocks.py decides whether the blocks may become the whole.
Knows Python's frames and bytecode.

One turn of the loop stands for all of them if each does the same: nothing that the body decides may depend on the block
(compile/host.py refuses that), and no Python value may be carried from one turn to the next. The bytecode tells which
names are read before they are written again; these must hold the same objects after the turn, unchanged.
"""

from __future__ import annotations

import dis
import operator
import re
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from .bounds import low_of
from .cells import Loop, TraceTape
from .host import Block, Host, plain
from .refused import Untraceable

NAMES = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|DEREF|CLOSURE)")
ENDS = ("RETURN", "RAISE", "RERAISE")
COLLECTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD", "YIELD_VALUE")


class Blocks:
    """What `range(start, stop, step)` of a traced body gives if the extent is known at a call only."""

    def __init__(self, tape: TraceTape, start: Any, stop: Any, step: Any) -> None:
        self._tape, self._ends = tape, (start, stop, step)

    def _plainly(self) -> range:
        return range(*(operator.index(end) for end in self._ends))

    def __len__(self) -> int:
        return len(self._plainly())

    def __getitem__(self, key: Any) -> Any:
        return self._plainly()[key]

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        at = _loop_at(frame)
        return iter(self._plainly()) if at is None else _OneTurn(self._tape, self._ends, frame, at)


class _OneTurn:
    """Gives one block, and looks afterwards at what the turn has left behind."""

    def __init__(self, tape: TraceTape, ends: tuple[Any, Any, Any], frame: FrameType, at: int) -> None:
        self._tape, self._ends, self._frame, self._at = tape, ends, frame, at
        self._loop: Loop | None = None
        self._before: dict[str, Any] = {}
        self._inside: dict[str, Any] = {}

    def __iter__(self) -> _OneTurn:
        return self

    def __next__(self) -> Any:
        guards = self._tape.guards
        if self._loop is None:
            start, stop, step = self._ends
            if not (stop > start and step > 0):
                raise Untraceable("a loop in it has no turn")
            number = len(self._tape.loops)
            block = Block(f"coexec_low{number}_", f"coexec_high{number}_", start, stop, step)
            guards.blocks.append(block)
            self._before = dict(self._frame.f_locals)
            self._inside = {key: _contents(value) for key, value in self._before.items()}
            self._loop = self._tape.open_loop(block)
            return low_of(block, guards)
        self._check()
        self._tape.close_loop(self._loop)
        raise StopIteration

    def _check(self) -> None:
        after = self._frame.f_locals
        missing = object()
        for name in _carried(self._frame.f_code, self._at):
            if after.get(name, missing) is not self._before.get(name, missing):
                raise Untraceable(f"its loop over blocks carries {name} from one block to the next")
        for name, held in self._inside.items():
            if _contents(self._before[name]) != held:
                raise Untraceable(f"its loop over blocks changes {name}")


def blocks(tape: TraceTape, *ends: Any) -> Any:
    """Return what `range` gives a traced body."""
    if len(ends) == 3 and isinstance(ends[1], Host) and all(type(plain(end)) is int for end in ends):
        start, stop, step = ends
        if plain(step) > 1 and plain(stop) - plain(start) > 1 and not isinstance(start, Host):
            return Blocks(tape, start, stop, step)
    return range(*ends)


def _contents(value: Any) -> Any:
    """Return what tells whether something was put into a container; iterators are containers that nobody can look into."""
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), tuple(_contents(entry) for entry in value)
    if isinstance(value, dict):
        return dict, tuple((id(key), _contents(entry)) for key, entry in value.items())
    if hasattr(type(value), "__next__"):
        raise Untraceable("it has an iterator beside a loop over blocks")
    return id(value)


# Bytecode ---------------------------------------------------------------------------------------------------------------


def _loop_at(frame: FrameType) -> int | None:
    """Return the number of the instruction FOR_ITER that a frame is about to begin; None if that is no plain loop."""
    found = [i for i in dis.get_instructions(frame.f_code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    at = next((n for n, i in enumerate(found) if i.offset == frame.f_lasti), None)
    if at is None or found[at].opname != "GET_ITER" or found[at + 1].opname != "FOR_ITER":
        return None
    inside = _reached(found, at + 1)
    return None if any(found[n].opname in COLLECTS for n in inside) else at + 1


def _next_of(found: list[dis.Instruction], number: int, places: dict[int, int]) -> list[int]:
    """Return the instructions that may follow one."""
    instruction = found[number]
    name = instruction.opname
    follows = [] if name.startswith(ENDS) else [number + 1]
    if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
        target = places[instruction.argval]
        follows = [target] if name.startswith("JUMP_") and "_IF_" not in name else [*follows, target]
    return [n for n in follows if n < len(found)]


def _reached(found: list[dis.Instruction], loop: int) -> set[int]:
    """Return the instructions of a loop's turn, and what can be reached by leaving it early."""
    places = _places(found)
    stack, seen = [loop + 1], {loop}
    while stack:
        number = stack.pop()
        if number not in seen:
            seen.add(number)
            stack += _next_of(found, number, places)
    return seen - {loop}


def _places(found: list[dis.Instruction]) -> dict[int, int]:
    """Return the instruction at each offset; jumps may aim at what was left out before one."""
    places: dict[int, int] = {}
    offset = 0
    for number, instruction in enumerate(found):
        while offset <= instruction.offset:
            places[offset] = number
            offset += 2
    return places


def _carried(code: CodeType, loop: int) -> set[str]:
    """Return the names that a turn may read before it writes them, and writes."""
    found = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    places, inside = _places(found), _reached(found, loop)
    uses: dict[int, set[str]] = {}
    sets: dict[int, set[str]] = {}
    for number in inside:
        uses[number], sets[number] = set(), set()
        argval = found[number].argval
        named = argval if isinstance(argval, tuple) else (argval,) * 2
        for word, name in zip(NAMES.findall(found[number].opname), named, strict=False):
            if word != "LOAD":
                sets[number].add(str(name))
            elif name not in sets[number]:
                uses[number].add(str(name))
    live: dict[int, set[str]] = {number: set() for number in inside}
    changed = True
    while changed:
        changed = False
        for number in sorted(inside, reverse=True):
            after = set().union(*(live[n] for n in _next_of(found, number, places) if n in live))
            now = uses[number] | (after - sets[number])
            if now != live[number]:
                live[number], changed = now, True
    written = set().union(*sets.values())
    return live.get(loop + 1, set()) & written
