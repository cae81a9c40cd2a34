"""Handles of calls that several ranks make: of all ranks in one process, or of one rank in a process of its own.

Before: graph/task.py.  After: ranked.py, joined.py.  Waiting is the owner's business, as for any task.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from typing import Any, NamedTuple

from ..graph.task import Owner, Task
from ..program.array import Array
from ..program.fuse import Line
from ..program.kernel import Kernel


class Everywhere(Task):
    """A task on every rank: over when all of its parts are."""

    def __init__(self, parts: Sequence[Task], owner: Owner) -> None:
        super().__init__(parts[0].id, parts[0].name, parts[0].kernel, owner)
        self.parts = parts

    @property
    def over(self) -> bool:
        """Whether every rank is done with it."""
        if all(part.finished for part in self.parts):
            self.finished = True
            self.failure = next((part.failure for part in self.parts if part.failure is not None), None)
        return self.finished

    def done(self) -> bool:
        """Tell whether the task is over: finished, failed or cancelled."""
        return self.over


class Dealt(Task):
    """A task of which this rank has a part: over when every rank has said so, and failed if it failed on one of them."""

    def __init__(self, part: Task, owner: Owner) -> None:
        super().__init__(part.id, part.name, part.kernel, owner)
        self.here = part

    def done(self) -> bool:
        """Tell whether this rank's part is over. Others may answer otherwise: ask `wait` before you decide anything."""
        return self.here.finished


class Chained(NamedTuple):
    """A chain of elementwise operations, whose arguments are bound to the arrays that the program knows."""

    kernel: Kernel
    arrays: list[Array]
    scalars: dict[str, Any]
    context: Context
    line: Line
