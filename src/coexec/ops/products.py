"""Inner and outer products in NumPy's names: dot, vdot, inner, outer, tensordot, and einsum of two operands.

Before: ops/reduce.py, ops/matmul.py.  After: the package's own namespace.  Knows no device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError
from ..program import array as arrays
from ..program.access import read, write
from ..program.array import Array
from ..program.body import signature
from ..program.kernel import Kernel
from ..program.ufunc import applied, elementwise, outputs_of
from .matmul import matmul
from .reduce import SMALL, as_array, block_rows, record, reduce_ufunc
from .reduce_kernels import AlongReduced, Request


class InnerBlocks:
    """A body: the inner product of each block of two vectors."""

    def __init__(self) -> None:
        self.__signature__ = signature(["x", "y", "out", "rows"])
        self.__name__ = "dot_blocks"

    def __call__(self, x: Any, y: Any, out: Any, rows: int) -> None:
        """Multiply the blocks of one chunk."""
        for block in range(len(out)):
            part = slice(block * rows, (block + 1) * rows)
            out[block] = np.dot(x[part], y[part])


@lru_cache(maxsize=64)
def _inner_kernel(rows: int) -> Kernel:
    mapper = AlongReduced((0,), rows, 0)
    body = InnerBlocks()
    accesses = {"x": read(mapper), "y": read(mapper), "out": write}
    return Kernel(body, accesses, split=0, over="out", name=body.__name__)


def _inner(x: Array, y: Array) -> Array:
    """Return the sum of products of two vectors, by fixed blocks."""
    if x.shape != y.shape:
        raise ShapeError(f"shapes {x.shape} and {y.shape} not aligned: {x.shape[0]} (dim 0) != {y.shape[0]} (dim 0)")
    dtype = np.dot(np.empty(0, x.dtype), np.empty(0, y.dtype)).dtype
    if not x.size:
        return arrays.zeros((), dtype)
    rows = block_rows(x.shape, 0) if x.size > SMALL else x.size
    parts = arrays.empty(-(-x.size // rows), dtype)
    _inner_kernel(rows)(x, y, parts, rows)
    if parts.size == 1:
        return parts._view(0)
    result = arrays.empty((), dtype)
    record(Request(_adding(dtype), (0,), dtype), parts, None, result)
    return result


def _adding(dtype: np.dtype[Any]) -> Any:
    """Return how products are added up: booleans by or, as in NumPy."""
    return np.logical_or if dtype.kind == "b" else np.add


def dot(a: Any, b: Any, out: Any = None) -> Array:
    """Return the dot product as np.dot does, as a new array, without waiting."""
    x, y = as_array(a), as_array(b)
    if not x.ndim or not y.ndim:
        result = applied(np.multiply, x, y)
    elif x.ndim == 1 and y.ndim == 1:
        result = _inner(x, y)
    elif y.ndim <= 2:
        result = matmul(x, y)
    else:
        result = tensordot(x, y, axes=((x.ndim - 1,), (y.ndim - 2,)))
    return _placed("np.dot", result, out)


def _placed(name: str, result: Array, out: Any) -> Array:
    given = outputs_of(name, 1, (out,))[0]
    if given is None:
        return result
    if given.shape != result.shape or given.dtype != result.dtype:
        raise ShapeError(
            f"{name}: out has shape {given.shape} and type {given.dtype}, the result {result.shape} and {result.dtype}"
        )
    given[...] = result
    return given


def vdot(a: Any, b: Any, /) -> Array:
    """Return the sum of products of all elements, the first operand conjugated, as a new 0-d array."""
    x, y = as_array(a), as_array(b)
    if x.size != y.size:
        raise ShapeError(f"np.vdot: cannot multiply {x.size} elements with {y.size}")
    if x.dtype.kind == "c":
        x = applied(np.conjugate, x)
    if x.ndim == 1 and y.ndim == 1:
        return _inner(x, y)
    if x.shape != y.shape:
        raise UnsupportedError(f"np.vdot of shapes {x.shape} and {y.shape} would flatten them; use np.asarray(array)")
    product = applied(np.multiply, x, y)
    return reduce_ufunc(_adding(product.dtype), product, None, product.dtype)


def inner(a: Any, b: Any, /) -> Array:
    """Return the inner product over the last axes as a new array, without waiting."""
    x, y = as_array(a), as_array(b)
    if not x.ndim or not y.ndim:
        return applied(np.multiply, x, y)
    if x.ndim == 1 and y.ndim == 1:
        return _inner(x, y)
    return tensordot(x, y, axes=((x.ndim - 1,), (y.ndim - 1,)))


def outer(a: Any, b: Any, out: Any = None) -> Array:
    """Return all products of two vectors as a new array, without waiting."""
    x, y = as_array(a), as_array(b)
    if x.ndim > 1 or y.ndim > 1:
        raise UnsupportedError("np.outer flattens arrays of more axes; use np.multiply.outer, or np.asarray(array)")
    x, y = (v if v.ndim else v[None] for v in (x, y))
    return elementwise(np.multiply, [x[:, None], y], outputs_of("np.outer", 1, (out,)))[0]


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Return the sum of products over pairs of axes as a new array, without waiting."""
    x, y = as_array(a), as_array(b)
    if isinstance(axes, int | np.integer):
        axes = (tuple(range(x.ndim - int(axes), x.ndim)), tuple(range(int(axes))))
    left, right = (tuple(np.lib.array_utils.normalize_axis_tuple(s, v.ndim)) for s, v in zip(axes, (x, y), strict=True))
    if len(left) != len(right) or any(x.shape[i] != y.shape[j] for i, j in zip(left, right, strict=True)):
        raise ShapeError(f"shape-mismatch for sum: {x.shape} over {left} and {y.shape} over {right}")
    names = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    first = [next(names) for _ in x.shape]
    second = [next(names) for _ in y.shape]
    for i, j in zip(left, right, strict=True):
        second[j] = first[i]
    kept = [n for n in first if n not in second] + [n for n in second if n not in first]
    return _contract(x, "".join(first), y, "".join(second), "".join(kept))


