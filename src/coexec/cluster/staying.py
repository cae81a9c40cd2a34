"""Short calls whose data one rank alone has: it computes them whole, as sending would take longer than they do.

Before: cluster/exchange.py, predict/features.py.  After: cluster/dealing.py.  Pure; every rank finds the same.

A reduction of few points is one block, and one rank's. If a short call behind it were cut by rows, its data would be sent to
all ranks, and back to that one for the next reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.task import Task
from ..predict.features import flops_at, work_of

SHORT = 1 << 18
"""Declared operations of a call that takes no longer than a message, some 0.1 ms."""


def kind_of(task: Task) -> str:
    """Return what tells kinds of calls apart whose times ranks tell each other."""
    return f"{task.name} {task.domain.shape}"


def is_short(task: Task, points: int) -> bool:
    """Tell whether a call may be left where its data is: few points, few operations as declared, and nobody says where."""
    kernel, options = task.kernel, task.options
    if kernel is None or kernel.host or kernel.looked_at or task.domain.volume >= points:
        return False
    if options is not None and (options.devices is not None or options.placement is not None):
        return False
    at = flops_at(kernel)
    return at is not None and work_of(task).features[at] <= SHORT


def only_holder(held: Sequence[int], wanted: int) -> int | None:
    """Return the rank that has all of what is wanted, if all others have only what everybody has; `held` is by rank."""
    others = [amount for amount in held if amount != wanted]
    if len(others) != len(held) - 1 or len(set(others)) > 1:
        return None
    return held.index(wanted)
