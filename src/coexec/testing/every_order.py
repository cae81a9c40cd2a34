"""Run emitted instructions on model memory in every order that their edges allow, and find any two that disagree.

Before: testing/model_memory.py, testing/queries.py.  After: tests.  Knows no engine, lane or thread.

Orders are too many to run one by one. But which instructions are over must determine what memory holds: so each such set
is reached once by every last step that leads to it, and all must leave the same bytes. Then, by induction, all orders do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..backend.launch import set_data
from ..errors import InvariantError
from ..graph.instruction import Free, Instruction
from .model_memory import perform, release
from .queries import allocations, written_by

Memory = dict[int, np.ndarray[Any, Any]]
"""What each allocation that has memory holds, by its id. The arrays are shared between states and never changed."""


def every_order(
    instructions: Sequence[Instruction],
    over: Callable[[Instruction], None] = lambda _: None,
    *,
    limit: int = 5000,
) -> int:
    """Take every step of every legal order; return how many sets of finished instructions there are.

    `over` is called after each step, and may look at what a host read was given. Raises InvariantError if two orders
    leave different values, or if there are more than `limit` sets: a test that claims to try everything must.
    """
    before = _before(instructions)
    level: dict[int, Memory] = {0: {a.id: a.data for i in instructions for a in allocations(i) if a.data is not None}}
    found = 0
    while level:
        found += len(level)
        if found > limit:
            raise InvariantError(f"more than {limit} sets; make the program smaller or sample its orders")
        following: dict[int, Memory] = {}
        for done, memory in level.items():
            for number in _ready(before, done):
                instruction = instructions[number]
                after = _step(instruction, memory)
                over(instruction)
                _agree(instruction, following.setdefault(done | 1 << number, after), after)
        level = following
    return found


def few_orders(instructions: Sequence[Instruction], limit: int) -> bool:
    """Tell whether `every_order` would find no more than `limit` sets. Runs nothing."""
    before = _before(instructions)
    level, found = {0}, 0
    while level and found <= limit:
        found += len(level)
        level = {done | 1 << number for done in level for number in _ready(before, done)}
    return found <= limit


def _before(instructions: Sequence[Instruction]) -> list[int]:
    """Return, per instruction, the places of those it directly comes after, as bits."""
    place = {instruction.id: number for number, instruction in enumerate(instructions)}
    return [sum({1 << place[id] for id in (*i.needs, *i.after) if id in place}) for i in instructions]


def _ready(before: Sequence[int], done: int) -> Iterator[int]:
    return (number for number, bits in enumerate(before) if not done >> number & 1 and not bits & ~done)


def _step(instruction: Instruction, memory: Memory) -> Memory:
    """Return what memory holds when `instruction` has run on it."""
    changed = {a.id for a in written_by(instruction)}
    for allocation in allocations(instruction):
        data = memory.get(allocation.id)
        if data is None:
            release(allocation)
        else:
            set_data(allocation, data.copy() if allocation.id in changed else data)
    perform(instruction)
    if isinstance(instruction.step, Free):
        return {id: data for id, data in memory.items() if id != instruction.step.allocation.id}
    return {**memory, **{a.id: a.data for a in written_by(instruction)}}


def _agree(last: Instruction, known: Memory, other: Memory) -> None:
    if known is other:
        return
    for id, data in known.items():
        if data is not other.get(id) and (id not in other or data.tobytes() != other[id].tobytes()):
            raise InvariantError(f"allocation {id} depends on the order: not the same when {last!r} comes last")
    if len(known) != len(other):
        raise InvariantError(f"what is allocated depends on the order: not the same when {last!r} comes last")
