"""From a task, or a part of it, to the numbers that predictions are made from.

Before: program/kernel.py, graph/task.py.  After: plan/.  Knows shapes and types, never data, devices or seconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..geometry import Box
from ..graph.mapped import mapped, remembered
from .operations import operations_of
from .work import Work

if TYPE_CHECKING:
    from ..graph.task import Task
    from ..program.kernel import Kernel

WEIGHTS = 4096  # rows at which a weight function is looked at


class Sized:
    """An array as far as a feature function may see it: its shape and type, and no elements."""

    __slots__ = ("dtype", "shape")
    __iter__ = None  # there is nothing to go through

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


def feature_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of the features of `kernel`, in the order of `Work.features`."""
    cost = kernel.cost
    names = ["bytes", "points", *(f"bytes of {param.name}" for param in kernel.array_params)]
    if cost.flops is not None or cost.per_point:
        names.append("flops")
    return (*names, *(function.name for function in cost.features))


def flops_at(kernel: Kernel) -> int | None:
    """Return which feature counts the operations, or None."""
    names = feature_names(kernel)
    return names.index("flops") if "flops" in names else None


def work_of(task: Task) -> Work:
    """Return the features of a whole task, as far as it is this rank's. Programs repeat themselves: they are kept with its shapes."""
    kernel, key = task.kernel, task.key
    assert kernel is not None
    if task.deal is not None and task.mine != task.domain:
        return work_of_part(task, task.mine)
    if kernel.looked_at or key is None:
        return _work(task, [array.shape for array in task.arrays], task.domain, task_key(task), 1.0)
    work: Work | None = key.work
    if work is None:
        work = key.work = _work(task, [array.shape for array in task.arrays], task.domain, key, 1.0)
    return work


def task_key(task: Task) -> Hashable:
    """Return what distinguishes calls that take unlike times: shapes, types, and scalars that features look at."""
    kernel = task.kernel
    assert kernel is not None
    if kernel.looked_at and task.key is not None:
        return (task.key, tuple([task.scalars.get(name) for name in kernel.looked_at]))
    return task.key


def work_of_part(task: Task, box: Box) -> Work:
    """Return the features of one chunk; its points and operations count as much as the declared weight of its rows says.

    A chunk that is the whole task is that task: what one of them took is known of the other.
    """
    if box == task.domain and task.deal is None and task.kernel is not None:
        return work_of(task)
    known = remembered(task) if task.kernel is not None and not task.kernel.looked_at else None
    work: Work | None = known.get(("work", box)) if known is not None else None
    if work is None:
        work = _work_of_part(task, box)
        if known is not None:
            known["work", box] = work
    return work


def _work_of_part(task: Task, box: Box) -> Work:
    parts, weight = mapped(task, box), weight_of(task, box)
    shapes = [a.shape if part is None else part.box.shape for a, part in zip(task.arrays, parts, strict=True)]
    key = (task_key(task), box.shape) if weight == 1.0 and task.key is not None else None
    return _work(task, shapes, box, key, weight)


def weight_of(task: Task, box: Box) -> float:
    """Return the work of a part over that of as many average points of its task: 1 if no weight is declared."""
    kernel = task.kernel
    if kernel is None or kernel.cost.weight is None or box.empty:
        return 1.0
    whole, known, weight = task.domain, remembered(task), 1.0
    for axis in kernel.split:
        lo, hi, first = box.lo[axis], box.hi[axis], whole.lo[axis]
        if hi - lo == whole.hi[axis] - first:
            continue
        rows: Rows | None = known.get(("rows", axis)) if known is not None else None
        if rows is None:
            rows = Rows(task, whole, axis)
            if known is not None:
                known["rows", axis] = rows
        weight *= (rows.work(hi - first) - rows.work(lo - first)) / (hi - lo)
    return weight


def share_of_work(task: Task, box: Box) -> float:
    """Return which part of a task's work a box of its index space is."""
    return weight_of(task, box) * box.volume / (task.domain.volume or 1)