def einsum(subscripts: Any, *operands: Any, out: Any = None, **options: Any) -> Array:
    """Return `np.einsum` of one or two operands as a new array, without waiting."""
    for key, value in options.items():
        if key != "optimize" and value not in (None, "K", "safe"):
            raise UnsupportedError(f"np.einsum({key}=...) on coexec arrays is not supported; use np.asarray(array)")
    if not isinstance(subscripts, str) or "." in subscripts or len(operands) > 2:
        raise UnsupportedError(
            "np.einsum on coexec arrays takes a string without '...' and one or two operands; combine them in pairs, "
            "or use np.einsum(..., np.asarray(array))"
        )
    taken = [as_array(value) for value in operands]
    given, _, kept = subscripts.replace(" ", "").partition("->")
    names = given.split(",")
    if "->" not in subscripts:
        kept = "".join(sorted(n for n in set(given) - {","} if given.count(n) == 1))
    _check_subscripts(names, kept, taken)
    if len(taken) == 1:
        result = _permuted(_summed(taken[0], names[0], kept), kept)
    else:
        result = _contract(taken[0], names[0], taken[1], names[1], kept)
    return _placed("np.einsum", result, out)


def _check_subscripts(names: list[str], kept: str, operands: list[Array]) -> None:
    if len(names) != len(operands):
        raise ShapeError(f"np.einsum: {len(names)} groups of subscripts for {len(operands)} operands")
    sizes: dict[str, int] = {}
    for subscript, operand in zip(names, operands, strict=True):
        if len(subscript) != operand.ndim:
            raise ShapeError(f"np.einsum: subscripts {subscript!r} do not fit an operand of shape {operand.shape}")
        if len(set(subscript)) != len(subscript):
            raise UnsupportedError(f"np.einsum: {subscript!r} takes a diagonal; use np.einsum(..., np.asarray(array))")
        for name, extent in zip(subscript, operand.shape, strict=True):
            if 1 not in (extent, sizes.get(name, 1)) and sizes[name] != extent:
                raise ShapeError(f"np.einsum: axis {name!r} has both {sizes[name]} and {extent} elements")
            sizes[name] = max(extent, sizes.get(name, 0))
    if unknown := set(kept) - sizes.keys() or len(set(kept)) != len(kept):
        raise ValueError(f"np.einsum: the output names {kept!r} of unknown or repeated axes ({unknown})")


def _summed(x: Array, names: str, kept: str) -> tuple[Array, str]:
    """Return an operand without the axes that nobody else has."""
    gone = tuple(i for i, name in enumerate(names) if name not in kept)
    if not gone:
        return x, names
    return reduce_ufunc(np.add, x, gone, x.dtype), "".join(n for n in names if n in kept)


def _permuted(named: tuple[Array, str], kept: str) -> Array:
    x, names = named
    return x.transpose([names.index(name) for name in kept]) if names != kept else x


def _contract(x: Array, first: str, y: Array, second: str, kept: str) -> Array:
    """Return the sum of products over axes by name: a stack of matrix products, or elementwise work if it is none."""
    x, first = _summed(x, first, second + kept)
    y, second = _summed(y, second, first + kept)
    shared = [n for n in first if n in second]
    batch = [n for n in shared if n in kept]
    inner_ = [n for n in shared if n not in kept]
    rows, columns = [n for n in first if n not in second], [n for n in second if n not in first]
    if len(inner_) == 1 and len(rows) <= 1 and len(columns) <= 1 and _equal(x, first, y, second, shared):
        return _matrix_product((x, first), (y, second), (batch, rows, inner_, columns), kept)
    everything = [*batch, *rows, *columns, *inner_]
    left, right = (_lined_up(v, names, everything) for v, names in ((x, first), (y, second)))
    product = applied(np.multiply, left, right)
    total, names = _summed(product, "".join(everything), kept)
    return _permuted((total, names), kept)


def _equal(x: Array, first: str, y: Array, second: str, shared: list[str]) -> bool:
    return all(x.shape[first.index(n)] == y.shape[second.index(n)] for n in shared)


def _matrix_product(
    left: tuple[Array, str],
    right: tuple[Array, str],
    axes: tuple[list[str], list[str], list[str], list[str]],
    kept: str,
) -> Array:
    """Return a stack of matrix products; vectors are matrices with one row or column."""
    batch, rows, inner_, columns = axes
    x = _lined_up(*left, [*batch, *rows, *inner_])
    y = _lined_up(*right, [*batch, *inner_, *columns])
    if not batch and not rows and not columns:
        return _inner(x, y)
    product = matmul(x if rows else x[..., None, :], y if columns else y[..., None])
    whole = (slice(None),) * len(batch)
    product = product._view((*whole, slice(None) if rows else 0, slice(None) if columns else 0))
    return _permuted((product, "".join([*batch, *rows, *columns])), kept)


def _lined_up(x: Array, names: str, order: list[str]) -> Array:
    """Return a view with its axes in `order`, and an axis of length one for each name it does not have."""
    mine = [name for name in order if name in names]
    x = x.transpose([names.index(name) for name in mine])
    return x[tuple(slice(None) if name in names else None for name in order)]
