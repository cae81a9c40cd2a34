"""Means, variances and norms, made of reductions and elementwise kernels.

Before: ops/reduce.py.  After: the package's own namespace.  Knows no device and no kernel of its own.
"""

from __future__ import annotations

import warnings
from math import prod
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError
from ..program import array as arrays
from ..program.array import Array, check_dtype
from ..program.ufunc import applied, elementwise, outputs_of
from .reduce import as_array, reduce_ufunc, reduced_axes
from .reduce_kernels import ABSENT


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Array:
    """Return the mean over the given axes as a new array, without waiting; integers have float64 means."""
    x = as_array(a)
    result = _output("np.mean", out)
    if where is not True and where is not ABSENT:
        return _masked_mean(x, axis, dtype, result, keepdims, where)
    count = _count(x, axis)
    if not count:
        warnings.warn("Mean of empty slice.", RuntimeWarning, stacklevel=3)
    total = reduce_ufunc(np.add, x, axis, _sum_type(x, dtype), None, keepdims)
    return _divided(total, count, _mean_type(x, dtype), result)


def _count(x: Array, axis: Any) -> int:
    """Return how many elements are taken together; NumPy refuses here what its sums let pass, an axis of a 0-d array."""
    axes = range(x.ndim) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
    return prod(x.shape[i] for i in axes)


def _sum_type(x: Array, dtype: Any) -> Any:
    """Return the type that a mean adds up in, as NumPy has it."""
    if dtype is not None:
        return dtype
    return np.float64 if x.dtype.kind in "iub" else np.float32 if x.dtype == np.float16 else None


def _mean_type(x: Array, dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(np.float64 if x.dtype.kind in "iub" else x.dtype)
    return found if dtype is None else check_dtype(dtype)


def _output(name: str, out: Any) -> Array | None:
    return outputs_of(name, 1, (out,))[0]


def _divided(total: Array, count: Any, dtype: np.dtype[Any], out: Array | None) -> Array:
    """Return a sum divided by a number, as `dtype` or in `out`; a new sum is divided in place."""
    if out is not None and out.shape != total.shape:
        raise ShapeError(f"out has shape {out.shape}, the result {total.shape}")
    target = out if out is not None else total if total.dtype == dtype else arrays.empty(total.shape, dtype)
    number = np.intp(count) if isinstance(count, int) else count
    return elementwise(np.true_divide, [total, number], [target], (("casting", "unsafe"),))[0]


def _masked_mean(x: Array, axis: Any, dtype: Any, out: Array | None, keepdims: Any, where: Any) -> Array:
    mask = as_array(where)
    counted = reduce_ufunc(np.add, broadcast(mask, x.shape), axis, np.intp, None, keepdims)
    total = reduce_ufunc(np.add, x, axis, _sum_type(x, dtype), None, keepdims, where=mask)
    return _divided(total, counted, _mean_type(x, dtype), out)


def broadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """Return a new array with `x` repeated to `shape`."""
    if x.shape == shape:
        return x
    new = arrays.empty(shape, x.dtype)
    new[...] = x
    return new


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = ABSENT,
    correction: Any = ABSENT,
) -> Array:
    """Return the variance over the given axes as a new array, without waiting."""
    x = as_array(a)
    if where is not True and where is not ABSENT:
        raise UnsupportedError("np.var(where=...) on coexec arrays is not supported; use np.var(np.asarray(x), ...)")
    if x.dtype.kind == "c":
        raise UnsupportedError("np.var of complex coexec arrays is not supported; use np.var(np.asarray(x))")
    free = ddof if correction is ABSENT else correction
    count = _count(x, axis)
    if free >= count:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=3)
    centre = _centre(x, axis, dtype) if mean is ABSENT else mean
    off = applied(np.subtract, x, centre)
    elementwise(np.multiply, [off, off], [off])
    total = reduce_ufunc(np.add, off, axis, _sum_type(x, dtype), None, keepdims)
    return _divided(total, np.float64(max(count - free, 0)), _mean_type(x, dtype), _output("np.var", out))


