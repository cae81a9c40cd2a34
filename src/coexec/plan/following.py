"""Follow a saved plan: the parts that it names as chunks of a call, on the devices and with the variants that it names.

Before: plan/plan.py, plan/candidate.py, plan/split.py.  After: plan/planner.py.  Knows nothing of what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import PlanError
from ..geometry import Box, bounding
from ..graph.command import Chunk
from ..graph.task import Task
from ..program.variant import COMPILED
from .candidate import Candidate
from .plan import Plan
from .split import blocks_of, deal, in_runs, tiles

PYTHON = "python"  # the name of every kernel's first variant
Call = tuple[str, str]  # a kernel's name, and the shapes and types of its arrays as text


def looping(group: Sequence[Candidate]) -> set[str]:
    """Return the devices that loop over pieces."""
    return {c.name for c in group if c.device.loops}


def following(
    task: Task, plan: Plan, candidates: Sequence[Candidate], *, loosely: bool = False
) -> tuple[tuple[Chunk, ...], list[Candidate]]:
    """Return the chunks of `task` that a plan names, and who runs each; raise if this runtime or this call has no such.

    Followed `loosely`, a plan says where, and the candidates, one per device, say which variant: a faster one may be there since.
    """
    pairs = {(c.name, c.variant.name): c for c in candidates}
    if loosely:
        pairs |= {(c.name, part.variant): c for c in candidates for part in plan.parts}
    for name in {c.name for c in candidates}:  # what is not compiled yet, or not here, has the body's bits anyway
        if (name, PYTHON) in pairs:
            pairs.setdefault((name, COMPILED), pairs[name, PYTHON])
    missing = [f"{p.device} ({p.variant})" for p in plan.parts if (p.device, p.variant) not in pairs]
    if missing:
        raise PlanError(
            f"the plan for {task.name!r} wants {', '.join(missing)}, which this runtime does not have; open it with "
            "the devices of the plan, or make the plan anew"
        )
    group = [pairs[part.device, part.variant] for part in plan.parts]
    chunks = tuple(Chunk(p.device, Box(p.lo, p.hi), slot) for slot, p in enumerate(plan.parts))
    if not tiles(task.mine, [chunk.box for chunk in chunks]):
        spans = ", ".join(f"{part.lo} to {part.hi}" for part in plan.parts)
        raise PlanError(
            f"the plan for {task.name!r} has parts {spans}, which do not make up {task.mine}; make the plan anew"
        )
    if task.kernel is not None and task.kernel.reduces:  # its blocks are fixed: the plan says whose they are
        axis = next((a for a in task.kernel.split if task.domain.hi[a] - task.domain.lo[a] > 1), 0)
        cuts = [chunk.box.lo[axis] if chunk.box.lo else 0 for chunk in chunks]
        blocks = blocks_of(task, task.domain, axis) if task.deal is None else list(task.deal.blocks)
        dealt = deal(blocks, axis, [c.device for c in chunks], cuts)
        if task.deal is not None and task.deal.first:
            dealt = tuple([chunk._replace(slot=chunk.slot + task.deal.first) for chunk in dealt])
        chunks = in_runs(dealt, looping(group))
    return chunks, group


class Followed:
    """Plans to be followed, by call. Of several for one call, as a step may have them, each is followed in its turn."""

    def __init__(self, plans: Iterable[Plan] = ()) -> None:
        self.plans: dict[Call, list[Plan]] = {}  # each call has at least one
        self._next: dict[Call, int] = {}
        for plan in plans:
            self.add(plan)

    def add(self, plan: Plan) -> None:
        """Follow a plan, of a call or of all calls of a step, in place of those for the same calls."""
        calls = [call for call in plan.children if call.parts] if plan.kind == "step" else [plan]
        for call in calls:
            self.plans.pop((call.name, call.shapes), None)
        for call in calls:
            self.plans.setdefault((call.name, call.shapes), []).append(call)

    def names(self, task: Task) -> bool:
        """Tell whether there is a plan for a call."""
        return bool(self.plans) and (task.name, repr(task.key)) in self.plans

    def of(self, task: Task) -> Plan | None:
        """Return the plan for a call, or None."""
        call = (task.name, repr(task.key))
        found = self.plans.get(call)
        if found is None:
            return None
        if task.deal is not None and bounding([Box(p.lo, p.hi) for p in found[0].parts]) != task.mine:
            return None  # its arguments overlap, so that ranks have divided it otherwise
        number = self._next.get(call, 0)
        self._next[call] = number + 1
        return found[number % len(found)]


def in_one_piece_each(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks with every piece for itself."""
    return [Chunk(chunk.device, box, chunk.slot) for chunk in chunks for box in chunk.pieces or (chunk.box,)]
