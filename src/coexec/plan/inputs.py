"""Where a task's inputs are, who is near them, and whether one device that is all cores beats a division.

Before: plan/candidate.py, plan/residency.py.  After: plan/planner.py.  Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.task import Task
from ..predict.work import Work
from .candidate import Candidate
from .place import WIDE_GAIN
from .residency import Residency


def inputs_of(task: Task, residency: Residency) -> list[tuple[int, int]]:
    """Return the bytes that a task reads, and the memories that hold them."""
    return [
        (array.nbytes, residency.held_by(array))
        for param, array in zip(task.accesses, task.arrays, strict=True)
        if param.access.mode != "write"
    ]


def near_ones(task: Task, candidates: list[Candidate], residency: Residency) -> list[Candidate]:
    """Leave an assignment to a device whose memory holds the array already: it is not worth a copy there and back."""
    held = residency.held_by(task.arrays[-1])
    return [c for c in candidates if held >> c.memory & 1] or candidates


def wide_is_faster(candidates: Sequence[Candidate], work: Work, seconds: float) -> bool:
    """Tell whether all cores as one device (library threads) were measured to be faster than a division."""
    wide = [s for c in candidates if c.wide and c.model.measured(work) and (s := c.model.seconds(work)) is not None]
    return bool(wide) and min(wide) < seconds * WIDE_GAIN