def _centre(x: Array, axis: Any, dtype: Any) -> Array:
    """Return the means to take deviations from, in the type that sums have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said once, by the variance
        wanted = _sum_type(x, dtype)
        return mean(x, axis, wanted, None, keepdims=True)


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = ABSENT,
    correction: Any = ABSENT,
) -> Array:
    """Return the standard deviation over the given axes as a new array, without waiting."""
    squared = var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    return elementwise(np.sqrt, [squared], [squared])[0]


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Array:
    """Return the weighted mean over the given axes as a new array, without waiting."""
    if returned:
        raise UnsupportedError("np.average(returned=True) on coexec arrays is not supported; use np.asarray(x)")
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    x, w = as_array(a), as_array(weights)
    if w.shape != x.shape:
        if axis is None or isinstance(axis, tuple) or w.ndim != 1 or w.shape[0] != x.shape[axis]:
            raise ShapeError(f"np.average: weights of shape {w.shape} do not fit {x.shape} along axis {axis}")
        w = w[(slice(None), *(None,) * (x.ndim - 1 - axis % x.ndim))]
    kind = {"dtype": np.result_type(x.dtype, w.dtype, np.float64)} if x.dtype.kind in "iub" else {}
    total = reduce_ufunc(np.add, applied(np.multiply, x, w, **kind), axis, None, None, keepdims)
    return applied(np.divide, total, reduce_ufunc(np.add, broadcast(w, x.shape), axis, total.dtype, None, keepdims))


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Return the norm of vectors (2, 1, inf, 0, p) or matrices (Frobenius, 1, inf) as a new array, without waiting."""
    taken = as_array(x)
    a = taken if taken.dtype.kind in "fc" else applied(np.multiply, taken, 1.0)
    axes = reduced_axes(axis, a.ndim)
    if ord is None or (ord == "fro" and len(axes) == 2) or (ord == 2 and len(axes) == 1):
        return applied(np.sqrt, reduce_ufunc(np.add, _squares(a), axis, None, None, keepdims))
    size = applied(np.absolute, a)
    if len(axes) == 1:
        return _vector_norm(size, ord, axis, keepdims)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        return _matrix_norm(size, ord, axes if axis is None else axis, keepdims)
    raise UnsupportedError(
        f"np.linalg.norm(ord={ord!r}) over axes {axes} is not supported; use np.linalg.norm(np.asarray(x), ...)"
    )


def _squares(a: Array) -> Array:
    if a.dtype.kind == "c":
        size = applied(np.absolute, a)
        return applied(np.square, size)
    return applied(np.square, a)


def _vector_norm(size: Array, ord: Any, axis: Any, keepdims: bool) -> Array:
    if ord in (np.inf, -np.inf):
        return reduce_ufunc(np.maximum if ord > 0 else np.minimum, size, axis, None, None, keepdims)
    if ord == 0:
        return reduce_ufunc(np.add, applied(np.not_equal, size, 0), axis, size.dtype, None, keepdims)
    if isinstance(ord, str):
        raise ShapeError(f"Invalid norm order {ord!r} for vectors")
    if ord == 1:
        return reduce_ufunc(np.add, size, axis, None, None, keepdims)
    total = reduce_ufunc(np.add, applied(np.power, size, ord), axis, None, None, keepdims)
    return elementwise(np.power, [total, 1 / ord], [total])[0]


def _matrix_norm(size: Array, ord: Any, axis: Any, keepdims: bool) -> Array:
    """Return the largest (or smallest) sum of a column (1) or a row (inf)."""
    row, column = (i % size.ndim for i in axis)
    added, chosen = (row, column) if abs(ord) == 1 else (column, row)
    sums = reduce_ufunc(np.add, size, added, None, None, keepdims=True)
    found = reduce_ufunc(np.maximum if ord > 0 else np.minimum, sums, chosen, None, None, keepdims=True)
    kept = tuple(0 if i in (row, column) else slice(None) for i in range(found.ndim))
    return found if keepdims else found._view(kept).copy()
