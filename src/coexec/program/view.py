"""Views as arithmetic: a box of the base array, a signed step per base axis, and an order of axes.

Before: geometry/.  After: program/array.py, lower/, backend/.  Knows no data; `extract` cuts any array that slices.
"""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..geometry import Box, Grid
from .refusals import BY_VALUE

NEW = -1
"""In `Cut.axes`: an axis of length one that the base does not have."""
NOTHING = -2
"""In what `index` returns: such an axis cut to length zero. No array keeps it: what has no elements needs no base."""


class Cut(NamedTuple):
    """How a view's elements lie inside their hull."""

    steps: tuple[int, ...]  # per base axis; never 0; negative runs from the hull's last element
    axes: tuple[int, ...]  # view axis -> base axis or NEW; base axes not named have one element and are dropped


def identity(ndim: int) -> Cut:
    """Return the cut that changes nothing."""
    return Cut((1,) * ndim, tuple(range(ndim)))


def simplify(cut: Cut, ndim: int) -> Cut | None:
    """Return None for the identity, else `cut`."""
    return None if cut == identity(ndim) else cut


def view_shape(box: Box, cut: Cut | None) -> tuple[int, ...]:
    """Return the shape that a body sees."""
    if cut is None:
        return box.shape
    counts = [max(0, (hi - lo + abs(step) - 1) // abs(step)) for lo, hi, step in zip(*box, cut.steps, strict=True)]
    return tuple([counts[axis] if axis >= 0 else axis - NOTHING for axis in cut.axes])


def grid_of(box: Box, cut: Cut | None) -> Grid | None:
    """Return the lattice of base elements that a view touches, or None when it is dense."""
    if cut is None or all(-1 <= step <= 1 for step in cut.steps):
        return None
    return tuple((lo, abs(step)) if abs(step) > 1 else None for lo, step in zip(box.lo, cut.steps, strict=True))


def _span(lo: int, hi: int, step: int, first: int, count: int, stride: int) -> tuple[int, int, int]:
    """Cut `count` elements, from element `first` on by `stride`, out of an axis; return lo, hi, step."""
    start = (lo if step > 0 else hi - 1) + first * step
    if count <= 1:
        return start, start + count, 1
    last = start + (count - 1) * step * stride
    return min(start, last), max(start, last) + 1, step * stride


def narrow(box: Box, cut: Cut | None, part: Box) -> Box:
    """Return the hull of `part`, a box in the view's own coordinates. The cut stays the same.

    The step of an axis with a single element left is irrelevant, so the cut remains valid for it.
    """
    if cut is None:
        lo = box.lo
        return Box(
            tuple([a + b for a, b in zip(lo, part.lo, strict=True)]),
            tuple([a + b for a, b in zip(lo, part.hi, strict=True)]),
        )
    los, his = list(box.lo), list(box.hi)
    for position, axis in enumerate(cut.axes):
        if axis != NEW:
            first, count = part.lo[position], part.hi[position] - part.lo[position]
            los[axis], his[axis], _ = _span(box.lo[axis], box.hi[axis], cut.steps[axis], first, count, 1)
    return Box(tuple(los), tuple(his))


def _expand(key: Any, ndim: int) -> list[Any]:
    """Return one entry per view axis (and None for new ones), with the ellipsis spelled out."""
    entries = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for entry in entries if entry is not None and not isinstance(entry, EllipsisType))
    if used > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, the index names {used}")
    dots = [i for i, entry in enumerate(entries) if isinstance(entry, EllipsisType)]
    if len(dots) > 1:
        raise IndexError("an index can have only one ellipsis (...)")
    at = dots[0] if dots else len(entries)
    return entries[:at] + [slice(None)] * (ndim - used) + entries[at + 1 :]


def _dense(box: Box, key: Any) -> Box | None:
    """Return the box that slices without steps cut out of a dense view, which most views are made of; None for any other key."""
    entries = key if type(key) is tuple else (key,)
    lo, hi = box
    if len(entries) > len(lo):
        return None
    los, his = list(lo), list(hi)
    for axis, entry in enumerate(entries):
        if type(entry) is not slice or not (entry.step is None or entry.step == 1):
            return None
        start, stop, _ = entry.indices(hi[axis] - lo[axis])
        los[axis] = low = lo[axis] + start
        his[axis] = low + stop - start if stop > start else low
    return Box(tuple(los), tuple(his))


def index(box: Box, cut: Cut | None, shape: tuple[int, ...], key: Any) -> tuple[Box, Cut | None]:
    """Return the hull and cut of `view[key]` for basic indexing."""
    if cut is None and (dense := _dense(box, key)) is not None:
        return dense, None
    cut = cut or identity(box.ndim)
    los, his, steps = list(box.lo), list(box.hi), list(cut.steps)
    axes: list[int] = []
    view_axis = 0
    for entry in _expand(key, len(shape)):
        if entry is None:
            axes.append(NEW)
            continue
        axis, count = cut.axes[view_axis], shape[view_axis]
        if isinstance(entry, slice):
            start, stop, stride = entry.indices(count)
            picked = range(start, stop, stride)
            if axis == NEW:
                axes.append(NEW if picked else NOTHING)
            else:
                span = _span(los[axis], his[axis], steps[axis], start, len(picked), stride)
                los[axis], his[axis], steps[axis] = span
                axes.append(axis)
        else:
            position = _position(entry, count, view_axis)
            if axis != NEW:
                los[axis], his[axis], steps[axis] = _span(los[axis], his[axis], steps[axis], position, 1, 1)
        view_axis += 1
    return Box(tuple(los), tuple(his)), simplify(Cut(tuple(steps), tuple(axes)), box.ndim)


def _position(entry: Any, count: int, axis: int) -> int:
    """Return an integer index in range, or raise as NumPy would."""
    if isinstance(entry, bool) or not hasattr(entry, "__index__"):
        raise UnsupportedError(BY_VALUE.format(type(entry).__name__))
    try:
        position = operator.index(entry)
    except TypeError:
        raise UnsupportedError(BY_VALUE.format(type(entry).__name__)) from None
    if not -count <= position < count:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {count}")
    return position % count


def transpose(cut: Cut | None, ndim: int, base_ndim: int, order: tuple[int, ...]) -> Cut | None:
    """Return the cut with its view axes in `order`."""
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes {order} are not a permutation of 0..{ndim - 1}")
    cut = cut or identity(base_ndim)
    return simplify(Cut(cut.steps, tuple(cut.axes[i] for i in order)), base_ndim)


def extract(data: Any, origin: tuple[int, ...], box: Box, cut: Cut | None) -> Any:
    """Cut a view out of `data`, whose first element has base coordinates `origin`."""
    if cut is None:
        return data[(*box.slices(origin), ...)]  # the ellipsis keeps a 0-d result an array
    slices: list[Any] = []
    for at, lo, hi, step in zip(origin, box.lo, box.hi, cut.steps, strict=True):
        if step > 0:
            slices.append(slice(lo - at, hi - at, step))
        else:
            slices.append(slice(hi - 1 - at, lo - 1 - at if lo > at else None, step))
    base_axes = [axis for axis in cut.axes if axis != NEW]
    data = data[(*slices, ...)]  # the ellipsis keeps a 0-d result a view
    dropped = [slice(None) if axis in base_axes else 0 for axis in range(box.ndim)]
    data = data[(*dropped, ...)]
    kept = sorted(base_axes)
    data = data.transpose([kept.index(axis) for axis in base_axes]) if base_axes != kept else data
    if len(base_axes) != len(cut.axes):
        data = data[tuple(None if axis == NEW else slice(None) for axis in cut.axes)]
    return data


def reshaped(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[Any, ...] | None:
    """Return the index that turns one shape into another of the same size by axes of length one, or None."""
    if [n for n in shape if n != 1] != [n for n in wanted if n != 1]:
        return None
    key: list[Any] = []
    axis = 0
    for extent in wanted:
        if extent == 1:
            key.append(None)
            continue
        while shape[axis] == 1:
            key.append(0)
            axis += 1
        key.append(slice(None))
        axis += 1
    return (*key, *(0 for _ in shape[axis:]))
