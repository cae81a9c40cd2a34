"""What a task would have written, when it cannot be lowered: the result of an instruction that has failed.

Before: lower/lowering.py.  After: execute/holding.py.  Knows no error: only whose result nobody can read.
"""

from __future__ import annotations

from ..graph.instruction import Instruction
from ..graph.task import Task
from ..graph.task_graph import touched
from ..machine.platform import HOST
from .lowering import Lowering


def poison(lowering: Lowering, task: Task) -> tuple[int, list[Instruction]]:
    """Give what `task` would write to an instruction that never runs; return its id, and what was emitted so far."""
    emitter = lowering.emitter
    id = emitter.id()
    part = task.part if task.deal is not None and task.visited is not None else None  # others have written the rest
    for param, array in zip(task.accesses, task.arrays, strict=True):
        box = touched(task, param.access, array, part)
        if param.access.writes and not box.empty:
            state = array._storage.state
            tracker = lowering.coherence.back(state, HOST, box, task).tracker
            tracker.did_write(box, None, id)
            emitter.touch(tracker)
            state.wrote(HOST, box)
    return id, emitter.take()
