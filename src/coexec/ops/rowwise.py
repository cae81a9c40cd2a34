"""What neural networks do along an axis or element by element: softmax, layernorm, relu, gelu.

Before: ops/sparse.py, ops/op.py.  After: the package's own namespace.  Knows no device.

Sums are taken in an order, and exponentials in a way, that each variant chooses: they agree within `NUMERICS`.
"""

from __future__ import annotations

from functools import cache
from math import pi, sqrt
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..geometry import Box
from ..program.access import read, write
from ..program.array import Array
from ..program.kernel import Kernel, kernel
from ..program.mapper import Mapper, all as map_all
from ..program.ufunc import elementwise, outputs_of
from ..program.variant import close
from . import sparse_bodies
from .csr import CSR, EndsOf, StoredOf, StoredPattern
from .op import TILES, CheckedCall, as_dtype, operand, output
from .sparse import OpOnCsr

Shape = tuple[int, ...]
NUMERICS = close(64)
"""Units in the last place of a result, or of its largest summand where summands cancel."""
ROOT_HALF = sqrt(0.5)
STEEP = 2.0 * sqrt(2.0 / pi)
APPROXIMATIONS = ("none", "tanh")


class AlongAxis(Mapper):
    """The chunk, and everything along one axis."""

    def __init__(self, along: int) -> None:
        self.along = along

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        lo, hi = list(chunk.lo), list(chunk.hi)
        lo[self.along], hi[self.along] = 0, shape[self.along]
        return Box(tuple(lo), tuple(hi))


def along_axis(x: Any, axis: int) -> Any:
    """Return the array with one axis last, each line contiguous: sums then have the same bits in any part."""
    return np.ascontiguousarray(np.moveaxis(x, axis, -1))


