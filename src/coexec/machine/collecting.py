"""How often Python looks for cycles of garbage: seldom while many instructions are open, as the program has set it otherwise.

Before: nothing.  After: execute/executor.py, compile/compiler.py.  Process-wide, like the thresholds of Python's collector themselves.

Each run of the collector goes through all objects that were made since the last one. Of an open instruction everything is still in
use, so with thousands of them open these runs find nothing, and are a seventh of what a call costs.
What a thread beside the program makes would set off runs through all objects of the program, which wait for nobody: 20 ms.
"""

from __future__ import annotations

import gc
import threading

MANY = 256  # open instructions of a runtime from which on the collector runs seldom
FEW = 64  # open instructions below which it runs as the program has set it again
NEVER = 1 << 62  # open instructions: there are never so many
OFTEN = 1 << 30  # runs through the youngest objects, before one goes through older ones

_lock = threading.Lock()
_asked: dict[object, int] = {}  # objects made between two runs, by who asked
_young: set[object] = set()  # who asked that older objects be left alone
_users = (0, 0, 0)  # the thresholds while nobody asks: the program's own
_ours = (0, 0, 0)  # the thresholds that were in force when this module last looked


class CollectorPace:
    """Lets the collector run seldom while somebody has many open instructions: beyond `many`, until they are below `few`."""

    __slots__ = ("_objects", "few", "many")

    def __init__(self, objects: int) -> None:
        """Begin; so many `objects` may be made between two runs meanwhile, and 0 stands for as many as always."""
        self._objects = objects
        self.many, self.few = (MANY if objects else NEVER), 0

    def begin(self) -> None:
        """There are many open instructions now."""
        self.many, self.few = NEVER, FEW
        collect_seldom(self, self._objects)

    def end(self) -> None:
        """There are few now, or the end has come."""
        if self.few:
            self.many, self.few = MANY, 0
            collect_as_before(self)


def collect_seldom(who: object, objects: int) -> None:
    """Let so many objects be made between two runs of the collector, until `who` says otherwise; never fewer than before.

    A collector that the program has switched off stays off.
    """
    with _lock:
        _note_users()
        _asked[who] = objects
        _set()


def collect_young(who: object) -> None:
    """Let the collector go through the youngest objects only, which takes no time to speak of, until `who` says otherwise."""
    with _lock:
        _note_users()
        _young.add(who)
        _set()


def collect_as_before(who: object) -> None:
    """Take back what `who` asked for; the last one gives the program its own thresholds again."""
    with _lock:
        _note_users()
        if _asked.pop(who, None) is not None or who in _young:
            _young.discard(who)
            _set()


def _note_users() -> None:
    """Learn the program's own thresholds: those in force while nobody asks, or those that it has set since."""
    global _users
    now = gc.get_threshold()
    if not (_asked or _young) or now != _ours:
        _users = now


def _set() -> None:
    global _ours
    first = _users[0]
    wanted = (max(first, *_asked.values()), *_users[1:]) if _asked and first else _users
    if _young and first:
        wanted = wanted[0], max(OFTEN, wanted[1]), wanted[2]
    if gc.get_threshold() != wanted:
        gc.set_threshold(*wanted)
    _ours = wanted
