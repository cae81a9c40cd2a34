"""Follow a saved plan: the parts that it names as chunks of a call, on the devices and with the variants that it names.

Before: plan/plan.py, plan/candidate.py, plan/split.py.  After: plan/planner.py.  Knows nothing of what is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import PlanError
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.task import Task
from .candidate import Candidate
from .plan import Plan
from .split import blocks, deal, in_runs, tiles

LOOPING = ("cpu", "torch")  # kinds of devices that compute one piece after the other by themselves


def looping(group: Sequence[Candidate]) -> set[str]:
    """Return the devices that loop over pieces."""
    return {c.name for c in group if c.device.kind in LOOPING}


def following(task: Task, plan: Plan, candidates: Sequence[Candidate]) -> tuple[tuple[Chunk, ...], list[Candidate]]:
    """Return the chunks of `task` that a plan names, and who runs each; raise if this runtime or this call has no such."""
    pairs = {(c.name, c.variant.name): c for c in candidates}
    missing = [f"{p.device} ({p.variant})" for p in plan.parts if (p.device, p.variant) not in pairs]
    if missing:
        raise PlanError(
            f"the plan for {task.name!r} wants {', '.join(missing)}, which this runtime does not have; open it with "
            "the devices of the plan, or make the plan anew"
        )
    group = [pairs[part.device, part.variant] for part in plan.parts]
    chunks = tuple(Chunk(p.device, Box(p.lo, p.hi), slot) for slot, p in enumerate(plan.parts))
    if not tiles(task.box, [chunk.box for chunk in chunks]):
        spans = ", ".join(f"{part.lo} to {part.hi}" for part in plan.parts)
        raise PlanError(
            f"the plan for {task.name!r} has parts {spans}, which do not make up {task.box}; make the plan anew"
        )
    if task.kernel is not None and task.kernel.reduces:  # its blocks are fixed: the plan says whose they are
        axis = next((a for a in task.kernel.split if task.box.hi[a] - task.box.lo[a] > 1), 0)
        cuts = [chunk.box.lo[axis] if chunk.box.lo else 0 for chunk in chunks]
        dealt = deal(blocks(task.box, axis, task.kernel.granule), axis, [c.device for c in chunks], cuts)
        chunks = in_runs(dealt, looping(group))
    return chunks, group


def in_one_piece_each(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks with every piece for itself."""
    return [Chunk(chunk.device, box, chunk.slot) for chunk in chunks for box in chunk.pieces or (chunk.box,)]
