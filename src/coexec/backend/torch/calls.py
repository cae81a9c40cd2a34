"""Adapters that give torch functions NumPy's arguments, and the rules by which NumPy finds types.

Before: handover.py, array-api-compat (types of mixed operands).  After: namespace.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch

from .handover import to_tensor, torch_dtype

Function = Callable[..., Any]


def named(names: str) -> list[tuple[str, Function]]:
    """Return NumPy's names with the functions that do the same."""
    pairs = [(mine, theirs or mine) for mine, _, theirs in (name.partition(":") for name in names.split())]
    return [(mine, getattr(compat, theirs)) for mine, theirs in pairs]


def unary(function: Function, *, floats: bool = False) -> Function:
    """Return a function of one operand with out=; `floats`: integers become floats."""

    @wraps(function)
    def call(x: Any, *args: Any, out: Any = None, **options: Any) -> Any:
        x = x if isinstance(x, torch.Tensor) else torch.as_tensor(np.asarray(x))
        return _into(out, function(floating(x) if floats else x, *args, **options))

    return call


def binary(function: Function, *, floats: Function | None = None, tensors: bool = False) -> Function:
    """Return a function of two operands, of NumPy's result type, with out=."""

    @wraps(function)
    def call(a: Any, b: Any, *, out: Any = None) -> Any:
        a, b = operand(a), operand(b)
        if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
            a = torch.as_tensor(np.asarray(a))
        if any(isinstance(x, float | complex) for x in (a, b)):
            a, b = beside_a_float(a), beside_a_float(b)
        if tensors:
            a, b = _tensor_beside(a, b), _tensor_beside(b, a)
        a, b = meet(a, b)
        return _into(out, function(a, b) if floats is None else function(floats(a), floats(b)))

    return call


def fold(function: Function) -> Function:
    """Return a reduction with axis, dtype, out and keepdims."""

    @wraps(function)
    def call(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        options: dict[str, Any] = {} if dtype is None else {"dtype": as_type(dtype)}
        if x.dtype == torch.bool and function.__name__.startswith("arg"):
            x = x.to(torch.uint8)
        return _into(out, function(x, axis=axis, keepdims=keepdims, **options))

    return call


def plain(function: Function) -> Function:
    """Return a function that takes NumPy's arrays and scalars beside tensors."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*map(operand, args), **options)

    return call


def along(function: Function) -> Function:
    """Return a function whose axis may come by position."""

    @wraps(function)
    def call(x: Any, *axis: Any, **options: Any) -> Any:
        return function(x, **({"axis": axis[0]} if axis else {}), **options)

    return call


def transform(function: Function) -> Function:
    """Return a Fourier transform with NumPy's defaults."""

    @wraps(function)
    def call(x: Any, n: Any = None, axis: Any = -1, norm: str | None = None) -> Any:
        many = function.__name__[-1] in "2n"
        dim = ((-2, -1) if function.__name__.endswith("2") else None) if many and axis == -1 else axis
        return function(floating(x), n, dim, norm)

    return call


def norm(x: Any, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return a vector or matrix norm."""
    return torch.linalg.norm(floating(x), ord, axis, keepdims)


def _into(out: Any, result: Any) -> Any:
    """Write a result into `out`, with NumPy's casting rule, if there is one."""
    if out is None:
        return result
    target = out[0] if isinstance(out, tuple) else out
    if not np.can_cast(as_numpy(result.dtype), as_numpy(target.dtype), "same_kind"):
        raise TypeError(f"cannot cast the result from {result.dtype} to {target.dtype} as out= asks")
    return target.copy_(result)


def operand(x: Any) -> Any:
    """Return NumPy's arrays as tensors and its scalars as Python's, which torch takes beside tensors."""
    if isinstance(x, np.generic):
        return x.item()
    return to_tensor(x) if isinstance(x, np.ndarray) else x


def floating(x: Any) -> Any:
    """Return integers as the floats that NumPy would compute with."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype in (torch.bool, torch.int8, torch.uint8):
        return x.to(torch.float16)
    if x.dtype == torch.int16:
        return x.to(torch.float32)
    return x.to(torch.float64) if x.dtype in (torch.int32, torch.int64) else x


def beside_a_float(x: Any) -> Any:
    """Return integers as what NumPy makes of them beside a Python float: float64 whatever their size."""
    integers = isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex()
    return x.to(torch.float64) if integers else x


def _tensor_beside(x: Any, other: Any) -> Any:
    """Return a plain number as a tensor of its partner's type."""
    return x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=other.dtype, device=other.device)


def meet(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two tensors of different types as the one that NumPy would compute with."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        common = torch_dtype(np.result_type(as_numpy(a.dtype), as_numpy(b.dtype)))
        return a.to(common), b.to(common)
    return a, b


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape for an extent or several."""
    return tuple(shape) if isinstance(shape, Sequence | torch.Size) else (int(shape),)


def as_type(dtype: Any) -> Any:
    """Return a torch dtype for any name of a type."""
    return dtype if dtype is None or isinstance(dtype, torch.dtype) else torch_dtype(dtype)


def as_numpy(dtype: Any) -> Any:
    """Return NumPy's dtype for any name of a type."""
    return np.dtype(str(dtype).removeprefix("torch.")) if isinstance(dtype, torch.dtype) else np.dtype(dtype)
