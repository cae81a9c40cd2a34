"""Which rank the present process or thread is, and the team that it belongs to. Loads nothing of it before it is asked for.

Before: cluster/launched.py.  After: runtime.py, and programs that ask for their rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..errors import ArgumentError
from .launched import launched

if TYPE_CHECKING:
    from .team import Team

_thread_team: ContextVar[Team | None] = ContextVar("coexec-team", default=None)
_process_team: list[Team] = []


def team_here() -> Team | None:
    """Return the team of this thread or process, which meets the other ranks the first time; None if it is alone."""
    own = _thread_team.get()
    if own is not None:
        return own
    if not _process_team:
        found = launched(os.environ)
        if found is None or found.size == 1:
            return None
        from .opening import open_team  # which needs a library

        _process_team.append(open_team())
    return _process_team[0]


def rank() -> int:
    """Return which rank of the program this process is, from 0. Without a launcher it is rank 0 of 1. Meets nobody."""
    return _place()[0]


def ranks() -> int:
    """Return on how many ranks the program runs. Meets nobody."""
    return _place()[1]


def check_root(root: object, number: int) -> None:
    """Raise unless there is such a rank among so many."""
    if type(root) is not int or not 0 <= root < number:
        raise ArgumentError(f"root={root!r}: the program runs on {number} rank{'s' * (number > 1)}, counted from 0")


def _place() -> tuple[int, int]:
    own = _thread_team.get() or next(iter(_process_team), None)
    if own is not None:
        return own.rank, own.size
    found = launched(os.environ)
    return (0, 1) if found is None else (found.rank, found.size)


@contextmanager
def member(own: Team) -> Iterator[None]:
    """Let the present thread be a rank of its own, as long as the block lasts."""
    token = _thread_team.set(own)
    try:
        yield
    finally:
        _thread_team.reset(token)
