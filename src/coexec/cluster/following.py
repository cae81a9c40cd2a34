"""Follow saved plans on several ranks: which part of a call is whose, and what each rank is to do with its own.

Before: plan/plan.py, cluster/roster.py.  After: cluster/dealing.py, joined.py, ranked.py.  Every rank reads the same plans, so all
of them deal alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from zlib import crc32

from ..config import blamed
from ..errors import PlanError
from ..geometry import Box, bounding, covers
from ..graph.task import Task
from ..plan.plan import Plan, check_ranks, load_plans
from ..plan.split import blocks_of, tiles
from .roster import Roster

RankHand = tuple[int, Box, tuple[Box, ...], int]
"""A rank, its box, and of a reduction its blocks and the number of the first."""
Independent = Callable[[Task, Sequence[Box]], bool]


def plans_of(path: str, ranks: int) -> list[Plan]:
    """Return the plans of a file, if there is one; raise if they were made for another number of ranks."""
    if not path:
        return []
    with blamed("plan", path):
        plans = load_plans(path)
        check_ranks(plans, ranks)
    return plans


def digest(plans: Iterable[Plan]) -> str:
    """Return what tells plans from others: ranks compare it."""
    return f"{crc32(json.dumps([plan.as_dict() for plan in plans]).encode()):08x}"


def own_plans(plans: Iterable[Plan], rank: int, roster: Roster) -> list[Plan]:
    """Return what one rank has to do under plans, its devices called as it calls them; nothing of calls without a part for it."""
    found = []
    for plan in plans:
        mine = [part for part in plan.parts if roster.owners.get(part.device) == rank]
        parts = tuple([replace(part, device=roster.here(rank, part.device)) for part in mine])
        if parts:
            found.append(replace(plan, parts=parts, ranks=1))
    return found


class DealtAsPlanned:
    """Who computes what of calls that have a plan."""

    def __init__(self, plans: Iterable[Plan], roster: Roster) -> None:
        self._plans = {(plan.name, plan.shapes): plan for plan in plans}
        self._owners = roster.owners
        for plan in self._plans.values():
            unknown = [part.device for part in plan.parts if part.device not in self._owners]
            if unknown:
                raise PlanError(
                    f"the plan for {plan.name!r} wants {', '.join(unknown)}, which these ranks do not have; start them with "
                    "the devices of the plan, or make the plan anew"
                )

    def hands(self, task: Task, independent: Independent) -> list[RankHand] | None:
        """Return the parts of a call, by rank; None if no plan says, or if this call cannot be divided so."""
        plan = self._plans.get((task.name, repr(task.key)))
        if plan is None:
            return None
        by_rank: dict[int, list[Box]] = {}
        for part in plan.parts:
            by_rank.setdefault(self._owners[part.device], []).append(Box(part.lo, part.hi))
        every = [box for boxes in by_rank.values() for box in boxes]
        if not tiles(task.domain, every):
            raise PlanError(
                f"the plan for {task.name!r} has parts that do not make up {task.domain}; make the plan anew"
            )
        boxes = {rank: bounding(mine) for rank, mine in by_rank.items()}
        if not tiles(task.domain, list(boxes.values())):
            raise PlanError(
                f"the plan for {task.name!r} gives a rank parts that do not make up a box; make the plan anew"
            )
        if task.kernel is not None and task.kernel.reduces:
            return _in_blocks(task, boxes, independent)
        if len(boxes) == 1:
            return [(rank, box, (box,), 0) for rank, box in boxes.items()]
        return [(rank, box, (), 0) for rank, box in boxes.items()] if independent(task, list(boxes.values())) else None


def _in_blocks(task: Task, boxes: dict[int, Box], independent: Independent) -> list[RankHand] | None:
    """Return the fixed blocks of a reduction as ranks have them; None if the plan cuts through one, or has them in disorder."""
    axes = [axis for axis in task.axes if task.domain.hi[axis] - task.domain.lo[axis] > 1]
    blocks = blocks_of(task, task.domain, axes[0] if axes else 0)
    if not independent(task, blocks):
        return None
    hands: list[RankHand] = []
    first = 0
    for rank, box in sorted(boxes.items(), key=lambda known: known[1].lo):
        mine = tuple([block for block in blocks if covers(box, block)])
        if not mine or mine != tuple(blocks[first : first + len(mine)]):
            return None
        hands.append((rank, box, mine, first))
        first += len(mine)
    return hands if first == len(blocks) else None
