"""Find repetition in what a program does: the same calls on the same arrays, or on new ones in their place.

Before: program/.  After: plan/decisions.py.  Knows events by what they are; never how they are planned.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

LONGEST = 256  # events of the longest repetition that is recognised
LOOKS = 64  # earlier occurrences of an event that a repetition may begin with


class Event(NamedTuple):
    """A call."""

    what: Hashable  # equal for calls that are planned alike, on the same arrays
    arrays: tuple[int, ...]  # ids
    births: int  # how many arrays there were before


def repeats(now: Event, then: Event) -> bool:
    """Tell whether `now` is `then` once more: on the same arrays, or on younger ones by as many as were made since."""
    what, arrays, births = now
    earlier, before, births_then = then
    if what != earlier or len(arrays) != len(before):
        return False
    if arrays == before:
        return True
    made = births - births_then
    if not made:
        return False  # on others, and none of them is new
    for a, b in zip(arrays, before):  # noqa: B905, SIM110 - equally long, and a generator costs more
        if a != b and a - b != made:
            return False
    return True


class Repeats:
    """Watches events, and tells after each how long it has been repeating what came before."""

    def __init__(self) -> None:
        self._log: list[Event] = []
        self._first = 0  # number of the first event in the log
        self._seen: dict[Hashable, list[int]] = {}
        self.period = 0  # events after which everything comes again; 0: nothing does
        self.run = 0  # events for which that has been so

    def add(self, event: Event) -> None:
        """Take the next event."""
        log, period, (what, arrays, _) = self._log, self.period, event
        number = self._first + len(log)
        log.append(event)
        before = log[-1 - period] if period else None
        if before is not None and ((before[0] is what and before[1] is arrays) or repeats(event, before)):
            self.run += 1
        else:
            self._look(event, number)
        earlier = self._seen.get(what)
        if earlier is None:
            earlier = self._seen[what] = []
        earlier.append(number)
        if len(earlier) > LOOKS:
            del earlier[0]
        if len(log) > 4 * LONGEST:
            self._forget(2 * LONGEST)

    def _look(self, event: Event, number: int) -> None:
        """Look for an earlier event that this one repeats."""
        self.period = self.run = 0
        for then in reversed(self._seen.get(event.what, ())):
            period = number - then
            if period > LONGEST or then < self._first:
                return
            before = self._log[then - self._first]
            if event[1] == before[1] or (event[2] != before[2] and repeats(event, before)):
                self.period, self.run = period, 1
                return

    def _forget(self, count: int) -> None:
        del self._log[:count]
        self._first += count
        self._seen = {
            what: kept for what, seen in self._seen.items() if (kept := [n for n in seen if n >= self._first])
        }

    def last(self, count: int) -> list[Event]:
        """Return the last events."""
        return self._log[-count:]
