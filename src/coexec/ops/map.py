"""cx.map: any elementwise function of NumPy arrays, in blocks that stay in the cache, on every device that runs NumPy.

Before: program/ufunc.py.  After: the package's own namespace.  Knows no device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..program import array as arrays
from ..program.access import read, update, write
from ..program.array import Array
from ..program.assign import private_copy
from ..program.body import signature
from ..program.capture import Captured, warn_if_drawing
from ..program.kernel import Kernel
from ..program.overlap import entangled
from ..program.ufunc import WEAK, broadcast, operand, outputs_of

BLOCK = 1 << 17
"""Elements of one operand in a block: a few operands of doubles fit into a core's second cache."""


class Blockwise:
    """A body: the function on one block of rows after the other."""

    def __init__(self, function: Callable[..., Any], inputs: int, name: str) -> None:
        self.__signature__ = signature([*(f"x{i}" for i in range(inputs)), "out"])
        self.__name__ = name
        self._function = function

    def __call__(self, *values: Any) -> None:
        """Compute the function on one chunk."""
        *inputs, out = values
        if not out.ndim:
            out[...] = self._function(*inputs)
            return
        rows = max(1, BLOCK // max(1, prod(out.shape[1:])))
        for first in range(0, len(out), rows):
            part = slice(first, first + rows)
            block = out[part]
            result = self._function(*(_rows(value, part, out.ndim) for value in inputs))
            if np.shape(result) != block.shape and np.shape(result) not in ((), (1,)):
                raise ShapeError(
                    f"cx.map({self.__name__}): a block of shape {block.shape} came back with shape {np.shape(result)}; "
                    "the function must compute element by element"
                )
            block[...] = result


def _rows(value: Any, part: slice, ndim: int) -> Any:
    """Return a block of an operand; one that is repeated along the first axis serves every block."""
    return value[part] if np.ndim(value) == ndim and len(value) > 1 else value


@lru_cache(maxsize=256)
def _kernel(function: Callable[..., Any], name: str, arrays_: tuple[bool, ...], ndim: int, mode: str) -> Kernel:
    body = Blockwise(function, len(arrays_), name)
    accesses = {f"x{i}": read(broadcast) for i, is_array in enumerate(arrays_) if is_array}
    accesses["out"] = update if mode == "update" else write
    return Kernel(body, accesses, split=0 if ndim else None, over="out", name=name)


@lru_cache(maxsize=256)
def _captured(function: Any) -> Captured:
    return Captured(function)


def map(function: Callable[..., Any], *operands: Any, out: Array | None = None, dtype: Any = None) -> Array:
    """Return `function(*operands)` as a new array, without waiting; the function computes element by element.

    It is called with NumPy arrays, blocks of the operands, and must give a block of the same shape. Operands broadcast
    as in NumPy; numbers are passed as they are. The result's type is `dtype`, or what the function gives for arrays
    without elements.
    """
    if not callable(function):
        raise ArgumentError(f"cx.map takes a function and arrays, not a {type(function).__name__} first")
    name = str(getattr(function, "__name__", type(function).__name__))
    warn_if_drawing(f"cx.map({name})", function, stacklevel=2)
    taken = [operand(value) for value in operands]
    present = [value for value in taken if isinstance(value, Array)]
    given = outputs_of(f"cx.map({name})", 1, (out,))[0]
    if not present and given is None:
        raise ArgumentError(f"cx.map({name}) needs at least one array")
    try:
        shape = np.broadcast_shapes(*(value.shape for value in present))
    except ValueError:
        shapes = ", ".join(str(value.shape) for value in present)
        raise ShapeError(f"cx.map({name}): shapes {shapes} cannot be broadcast together") from None
    if given is not None and given.shape != shape:
        raise ShapeError(f"cx.map({name}): out has shape {given.shape}, the result {shape}")
    fixed = _captured(function).fixed() if inspect.isfunction(function) else function
    made = dtype if dtype is not None else given.dtype if given is not None else _dtype(fixed, name, taken)
    result = arrays.empty(shape, made) if given is None else given
    # Blocks are computed one after the other: an operand that would change meanwhile is read from a copy.
    taken = [private_copy(value) if entangled(value, (given,)) else value for value in taken]
    aliased = any(isinstance(value, Array) and value._storage is result._storage for value in taken)
    passed = tuple(isinstance(value, Array) and value.ndim > 0 for value in taken)
    _kernel(fixed, name, passed, len(shape), "update" if aliased else "write")(*taken, result)
    return result


def _dtype(function: Callable[..., Any], name: str, operands: list[Any]) -> np.dtype[Any]:
    """Return the type of the function's results, asked of itself with stand-ins that have no element."""
    models = [np.empty(0, v.dtype) if isinstance(v, Array) else v for v in operands]
    try:
        with np.errstate(all="ignore"):
            answer = function(*models)
    except Exception as error:
        raise ArgumentError(
            f"cx.map({name}): calling it on arrays without elements, to learn the result's type, raised "
            f"{type(error).__name__}: {error}; pass dtype="
        ) from error
    if not isinstance(answer, np.ndarray | np.generic) and type(answer) not in WEAK:
        raise ArgumentError(
            f"cx.map({name}): the function must give an array of the blocks' shape, not a {type(answer).__name__}"
        )
    return np.asarray(answer).dtype
