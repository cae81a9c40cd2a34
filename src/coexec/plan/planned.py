"""What the planner hands to the lowering: a command, and what each of its chunks runs.

Before: plan/candidate.py, plan/lessons.py, plan/offering.py.  After: plan/planner.py, plan/preview.py, schedule/.
"""

from __future__ import annotations

from typing import NamedTuple

from ..graph.command import Command
from .candidate import Share
from .lessons import NOTHING, Lesson
from .offering import Site


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
