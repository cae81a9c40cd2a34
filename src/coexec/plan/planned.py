"""What the planner hands to the lowering: a command, and what each of its chunks runs.

Before: plan/candidate.py, plan/lessons.py, plan/division/make_offers.py.  After: plan/planner.py, plan/preview.py, schedule/, straight.py.

Calls that are shorter than the way to another thread need no more planning: whoever makes one runs it, if nothing else is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph.command import Command
from .candidate import Share
from .division.make_offers import Site
from .lessons import NOTHING, Lesson
from .split import SEVERAL_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..geometry import Box
    from ..graph.task import Task
    from ..predict.work import Work
    from .candidate import Candidate


class Planned(NamedTuple):
    """A command with one share per chunk. A planner returns one, and writes nothing of it to the task."""

    command: Command
    shares: tuple[Share, ...]
    here: bool = False  # the submitting thread should run it: that costs less than handing it over
    handout: str = ""  # dynamic or auto: the parts are a beginning, and handed out in smaller ones as devices ask
    site: Site | None = None  # what is cut, and where, if it was
    again: bool = False  # as in the turn before
    steady: bool = False  # it depends on the call and on what is measured, and not on what else is going on
    lesson: Lesson = NOTHING  # whether it is but a guess or a trial, and what its time teaches


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
