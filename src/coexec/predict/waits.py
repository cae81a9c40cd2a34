"""How long runs wait for the interpreter lock, per second that they compute: the median of the means of a few runs each.

Before: nothing.  After: predict/model.py.  Knows seconds; not of what.

Most runs hardly wait and some wait long, and waits add up: so means. But now and then another program takes the core for
a while, which tells nothing about the next run: so the median of several means.
"""

from __future__ import annotations

from collections import deque

from .window import centre

RUNS = 8  # of which a mean is taken
MEANS = 7  # of which the median is taken


class Waits:
    """The waits of one kernel variant under one condition."""

    __slots__ = ("_computed", "_means", "_number", "_waited")

    def __init__(self) -> None:
        self._number, self._waited, self._computed = 0, 0.0, 0.0  # of the runs that are no mean yet
        self._means: deque[float] = deque(maxlen=MEANS)

    def learn(self, waited: float, computed: float) -> None:
        """Take one run."""
        self._number += 1
        self._waited += waited
        self._computed += computed
        if self._number == RUNS:
            self._means.append(self._share())
            self._number, self._waited, self._computed = 0, 0.0, 0.0

    @property
    def share(self) -> float:
        """Seconds waited per second computed."""
        return centre(self._means) if self._means else self._share()

    def _share(self) -> float:
        return self._waited / self._computed if self._computed else 0.0
