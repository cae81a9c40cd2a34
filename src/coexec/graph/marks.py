"""Horizons and epochs: which trackers they will stand for everything older in.

Before: nothing.  After: graph/task_graph.py, lower/emit.py.  Knows ids, and who remembers them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol


class Remembering(Protocol):
    """What remembers ids."""

    def collapse(self, horizon: int, keep: Collection[int] = ()) -> None:
        """Replace everything older than `horizon` by it, except the ids in `keep`."""


class Marks:
    """Which trackers were touched before each horizon or epoch that has not taken effect yet."""

    def __init__(self) -> None:
        self.touched: set[Remembering] = set()  # since the last mark
        self.count = 0  # marks so far
        self._marked: list[tuple[int, set[Remembering]]] = []

    @property
    def last(self) -> int | None:
        """The newest mark that has not taken effect."""
        return self._marked[-1][0] if self._marked else None

    def mark(self, id: int) -> None:
        """Note a horizon or an epoch."""
        self._marked.append((id, self.touched))
        self.touched = set()
        self.count += 1

    def copy(self, twins: Mapping[Any, Remembering]) -> Marks:
        """Return the same marks, of those who have a twin."""
        made = Marks()
        made.count = self.count
        made.touched = {twins[one] for one in self.touched if one in twins}
        made._marked = [(id, {twins[one] for one in touched if one in twins}) for id, touched in self._marked]
        return made

    def passed(self, id: int, keep: Collection[int] = ()) -> None:
        """Let a mark stand for everything before it, except the ids in `keep`."""
        while self._marked and self._marked[0][0] <= id:
            for tracker in self._marked.pop(0)[1]:
                tracker.collapse(id, keep)
