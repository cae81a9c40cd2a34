"""Indexing by arrays of indices, which are looked at by the host before each call.

Before: compile/symbolic.py.  After: compile/functions.py.  Computes nothing.

NumPy raises where an index lies beyond its array. Machine code could find that out only after it has written something,
so the host looks at the least and the greatest index first, and indices that the body computes are refused.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .calling import elementwise
from .graph import Constant, Expr, Gather, Read, Scalar, View, convert
from .host import Host, Size
from .refused import Untraceable
from .sizes import region
from .symbolic import HOOKS, Symbolic

INDEX = np.dtype(np.int64)


def gathered(array: Symbolic, entries: list[Any]) -> Symbolic:
    """Return the elements that an index with one array of integers among slices chooses."""
    at = [number for number, entry in enumerate(entries) if isinstance(entry, Symbolic | np.ndarray | list)]
    others = [entry for number, entry in enumerate(entries) if number not in at]
    if len(at) > 1 or not all(isinstance(entry, slice) or entry is Ellipsis for entry in others):
        raise Untraceable("it is indexed by several arrays, or by arrays and numbers")
    index = entries[at[0]]
    if not isinstance(index, Symbolic) or index.dtype.kind not in "iu" or not index.shape:
        raise Untraceable("it is indexed by a mask, a list, or an array from outside")
    axis = at[0]
    if Ellipsis in others and entries.index(Ellipsis) < at[0]:
        axis = array.ndim - (len(entries) - at[0])
    if not 0 <= axis < array.ndim:
        raise Untraceable("an index with more axes than the array has")
    entries[at[0]] = slice(None)
    axes, shape = region(entries, array.shape)
    return _chosen(array._looking(axes, shape), index, axis)


def take(array: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Symbolic:
    """As np.take."""
    if out is not None or mode != "raise" or not isinstance(array, Symbolic):
        raise Untraceable("np.take with options")
    if axis is None:
        array, axis = array.reshape(-1), 0
    at = operator.index(axis) % max(array.ndim, 1)
    return gathered(array, [*(slice(None),) * at, indices])


def _chosen(array: Symbolic, index: Symbolic, axis: int) -> Symbolic:
    array.node()  # raises if nothing was written there
    array.cell.in_memory()
    source = array.node()
    if isinstance(source, View) and all(line.axis != axis for line in source.axes):
        raise Untraceable("it is indexed along an axis of one element")
    extent: Size = array.shape[axis]
    numbers = _from_zero(index, extent)
    shape = (*array.shape[:axis], *index.shape, *array.shape[axis + 1 :])
    time = array.tape.clock.tick()
    node = Gather(shape=shape, dtype=array.dtype, time=time, arg=source, index=numbers, axis=axis)
    return array.fresh(node)


def _from_zero(index: Symbolic, extent: Size) -> Expr:
    """Return indices without negative ones, which count from the end; note that the host is to look at them."""
    read = index.node()
    under = read.arg if isinstance(read, View) else read
    if not isinstance(under, Read) or not under.buffer.parameter or under.version:
        raise Untraceable("it is indexed by values that it computes")
    tape = index.tape
    tape.indices.append((under.buffer.name, extent))
    if index.dtype.kind == "u":
        if index.dtype.itemsize == INDEX.itemsize:
            raise Untraceable("it is indexed by uint64")
        return convert(read, INDEX, tape.clock.tick())
    wide = convert(read, INDEX, tape.clock.tick())
    zero = Constant(shape=(), dtype=INDEX, time=tape.clock.tick(), value=INDEX.type(0))
    if isinstance(extent, Host):
        size: Expr = Scalar(shape=(), dtype=INDEX, time=tape.clock.tick(), host=extent)
    else:
        size = Constant(shape=(), dtype=INDEX, time=tape.clock.tick(), value=INDEX.type(extent))
    negative = elementwise(index, "less", [wide, zero], np.dtype(bool))
    return elementwise(index, "where", [negative, elementwise(index, "add", [wide, size], INDEX), wide], INDEX)


HOOKS["gather"] = gathered
