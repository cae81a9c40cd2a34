"""Arrays put together and moved about: concatenate, stack and their relatives, roll, tile, broadcast_to.

Before: program/assign.py.  After: program/numpy_protocol.py, which finds it by name.  Knows no device: every part is an
assignment to a box of the result, and assignments to different boxes do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..program import array as arrays
from ..program.array import Array
from ..program.numpy_protocol import reshape
from ..program.ufunc import outputs_of
from .reduce import as_array

Axes = np.lib.array_utils


def concatenate(
    parts: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Array:
    """Return arrays joined along an existing axis as a new array, without waiting."""
    taken = [as_array(part) for part in parts]
    # NumPy's own rules say what comes out, on stand-ins without elements.
    held = np.concatenate(
        [np.empty(0, part.dtype) for part in taken],
        dtype=dtype,
        casting=casting,  # type: ignore[call-overload]
    ).dtype
    if axis is None:
        if any(part.ndim != 1 for part in taken):
            taken = [_flat(part) for part in taken]
        axis = 0
    if not all(part.ndim for part in taken):
        raise ShapeError("zero-dimensional arrays cannot be concatenated")
    at = Axes.normalize_axis_index(axis, taken[0].ndim)
    _check_alike(taken, at)
    shape = list(taken[0].shape)
    shape[at] = sum(part.shape[at] for part in taken)
    result = _output("np.concatenate", out, tuple(shape), held)
    first = 0
    for part in taken:
        if part.size:
            result[(*(slice(None),) * at, slice(first, first + part.shape[at]))] = part
        first += part.shape[at]
    return result


def _flat(part: Array) -> Array:
    return reshape(part, (part.size,))


def _check_alike(parts: Sequence[Array], axis: int) -> None:
    first = parts[0].shape
    for part in parts:
        rest = (*part.shape[:axis], *part.shape[axis + 1 :])
        if part.ndim != len(first) or rest != (*first[:axis], *first[axis + 1 :]):
            raise ShapeError(
                f"np.concatenate: shapes {', '.join(str(p.shape) for p in parts)} differ along another axis than {axis}"
            )


def _output(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    given = outputs_of(name, 1, (out,))[0]
    if given is None:
        return arrays.empty(shape, dtype)
    if given.shape != shape:
        raise ShapeError(f"{name}: out has shape {given.shape}, the result {shape}")
    return given


def stack(parts: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Array:
    """Return arrays joined along a new axis as a new array, without waiting."""
    taken = [as_array(part) for part in parts]
    if not taken:
        raise ValueError("need at least one array to stack")
    if len({part.shape for part in taken}) != 1:
        raise ShapeError("all input arrays must have the same shape")
    at = Axes.normalize_axis_index(axis, taken[0].ndim + 1)
    key = (*(slice(None),) * at, None)
    return concatenate([part[key] for part in taken], at, out, dtype=dtype, casting=casting)


def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
    """Return arrays joined row by row as a new array, without waiting."""
    return concatenate([_at_least_2d(as_array(part)) for part in tup], 0, dtype=dtype, casting=casting)


def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
    """Return arrays joined side by side as a new array, without waiting."""
    taken = [part if part.ndim else part[None] for part in map(as_array, tup)]
    return concatenate(taken, 0 if taken and taken[0].ndim == 1 else 1, dtype=dtype, casting=casting)


def dstack(tup: Any) -> Array:
    """Return arrays joined along the third axis as a new array, without waiting."""
    taken = [_at_least_2d(as_array(part)) for part in tup]
    return concatenate([part[..., None] if part.ndim == 2 else part for part in taken], 2)


def column_stack(tup: Any) -> Array:
    """Return vectors as the columns of a new array, without waiting."""
    taken = map(as_array, tup)
    return concatenate([part if part.ndim > 1 else _at_least_2d(part).T for part in taken], 1)


def _at_least_2d(part: Array) -> Array:
    return part if part.ndim > 1 else part[(None,) * (2 - part.ndim)]


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Return the elements moved along axes, those beyond the end coming in at the beginning, as a new array."""
    x = as_array(a)
    if axis is None:
        if x.ndim != 1:
            return reshape(roll(_flat(x), shift, 0), x.shape)
        axis = 0
    shifts, axes = np.broadcast_arrays(shift, Axes.normalize_axis_tuple(axis, x.ndim, allow_duplicate=True))
    if shifts.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    moves = [0] * x.ndim
    for by, along in zip(shifts.reshape(-1), axes.reshape(-1), strict=True):
        moves[int(along)] += int(by)
    result = arrays.empty(x.shape, x.dtype)
    if x.size:
        _roll_into(result, x, moves)
    return result


def _roll_into(result: Array, x: Array, moves: list[int]) -> None:
    """Assign each of the boxes that the moves cut the array into."""
    targets: list[tuple[slice, ...]] = [()]
    sources: list[tuple[slice, ...]] = [()]
    for extent, by in zip(x.shape, moves, strict=True):
        at = by % extent
        pairs = [(slice(at, extent), slice(0, extent - at))] + [(slice(0, at), slice(extent - at, extent))] * (at > 0)
        targets, sources = (
            [(*before, pair[side]) for before in kept for pair in pairs] for side, kept in ((0, targets), (1, sources))
        )
    for target, source in zip(targets, sources, strict=True):
        result[target] = x[source]


def tile(a: Any, reps: Any) -> Array:
    """Return an array repeated along each axis as a new array, without waiting."""
    x = as_array(a)
    counts = tuple(index(count) for count in np.atleast_1d(np.asarray(reps, dtype=object)))
    if any(count < 0 for count in counts):
        raise ShapeError(f"np.tile repeats an array 0 times or more, not {counts}")
    ndim = max(len(counts), x.ndim)
    counts = (*(1,) * (ndim - len(counts)), *counts)
    x = x[(None,) * (ndim - x.ndim)] if x.ndim < ndim else x
    for axis, count in enumerate(counts):
        if count == 0:
            shape = (*x.shape[:axis], 0, *x.shape[axis + 1 :])
            x = arrays.empty(shape, x.dtype)
        elif count > 1:
            x = concatenate([x] * count, axis)
    return x.copy() if x._storage is as_array(a)._storage else x


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Array:
    """Return an array repeated to `shape`: a new array, since coexec's views have no repeated elements."""
    del subok
    x = as_array(array)
    wanted = arrays.check_shape(shape)
    try:
        fits = np.broadcast_shapes(x.shape, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"operands could not be broadcast together: {x.shape} does not broadcast to {wanted}")
    new = arrays.empty(wanted, x.dtype)
    if new.size:
        new[...] = x
    return new
