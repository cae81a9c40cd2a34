"""Reductions over any axes: fixed blocks, each reduced by NumPy or its like, combined in block order.

Before: ops/reduce_kernels.py.  After: ops/reductions.py, ops/statistics.py.  Knows no device: blocks depend on shapes
alone, so the bits of a result do not depend on who computed which.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..program import array as arrays
from ..program.array import Array
from ..program.padding import Shape
from ..program.ufunc import operand, outputs_of
from .reduce_kernels import ABSENT, Request, blocks_kernel, whole_kernel

SMALL = 1 << 15
"""Elements: below, a reduction is one call of NumPy."""
LARGEST, FEWEST = 1 << 18, 64
"""Elements of a block: at most so many, and fewer while there are not so many blocks."""
LONG = 16
"""An axis is worth cutting from this length on."""
SAVING = 16
"""The results of blocks have at most this fraction of the operand's elements."""
ASSOCIATIVE = frozenset(
    {
        np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logical_or, np.logical_and, np.bitwise_or,
        np.bitwise_and, np.bitwise_xor, np.gcd, np.lcm, np.logaddexp, np.logaddexp2,
    }
)  # fmt: skip
"""What may be combined from the results of blocks; any other is reduced along an axis in one piece."""
LOGICAL = frozenset({np.logical_or, np.logical_and, np.logical_xor})
"""What gives booleans whatever it is given; an output of another type gets them converted."""


def cut_axis(shape: Shape, axes: Sequence[int]) -> int:
    """Return the axis along which a reduction over `axes` is divided.

    It is the first long one, or else the longest; but a kept one if the results of blocks would be too many.
    """
    long = [axis for axis, extent in enumerate(shape) if extent >= LONG]
    cut = long[0] if long else max(range(len(shape)), key=shape.__getitem__)
    kept = [axis for axis in long if axis not in axes]
    return kept[0] if kept and cut in axes and _block(shape, axes, cut) < SAVING else cut


def _block(shape: Shape, axes: Sequence[int], cut: int) -> int:
    """Return how many elements make one element of a block's results."""
    return block_rows(shape, cut) * prod(shape[axis] for axis in axes if axis != cut)


