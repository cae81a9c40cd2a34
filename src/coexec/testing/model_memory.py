"""Run emitted instructions on model memory, one after another, in any order that their edges allow.

Before: backend/launch.py.  After: tests.  Knows no engine, lane or thread: an instruction runs whole or not at all.

Allocations begin as NaN, and freed ones have no data, so a missing edge or copy shows in the values of some order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

import numpy as np

from ..backend.launch import run, set_data
from ..errors import InvariantError
from ..graph.instruction import Alloc, Allocation, Epoch, Free, Horizon, Instruction, Join

Choose = Callable[[Sequence[Instruction]], Instruction]
"""Picks the next one among those that may run."""


def allocate(allocation: Allocation) -> None:
    """Back an allocation with memory that holds nothing useful."""
    kind = allocation.dtype.kind
    useless = np.nan if kind in "fc" else allocation.dtype.type(77) if kind in "iu" else np.zeros((), allocation.dtype)
    set_data(allocation, np.full(allocation.box.shape, useless, allocation.dtype))


def release(allocation: Allocation) -> None:
    """Take an allocation's memory away."""
    allocation.data = allocation.frozen = None


def perform(instruction: Instruction) -> None:
    """Do what one instruction says, on model memory."""
    match instruction.step:
        case Alloc(allocation=allocation):
            allocate(allocation)
        case Free(allocation=allocation):
            release(allocation)
        case Horizon() | Epoch() | Join():
            pass
        case _:
            run(instruction.task, instruction.step)


def at_random(seed: int) -> Choose:
    """Return a choice that is random but repeats."""
    random = Random(seed)
    return lambda ready: ready[random.randrange(len(ready))]


def run_all(instructions: Iterable[Instruction], choose: Choose = lambda ready: ready[0]) -> dict[int, BaseException]:
    """Run everything in an order of `choose`'s liking that keeps the edges; return who failed, by id, and why.

    What needs the result of a failed instruction fails with the same error, and does not run.
    """
    waiting = {instruction.id: instruction for instruction in instructions}
    open_edges = {
        id: {edge for edge in (*i.needs, *i.after) if edge in waiting and edge != id} for id, i in waiting.items()
    }
    failed: dict[int, BaseException] = {}
    while waiting:
        ready = [i for id, i in waiting.items() if not open_edges[id]]
        if not ready:
            raise InvariantError(f"nothing can run: {list(waiting.values())} wait for each other")
        instruction = choose(ready)
        reasons = [failed[id] for id in instruction.needs if id in failed]
        if reasons:
            failed[instruction.id] = reasons[0]
        else:
            try:
                perform(instruction)
            except Exception as error:  # noqa: BLE001 - whatever a body raises
                failed[instruction.id] = error
        del waiting[instruction.id]
        for edges in open_edges.values():
            edges.discard(instruction.id)
    return failed
