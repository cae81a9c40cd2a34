"""Calls that are shorter than the way to another thread: whoever makes one runs it, if nothing else is under way.

Before: plan/candidate.py.  After: plan/planner.py, straight.py.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graph.command import Command
from .lessons import NOTHING
from .planned import Planned
from .split import SEVERAL_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..geometry import Box
    from ..graph.task import Task
    from ..predict.work import Work
    from .candidate import Candidate

CHEAP = 20e-6
"""Seconds: a kernel predicted below this costs less than handing it to another thread."""
IN_CALLER = "runs in the caller"

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


def in_caller(task: Task, box: Box, first: Candidate, work: Work) -> Planned | None:
    """Return a short call as its caller runs it, in the place of the core `first`; None if it is not short, or may be cut."""
    kernel, options = task.kernel, task.options
    assert kernel is not None and options is not None
    if not first.runs_here or options.oversubscribe > 1 or (kernel.reduces and box.volume >= SEVERAL_BLOCKS):
        return None
    seconds = first.model.seconds(work)
    if seconds is None or seconds >= CHEAP:
        return None
    command = _new(Command, (task.id, task, first.chunks(box), task.after, IN_CALLER))
    found: Planned = _new(Planned, (command, first.shares(work, seconds), True, "", None, False, False, NOTHING))
    return found
