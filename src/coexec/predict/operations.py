"""The operations of a call that declares none: counted in its body's graph, when somebody asks.

Before: compile/counting.py, which is loaded late.  After: predict/features.py, predict/model.py.  Knows shapes, no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..geometry import Box, whole
from ..program.chunk import ChunkInfo

if TYPE_CHECKING:
    from ..graph.task import Task
    from ..program.kernel import Kernel


class Operations:
    """What a part of a task computes, as far as its body tells. All are alike where work is compared."""

    __slots__ = ("_found", "_part")

    def __init__(self, part: Untold | None = None) -> None:
        self._part = part
        self._found: float | None = None

    @property
    def count(self) -> float | None:
        """How many there are; None if the body cannot be read."""
        if self._part is not None:
            self._found, self._part = self._part.count(), None
        return self._found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operations)

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Operations, ()


class Untold:
    """A part of a task whose operations somebody may ask for, without its arrays."""

    __slots__ = ("_arrays", "_box", "_extents", "_kernel", "_scalars", "_space")

    def __init__(self, task: Task, kernel: Kernel, box: Box) -> None:
        self._kernel, self._box, self._extents = kernel, box, task.extents
        self._space = whole(task.extents) if task.space is None else task.space
        self._arrays = [
            (param, array.shape, array.dtype) for param, array in zip(task.accesses, task.arrays, strict=True)
        ]
        self._scalars = {name: value for name, value in task.scalars.items() if type(value) in (int, float, bool, str)}

    def count(self) -> float | None:
        """Return how many operations its body takes there."""
        kernel = self._kernel
        if self._box.empty:
            return None
        if kernel.counts is None:
            from ..compile.counting import Counts

            writes = [p.name for p in kernel.array_params if p.access.writes and p.position >= 0]
            kernel.counts = Counts(kernel.function, writes, kernel.returns.names)
        found: float | None = kernel.counts.of(self._arguments())
        return found

    def _arguments(self) -> Mapping[str, Any]:
        given: dict[str, Any] = dict(self._scalars)
        parts: dict[str, Box] = {}
        for param, shape, dtype in self._arrays:
            mapper = param.access.mapper
            reduced = param.access.mode == "reduce"
            pad = None if reduced else mapper.pad(self._box, shape)
            inside = whole(shape) if reduced else mapper.box(self._box, self._extents, shape)
            box = inside if pad is None else pad.wanted
            parts[param.name] = box
            given[param.name] = np.broadcast_to(np.empty((), dtype), box.shape)
        if self._kernel.takes_chunk:
            given["chunk"] = ChunkInfo(self._box, self._space, parts)
        return {name: given[name] for name in (*self._kernel.params, *self._kernel.returns.names) if name in given}


def operations_of(task: Task, kernel: Kernel, box: Box) -> Operations | None:
    """Return the operations of a part of a task whose kernel declares none; None if its body is none to read."""
    if kernel.host or kernel.internal or type(kernel.function) is not FunctionType:
        return None
    return Operations(Untold(task, kernel, box))


__all__ = ["Operations", "operations_of"]
