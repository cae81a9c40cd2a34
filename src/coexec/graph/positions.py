"""Ids by position: what takes them out of a list in which all ids of a call stand, and puts them into the next one.

Before: nothing.  After: graph/edge_cache.py, lower/recipe.py.  An entry of the list is an id, or a list of readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

Get = Callable[[list[Any]], tuple[Any, ...]]
OFTEN = 16  # times that something is filled in before a function is written for it
MOST_WRITTEN = 256  # positions for which one is


def written(text: str, names: Mapping[str, Any]) -> Any:
    """Return the function `fill` of a text that consists of positions and names of ours alone."""
    space = dict(names)
    exec(text, space)  # noqa: S102 - written by the functions of this module and of lower/recipe.py, of numbers
    return space["fill"]


def several(position: int) -> str:
    """Return the expression of what may be a list of readers, as a tuple."""
    return f"(x,) if type(x := slots[{position}]) is int else tuple(x)"


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

    __slots__ = ("get", "ids", "readers")

    def __init__(self, ids: tuple[int, ...], readers: tuple[int, ...]) -> None:
        self.ids = ids
        self.readers = readers  # where there may be lists of readers
        self.get = getter(ids)

    @classmethod
    def of(cls, positions: Collection[int], readers: Collection[int]) -> Edges:
        """Return the edges of these positions, of which those in `readers` may be lists."""
        each = sorted(set(positions))
        return cls(tuple([i for i in each if i not in readers]), tuple([i for i in each if i in readers]))

    def fill(self, slots: list[Any]) -> set[int]:
        """Return the ids."""
        found = set(self.get(slots))
        for i in self.readers:
            more = slots[i]
            if type(more) is int:
                found.add(more)
            else:
                found.update(more)
        return found


class Positions:
    """The ids of a form, as positions in the slots: one for an id, several for a list of readers."""

    __slots__ = ("_fills", "_firsts", "_growing", "_joined", "_written", "get", "plain")

    def __init__(self, positions: Sequence[Sequence[int]]) -> None:
        uses = Counter([i for several in positions for i in several])
        self._firsts = [several[0] for several in positions]
        self.get = getter(self._firsts)  # all there is to do where `plain`
        several = [(number, those) for number, those in enumerate(positions) if len(those) > 1]
        # A list that nobody else goes on with, and that one reader joins, is the usual case.
        growing = [(n, *those) for n, those in several if len(those) == 2 and uses[those[0]] == 1]
        self._growing: tuple[tuple[int, int, int], ...] = tuple(growing)  # type: ignore[arg-type]
        self._joined = tuple([(n, tuple(those)) for n, those in several if (n, *those) not in growing])
        self.plain = not several  # no list of readers is made or grows
        self._fills = 0
        self._written: Callable[[list[Any]], list[Any]] | None = (
            None  # the same as `fill`, written out for these positions
        )

    def fill(self, slots: list[Any]) -> list[Any]:
        """Return the ids. A list that only grows is the same one as before."""
        if self._written is not None:
            return self._written(slots)
        self._fills += 1
        if (
            self._fills == OFTEN
            and len(self._firsts) <= MOST_WRITTEN
            and sum(map(len, self._each())) <= 4 * MOST_WRITTEN
        ):
            self._written = written(self.text(), {"_listed": _listed})
        ids = list(self.get(slots))
        for number, first, more in self._growing:
            known, new = slots[first], slots[more]
            if type(known) is list and type(new) is int:
                known.append(new)
            else:
                ids[number] = _listed(known) + _listed(new)
        for number, those in self._joined:
            ids[number] = [id for i in those for id in _listed(slots[i])]
        return ids

    def _each(self) -> list[tuple[int, ...]]:
        """Return the positions of each list that is put together."""
        return [those for _, those in self._joined]

    def text(self) -> str:
        """Return the text of `fill` for these positions alone, without loops."""
        entries = [f"slots[{position}]" for position in self._firsts]
        lines = ["def fill(slots):"]
        for number, first, more in self._growing:
            entries[number] = f"l{number}"
            lines += [
                f"    l{number} = slots[{first}]; x = slots[{more}]",
                f"    if type(l{number}) is list and type(x) is int: l{number}.append(x)",
                f"    else: l{number} = _listed(l{number}) + _listed(x)",
            ]
        for number, those in self._joined:  # after those that grow, which may be among them
            entries[number] = f"l{number}"
            parts = ", ".join([f"*((x,) if type(x := slots[{i}]) is int else x)" for i in those])
            lines.append(f"    l{number} = [{parts}]")
        return "\n".join([*lines, f"    return [{', '.join(entries)}]"])


def _listed(ids: Any) -> list[int]:
    return [ids] if type(ids) is int else ids
