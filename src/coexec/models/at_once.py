"""Whether a program asks for results as soon as it has called: then its own thread computes a model, and no other has to wake.

Before: program/session.py.  After: models/whole.py.  Knows no device; times are arguments.

Handing a call to a device's thread, and waking up when it is over, costs some 200 microseconds. A program that does something else
meanwhile gains more than that; one that asks at once gains nothing. What it did after its last calls tells which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

NEAR = 100e-6
"""Seconds between a call's return and the program's question, up to which it has done nothing else."""
SURE, MOST = 3, 6
"""Calls with such a question until the program is expected to ask at once; and how many are counted at most."""
MISSED = 2
"""What a call without one takes from the count: a machine with other work makes some programs late."""


class AtOnce:
    """What a program did after its calls, in one runtime."""

    __slots__ = ("_count", "_recorded", "_results", "_returned", "here", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads  # with which the program's thread may compute; 0 if it may not
        self.here = False  # it computes, and the device's thread keeps no helpers
        self._count, self._returned, self._recorded, self._results = 0, 0.0, 0, 0

    def expected(self, asked: float, recorded: int) -> bool:
        """Tell whether the program will ask at once. It did so `asked` last, and `recorded` tasks in all."""
        if not self._returned:
            return False
        near = self._returned <= asked <= self._returned + NEAR and recorded - self._recorded <= self._results
        self._count = min(self._count + 1, MOST) if near else max(self._count - MISSED, 0)
        self._returned = 0.0
        return self._count >= SURE

    def returned(self, now: float, recorded: int, results: int) -> None:
        """Note that a call has returned, with so many results: reading each of them is a task."""
        self._returned, self._recorded, self._results = now, recorded, results


_turns: WeakKeyDictionary[Any, AtOnce] = WeakKeyDictionary()


def turns_of(runtime: Any, threads: Callable[[Any], int]) -> AtOnce:
    """Return what is known of the program that uses a runtime. `threads` tells with how many it may compute."""
    found = _turns.get(runtime)
    if found is None:
        found = _turns[runtime] = AtOnce(threads(runtime))
    return found
