"""How long a thread that must look at a library rests between two looks: long enough for others, short enough for messages.

Before: nothing.  After: cluster/endpoint.py.  Knows no message.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep

EAGER = 100e-6
"""Seconds after something happened in which a polling thread looks again at once: an answer is often near."""
BRISK = 10e-3
"""The same, if the rank has nothing to do but wait for messages: on a busy machine who sleeps gets a core after some 4 ms."""
CROWDED = 1e-3
"""Seconds after which a thread that gave way gets its core back only if other programs want it, too."""
CROWDED_FOR = 1.0
"""Seconds in which a thread sleeps between looks, since it was found that giving way lets others compute for long."""
LEAST = 100e-6
"""Seconds between two looks where others want the core: a ring ends them."""
SHARE = 1 / 8
"""How much longer than necessary a wait may last: pauses grow with the time since something happened."""
LONGEST = 5e-3
"""Seconds between two looks at a carrier, at most: a look takes some 20 us, so a rank that waits uses 1 % of a core."""


def pause(idle: float, *, free: bool = False, crowded: bool = False, rung: bool = False) -> float:
    """Return how many seconds to wait before looking again, if nothing has happened for `idle` seconds.

    `free` says that this rank waits for messages alone: no kernel wants the core, and no call the interpreter. On a `crowded`
    core it sleeps: who gives way there waits for a whole turn of another program, while a sleeper is woken by a ring at once.
    `rung` says that nothing can happen without a ring: then looking is good for nothing but being faster than that.
    """
    if rung and (crowded or not free):
        return LONGEST
    if crowded:
        return min(LONGEST, max(LEAST, idle * SHARE))
    return 0.0 if idle < (BRISK if free else EAGER) else min(LONGEST, idle * SHARE)


class Pauses:
    """The rests of one thread."""

    def __init__(self) -> None:
        self.free: Callable[[], bool] = _no  # tells whether the rank has nothing to do but wait for messages
        self._since = monotonic()  # when something happened last
        self._crowded = 0.0  # until when the thread sleeps between looks

    def next(self, *, busy: bool, rung: bool, flowing: bool) -> float:
        """Return how long to rest now; `busy` if something happened, `flowing` if contents of a message are on their way."""
        now = monotonic()
        if busy:
            self._since = now
        idle = now - self._since
        free = (rung or idle >= EAGER) and idle < BRISK and (flowing or self.free())
        return pause(idle, free=free, crowded=now < self._crowded, rung=rung)

    def give_way(self) -> None:
        """Let others have the core, and see whether they want it for long."""
        before = monotonic()
        give_way()
        after = monotonic()
        if after - before > CROWDED and self.free():
            self._crowded = after + CROWDED_FOR


give_way: Callable[[], object] = getattr(os, "sched_yield", partial(sleep, 0))
"""Let others have the interpreter and the core; a sleep of no time takes 50 us on Linux."""


def _no() -> bool:
    return False
