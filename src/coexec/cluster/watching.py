"""Whether all ranks wait for each other: each that waits tells rank 0 how it stands, which sees when nothing can happen.

Before: nothing.  After: cluster/team.py.  The judge is pure; the watch is a thread that looks now and then while the program waits.

It is no question of time. Every program waits, no rank computes, and as many packets were taken as were sent: then nothing
will ever happen, however long anybody waits. A rank that computes, that stands in a debugger or that is merely slow does
not say that it waits, so nobody takes it for hung.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from time import sleep
from typing import NamedTuple

LOOK = 0.5
"""Seconds between two looks at a program that waits; also how long it must have waited to be looked at."""
ALIKE = 2
"""Times in a row that every rank must say the same, each time after it was asked: what is on its way is then none."""


class Waiting(NamedTuple):
    """What a program waits for."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"for {self.what} at {self.where}"


class Standing(NamedTuple):
    """How a rank stands whose program waits while nothing of it is under way but messages."""

    sent: int  # packets
    taken: int
    over: int  # transfers
    waiting: Waiting
    told: str  # its last calls


def as_words(standing: Standing, asked: int) -> str:
    """Return it as a note, in answer to a question."""
    sent, taken, over, waiting, told = standing
    return json.dumps([asked, sent, taken, over, *[part[-120:] for part in waiting], told])


def read_words(words: str) -> tuple[int, Standing] | None:
    """Return what a note says, and which question it answers; None for what is none."""
    try:
        asked, sent, taken, over, what, where, told = json.loads(words)
        return int(asked), Standing(int(sent), int(taken), int(over), Waiting(str(what), str(where)), str(told))
    except (ValueError, TypeError):
        return None


class Judge:
    """Rank 0's view of all ranks: two answers to the same question, alike on all of them, and nothing on its way."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._found: dict[int, Standing] = {}
        self._alike: dict[int, int] = {}  # how often each has answered the present question, always alike
        self.asked = 0

    def heard(self, rank: int, asked: int, standing: Standing) -> bool:
        """Note how a rank stands. True if that is news, so that all ranks are to be asked again."""
        if self._found.get(rank) != standing:
            self._found[rank] = standing
            self._alike.clear()
            self.asked += 1
            return True
        if asked == self.asked:
            self._alike[rank] = self._alike.get(rank, 0) + 1
        return False

    @property
    def hung(self) -> bool:
        """Whether nothing can happen any more."""
        found = self._found.values()
        if len(self._alike) < self._ranks or min(self._alike.values()) < ALIKE:
            return False
        return sum(s.sent for s in found) == sum(s.taken for s in found)

    @property
    def standings(self) -> Mapping[int, Standing]:
        """How all ranks stand."""
        return self._found


class Watch:
    """A thread that looks while the program waits. It sleeps as long as the program does not."""

    def __init__(
        self, waits: Callable[[], bool], standing: Callable[[], Standing | None], tell: Callable[[str], None]
    ) -> None:
        self._waits, self._standing, self._tell = waits, standing, tell
        self.asked = 0  # the last question of rank 0
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def look_out(self) -> None:
        """Look from now on: the program waits."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="coexec-watch", daemon=True)
            self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._wanted.set()

    def _run(self) -> None:
        while not self._closed:
            self._wanted.wait()
            self._wanted.clear()
            sleep(LOOK)
            while self._waits() and not self._closed:
                standing = self._standing()
                if standing is not None:
                    self._tell(as_words(standing, self.asked))
                sleep(LOOK)
