"""Who is told when a program does something odd with its arrays, and the odd things themselves, found by box.

Before: lower/state.py.  After: lower/lowering.py; observe/ answers.  Knows no policy: whoever watches decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from ..geometry import Box
from ..graph.task import Task
from .state import ArrayState
from .touch import Touch


class Unwritten(NamedTuple):
    """A box that a parameter reads although nobody has written it and it has no initial value."""

    name: str
    state: ArrayState
    box: Box


class LoweringWatch(Protocol):
    """Whoever wants to know. Asked on the analysed way only: what is warm and in place has nothing to tell."""

    def unwritten(self, task: Task, found: Sequence[Unwritten]) -> None:
        """Take note of reads of what nobody wrote. May raise: nothing has been lowered yet."""

    def grew(self, task: Task | None, state: ArrayState, memory: int) -> None:
        """Take note that an allocation was replaced by a larger one."""

    def dropped(self, array: int) -> None:
        """Forget an array."""


def look(watch: LoweringWatch, task: Task, chunks: Iterable[Iterable[Touch]]) -> None:
    """Tell who watches what the task reads, or its reductions add to, although nobody has written it."""
    blind = task.kernel is not None and task.kernel.blind
    reads = (
        (touch.name, touch.state, part)
        for touches in chunks
        for touch in touches
        if touch.reads and touch.strict and not touch.state.valid.uniform and not (blind and touch.writes)
        for part in touch.parts()
    )
    look_at(watch, task, chain(reads, _added_to(task)))


def look_at(watch: LoweringWatch, task: Task, reads: Iterable[tuple[str, ArrayState, Box]]) -> None:
    """Tell who watches which parts of `reads` nobody has written."""
    found: list[Unwritten] = []
    for name, state, box in reads:
        pattern = state.valid.pattern
        if pattern is not None and pattern.complete:
            continue  # everything was written
        if not state.valid.uniform and not box.empty:  # None: it depends on the element; 0: nobody wrote anything
            found += [Unwritten(name, state, part) for part, mask in state.valid.get(box) if not mask]
    if found:
        watch.unwritten(task, found)


def _added_to(task: Task) -> Iterable[tuple[str, ArrayState, Box]]:
    if task.kernel is not None and task.kernel.reduces:
        for (name, _, access), array in zip(task.accesses, task.arrays, strict=True):
            if access.operator is not None and not access.operator.fresh:
                yield name, array._storage.state, array._box
