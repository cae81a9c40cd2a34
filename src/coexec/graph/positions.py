"""Ids by position: what takes them out of a list in which all ids of a call stand, and puts them into the next one.

Before: nothing.  After: graph/links.py, lower/recipe.py.  An entry of the list is an id, or a list of readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

Get = Callable[[list[Any]], tuple[Any, ...]]


def _nothing(slots: list[Any]) -> tuple[Any, ...]:
    del slots
    return ()


def getter(positions: Sequence[int]) -> Get:
    """Return what takes these positions out of the slots, as a tuple."""
    if not positions:
        return _nothing
    if len(positions) == 1:
        only = positions[0]
        return lambda slots: (slots[only],)
    return itemgetter(*positions)


class Edges:
    """What comes before something, as positions in the slots."""

    __slots__ = ("_get", "_several", "ids", "readers")

    def __init__(self, ids: tuple[int, ...], readers: tuple[int, ...]) -> None:
        self.ids = ids
        self.readers = readers  # where there may be lists of readers
        self._get = getter(ids)
        self._several = len(ids) > 1

    @classmethod
    def of(cls, positions: Collection[int], readers: Collection[int]) -> Edges:
        """Return the edges of these positions, of which those in `readers` may be lists."""
        each = sorted(set(positions))
        return cls(tuple([i for i in each if i not in readers]), tuple([i for i in each if i in readers]))

    def fill(self, slots: list[Any]) -> tuple[int, ...]:
        """Return the ids, each once."""
        ids = self._get(slots)
        if not self.readers:
            return tuple(set(ids)) if self._several else ids
        found = set(ids)
        for i in self.readers:
            more = slots[i]
            if type(more) is int:
                found.add(more)
            else:
                found.update(more)
        return tuple(found)


class Growing(NamedTuple):
    """A list of readers: which number of a form it has, and what it is made of, as positions in the slots."""

    number: int
    first: int
    more: tuple[int, ...]
    alone: bool  # nobody else goes on with the first, which may be a list

    def fill(self, slots: list[Any]) -> list[int]:
        """Return the readers."""
        known = slots[self.first]
        found = [known] if type(known) is int else known if self.alone else known[:]
        for i in self.more:
            more = slots[i]
            if type(more) is int:
                found.append(more)
            else:
                found += more
        return found


class Places:
    """The ids of a form, as positions in the slots: one for an id, several for a list of readers."""

    __slots__ = ("_get", "_growing")

    def __init__(self, positions: Sequence[Sequence[int]]) -> None:
        uses = Counter([i for several in positions for i in several])
        self._get = getter([several[0] for several in positions])
        self._growing = tuple(
            [Growing(n, p[0], tuple(p[1:]), uses[p[0]] == 1) for n, p in enumerate(positions) if len(p) > 1]
        )

    def fill(self, slots: list[Any]) -> list[Any]:
        """Return the ids. A list that only grows is the same one as before."""
        ids = list(self._get(slots))
        for growing in self._growing:
            ids[growing.number] = growing.fill(slots)
        return ids
