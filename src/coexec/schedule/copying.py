"""Copy a scheduler with some of its arrays, so that a plan can be tried on the copy and thrown away.

Before: schedule/scheduler.py, lower/lowering.py.  After: whoever tries plans, and tests.  Pure.

The copy is as everything was that is lowered. What is held back is not in it: that is what plans are tried for. It takes time
in proportion to the arrays that are copied, and shares nothing with the original that either of them changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..graph.copying import copy_tracker
from ..lower.lowering import Lowering
from ..lower.state import ArrayState, Backing
from ..plan.decisions import Version
from ..plan.policies import Loads
from ..program.array import Array
from ..program.storage import Storage
from .fuse import Describe
from .plan import Planning
from .scheduler import Scheduler, Settings


class Copied(NamedTuple):
    """A copy of a scheduler, and of the arrays that it was asked for."""

    scheduler: Scheduler
    arrays: list[Array]


def copy_scheduler(
    scheduler: Scheduler,
    arrays: Sequence[Array],
    owner: Any,
    planner: Planning,
    loads: Loads,
    describe: Describe,
    settings: Settings,
    version: Version,
) -> Copied:
    """Return a copy that knows these arrays, for programs of `owner`, with a planner, loads and settings of its own."""
    twins: dict[Storage, Storage] = {}
    for array in arrays:
        old = array._storage
        if old not in twins:
            twins[old] = new = Storage(owner, old.shape, old.dtype, old.initial)
            new.tracker = copy_tracker(old.tracker)
            new.cuts = old.cuts
            new.id = old.id
    pairs = list(twins.items())
    made = Scheduler(_copy_lowering(scheduler.lowering, pairs), planner, loads, describe, settings, version=version)
    made.arrays.last = scheduler.arrays.last
    made.link.become(scheduler.link, {old.tracker: new.tracker for old, new in pairs})
    return Copied(made, [Array(twins[array._storage], array._box, array._cut) for array in arrays])


def _copy_lowering(lowering: Lowering, pairs: Sequence[tuple[Storage, Storage]]) -> Lowering:
    """Return a lowering that goes on as this one would, with the second of each pair of arrays in place of the first.

    What others hold of a limited memory stays taken in the copy, and is not evicted there.
    """
    made = Lowering(lowering.platform)
    mine, theirs = made.coherence, lowering.coherence
    mine.last_allocation, mine.freed, mine.foresight = theirs.last_allocation, theirs.freed, theirs.foresight
    for account, other in zip(mine.budget.open, theirs.budget.open, strict=True):
        account.become(other)
    backings: dict[Backing, Backing] = {}
    states: dict[Backing, ArrayState] = {}
    for old, new in pairs:
        state: ArrayState = old.state
        new.state, twins = state.copy(new.tracker)
        made.states()[new.id] = new.state
        backings |= twins
        states |= dict.fromkeys(twins.values(), new.state)
    mine.evictor.become(theirs.evictor, backings, states)
    made.emitter.become(lowering.emitter, backings)
    made.last_private = lowering.last_private
    made.launching.orders = dict(lowering.launching.orders)
    return made