def _work(task: Task, shapes: Sequence[tuple[int, ...]], box: Box, key: Hashable, weight: float) -> Work:
    kernel, points = task.kernel, box.volume
    assert kernel is not None
    declared = len(kernel.array_params)
    sized = [Sized(shape, array.dtype) for shape, array in zip(shapes, task.arrays, strict=True)]
    nbytes = [float(entry.nbytes) for entry in sized[:declared]]
    values = [sum(nbytes), points * weight, *nbytes]
    cost = kernel.cost
    if cost.flops is not None or cost.per_point or cost.features:
        named: dict[str, Any] = {p.name: entry for p, entry in zip(kernel.array_params, sized, strict=False)}
        named |= task.scalars
        if cost.flops is not None:
            values.append(cost.flops.value(named) * weight)
        elif cost.per_point:
            values.append(cost.per_point * points * weight)
        values += [function.value(named) for function in cost.features]
        check_features(kernel.name, feature_names(kernel), values)
    kind = " ".join([entry.dtype.str for entry in sized])
    told = cost.flops is not None or cost.per_point or weight != 1.0
    return Work(tuple(values), kind, key, None if told else operations_of(task, kernel, box))


def scratch_of(task: Task, box: Box) -> int:
    """Return the bytes of temporaries that one chunk declares."""
    kernel = task.kernel
    assert kernel is not None
    function, per_point = kernel.cost.scratch, kernel.cost.scratch_per_point
    if function is None:
        return math.ceil(per_point * box.volume)
    named: dict[str, Any] = {}
    for param, array in zip(task.accesses, task.arrays, strict=True):
        cut = param.access.mode != "reduce" and task.space is not None
        shape = param.access.mapper.box(box, task.extents, array.shape).shape if cut else array.shape
        named[param.name] = Sized(shape, array.dtype)
    nbytes = function.value(named | dict(task.scalars))
    check_features(kernel.name, ("scratch",), (nbytes,))
    return math.ceil(nbytes)


def check_features(kernel: str, names: Sequence[str], values: Sequence[float]) -> None:
    """Raise unless every feature is finite and not negative."""
    for name, value in zip(names, values, strict=True):
        if not 0.0 <= value < math.inf:
            raise ArgumentError(
                f"kernel {kernel!r}: feature {name!r} is {value}; features are finite numbers from 0, so check the "
                "function that was declared for it"
            )


class Rows:
    """How the work of a task is spread along the axis that is cut: evenly, or as a declared weight says."""

    __slots__ = ("_at", "_sums", "even", "lo", "rows")

    def __init__(self, task: Task, box: Box, axis: int) -> None:
        kernel = task.kernel
        assert kernel is not None
        self.lo, self.rows = box.lo[axis], box.hi[axis] - box.lo[axis]
        weight = kernel.cost.weight
        self.even = weight is None
        if weight is None:
            return
        at = np.unique(np.linspace(0, self.rows, min(self.rows, WEIGHTS) + 1).astype(np.int64))
        widths = np.diff(at)
        weights = np.asarray(weight(self.lo + at[:-1] + widths // 2), dtype=float)
        if weights.shape != widths.shape or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ArgumentError(
                f"kernel {kernel.name!r}: weight(rows) gave {weights!r} for {len(widths)} rows; it must return one "
                "finite number from 0 for each row, not all of them 0"
            )
        sums = np.concatenate([[0.0], np.cumsum(weights * widths)])
        self._at, self._sums = at.astype(float), sums * (self.rows / sums[-1])

    def position(self, work: float) -> float:
        """Return the row before which `work` (of `rows` in all) is done."""
        return work if self.even else float(np.interp(work, self._sums, self._at))

    def work(self, position: float) -> float:
        """Return the work of the rows before `position`; an average row is 1."""
        return position if self.even else float(np.interp(position, self._at, self._sums))


def part_of(box: Box, axis: int, lo: int, hi: int) -> Box:
    """Return rows [lo, hi) of `box` along `axis`, counted from its own beginning."""
    low, high = list(box.lo), list(box.hi)
    low[axis], high[axis] = box.lo[axis] + lo, box.lo[axis] + hi
    return Box(tuple(low), tuple(high))


__all__ = [
    "Rows",
    "Sized",
    "check_features",
    "feature_names",
    "flops_at",
    "part_of",
    "scratch_of",
    "share_of_work",
    "task_key",
    "weight_of",
    "work_of",
    "work_of_part",
]