def block_rows(shape: Shape, axis: int) -> int:
    """Return how many elements along `axis` make a block."""
    size = prod(shape)
    block = min(LARGEST, max(SMALL, size // FEWEST))
    return max(1, block * shape[axis] // size)


def record(request: Request, x: Array, mask: Array | None, out: Array) -> None:
    """Record the tasks that reduce `x` into `out`, which has the kept axes in the order of `x`."""
    operands = (x,) if mask is None else (x, mask)
    cut = cut_axis(x.shape, request.axes) if x.size > SMALL else None
    if cut is None or (cut in request.axes and request.ufunc not in ASSOCIATIVE):
        whole_kernel(request, x.ndim, x.dtype, mask is not None, None)(*operands, out)
    elif cut not in request.axes:
        whole_kernel(request, x.ndim, x.dtype, mask is not None, cut)(*operands, out)
    else:
        _record_blocks(request, x, mask, out, cut)


def _signs(initial: Any) -> tuple[bool, bool]:
    """Return the signs of a zero that a reduction begins with: -0.0 equals 0.0, but gives other bits."""
    if not isinstance(initial, float | complex | np.inexact) or initial != 0:
        return (False, False)
    return bool(np.signbit(initial.real)), bool(np.signbit(initial.imag))


def _record_blocks(request: Request, x: Array, mask: Array | None, out: Array, cut: int) -> None:
    """Record the reduction of blocks along `cut`, and that of their results, in order."""
    rows = block_rows(x.shape, cut) * -(-SAVING // min(SAVING, _block(x.shape, request.axes, cut)))
    count = -(-x.shape[cut] // rows)
    # Results of blocks in half precision would lose what NumPy keeps inside one sum.
    dtype = np.dtype(np.float32) if request.dtype == np.float16 else request.dtype
    partial = request._replace(dtype=dtype)
    if request.initial is not ABSENT and request.ufunc.identity is not None:
        # It counts once, where the blocks are combined; but a block that began at +0.0 would lose the sign of -0.0.
        keeps = request.ufunc is np.add and any(request.signs)
        partial = partial._replace(initial=request.initial if keeps else ABSENT)
    parts = arrays.empty((count, *out.shape), dtype)
    kernel = blocks_kernel(partial, x.ndim, x.dtype, mask is not None, cut, rows)
    kernel(x, *(() if mask is None else (mask,)), parts, rows)
    if dtype == request.dtype:
        record(request._replace(axes=(0,), dtype=dtype), parts, None, out)
    else:
        total = arrays.empty(out.shape, dtype)
        record(request._replace(axes=(0,), dtype=dtype), parts, None, total)
        out[...] = total


# What the program calls ---------------------------------------------------------------------------------------------------


def reduce_ufunc(
    ufunc: Any,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = ABSENT,
    where: Any = True,
) -> Array:
    """Return `ufunc.reduce(array, ...)` as a new array, or `out`. NumPy's own errors come at once."""
    name = f"np.{ufunc.__name__}.reduce"
    x = as_array(array)
    given = outputs_of(name, 1, out if isinstance(out, tuple) else (out,))[0]
    keep = bool(keepdims) if keepdims is not ABSENT else False
    mask = None if where is True or where is ABSENT else _mask(where, x)
    axes = reduced_axes(axis, x.ndim)
    held = None if given is None else given.dtype
    # Axes beyond the array's, an operation without identity, and types that do not fit: NumPy says it best.
    ask = _ask(ufunc, x.dtype, x.ndim, axis, dtype, held, initial, mask is not None)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keep or a not in axes)
    if given is not None and given.shape != shape:
        raise ShapeError(f"{name}: out has shape {given.shape}, the result {shape}")
    result = arrays.empty(shape, ask) if given is None else given
    if not x.size:
        options = {} if initial is ABSENT else {"initial": initial}
        result[...] = ufunc.reduce(np.empty(x.shape, x.dtype), axis=axes, dtype=ask, keepdims=keep, **options)
        return result
    apart = result._storage is not x._storage and (mask is None or result._storage is not mask._storage)
    target = result if apart and result.dtype == ask else arrays.empty(shape, ask)
    _record_in_memory_order(
        Request(ufunc, axes, ask, initial, _signs(initial)), x, mask, squeezed(target, axes, keep=keep)
    )
    if target is not result:
        result[...] = target
    return result


@lru_cache(maxsize=1024)
def _ask(
    ufunc: Any, taken: Any, ndim: int, axis: Any, dtype: Any, held: Any, initial: Any, masked: bool
) -> np.dtype[Any]:
    """Return the type of a reduction's results, asked of NumPy with a stand-in of one element."""
    options: dict[str, Any] = {} if initial is ABSENT else {"initial": initial}
    if masked:
        options["where"] = np.ones((1,) * ndim, bool)
    model = np.ones((1,) * ndim, taken)
    if held is not None:  # an output's type takes part in the choice, as in NumPy
        shape = ufunc.reduce(model, axis=axis, dtype=dtype, **options).shape
        ufunc.reduce(model, axis=axis, dtype=dtype, out=np.empty(shape, held), **options)
        if dtype is None:
            chosen = np.can_cast(taken, held, "same_kind") and held.kind != "b" and ufunc not in LOGICAL
            dtype = held if chosen else None
    answer: np.dtype[Any] = ufunc.reduce(model, axis=axis, dtype=dtype, **options).dtype
    return answer


def _record_in_memory_order(request: Request, x: Array, mask: Array | None, out: Array) -> None:
    """Record a reduction with the operand's axes as they lie in memory, outermost first."""
    order = memory_order(x)
    kept = [axis for axis in order if axis not in request.axes]
    before = sorted(kept)
    axes = tuple(position for position, axis in enumerate(order) if axis in request.axes)
    out = out.transpose([before.index(axis) for axis in kept]) if kept != before else out
    if order != tuple(range(x.ndim)):
        x = x.transpose(order)
        mask = None if mask is None else mask.transpose(order)
    record(request._replace(axes=axes), x, mask, out)


def memory_order(x: Array) -> tuple[int, ...]:
    """Return the axes of a view from the outermost in memory to the innermost; axes of length one come first."""
    axes = range(x.ndim) if x._cut is None else x._cut.axes
    return tuple(sorted(range(x.ndim), key=lambda axis: axes[axis] if x.shape[axis] > 1 else -1))


def squeezed(out: Array, axes: Sequence[int], *, keep: bool) -> Array:
    """Return the view of a result without the axes of length one that stand for reduced ones."""
    return out._view(tuple(0 if axis in axes else slice(None) for axis in range(out.ndim))) if keep else out


def reduced_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes that go away, in order."""
    if axis is None:
        return tuple(range(ndim))
    if ndim == 0 and axis in (0, -1, (), (0,), (-1,)):
        return ()  # as NumPy has it for 0-d arrays
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, ndim)))


def as_array(value: Any) -> Array:
    """Return an operand as a coexec array."""
    taken = operand(value)
    return taken if isinstance(taken, Array) else arrays.array(taken)


def _mask(where: Any, x: Array) -> Array:
    """Return the mask with as many axes as the operand."""
    mask = as_array(where)
    if mask.dtype != bool:
        raise TypeError(f"where= takes booleans, not {mask.dtype}")
    fits = mask.ndim <= x.ndim and all(m in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1], strict=False))
    if not fits:
        raise ShapeError(f"where= of shape {mask.shape} cannot be broadcast to the operand's {x.shape}")
    return mask[(*(None,) * (x.ndim - mask.ndim), ...)] if mask.ndim < x.ndim else mask
