"""Whether the parts of a task are independent: no part touches what another one writes.

Before: graph/task_graph.py.  After: plan/planner.py.  Knows boxes; warns once per kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from ..geometry import Box, Grid, grids_meet, overlap
from ..graph.command import Chunk
from ..graph.mapped import remembered
from ..graph.overlaps import Overlap, overlaps_of
from ..graph.task import Task
from ..graph.task_graph import touched_boxes
from ..program.mapper import Same
from ..program.view import grid_of

REMEMBERED = 256  # divisions that were looked at


class Use(NamedTuple):
    """One box that one part touches."""

    part: Box  # of the index space
    name: str  # of the parameter
    writes: bool
    box: Box
    grid: Grid | None
    device: str = ""


class Conflict(NamedTuple):
    """Two parts, one of which writes what the other one touches, and where."""

    first: Use
    second: Use
    where: Box

    @property
    def both_write(self) -> bool:
        """Whether which value stays would depend on who is last."""
        return self.first.writes and self.second.writes

    def __str__(self) -> str:
        one, other = self.first, self.second
        return (
            f"part {one.part} {_verb(one)} and part {other.part} {_verb(other)}, which share {self.where} of the array"
        )


Tell = Callable[[Task, str, bool], None]
"""Takes the task, what is wrong, and whether two parts write the same elements. May raise."""


def nobody(task: Task, text: str, both_write: bool) -> None:
    """Tell nobody."""
    del task, text, both_write


class Conflicts:
    """Finds conflicts between parts, and tells."""

    def __init__(self, tell: Tell = nobody) -> None:
        self._tell = tell
        self._known: dict[Hashable, bool] = {}

    def independent(self, task: Task, chunks: Sequence[Chunk]) -> bool:
        """Tell whether no chunk touches what a sibling writes; the first time one does, somebody is told."""
        if however_cut(task):
            return True
        key = _key(task, chunks)
        known = self._known.get(key)
        if known is None:
            conflict = find_conflict(task, [chunk.box for chunk in chunks], [chunk.device for chunk in chunks])
            if conflict is not None:
                self._tell(task, _text(task, conflict), conflict.both_write)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[key] = conflict is None
        return known


def _text(task: Task, conflict: Conflict) -> str:
    return (
        f"kernel {task.name!r} ({task.call}:{task.line}): one part would touch what another part writes (the same array "
        f"twice, or an output wider than its chunk), so it runs undivided: {conflict}"
    )


def apart(task: Task) -> bool:
    """Tell whether parts write their own points and nothing more, however the task is cut along its declared axes."""
    known = remembered(task)
    answer: bool | None = known.get("apart") if known is not None else None
    if answer is None:
        last = max(task.kernel.split, default=-1) if task.kernel is not None else -1
        answer = all(
            not p.access.writes or p.access.mode == "reduce" or (isinstance(p.access.mapper, Same) and a.ndim > last)
            for p, a in zip(task.accesses, task.arrays, strict=True)
        )
        if known is not None:
            known["apart"] = answer
    return answer


def however_cut(task: Task) -> bool:
    """Tell whether parts are independent, however the task is cut along its declared axes, wherever they run."""
    return apart(task) and (task.once or all(_cut_alike(task, pair) for pair in overlaps_of(task)))


def _cut_alike(task: Task, pair: Overlap) -> bool:
    """Tell whether each part touches through one parameter only what it touches itself through the other."""
    if not pair.meet and not pair.both_write:
        return True
    kernel = task.kernel
    last = max(kernel.split, default=-1) if kernel is not None else -1
    return pair.same and all(
        isinstance(task.accesses[i].access.mapper, Same) and task.arrays[i].ndim > last for i in pair[:2]
    )


def find_conflict(task: Task, parts: Sequence[Box], devices: Sequence[str] = ()) -> Conflict | None:
    """Return the first two of `parts` one of which writes what the other one touches, or None.

    What one device writes is taken from its memory as a whole, with what lies between. So parts of different `devices`
    must not write between each other's elements either.
    """
    by_storage: dict[int, list[Use]] = {}
    for part, device in zip(parts, devices or ("",) * len(parts), strict=True):
        for param, array in zip(task.accesses, task.arrays, strict=True):
            if param.access.mode != "reduce" and array.size:  # each part reduces into an array of its own
                hull, boxes = touched_boxes(task, param.access, array, part)
                uses = by_storage.setdefault(id(array._storage), [])
                for box in boxes or (hull,):
                    grid = None if array._grid is None else grid_of(box, array._cut)
                    uses.append(Use(part, param.name, param.access.writes, box, grid, device))
    for uses in by_storage.values():
        if any(use.writes for use in uses):
            for one, other in _neighbours([use for use in uses if not use.box.empty]):
                where = overlap(one.box, other.box)
                if where is not None and (_interleaved(one, other) or grids_meet(where, one.grid, other.grid)):
                    first, second = sorted((one, other), key=lambda use: use.part.lo)
                    return Conflict(first, second, where)
    return None


def _interleaved(one: Use, other: Use) -> bool:
    """Tell whether two devices write inside a hull of each other."""
    return one.writes and other.writes and one.device != other.device


def _neighbours(uses: list[Use]) -> Iterator[tuple[Use, Use]]:
    """Yield pairs of different parts, one of which writes, whose boxes share a position along the first axis."""
    active: list[Use] = []
    for use in sorted(uses, key=lambda use: use.box.lo):
        low = use.box.lo[:1]
        active = [other for other in active if not low or other.box.hi[:1] > low]
        for other in active:
            if other.part is not use.part and (other.writes or use.writes):
                yield other, use
        active.append(use)


def _key(task: Task, chunks: Sequence[Chunk]) -> Hashable:
    numbers: dict[int, int] = {}
    arrays = [(numbers.setdefault(id(a._storage), len(numbers)), a._box, a._cut) for a in task.arrays]
    return task.kernel, tuple([(chunk.box, chunk.device) for chunk in chunks]), tuple(arrays), task.extents


def _verb(use: Use) -> str:
    return f"{'writes' if use.writes else 'reads'} {use.box} as {use.name!r}"
