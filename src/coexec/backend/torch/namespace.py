"""`xp` for torch: NumPy's names, argument names, defaults and result types over torch tensors.

Before: calls.py.  After: body.py.  Every name here is one of NumPy's;
a name that is missing raises AttributeError, which leaves the body on NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch

from .calls import (
    along,
    as_numpy,
    as_shape,
    as_type,
    fold,
    matmul,
    meet,
    named,
    norm,
    operand,
    plain,
    power,
    transform,
    ufunc,
    where,
)
from .driver import TYPES
from .handover import to_tensor

UNARY = (
    "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin:asin arccos:acos arctan:atan "
    "arcsinh:asinh arccosh:acosh arctanh:atanh asin acos atan asinh acosh atanh deg2rad rad2deg rint:round "
    "absolute:abs abs negative positive square sign floor ceil trunc isnan isinf isfinite signbit "
    "logical_not bitwise_not invert:bitwise_not conj"
)
"""NumPy's ufuncs of one operand. `a:b` = NumPy's name and torch's."""
BINARY = (
    "add subtract multiply divide true_divide:divide maximum minimum fmax fmin floor_divide remainder mod:remainder fmod "
    "arctan2:atan2 atan2 hypot copysign logaddexp "
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor left_shift:bitwise_left_shift right_shift:bitwise_right_shift"
)
PARTS = "real imag"
ALONG = "sort argsort flip"
FOLDS = "sum prod any all argmax argmin max min amax:max amin:min count_nonzero"
SHAPING = (
    "reshape permute_dims expand_dims moveaxis swapaxes broadcast_to tile repeat clip "
    "stack vstack hstack concat outer einsum diff tril triu diagonal searchsorted isin nan_to_num bincount"
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
        names["ndarray"] = torch.Tensor
        names |= {name: ufunc(name, f) for name, f in named(f"{UNARY} {BINARY}")}
        names |= {name: ufunc(name, power) for name in ("power", "pow")} | {"matmul": matmul}
        names |= {name: plain(f) for name, f in named(PARTS)}
        names |= {name: along(f) for name, f in named(ALONG)}
        names |= {name: fold(f) for name, f in named(FOLDS)}
        names |= {name: plain(f) for name, f in named(SHAPING)} | {"where": where}
        names["linalg"] = SimpleNamespace(norm=norm, **{n: getattr(torch.linalg, n) for n in LINALG.split()})
        names["fft"] = SimpleNamespace(**{name: transform(getattr(torch.fft, name)) for name in FFT.split()})
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
        tensor = tensor if dtype is None else tensor.to(as_type(dtype))
        return tensor.clone() if copy and tensor is value else tensor

    def array(self, value: Any, dtype: Any = None, *, copy: bool = True) -> Any:
        """Return a new tensor."""
        return self.asarray(value, dtype, copy=copy)

    def ascontiguousarray(self, value: Any, dtype: Any = None) -> Any:
        """Return `value` dense and in C order."""
        return self.asarray(value, dtype).contiguous()

    def empty(self, shape: Any, dtype: Any = float) -> Any:
        """Return a tensor without values."""
        return torch.empty(as_shape(shape), dtype=as_type(dtype), device=self._device)

    def zeros(self, shape: Any, dtype: Any = float) -> Any:
        """Return zeros."""
        return torch.zeros(as_shape(shape), dtype=as_type(dtype), device=self._device)

    def ones(self, shape: Any, dtype: Any = float) -> Any:
        """Return ones."""
        return torch.ones(as_shape(shape), dtype=as_type(dtype), device=self._device)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
        """Return a tensor filled with one value."""
        value = self.asarray(fill_value, dtype)
        return value.expand(as_shape(shape)).clone()

    def eye(self, rows: int, columns: int | None = None, dtype: Any = float) -> Any:
        """Return ones on the diagonal."""
        return torch.eye(rows, rows if columns is None else columns, dtype=as_type(dtype), device=self._device)

    identity = eye

    def arange(self, *bounds: Any, dtype: Any = None) -> Any:
        """Return an arithmetic sequence, computed as NumPy computes it."""
        return self.asarray(np.arange(*bounds, dtype=None if dtype is None else as_numpy(dtype)))

    def linspace(self, start: float, stop: float, num: int = 50, *, endpoint: bool = True, dtype: Any = None) -> Any:
        """Return evenly spaced numbers, computed as NumPy computes them."""
        return self.asarray(np.linspace(start, stop, num, endpoint=endpoint), dtype)

    def meshgrid(self, *axes: Any, indexing: str = "xy") -> list[Any]:
        """Return coordinate matrices."""
        return list(torch.meshgrid(*axes, indexing=indexing))

    # Functions whose arguments or results differ -------------------------------------------------------------------

    def empty_like(self, x: Any, dtype: Any = None) -> Any:
        """Return a tensor like `x` without values."""
        return torch.empty_like(x, dtype=as_type(dtype))

    def zeros_like(self, x: Any, dtype: Any = None) -> Any:
        """Return zeros like `x`."""
        return torch.zeros_like(x, dtype=as_type(dtype))

    def ones_like(self, x: Any, dtype: Any = None) -> Any:
        """Return ones like `x`."""
        return torch.ones_like(x, dtype=as_type(dtype))

    def full_like(self, x: Any, fill_value: Any, dtype: Any = None) -> Any:
        """Return a tensor like `x` of one value."""
        return torch.full_like(x, operand(fill_value), dtype=as_type(dtype))

    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Any:
        """Return `x` as another type."""
        return x.to(as_type(dtype), copy=copy)

    def copy(self, x: Any) -> Any:
        """Return a new tensor with the values of `x`."""
        return self.asarray(x).clone()

    def copyto(self, dst: Any, src: Any) -> None:
        """Write `src` into `dst`."""
        dst[...] = src

    def mean(self, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        """Return the mean; of integers it is a float64."""
        x = x.to(as_type(dtype)) if dtype is not None else x
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

    def squeeze(self, x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
        """Return `x` without its axes of length one, or without the named ones."""
        return torch.squeeze(x) if axis is None else compat.squeeze(x, axis)

    def roll(self, x: Any, shift: Any, axis: Any = None) -> Any:
        """Return `x` with its elements moved along an axis, around the end."""
        return torch.roll(x, shift, axis)

    def round(self, x: Any, decimals: int = 0) -> Any:
        """Return `x` rounded, halves to even."""
        return torch.round(x, decimals=decimals) if x.is_floating_point() else x

    def take(self, x: Any, indices: Any, axis: int | None = None) -> Any:
        """Return the elements, or the parts along an axis, that `indices` names."""
        x = x.reshape(-1) if axis is None else x
        return x[(slice(None),) * ((axis or 0) % x.ndim) + (self.asarray(indices),)]

    def ravel(self, x: Any) -> Any:
        """Return `x` in one dimension."""
        return x.reshape(-1)

    def dot(self, a: Any, b: Any) -> Any:
        """Return NumPy's dot: the last axis of `a` with the last but one of `b`."""
        a, b = self.asarray(a), self.asarray(b)
        if a.ndim == 0 or b.ndim == 0:
            return a * b
        return torch.tensordot(a, b, dims=([-1], [max(0, b.ndim - 2)]))

    def tensordot(self, a: Any, b: Any, axes: Any = 2) -> Any:
        """Return the sum of products over pairs of axes."""
        return torch.tensordot(*meet(a, b), dims=axes)

    def cumsum(self, x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        """Return the running sum along an axis, or over all elements in order."""
        x = x.reshape(-1) if axis is None else x
        return torch.cumsum(x, axis or 0, dtype=as_type(dtype))

    def cumprod(self, x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        """Return the running product along an axis, or over all elements in order."""
        x = x.reshape(-1) if axis is None else x
        return torch.cumprod(x, axis or 0, dtype=as_type(dtype))

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
