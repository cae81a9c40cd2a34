"""What no device of a runtime can run, but the host can: coexec's own kernels, which nobody could add a variant to.

Before: plan/candidate.py, plan/split.py.  After: plan/planner.py.  A user's kernel is refused instead, with the remedy.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import PlanError
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.task import Task
from ..program.kernel import Kernel
from .split import blocks, deal, in_runs

WHY = "no device here can run it: on the host"


def is_ours(kernel: Kernel) -> bool:
    """Tell whether a kernel is coexec's own: an operation, a reduction or an assignment."""
    return str(getattr(kernel.function, "__module__", "")).startswith("coexec.")


def host_only(task: Task, find: Callable[[], object]) -> bool:
    """Tell whether `find`, which raises if no device can run the task, does so for a kernel of coexec's own."""
    if task.kernel is None or not is_ours(task.kernel):
        return False
    try:
        find()
    except PlanError:
        return True
    return False


def on_host(task: Task, box: Box) -> tuple[Chunk, ...]:
    """Return the chunks that the host computes: of a reduction its fixed blocks, as everywhere."""
    assert task.kernel is not None
    if not task.kernel.reduces:
        return (Chunk("host", box),)
    axis = next((a for a in task.kernel.split if box.hi[a] - box.lo[a] > 1), 0)
    if task.deal is not None:
        return in_runs([Chunk("host", b, i) for i, b in enumerate(task.deal.blocks, task.deal.first)], {"host"})
    return in_runs(deal(blocks(box, axis, task.kernel.granule), axis, ["host"], (0, box.volume)), {"host"})
