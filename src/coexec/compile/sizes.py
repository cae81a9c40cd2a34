"""Sizes that are known at a call only: slices, broadcasting and products of them.

Before: compile/host.py, compile/graph.py.  After: compile/symbolic.py.  Knows no array.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from .bounds import lesser
from .graph import Axes, Line, Shape
from .host import Host, Size, equal_sizes, plain
from .refused import Untraceable


def normal(size: Any) -> Size:
    """Return an extent: never negative, and a plain 1 where it is one, for broadcasting looks at that."""
    if not isinstance(size, Host) or type(size.value) is not int:
        size = operator.index(size)
    if plain(size) == 1 and isinstance(size, Host):
        size.guards.pin(size.text, 1)
        return 1
    if plain(size) <= 0:
        raise Untraceable("an array in it is empty, or smaller than empty")
    return size


def product(shape: Sequence[Size]) -> Size:
    """Return the number of elements."""
    found: Size = 1
    for extent in shape:
        found = extent if equal_sizes(found, 1) else found if equal_sizes(extent, 1) else found * extent
    return found


def broadcast_sizes(*shapes: Shape) -> Shape:
    """Return the shape that operands take together."""
    ndim = max(map(len, shapes), default=0)
    found: list[Size] = [1] * ndim
    for shape in shapes:
        for axis, extent in enumerate(shape, ndim - len(shape)):
            if equal_sizes(extent, 1) or equal_sizes(extent, found[axis]):
                continue
            if equal_sizes(found[axis], 1):
                found[axis] = extent
            elif found[axis] != extent:
                raise Untraceable(f"operands of different sizes, {plain(found[axis])} and {plain(extent)}")
            elif isinstance(extent, int):
                found[axis] = extent
    return tuple(found)


def same_shape(shape: Shape, other: Shape) -> bool:
    """Tell whether two shapes are alike at this call; what is decided so becomes a guard."""
    return len(shape) == len(other) and all(equal_sizes(a, b) or a == b for a, b in zip(shape, other, strict=True))


def fits_into(shape: Shape, target: Shape) -> bool:
    """Tell whether a value may be assigned to a region."""
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(equal_sizes(a, 1) or equal_sizes(a, b) or a == b for a, b in pairs)


def region(entries: list[Any], shape: Shape) -> tuple[Axes, Shape]:
    """Return the view that an index of slices, integers, None and ... shows, and its shape."""
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise Untraceable("an index with two ellipses")
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if used > len(shape):
        raise Untraceable("an index with more axes than the array has")
    at = next((i for i, entry in enumerate(entries) if entry is Ellipsis), None)
    fill = [slice(None)] * (len(shape) - used)
    entries = [*entries, *fill] if at is None else [*entries[:at], *fill, *entries[at + 1 :]]
    axes: list[Line] = []
    found: list[Size] = []
    for entry in entries:
        if entry is None:
            found.append(1)
            continue
        extent = shape[len(axes)]
        if isinstance(entry, slice):
            start, step, count = _slice(entry, extent)
            axes.append(Line(start, step, len(found)))
            found.append(count)
        else:
            axes.append(Line(_element(entry, extent), 1, None))
    return tuple(axes), tuple(found)


def _element(entry: Any, extent: Size) -> Size:
    if isinstance(entry, bool) or not hasattr(entry, "__index__"):
        raise Untraceable(f"an index of type {type(entry).__name__}")
    at: Size = entry if isinstance(entry, Host) else operator.index(entry)
    if isinstance(at, Host) and type(at.value) is not int:
        at = operator.index(at)
    found = at + extent if at < 0 else at
    if not (found >= 0 and found < extent):
        raise Untraceable("an index beyond the array")
    return found


def _slice(entry: slice, extent: Size) -> tuple[Size, int, Size]:
    """Return where a slice begins, its step, and how many elements it has."""
    step = 1 if entry.step is None else operator.index(entry.step)
    if step < 0:
        return _backwards(entry, extent, step)
    if step == 0:
        raise Untraceable("a slice of step 0")
    start = _bound(entry.start, 0, extent)
    stop = _bound(entry.stop, extent, extent)
    width = stop - start
    if not width > 0:
        raise Untraceable("a slice in it is empty")
    count = width if step == 1 else (width + (step - 1)) // step
    return start, step, normal(count)


def _backwards(entry: slice, extent: Size, step: int) -> tuple[Size, int, Size]:
    """Return the same of a slice that goes from its start down to what comes after its stop."""
    start = extent - 1 if entry.start is None else _from_begin(entry.start, extent)
    if entry.start is not None:
        if not start >= 0:
            raise Untraceable("a slice in it is empty")
        start = lesser(start, extent - 1)
    stop: Size = -1 if entry.stop is None else _from_begin(entry.stop, extent)
    if entry.stop is not None and stop < 0:
        stop = -1
    width = start - stop
    if not width > 0:
        raise Untraceable("a slice in it is empty")
    return start, step, normal(width if step == -1 else (width + (-step - 1)) // -step)


def _from_begin(given: Any, extent: Size) -> Size:
    """Return an end of a slice that counts from the end if it is negative."""
    at: Size = given if isinstance(given, Host) and type(given.value) is int else operator.index(given)
    return at + extent if at < 0 else at


def _bound(given: Any, otherwise: Size, extent: Size) -> Size:
    """Return one end of a slice within the array."""
    if given is None:
        return otherwise
    at: Size = given if isinstance(given, Host) and type(given.value) is int else operator.index(given)
    if at < 0:
        at = at + extent
        return max(at, 0)
    return lesser(at, extent)
