"""Columns of tables that every row of a result goes through again: copied once, so that their elements are neighbours.

Before: compile/schedule.py.  After: compile/compiled.py.  Pure: stores in, stores out.

`stars[:, 0][None, :] - mine[:, 0][:, None]` reads a column of a table for each of `mine`. Its elements lie apart, and a vector of them
is put together one by one, each time. The copy is a vector's worth of work per row that is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .graph import Assign, Axes, Buffer, Expr, Line, Read, View, nodes_of, substituted, whole_axes
from .host import equal_sizes, size_key


def columns_copied(stores: Sequence[Assign]) -> list[Assign]:
    """Return stores that read columns from copies, wherever one is read along a row, for several rows."""
    copies: dict[Any, Assign] = {}  # the store that makes each
    known: dict[int, Expr] = {}
    first: list[list[Assign]] = []  # what is copied before each store
    for store in stores:
        first.append([])
        for node in nodes_of(store.value):
            place = _column(node) if id(node) not in known else None
            if place is None:
                continue
            assert isinstance(node, View) and isinstance(node.arg, Read)
            axis = len(node.shape) - 1
            extent, read = node.shape[axis], node.arg
            key = id(read.buffer), read.version, tuple(line.key for line in place), size_key(extent)
            if key not in copies:
                copy = Buffer(f"column{len(copies)}", node.dtype, (extent,), parameter=False, version=1)
                value = View(shape=(extent,), dtype=node.dtype, time=node.time, arg=read, axes=place)
                copies[key] = Assign(copy, whole_axes(1), value, store.time)
                first[-1].append(copies[key])
            kept = Read(shape=(extent,), dtype=node.dtype, time=node.time, buffer=copies[key].buffer, version=1)
            known[id(node)] = View(
                shape=node.shape, dtype=node.dtype, time=node.time, arg=kept, axes=(Line(0, 1, axis),)
            )
    values = substituted([store.value for store in stores], known)  # all at once: what they share stays shared
    changed = [replace(store, value=value) for store, value in zip(stores, values, strict=True)]
    return [made for before, store in zip(first, changed, strict=True) for made in (*before, store)]


def _column(node: Expr) -> Axes | None:
    """Return what a view shows along its last axis, if that is all it depends on, of elements that are no neighbours."""
    if not isinstance(node, View) or not isinstance(node.arg, Read) or len(node.shape) < 2:
        return None
    last = len(node.shape) - 1
    moving = [number for number, line in enumerate(node.axes) if line.axis is not None]
    if len(moving) != 1 or node.axes[moving[0]].axis != last:
        return None
    if all(equal_sizes(extent, 1) for extent in node.shape[:last]) or equal_sizes(node.shape[last], 1):
        return None
    if moving[0] == len(node.axes) - 1 and node.axes[moving[0]].step == 1:
        return None
    return tuple(line._replace(axis=None if line.axis is None else 0) for line in node.axes)
