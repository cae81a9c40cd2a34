"""Whether the parts of a task are independent: no part touches what another one writes.

Before: graph/task_graph.py.  After: plan/planner.py.  Knows boxes; warns once per kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import combinations

from ..errors import CoexecWarning
from ..geometry import overlaps
from ..graph.command import Chunk
from ..graph.task import Task
from ..graph.task_graph import touched
from ..program.mapper import Same


class Conflicts:
    """Finds conflicts between parts, and says so."""

    def __init__(self, note: Callable[[str], None] | None = None) -> None:
        self._note = note
        self._warned: set[int] = set()

    def independent(self, task: Task, chunks: Sequence[Chunk]) -> bool:
        """Tell whether no chunk touches what a sibling writes; warn once per kernel if one does."""
        storages = {id(array._storage) for array in task.arrays}
        simple = all(not p.access.writes or isinstance(p.access.mapper, Same) for p in task.accesses)
        if simple and len(storages) == len(task.arrays):
            return True
        task.visited = task.box
        touches = [
            [
                (a, p.access.writes, touched(task, p.access, a, chunk.box))
                for p, a in zip(task.accesses, task.arrays, strict=True)
            ]
            for chunk in chunks
        ]
        for mine, theirs in combinations(touches, 2):
            for array, writes, box in mine:
                for other, other_writes, other_box in theirs:
                    if array._storage is other._storage and (writes or other_writes) and overlaps(box, other_box):
                        self._warn(task)
                        return False
        return True

    def _warn(self, task: Task) -> None:
        if id(task.kernel) not in self._warned:
            self._warned.add(id(task.kernel))
            text = (
                f"kernel {task.name!r} ({task.call}:{task.line}): one part would touch what another part writes (the "
                "same array twice, or an output wider than its chunk), so it runs undivided"
            )
            warnings.warn(text, CoexecWarning, stacklevel=2)
            if self._note is not None:
                self._note(text)
