"""Adapters that give torch functions NumPy's arguments, and the rules by which NumPy finds types.

Before: handover.py, array-api-compat (types of mixed operands).  After: namespace.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch

from .handover import to_tensor, torch_dtype

Function = Callable[..., Any]
NUMBERS = (bool, int, float, complex)
"""Python's own, whose types do not count beside an array's."""
OTHERWISE = ("remainder", "mod", "fmod")
"""What torch computes otherwise of some values: what is left of a quotient that overflows is NaN there."""
OTHER_INTEGERS = ("floor_divide", "power", "pow", "left_shift", "right_shift")
"""What torch computes otherwise of some integers: dividing by zero raises, as do NumPy's negative powers; wide shifts differ."""
HALF = 0.5
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
"""What NumPy answers exactly for a Python integer beyond the array's type."""


def named(names: str) -> list[tuple[str, Function]]:
    """Return NumPy's names with the functions that do the same."""
    pairs = [(mine, theirs or mine) for mine, _, theirs in (name.partition(":") for name in names.split())]
    return [(mine, getattr(compat, theirs)) for mine, theirs in pairs]


@lru_cache(maxsize=4096)
def _loop(name: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types, in torch, that NumPy's ufunc of that name computes with and gives; raise TypeError if none."""
    ufunc: np.ufunc = getattr(np, name)
    try:
        return tuple(torch_dtype(dtype) for dtype in ufunc.resolve_dtypes((*kinds, None)))
    except AttributeError as error:  # a type that torch does not know
        raise TypeError(f"torch cannot compute {name} as NumPy does: {error}") from error


def _kind(x: Any) -> Any:
    """Return what NumPy's type rules look at: a type of elements, or a Python number's type."""
    if isinstance(x, torch.Tensor):
        return as_numpy(x.dtype)
    if isinstance(x, np.generic | np.ndarray):
        return x.dtype
    return np.dtype(bool) if type(x) is bool else type(x)


def ufunc(name: str, function: Function) -> Function:
    """Return a function with out= that computes in the types that NumPy's ufunc of the same name computes in.

    `strict` of it is the same for callers who check nothing themselves: it refuses what torch does otherwise for some values.
    """

    def compute(*given: Any, out: Any = None) -> Any:
        given = tuple([x if isinstance(x, torch.Tensor) or type(x) in NUMBERS else np.asarray(x)[()] for x in given])
        kinds = tuple(map(_kind, given))
        if not any(isinstance(kind, np.dtype) for kind in kinds):  # Python's numbers alone
            kinds = tuple([np.asarray(x).dtype for x in given])
        *loop, result = _loop(name, kinds)
        place = next((x.device for x in given if isinstance(x, torch.Tensor)), None)
        if name in COMPARISONS and (beyond := [_beyond(x, dtype) for x, dtype in zip(given, loop, strict=True)]) != [
            0,
            0,
        ]:
            given = tuple(
                [side or torch.zeros_like(x, dtype=torch.int8) for side, x in zip(beyond, given, strict=True)]
            )
            loop = [torch.int8, torch.int8]
        cast = [_cast(x, dtype, place) for x, dtype in zip(given, loop, strict=True)]
        return _into(out, function(*cast).to(result))

    @wraps(function)
    def strict(*given: Any, out: Any = None) -> Any:
        *loop, _ = _loop(name, tuple(map(_kind, given)))
        if name in OTHERWISE or (name in OTHER_INTEGERS and not loop[0].is_floating_point):
            raise TypeError(f"torch computes {name} of {loop[0]} otherwise than NumPy for some values")
        return compute(*given, out=out)

    call = wraps(function)(compute)
    call.strict = strict  # type: ignore[attr-defined]
    return call


def _beyond(x: Any, dtype: Any) -> int:
    """Return 1 for a Python integer above all numbers of an integer type, -1 for one below, else 0."""
    if type(x) is not int or dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return 0
    bounds = torch.iinfo(dtype)
    return int(x > bounds.max) - int(x < bounds.min)


def _cast(x: Any, dtype: Any, device: Any) -> Any:
    """Return an operand in the type of the loop."""
    if isinstance(x, torch.Tensor):
        return x if x.dtype == dtype else x.to(dtype)
    if isinstance(x, np.ndarray):
        return to_tensor(x).to(dtype=dtype, device=device)
    value = x.item() if isinstance(x, np.generic) else x
    return torch.as_tensor(float(value) if dtype.is_floating_point else value, dtype=dtype, device=device)


def power(a: Any, b: Any) -> Any:
    """Return powers; as in NumPy, one exponent of a half for all elements is a root: of -inf it is NaN, of -0.0 it is -0.0."""
    return torch.sqrt(a) if b.is_floating_point() and b.numel() == 1 and b.item() == HALF else torch.pow(a, b)


def matmul(a: Any, b: Any, *, out: Any = None) -> Any:
    """Return the product of matrices, of NumPy's result type."""
    return _into(out, compat.matmul(*meet(operand(a), operand(b))))


def where(condition: Any, *values: Any) -> Any:
    """Return elements of the first value where the condition holds, else of the second, as NumPy's result type."""
    if not values:
        return torch.where(condition)
    common = torch_dtype(np.result_type(*[_model(x) for x in values]))
    condition = condition if isinstance(condition, torch.Tensor) else torch.as_tensor(np.asarray(condition))
    place = condition.device
    return torch.where(condition.to(torch.bool), *[_cast(x, common, place) for x in values])


def _model(x: Any) -> Any:
    """Return what NumPy's rules for results take for an operand."""
    return as_numpy(x.dtype) if isinstance(x, torch.Tensor) else x.dtype if isinstance(x, np.ndarray) else x


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
