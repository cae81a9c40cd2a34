"""What ready-made operations share: options of a call, operands as arrays, and one kernel call behind each.

Before: program/kernel.py.  After: ops/matmul.py, ops/conv2d.py.  Knows no device and no particular operation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..machine.cores import available_cores
from ..program import array as arrays
from ..program.array import Array
from ..program.kernel import Kernel
from ..program.refusals import IMMUTABLE
from ..program.value import as_value

LEAST_ROWS = 48  # below, packing the columns takes a good part of the time


class Tile(NamedTuple):
    """How a CPU blocks matrix products of one type: a work-item's rows and columns, and how deep it packs."""

    dtype: str
    c_type: str
    width: int  # elements of a vector: 256 bits, since PoCL 3.0 miscompiles wider ones
    rows: int  # at most; they share the work of packing the columns
    columns: int
    depth: int

    def defines(self) -> list[str]:
        """Return the sizes as OpenCL C gets them."""
        sizes = {"T": self.c_type, "W": self.width, "COLUMNS": self.columns, "DEPTH": self.depth}
        return [f"#define {name} {value}" for name, value in sizes.items()]

    def groups(self, rows: int, columns: int, stacked: int = 1) -> tuple[int, int, int]:
        """Return how many work-items compute `rows` x `columns` elements: enough for every core, but none of few rows."""
        across = -(-columns // self.columns)
        wanted = -(-2 * _cores() // max(1, across * stacked))
        return across, max(-(-rows // self.rows), min(wanted, -(-rows // LEAST_ROWS))), stacked


@cache
def _cores() -> int:
    return len(available_cores())


TILES = {
    "float32": Tile("float32", "float", 8, 192, 256, 384),
    "float64": Tile("float64", "double", 4, 192, 256, 192),
}
"""Packed panels of both fill a third of a 1 MB second-level cache."""


class CheckedCall(NamedTuple):
    """One call, checked: the kernel, its arguments, and what the user gets."""

    kernel: Kernel
    arguments: tuple[Any, ...]
    result: Array
    computed: Array  # what the kernel fills; assigned to `result` afterwards if that is another array


class Op:
    """A ready-made operation. Calling it records its task and returns the result at once."""

    def __init__(self, prepare: Callable[..., CheckedCall], options: dict[str, Any] | None = None) -> None:
        self.prepare = prepare
        self.__name__ = prepare.__name__.lstrip("_")
        self.__doc__ = prepare.__doc__
        self.__wrapped__ = prepare  # inspect.signature looks here
        self._options = options or {}

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        call = self.prepare(*args, **kwargs)
        kernel: Callable[..., Any] = call.kernel.using(**self._options) if self._options else call.kernel
        kernel(*call.arguments)
        if call.computed is not call.result:
            call.result[...] = call.computed
        result: Array = as_value(call.result, (*args, *kwargs.values()))
        return result

    def using(self, **options: Any) -> Op:
        """Return this operation with options for the calls made through it, as kernels have them."""
        return Op(self.prepare, {**self._options, **options})

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """Return how a call with these arguments would be divided; nothing is computed."""
        call = self.prepare(*args, **kwargs)
        kernel: Any = call.kernel.using(**self._options) if self._options else call.kernel
        return kernel.plan(*call.arguments)

    def __repr__(self) -> str:
        return f"<cx.{self.__name__}>"


def operand(op: str, name: str, value: Any) -> Array:
    """Return an operand as a coexec array; NumPy arrays and nested lists are copied."""
    if isinstance(value, Array):
        return value
    plain = np.asarray(value)
    if plain.dtype.kind not in "biufc":
        raise ArgumentError(f"{op}: {name} is a {type(value).__name__} of {plain.dtype}; pass an array of numbers")
    return arrays.array(plain)


def as_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return `array` with elements of `dtype`: itself, or a converted copy."""
    return array if array.dtype == dtype else arrays.array(array, dtype)


def output(
    op: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: tuple[Array, ...]
) -> tuple[Array, Array]:
    """Return the result and the array to compute into: the same one unless types or memory keep `out` from it."""
    if out is None:
        new = arrays.empty(shape, dtype)
        return new, new
    if not isinstance(out, Array):
        raise ArgumentError(
            f"{op}: out is a {type(out).__name__}, which would be written some time later; pass a coexec array as out, "
            "or none and use np.asarray(result)"
        )
    if out.immutable:
        raise ArgumentError(f"{op}: out is a value, and {IMMUTABLE}")
    if out.shape != shape:
        raise ShapeError(f"{op}: out has shape {out.shape}, the result {shape}; leave out= away or make it fit")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise ArgumentError(f"{op}: the result is {dtype}, which out of {out.dtype} cannot hold; pass another out")
    apart = all(out._storage is not array._storage for array in inputs)
    return out, out if apart and out.dtype == dtype else arrays.empty(shape, dtype)


@cache
def opencl_source(name: str) -> str:
    """Return the OpenCL C of a file beside this one."""
    from importlib import resources  # slow to import

    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
