"""What is remembered of an array but for the ids: two that are alike have the same form.

Before: geometry/.  After: graph/tracker.py, graph/edge_cache.py, lower/.  Knows ids by which of them are equal, and no more.
"""

from __future__ import annotations

from typing import Any

Form = tuple[Any, ...]
"""What a tracker remembers but for the ids. In their place are numbers: equal ones for equal ids."""
Ids = list[int | list[int]]
"""What the numbers of a form stand for: an id, or a list of readers."""


class FoldedForm:
    """A form that is remembered: two trackers of one form have the same object."""

    __slots__ = ("form", "readers", "size")

    def __init__(self, form: Form, size: int, readers: frozenset[int]) -> None:
        self.form = form
        self.size = size  # how many ids, or lists of readers, it has
        self.readers = readers  # which of them may be lists of readers


class Numbering:
    """Gives numbers to ids, the same to equal ones; and to lists of several readers, likewise."""

    __slots__ = ("_known", "ids", "several_at")

    def __init__(self) -> None:
        self.ids: Ids = []  # by number
        self.several_at: set[int] = set()  # numbers that only stand for readers, of which there may be more next time
        self._known: dict[int | tuple[int, ...], int] = {}

    def one(self, id: int) -> int:
        """Return the number of an id."""
        number = self._known.get(id)
        if number is None:
            number = self._known[id] = len(self.ids)
            self.ids.append(id)
        else:
            self.several_at.discard(number)
        return number

    def several(self, ids: list[int]) -> int:
        """Return the number of a list of readers; one that reads the same twice counts once."""
        ids = list(dict.fromkeys(ids))
        key = ids[0] if len(ids) == 1 else tuple(ids)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.ids)
            self.ids.append(ids[0] if len(ids) == 1 else ids)
            self.several_at.add(number)
        return number
