"""What range mappers say about parts of a task, remembered with the shapes of its arrays: programs repeat themselves.

Before: program/mapper.py, graph/task.py.  After: graph/task_graph.py, predict/features.py, lower/.  Knows no device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..geometry import Box, bounding
from ..program.array import Array
from ..program.call import Key
from ..program.padding import Pad
from ..program.view import narrow
from .task import Task

REMEMBERED = 1024  # parts per set of shapes


class Mapped(NamedTuple):
    """What a part of the index space touches of one array, in the coordinates of the view that was passed."""

    box: Box
    boxes: tuple[Box, ...] | None  # what of the box is touched, if not all of it
    pad: Pad | None
    empty: bool
    spans: tuple[Box, ...] = ()  # what may be in memories of their own: where a border wraps, both ends of the axis

    def of(self, array: Array) -> tuple[Box, tuple[Box, ...] | None]:
        """Return box and boxes in the coordinates of the array behind the view."""
        return placed(array, self.box), None if self.boxes is None else tuple([placed(array, b) for b in self.boxes])


def mapped(task: Task, part: Box) -> tuple[Mapped | None, ...]:
    """Return what a part of the task touches, per parameter; None for arrays that it reduces into."""
    known = remembered(task)
    if known is None:
        return _mapped(task, part)
    found: tuple[Mapped | None, ...] | None = known.get(part)
    if found is None:
        if len(known) >= REMEMBERED:
            known.clear()
        found = known[part] = _mapped(task, part)
    return found


def remembered(task: Task) -> dict[Any, Any] | None:
    """Return where answers may be kept that depend on the kernel and on the shapes and types of its arrays alone."""
    key: Key | None = task.key
    kernel = task.kernel
    if key is None or kernel is None or len(task.accesses) != len(kernel.array_params):
        return None  # a 0-d array passed as a scalar is an argument that the shapes do not name
    if key.kept is None and not key.varies:
        key.varies = any(not param.access.mapper.fixed for param in task.accesses)
        key.kept = None if key.varies else {}
    return key.kept


def placed(array: Array, box: Box) -> Box:
    """Return a box of a view in the coordinates of the array behind it."""
    if array._cut is None and not any(array._box[0]):
        return box
    return narrow(array._box, array._cut, box)


def _mapped(task: Task, part: Box) -> tuple[Mapped | None, ...]:
    found: list[Mapped | None] = []
    for param, array in zip(task.accesses, task.arrays, strict=True):
        mapper, shape = param.access.mapper, array.shape
        if param.access.mode == "reduce":
            found.append(None)
            continue
        pad = mapper.pad(part, shape)
        if not mapper.several:
            box = mapper.box(part, task.extents, shape)
            found.append(Mapped(box, None, pad, box.empty))
            continue
        boxes = mapper.boxes(part, task.extents, shape)
        if len(boxes) > 1:
            spans = () if pad is None or param.access.writes else mapper.spans(part, shape, boxes)
            found.append(Mapped(bounding(boxes), boxes, pad, empty=False, spans=spans))
        else:
            box = boxes[0] if boxes else Box((0,) * len(shape), (0,) * len(shape))
            found.append(Mapped(box, None, pad, not boxes))
    return tuple(found)
