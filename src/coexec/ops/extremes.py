"""Where the largest or smallest elements are: argmax and argmin, the first one among equals, NaN before all.

Before: ops/reduce.py.  After: the package's own namespace.  Knows no device.

Each fixed block gives the pair (value, index) of its own first extreme; the pairs are combined in block order, so the
first block wins among equals as the first element does inside a block.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..program import array as arrays
from ..program.access import read, write
from ..program.array import Array
from ..program.body import signature
from ..program.kernel import Kernel
from ..program.mapper import all as map_all
from ..program.overlap import share_elements
from ..program.ufunc import outputs_of
from .reduce import SMALL, as_array, block_rows, cut_axis, reduced_axes, squeezed
from .reduce_kernels import ABSENT, AlongReduced

INDEX = np.dtype(np.intp)


class Along:
    """A body: the positions along one axis, or in the flattened array if there is none."""

    def __init__(self, function: Any, axis: int | None) -> None:
        self.__signature__ = signature(["x", "out"])
        self.__name__ = str(function.__name__)
        self._function = function
        self._axis = axis

    def __call__(self, x: Any, out: Any) -> None:
        """Find the extremes of one chunk."""
        out[...] = self._function(x, axis=self._axis)


class BlockExtremes:
    """A body: per block of rows, the extreme values and where they are in the whole array."""

    def __init__(self, function: Any, axis: int | None, blocked: int) -> None:
        self.__signature__ = signature(["x", "values", "places", "rows", "chunk"])
        self.__name__ = f"{function.__name__}_blocks"
        self._function = function
        self._axis = axis
        self._blocked = blocked

    def __call__(self, x: Any, values: Any, places: Any, rows: int, chunk: Any) -> None:
        """Find the extremes of each block of one chunk."""
        before = (slice(None),) * self._blocked
        for block in range(len(values)):
            some = x[(*before, slice(block * rows, (block + 1) * rows))]
            first = (chunk.lo[0] + block) * rows
            at = self._function(some, axis=self._axis)
            if self._axis is None:
                values[block] = (
                    some.reshape(-1)[at] if some.flags.c_contiguous else some[np.unravel_index(at, some.shape)]
                )
                places[block] = at + first * prod(some.shape[self._blocked + 1 :])
            else:
                values[block, ...] = np.take_along_axis(some, np.expand_dims(at, self._axis), self._axis).squeeze(
                    self._axis
                )
                places[block, ...] = at + first


class Best:
    """A body: among the pairs of all blocks, the place of the first extreme."""

    def __init__(self, function: Any) -> None:
        self.__signature__ = signature(["values", "places", "out"])
        self.__name__ = f"{function.__name__}_combine"
        self._function = function

    def __call__(self, values: Any, places: Any, out: Any) -> None:
        """Choose among the blocks."""
        winner = np.expand_dims(self._function(values, axis=0), 0)
        out[...] = np.take_along_axis(places, winner, 0)[0]


@lru_cache(maxsize=256)
def _along_kernel(function: Any, ndim: int, axis: int | None, cut: int | None) -> Kernel:
    body = Along(function, axis)
    kept = [] if axis is None else [a for a in range(ndim) if a != axis]
    mapper = AlongReduced(tuple(kept.index(a) if a in kept else -1 for a in range(ndim)))
    split = None if cut is None else kept.index(cut)
    return Kernel(body, {"x": read(mapper), "out": write}, split=split, over="out", name=body.__name__)


@lru_cache(maxsize=256)
def _pairs_kernel(function: Any, ndim: int, axis: int | None, blocked: int, rows: int) -> Kernel:
    body = BlockExtremes(function, axis, blocked)
    kept = [] if axis is None else [a for a in range(ndim) if a != axis]
    mapper = AlongReduced(
        tuple(kept.index(a) + 1 if a in kept else 0 if a == blocked else -1 for a in range(ndim)), rows, blocked
    )
    accesses = {"x": read(mapper), "values": write, "places": write}
    return Kernel(body, accesses, split=0, over="values", name=body.__name__)


@lru_cache(maxsize=16)
def _best_kernel(function: Any) -> Kernel:
    body = Best(function)
    accesses = {"values": read(map_all), "places": read(map_all), "out": write}
    return Kernel(body, accesses, name=body.__name__)


def _find(function: Any, a: Any, axis: Any, out: Any, keepdims: Any) -> Array:
    """Return the places of extremes as a new array, or `out`. NumPy's own errors come at once."""
    name = f"np.{function.__name__}"
    x = as_array(a)
    keep = bool(keepdims) if keepdims is not ABSENT else False
    if not x.size:
        return as_array(function(np.empty(x.shape, x.dtype), axis=axis, keepdims=keep))
    function(np.empty((1,) * x.ndim, x.dtype), axis=axis)
    axes = reduced_axes(axis, x.ndim)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
    given = outputs_of(name, 1, (out,))[0]
    if given is not None and (given.shape != shape or given.dtype != INDEX):
        raise ShapeError(f"{name}: out must have shape {shape} and type {INDEX}, not {given.shape} and {given.dtype}")
    result = arrays.empty(shape, INDEX) if given is None else given
    target = arrays.empty(shape, INDEX) if share_elements(result, x) else result
    _record(function, x, None if axis is None or not x.ndim else axes[0], squeezed(target, axes, keep=keep))
    if target is not result:
        result[...] = target
    return result


def _record(function: Any, x: Array, axis: int | None, out: Array) -> None:
    """Record the tasks that find the places of extremes along `axis`, or in the flattened array."""
    # Blocks of a flattened array must follow each other, so they are cut along its first axis.
    first = next((a for a, n in enumerate(x.shape) if n > 1), None)
    cut = first if axis is None else cut_axis(x.shape, (axis,))
    if cut is None or x.size <= SMALL:
        _along_kernel(function, x.ndim, axis, None)(x, out)
    elif axis is not None and cut != axis:
        _along_kernel(function, x.ndim, axis, cut)(x, out)
    else:
        rows = block_rows(x.shape, cut)
        count = -(-x.shape[cut] // rows)
        values, places = arrays.empty((count, *out.shape), x.dtype), arrays.empty((count, *out.shape), INDEX)
        _pairs_kernel(function, x.ndim, axis, cut, rows)(x, values, places, rows)
        _best_kernel(function)(values, places, out)


def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Array:
    """Return where the largest elements are, the first among equals, as a new array, without waiting."""
    return _find(np.argmax, a, axis, out, keepdims)


def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Array:
    """Return where the smallest elements are, the first among equals, as a new array, without waiting."""
    return _find(np.argmin, a, axis, out, keepdims)
