"""Products of matrices, and numbers of few bits: quantising, and back.

Before: ops/matmul.py, models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.matmul import matmul
from ...program import array as arrays
from ...program.array import Array
from .calls import OpCall, Run, compute, whole
from .elementwise import arrayed


def mat_mul(call: OpCall) -> list[Array]:
    """Run MatMul."""
    return [product(call, call.array(0), call.array(1))]


def product(call: OpCall, a: Array, b: Array) -> Array:
    """Return a product, in single precision where half would lose too much."""
    if call.dtype == np.float16:
        wide = matmul(arrays.array(a, np.float32), arrays.array(b, np.float32))
        return arrays.array(wide, np.float16)
    return matmul(a, b)


def gemm(call: OpCall) -> list[Array]:
    """Run Gemm."""
    a, b = call.array(0), call.array(1)
    a = a.T if call.flag("transA") else a
    b = b.T if call.flag("transB") else b
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    result: Any = product(call, a, b)
    if alpha != 1.0:
        result = result * result.dtype.type(alpha)
    if call.has(2):
        c: Any = call.array(2)
        result = result + (c if beta == 1.0 else c * c.dtype.type(beta))
    return [arrayed(call, result)]


def einsum_body(*values: Any) -> None:
    """Sum products over named axes."""
    *inputs, out, equation = values
    out[...] = np.einsum(equation, *inputs)


def einsum(call: OpCall) -> list[Array]:
    """Run Einsum."""
    equation = str(call.attribute("equation"))
    form = whole(einsum_body, call.count, equation, name="einsum")
    return [compute(form, call.arrays(), call.shape, call.dtype)]


def mat_mul_integer(call: OpCall) -> list[Array]:
    """Run MatMulInteger."""
    a, b = (arrays.array(call.array(i), np.int32) for i in (0, 1))
    zero = [arrays.array(call.array(i), np.int32) if call.has(i) else None for i in (2, 3)]
    if zero[0] is not None:
        a = a - (zero[0] if zero[0].ndim != 1 else zero[0][:, None])
    if zero[1] is not None:
        b = b - zero[1]
    return [matmul(a, b)]


# Few bits -------------------------------------------------------------------------------------------------------------------


def spread_out(value: Array, x: Array, axis: int, block: int) -> Any:
    """Return a value per tensor, per index of an axis or per block of it, so that it broadcasts to an array."""
    if value.ndim == 0 or value.size == 1:
        return np.broadcast_to(value[(None,) * (x.ndim - value.ndim)] if value.ndim < x.ndim else value, (1,) * x.ndim)
    if value.ndim == 1:
        return value[tuple(slice(None) if a == axis else None for a in range(x.ndim))]
    form = whole(repeat_body, 1, axis, block, name="repeat")
    return compute(form, [value], x.shape, value.dtype)


def repeat_body(x: Any, out: Any, axis: int, block: int) -> None:
    """Repeat along an axis."""
    out[...] = np.take(np.repeat(x, block, axis=axis), np.arange(out.shape[axis]), axis=axis)


def quantize(call: OpCall) -> list[Array]:
    """Run QuantizeLinear."""
    x, scale = call.array(0), call.array(1)
    axis, block = int(call.attribute("axis", 1)), int(call.attribute("block_size", 0))
    axis = axis % x.ndim if x.ndim else 0
    bounds = np.iinfo(call.dtype)
    wide = arrays.array(x, np.float32)
    result: Any = np.rint(wide / spread_out(arrays.array(scale, np.float32), x, axis, block))
    if call.has(2):
        result = result + spread_out(arrays.array(call.array(2), np.float32), x, axis, block)
    return [arrays.array(np.minimum(np.maximum(result, np.float32(bounds.min)), np.float32(bounds.max)), call.dtype)]


def dequantize(call: OpCall) -> list[Array]:
    """Run DequantizeLinear."""
    x, scale = call.array(0), call.array(1)
    axis, block = int(call.attribute("axis", 1)), int(call.attribute("block_size", 0))
    axis = axis % x.ndim if x.ndim else 0
    wide: Any = arrays.array(x, np.float32)
    if call.has(2):
        wide = wide - spread_out(arrays.array(call.array(2), np.float32), x, axis, block)
    result = wide * spread_out(arrays.array(scale, np.float32), x, axis, block)
    return [arrayed(call, result)]


def dynamic_body(x: Any, out: Any, scale: Any, zero: Any) -> None:
    """Quantise to unsigned bytes with a scale found from the data."""
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    step = np.float32((high - low) / np.float32(255))
    step = step or np.float32(1)
    origin = np.uint8(np.clip(np.rint((0 - low) / step), 0, 255))
    out[...] = np.clip(np.rint(x / step) + np.float32(origin), 0, 255).astype(np.uint8)
    scale[...], zero[...] = step, origin


def dynamic(call: OpCall) -> list[Array]:
    """Run DynamicQuantizeLinear."""
    from .calls import kernel_of

    results = [arrays.empty(t.shape, t.dtype) for t in call.types]
    kernel_of(whole(dynamic_body, 1, outputs=3, name="dynamic_quantize"))(call.array(0), *results)
    return results


PRODUCTS: dict[str, Run] = {
    "MatMul": mat_mul, "Gemm": gemm, "Einsum": einsum, "MatMulInteger": mat_mul_integer, "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize, "DynamicQuantizeLinear": dynamic,
}  # fmt: skip