def softmax_body(x: Any, out: Any, axis: int) -> None:
    """Exponentiate along an axis and divide by the sums."""
    lines = along_axis(x, axis)
    e = np.exp(lines - lines.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    out[...] = np.moveaxis(e, -1, axis)


def softmax_torch(x: Any, out: Any, axis: int) -> None:
    """Do the same on tensors."""
    import torch

    out[...] = torch.softmax(x, axis)


def layernorm_body(x: Any, gain: Any, bias: Any, out: Any, eps: float) -> None:
    """Shift and scale each line of the last axis to mean 0 and variance 1, then by `gain` and `bias`."""
    lines = np.ascontiguousarray(x)
    centred = lines - lines.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    centred /= np.sqrt(variance + x.dtype.type(eps))
    centred *= gain
    np.add(centred, bias, out=out)


def layernorm_torch(x: Any, gain: Any, bias: Any, out: Any, eps: float) -> None:
    """Do the same on tensors."""
    from torch.nn.functional import layer_norm

    out[...] = layer_norm(x, x.shape[-1:], gain, bias, eps)


def gelu_body(x: Any, out: Any) -> None:
    """Multiply each element by the normal distribution at it, exact also where that is nearly nothing."""
    from scipy.special import erfc

    np.multiply(x.dtype.type(0.5) * x, erfc(x * x.dtype.type(-ROOT_HALF)), out=out)


def gelu_tanh_body(x: Any, out: Any) -> None:
    """Do nearly the same with a logistic function; (1 + tanh u) / 2 is that of 2 u."""
    from scipy.special import expit

    np.multiply(x, expit(x.dtype.type(STEEP) * x * (1 + x.dtype.type(0.044715) * x * x)), out=out)


def gelu_torch(x: Any, out: Any) -> None:
    """Multiply each element by the normal distribution at it."""
    import torch

    out[...] = 0.5 * x * torch.special.erfc(x * -ROOT_HALF)


def gelu_tanh_torch(x: Any, out: Any) -> None:
    """Do nearly the same with a logistic function."""
    import torch

    out[...] = x * torch.sigmoid(STEEP * x * (1 + 0.044715 * x * x))


GELU_SOURCE = {
    "none": f"out({{at}}) = 0.5 * x({{at}}) * erfc(x({{at}}) * {-ROOT_HALF!r})",
    "tanh": f"out({{at}}) = x({{at}}) / (1 + exp({-STEEP!r} * x({{at}}) * (1 + 0.044715 * x({{at}}) * x({{at}}))))",
}


@cache
def softmax_kernel(dtype: str, ndim: int, axis: int) -> Kernel:
    """Return the kernel for arrays of so many axes."""
    others = tuple(a for a in range(ndim) if a != axis)
    made = kernel(
        split=others or None, name=f"softmax_{dtype}", flops=8.0, x=read(AlongAxis(axis)), out=write(AlongAxis(axis))
    )(softmax_body)
    made.op = "softmax"
    if dtype in TILES:
        made.variant(softmax_torch, kind="torch", name="torch", numerics=NUMERICS)
    return made


def sparse_softmax_kernel(pattern: StoredPattern, dtype: str) -> Kernel:
    """Return the kernel for sparse matrices of one pattern."""
    key = ("softmax", dtype)
    if key not in pattern.kernels:
        stored, mean = StoredOf(pattern), pattern.mean
        made = kernel(
            split=0,
            over=(pattern.shape[0],),
            name=f"sparse_softmax_{dtype}",
            flops=8.0 * mean,
            weight=pattern.weight,
            data=read(stored),
            indptr=read(EndsOf()),
            out=write(stored),
        )(sparse_bodies.normalize)
        made.op = "softmax"
        if dtype in TILES:
            made.variant(sparse_bodies.normalize_torch, kind="torch", name="torch", numerics=NUMERICS)
        pattern.kernels[key] = made
    return pattern.kernels[key]


@cache
def layernorm_kernel(dtype: str, ndim: int) -> Kernel:
    """Return the kernel for arrays of so many axes."""
    last = AlongAxis(ndim - 1)
    made = kernel(
        split=tuple(range(ndim - 1)) or None,
        over="out",
        name=f"layernorm_{dtype}",
        flops=8.0,
        x=read(last),
        gain=read(map_all),
        bias=read(map_all),
        out=write(last),
    )
    found = made(layernorm_body)
    found.op = "layernorm"
    found.variant(layernorm_torch, kind="torch", name="torch", numerics=NUMERICS)
    return found


@cache
def gelu_kernel(dtype: str, ndim: int, approximate: str) -> Kernel:
    """Return the kernel for arrays of so many axes."""
    near = approximate == "tanh"
    made = kernel(split=tuple(range(ndim)) or None, name=f"gelu_{dtype}", flops=20.0, x=read, out=write)(
        gelu_tanh_body if near else gelu_body
    )
    made.op = "gelu"
    made.variant(gelu_tanh_torch if near else gelu_torch, kind="torch", name="torch", numerics=NUMERICS)
    at = ", ".join(f"i{axis}" for axis in range(ndim))
    return made.opencl(GELU_SOURCE[approximate].format(at=at) + ";", numerics=NUMERICS)


def floats(op: str, *given: Any) -> np.dtype[Any]:
    """Return the type that these arrays are computed with, or raise if it is neither single nor double precision."""
    dtype = np.result_type(*(array.dtype for array in given))
    if dtype.name not in TILES:
        raise ArgumentError(
            f"{op} takes float32 or float64, not {', '.join(str(array.dtype) for array in given)}; convert with "
            "cx.array(x, dtype=np.float32)"
        )
    return dtype


def _softmax(x: Any, axis: int = -1, out: Array | None = None) -> CheckedCall:
    """Return exponentials along an axis, divided by their sum, as a new array.

    Of a cx.csr, the stored elements of each row: a matrix with the same pattern. With `out`, the result goes there.
    """
    if isinstance(x, CSR):
        if axis not in (-1, 1) or out is not None:
            raise ArgumentError("cx.softmax of a sparse matrix goes along its rows, axis=-1, and gives a new matrix")
        dtype = floats("cx.softmax", x)
        result, computed = output("cx.softmax", None, (x.nnz,), dtype, ())
        return CheckedCall(sparse_softmax_kernel(x.pattern, dtype.name), (x.data, x.indptr, computed), result, computed)
    array = operand("cx.softmax", "x", x)
    dtype = floats("cx.softmax", array)
    if not array.ndim or not -array.ndim <= axis < array.ndim:
        raise ShapeError(f"cx.softmax: axis={axis!r} of an array of shape {array.shape}")
    if not array.shape[axis] and array.size != 0:
        raise ShapeError(f"cx.softmax: nothing along axis {axis} of shape {array.shape}")
    at = axis % array.ndim
    result, computed = output("cx.softmax", out, array.shape, dtype, (array,))
    return CheckedCall(softmax_kernel(dtype.name, array.ndim, at), (array, computed, at), result, computed)


def _layernorm(x: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, out: Array | None = None) -> CheckedCall:
    """Return `x` with each line of its last axis shifted and scaled to mean 0 and variance 1, as a new array.

    `weight` and `bias`, one value per element of the line, then scale and shift it. `eps` is added to the variance. With
    `out`, the result goes there.
    """
    op = "cx.layernorm"
    array = operand(op, "x", x)
    if not array.ndim:
        raise ShapeError(f"{op}: x has no axis to normalize along")
    width = array.shape[-1:]
    given = [
        operand(op, name, np.full(width, default, array.dtype) if value is None else value)
        for name, value, default in (("weight", weight, 1), ("bias", bias, 0))
    ]
    for name, vector in zip(("weight", "bias"), given, strict=True):
        if vector.shape != width:
            raise ShapeError(f"{op}: {name} has shape {vector.shape}; x of shape {array.shape} needs {width}")
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not eps >= 0.0:
        raise ArgumentError(f"{op}: eps={eps!r}; give a number from 0")
    dtype = floats(op, array, *given)
    array, scale, shift = (as_dtype(value, dtype) for value in (array, *given))
    result, computed = output(op, out, array.shape, dtype, (array, scale, shift))
    made = layernorm_kernel(dtype.name, array.ndim)
    return CheckedCall(made, (array, scale, shift, computed, float(eps)), result, computed)


def _gelu(x: Any, approximate: str = "none", out: Array | None = None) -> CheckedCall:
    """Return `x` times the normal distribution at `x`, element by element, as a new array.

    `approximate="tanh"` is the formula without the error function that some networks were trained with.
    """
    if approximate not in APPROXIMATIONS:
        raise ArgumentError(f"cx.gelu: approximate={approximate!r}; give one of {', '.join(APPROXIMATIONS)}")
    array = operand("cx.gelu", "x", x.data if isinstance(x, CSR) else x)
    dtype = floats("cx.gelu", array)
    result, computed = output("cx.gelu", out, array.shape, dtype, (array,))
    return CheckedCall(gelu_kernel(dtype.name, array.ndim, approximate), (array, computed), result, computed)


softmax = OpOnCsr(_softmax)
layernorm = OpOnCsr(_layernorm)
gelu = OpOnCsr(_gelu)


def relu(x: Any, out: Array | None = None) -> Any:
    """Return the larger of each element and 0, as np.maximum does, as a new array, without waiting.

    Of a cx.csr, a matrix with the same pattern.
    """
    if isinstance(x, CSR):
        return x.with_data(relu(x.data, out))
    array = operand("cx.relu", "x", x)
    return elementwise(np.maximum, [array, array.dtype.type(0)], outputs_of("cx.relu", 1, (out,)))[0]


__all__ = ["gelu", "layernorm", "relu", "softmax"]
