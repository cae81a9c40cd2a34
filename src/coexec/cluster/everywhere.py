"""The handle of a call that several ranks of one process make.

Before: graph/task.py.  After: ranked.py.  Waiting is the owner's business, as for any task.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.task import Owner, Task


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
