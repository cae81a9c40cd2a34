"""How often threads take turns: whoever must not make others wait asks for short turns, and gives them back.

Before: nothing.  After: backend/, compile/.  Process-wide, like the interpreter's switch interval itself.
"""

from __future__ import annotations

import sys
import threading

_lock = threading.Lock()
_asked: dict[object, float] = {}  # seconds, by who asked
_users = 0.0  # seconds; the interval while nobody asks: the program's own
_ours = 0.0  # seconds; the interval that was in force when this module last looked


def shorten_turns(who: object, seconds: float) -> None:
    """Let threads that want the interpreter lock wait for at most so long, until `who` says otherwise."""
    with _lock:
        _note_users()
        _asked[who] = seconds
        _set(min(_users, *_asked.values()))


def restore_turns(who: object) -> None:
    """Take back what `who` asked for; the last one gives the program its own interval again."""
    with _lock:
        _note_users()
        if _asked.pop(who, None) is not None:
            _set(min(_users, *_asked.values()) if _asked else _users)


def _note_users() -> None:
    """Learn the program's own interval: what is in force while nobody asks, or what the program has set since."""
    global _users
    now = sys.getswitchinterval()
    if not _asked or now != _ours:
        _users = now


def _set(seconds: float) -> None:
    global _ours
    if abs(sys.getswitchinterval() - seconds) > 0.01 * seconds:  # the interpreter rounds to microseconds
        sys.setswitchinterval(seconds)
    _ours = sys.getswitchinterval()
