"""`xp` for torch: NumPy's names, argument names, defaults and result types over torch tensors.

Before: handover.py, array-api-compat (types of mixed operands).  After: body.py.  Every name here is one of NumPy's;
a name that is missing raises AttributeError, which leaves the body on NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch

from .driver import TYPES
from .handover import to_tensor, torch_dtype

Function = Callable[..., Any]

FLOATING = (
    "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin:asin arccos:acos arctan:atan "
    "arcsinh:asinh arccosh:acosh arctanh:atanh asin acos atan asinh acosh atanh deg2rad rad2deg reciprocal"
)
"""Functions of one operand that turn integers into floats. `a:b` = NumPy's name and torch's."""
UNARY = (
    "absolute:abs abs negative positive square sign floor ceil trunc rint:round isnan isinf isfinite signbit "
    "logical_not bitwise_not invert:bitwise_not conj real imag sort argsort cumsum:cumulative_sum flip "
    "cumprod:cumulative_prod"
)
BINARY = (
    "add subtract multiply maximum minimum floor_divide remainder mod:remainder power:pow pow fmod fmax fmin "
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor left_shift:bitwise_left_shift right_shift:bitwise_right_shift matmul"
)
FLOAT_BINARY = "divide true_divide:divide arctan2:atan2 atan2 hypot copysign logaddexp"
FOLDS = "sum prod any all argmax argmin max min amax:max amin:min count_nonzero"
SHAPING = (
    "reshape permute_dims squeeze expand_dims moveaxis swapaxes broadcast_to roll tile repeat take where clip "
    "stack vstack hstack concat outer tensordot einsum diff tril triu diagonal searchsorted isin nan_to_num bincount"
)
LINALG = "solve inv det cholesky eigh qr svd"
FFT = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn"


class Namespace:
    """NumPy's language on one torch device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        names: dict[str, Any] = {name: getattr(torch, name) for name in TYPES}
        names |= {"bool_": torch.bool, "intp": torch.int64, "int_": torch.int64, "double": torch.float64}
        names |= {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None}
        names |= {"errstate": np.errstate, "finfo": compat.finfo, "iinfo": compat.iinfo, "isscalar": np.isscalar}
        names |= {name: _unary(f, floating=True) for name, f in _named(FLOATING)}
        names |= {name: _unary(f) for name, f in _named(UNARY)}
        names |= {name: _binary(f) for name, f in _named(BINARY)}
        names |= {name: _binary(f, floating=True) for name, f in _named(FLOAT_BINARY)}
        names |= {name: _fold(f) for name, f in _named(FOLDS)}
        names |= {name: _plain(f) for name, f in _named(SHAPING)}
        names["linalg"] = SimpleNamespace(norm=_norm, **{n: getattr(torch.linalg, n) for n in LINALG.split()})
        names["fft"] = SimpleNamespace(**{name: _transform(getattr(torch.fft, name)) for name in FFT.split()})
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"coexec's NumPy for torch has no {name!r}")

    def __repr__(self) -> str:
        return f"<NumPy's language on torch device {self._device}>"

    # Making arrays: float64 unless something else is said, on the device ------------------------------------------

    def asarray(self, value: Any, dtype: Any = None, *, copy: bool | None = None) -> Any:
        """Return `value` as a tensor, with the type that NumPy would give it."""
        if isinstance(value, torch.Tensor):
            tensor = value
        elif isinstance(value, list | tuple) and any(isinstance(entry, torch.Tensor) for entry in value):
            tensor = torch.stack([self.asarray(entry) for entry in value])
        else:
            tensor = to_tensor(np.array(value)).to(self._device)
        tensor = tensor if dtype is None else tensor.to(_type(dtype))
        return tensor.clone() if copy and tensor is value else tensor

    def array(self, value: Any, dtype: Any = None, *, copy: bool = True) -> Any:
        """Return a new tensor."""
        return self.asarray(value, dtype, copy=copy)

    def ascontiguousarray(self, value: Any, dtype: Any = None) -> Any:
        """Return `value` dense and in C order."""
        return self.asarray(value, dtype).contiguous()

    def empty(self, shape: Any, dtype: Any = float) -> Any:
        """Return a tensor without values."""
        return torch.empty(_shape(shape), dtype=_type(dtype), device=self._device)

    def zeros(self, shape: Any, dtype: Any = float) -> Any:
        """Return zeros."""
        return torch.zeros(_shape(shape), dtype=_type(dtype), device=self._device)

    def ones(self, shape: Any, dtype: Any = float) -> Any:
        """Return ones."""
        return torch.ones(_shape(shape), dtype=_type(dtype), device=self._device)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
        """Return a tensor filled with one value."""
        value = self.asarray(fill_value, dtype)
        return value.expand(_shape(shape)).clone()

    def eye(self, rows: int, columns: int | None = None, dtype: Any = float) -> Any:
        """Return ones on the diagonal."""
        return torch.eye(rows, rows if columns is None else columns, dtype=_type(dtype), device=self._device)

    identity = eye

    def arange(self, *bounds: Any, dtype: Any = None) -> Any:
        """Return an arithmetic sequence, computed as NumPy computes it."""
        return self.asarray(np.arange(*bounds, dtype=None if dtype is None else _numpy(dtype)))

    def linspace(self, start: float, stop: float, num: int = 50, *, endpoint: bool = True, dtype: Any = None) -> Any:
        """Return evenly spaced numbers, computed as NumPy computes them."""
        return self.asarray(np.linspace(start, stop, num, endpoint=endpoint), dtype)

    def meshgrid(self, *axes: Any, indexing: str = "xy") -> list[Any]:
        """Return coordinate matrices."""
        return list(torch.meshgrid(*axes, indexing=indexing))

    # Functions whose arguments or results differ -------------------------------------------------------------------

    def empty_like(self, x: Any, dtype: Any = None) -> Any:
        """Return a tensor like `x` without values."""
        return torch.empty_like(x, dtype=_type(dtype))

    def zeros_like(self, x: Any, dtype: Any = None) -> Any:
        """Return zeros like `x`."""
        return torch.zeros_like(x, dtype=_type(dtype))

    def ones_like(self, x: Any, dtype: Any = None) -> Any:
        """Return ones like `x`."""
        return torch.ones_like(x, dtype=_type(dtype))

    def full_like(self, x: Any, fill_value: Any, dtype: Any = None) -> Any:
        """Return a tensor like `x` of one value."""
        return torch.full_like(x, _scalar(fill_value), dtype=_type(dtype))

    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Any:
        """Return `x` as another type."""
        return x.to(_type(dtype), copy=copy)

    def copy(self, x: Any) -> Any:
        """Return a new tensor with the values of `x`."""
        return self.asarray(x).clone()

    def copyto(self, dst: Any, src: Any) -> None:
        """Write `src` into `dst`."""
        dst[...] = src

    def mean(self, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        """Return the mean; of integers it is a float64."""
        x = x.to(_type(dtype)) if dtype is not None else x
        x = x if x.is_floating_point() or x.is_complex() else x.to(torch.float64)
        return compat.mean(x, axis=axis, keepdims=keepdims)

    def std(self, x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        """Return the standard deviation over n - ddof."""
        return torch.sqrt(self.var(x, axis, ddof=ddof, keepdims=keepdims))

    def var(self, x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        """Return the variance over n - ddof."""
        x = x if x.is_floating_point() or x.is_complex() else x.to(torch.float64)
        return compat.var(x, axis=axis, correction=ddof, keepdims=keepdims)

    def concatenate(self, arrays: Sequence[Any], axis: int | None = 0) -> Any:
        """Join tensors along an axis."""
        return compat.concat(list(arrays), axis=axis)

    def transpose(self, x: Any, axes: Sequence[int] | None = None) -> Any:
        """Return `x` with its axes in another order, by default reversed."""
        return x.permute(tuple(range(x.ndim))[::-1] if axes is None else tuple(axes))

    def ravel(self, x: Any) -> Any:
        """Return `x` in one dimension."""
        return x.reshape(-1)

    def dot(self, a: Any, b: Any) -> Any:
        """Return NumPy's dot: the last axis of `a` with the last but one of `b`."""
        a, b = self.asarray(a), self.asarray(b)
        if a.ndim == 0 or b.ndim == 0:
            return a * b
        return torch.tensordot(a, b, dims=([-1], [max(0, b.ndim - 2)]))

    def vdot(self, a: Any, b: Any) -> Any:
        """Return the sum of the products of conj(a) and b, both in one dimension."""
        return torch.vdot(a.reshape(-1), b.reshape(-1))

    def trace(self, x: Any) -> Any:
        """Return the sum of the diagonal of a matrix."""
        return torch.trace(x)

    def shape(self, x: Any) -> tuple[int, ...]:
        """Return the extents of `x`."""
        return tuple(np.shape(x))

    def ndim(self, x: Any) -> int:
        """Return the number of axes of `x`."""
        return len(np.shape(x))

    def size(self, x: Any) -> int:
        """Return the number of elements of `x`."""
        return math.prod(np.shape(x))

    def allclose(self, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
        """Tell whether two tensors are close."""
        return bool(torch.allclose(a, self.asarray(b).to(a.dtype), rtol, atol))


def _named(names: str) -> list[tuple[str, Function]]:
    """Return NumPy's names with the functions that do the same."""
    pairs = [(mine, theirs or mine) for mine, _, theirs in (name.partition(":") for name in names.split())]
    return [(mine, getattr(compat, theirs)) for mine, theirs in pairs]


def _unary(function: Function, *, floating: bool = False) -> Function:
    @wraps(function)
    def call(x: Any, *args: Any, out: Any = None, **options: Any) -> Any:
        x = x if isinstance(x, torch.Tensor) else torch.as_tensor(np.asarray(x))
        return _into(out, function(_floating(x) if floating else x, *args, **options))

    return call


def _binary(function: Function, *, floating: bool = False) -> Function:
    @wraps(function)
    def call(a: Any, b: Any, *, out: Any = None) -> Any:
        a, b = _operand(a), _operand(b)
        if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
            a = torch.as_tensor(np.asarray(a))
        if any(isinstance(x, float | complex) for x in (a, b)):
            a, b = _beside_a_float(a), _beside_a_float(b)
        elif floating:
            a, b = _floating(a), _floating(b)
        return _into(out, function(*_meet(a, b)))

    return call


def _fold(function: Function) -> Function:
    @wraps(function)
    def call(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        options: dict[str, Any] = {} if dtype is None else {"dtype": _type(dtype)}
        return _into(out, function(x, axis=axis, keepdims=keepdims, **options))

    return call


def _plain(function: Function) -> Function:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*map(_operand, args), **options)

    return call


def _transform(function: Function) -> Function:
    @wraps(function)
    def call(x: Any, n: Any = None, axis: Any = -1, norm: str | None = None) -> Any:
        many = function.__name__[-1] in "2n"
        dim = ((-2, -1) if function.__name__.endswith("2") else None) if many and axis == -1 else axis
        return function(_floating(x), n, dim, norm)

    return call


def _norm(x: Any, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return a vector or matrix norm."""
    return torch.linalg.norm(_floating(x), ord, axis, keepdims)


def _into(out: Any, result: Any) -> Any:
    """Write a result into `out`, with NumPy's casting rule, if there is one."""
    if out is None:
        return result
    target = out[0] if isinstance(out, tuple) else out
    if not np.can_cast(_numpy(result.dtype), _numpy(target.dtype), "same_kind"):
        raise TypeError(f"cannot cast the result from {result.dtype} to {target.dtype} as out= asks")
    return target.copy_(result)


def _operand(x: Any) -> Any:
    """Return NumPy's arrays as tensors and its scalars as Python's, which torch takes beside tensors."""
    if isinstance(x, np.generic):
        return x.item()
    return to_tensor(x) if isinstance(x, np.ndarray) else x


_scalar = _operand


def _floating(x: Any) -> Any:
    """Return integers as the floats that NumPy would compute with."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype in (torch.bool, torch.int8, torch.uint8):
        return x.to(torch.float16)
    if x.dtype == torch.int16:
        return x.to(torch.float32)
    return x.to(torch.float64) if x.dtype in (torch.int32, torch.int64) else x


def _beside_a_float(x: Any) -> Any:
    """Return integers as what NumPy makes of them beside a Python float: float64 whatever their size."""
    integers = isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex()
    return x.to(torch.float64) if integers else x


def _meet(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two tensors of different types as the one that NumPy would compute with."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        common = torch_dtype(np.result_type(_numpy(a.dtype), _numpy(b.dtype)))
        return a.to(common), b.to(common)
    return a, b


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, Sequence | torch.Size) else (int(shape),)


def _type(dtype: Any) -> Any:
    """Return a torch dtype for any name of a type."""
    return dtype if dtype is None or isinstance(dtype, torch.dtype) else torch_dtype(dtype)


def _numpy(dtype: Any) -> Any:
    return np.dtype(str(dtype).removeprefix("torch.")) if isinstance(dtype, torch.dtype) else np.dtype(dtype)
