"""Operators along axes: reductions, the position of extremes, softmax and its relatives, normalisations.

Before: models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...ops.rowwise import layernorm, softmax
from ...program import array as arrays
from ...program.array import Array
from ...program.mapper import all as map_all, same
from .calls import KernelForm, OpCall, Prefix, Run, Whole, compute, kernel_of, positive, whole
from .layout import with_shape

Axes = tuple[int, ...]


def _sum(x: Any, axes: Axes) -> Any:
    """Run ReduceSum."""
    return np.sum(x, axes, dtype=x.dtype if x.dtype != np.float16 else np.float32, keepdims=True)


def _log_sum_exp(x: Any, axes: Axes) -> Any:
    """Run ReduceLogSumExp."""
    if not x.size:
        return np.log(_sum(x, axes))
    most = np.max(x, axes, keepdims=True)
    most = np.where(np.isfinite(most), most, most.dtype.type(0))
    return np.log(_sum(np.exp(x - most), axes)) + most


def _extreme(function: Any, worst: Callable[[np.dtype[Any]], Any]) -> Callable[[Any, Axes], Any]:
    """Run ReduceMax, ReduceMin."""

    def reduced(x: Any, axes: Axes) -> Any:
        if x.dtype.kind == "b":
            return function(x, axes, keepdims=True, initial=worst(x.dtype) > 0)
        return function(x, axes, keepdims=True, **({} if x.size else {"initial": worst(x.dtype)}))

    return reduced


def _least(dtype: np.dtype[Any]) -> Any:
    """Run _least."""
    return False if dtype.kind == "b" else -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _most(dtype: np.dtype[Any]) -> Any:
    """Run _most."""
    return True if dtype.kind == "b" else np.inf if dtype.kind == "f" else np.iinfo(dtype).max


REDUCTIONS: dict[str, Callable[[Any, Axes], Any]] = {
    "ReduceSum": _sum,
    "ReduceMean": lambda x, axes: _sum(x, axes) / x.dtype.type(prod(x.shape[a] for a in axes)),
    "ReduceMax": _extreme(np.max, _least),
    "ReduceMin": _extreme(np.min, _most),
    "ReduceProd": lambda x, axes: np.prod(x, axes, dtype=x.dtype, keepdims=True),
    "ReduceL1": lambda x, axes: _sum(np.abs(x), axes),
    "ReduceL2": lambda x, axes: np.sqrt(_sum(np.square(x.astype(np.float64)), axes)),
    "ReduceSumSquare": lambda x, axes: _sum(np.square(x), axes),
    "ReduceLogSum": lambda x, axes: np.log(_sum(x, axes)),
    "ReduceLogSumExp": _log_sum_exp,
}


def reduce_body(x: Any, out: Any, axes: Axes, kind: str) -> None:
    """Reduce along axes, which stay with length one."""
    out[...] = REDUCTIONS[kind](x, axes)


ON_TORCH = ("ReduceMean", "ReduceSum", "ReduceMax")
"""Reductions that torch does in one call."""


def reduce_torch(x: Any, out: Any, axes: Axes, kind: str) -> None:
    """Do the same on tensors, for those of `ON_TORCH`."""
    import torch

    functions: dict[str, Any] = {"ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax}
    out[...] = functions[kind](x, axes, keepdim=True)


def reduced(call: OpCall) -> list[Array]:
    """Run the reductions."""
    x = call.array(0)
    given = call.numbers(1, "axes")
    alone = not given and call.flag("noop_with_empty_axes")  # each element by itself: still squared, or its logarithm
    axes = positive(given or range(x.ndim), x.ndim) if x.ndim and not alone else ()
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    split = tuple(a for a in range(x.ndim) if a not in axes and shape[a] > 1)
    on_torch = reduce_torch if call.node.kind in ON_TORCH and axes else None  # torch takes no axes for all
    form = KernelForm(
        reduce_body,
        (Whole(axes),),
        split,
        (axes, call.node.kind),
        (same,),
        torch=on_torch,
        flops=2.0,
        name=call.node.kind,
    )
    if not split:
        form = whole(reduce_body, 1, axes, call.node.kind, name=call.node.kind)._replace(torch=on_torch)
    return [with_shape(compute(form, [x], shape, x.dtype), call.shape)]


def extreme_body(x: Any, out: Any, axis: int, largest: bool, last: bool) -> None:
    """Find the position of the largest or smallest element along an axis; of equal ones the first or the last."""
    found = np.flip(x, axis) if last else x
    at = (np.argmax if largest else np.argmin)(found, axis=axis, keepdims=True)
    out[...] = x.shape[axis] - 1 - at if last else at


def extreme(call: OpCall) -> list[Array]:
    """Run ArgMax, ArgMin."""
    x = call.array(0)
    axis = int(call.attribute("axis", 0)) % x.ndim
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    fixed = (axis, call.node.kind == "ArgMax", call.flag("select_last_index"))
    split = tuple(a for a in range(x.ndim) if a != axis)
    form = KernelForm(extreme_body, (Whole((axis,)),), split, fixed, (same,), name=call.node.kind)
    return [with_shape(compute(form, [x], shape, np.int64), call.shape)]


def top_body(x: Any, values: Any, at: Any, k: int, axis: int, largest: bool) -> None:
    """Sort along an axis and keep the first; of equal elements the one with the lower position comes first."""
    order = np.argsort(x, axis=axis, kind="stable")
    if largest:
        turned = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(turned, axis)
    chosen = np.take(order, np.arange(k), axis=axis)
    values[...] = np.take_along_axis(x, chosen, axis)
    at[...] = chosen


def top(call: OpCall) -> list[Array]:
    """Run TopK."""
    x = call.array(0)
    axis = int(call.attribute("axis", -1)) % x.ndim
    k = (call.numbers(1) or [int(call.attribute("k", 1))])[0]
    results = [arrays.empty(call.shape, x.dtype), arrays.empty(call.shape, np.int64)]
    kernel_of(whole(top_body, 1, k, axis, call.flag("largest", 1), outputs=2, name="top_k"))(x, *results)
    return results


# Softmax --------------------------------------------------------------------------------------------------------------------


def log_softmax_body(x: Any, out: Any, axis: int) -> None:
    """Subtract the logarithm of the sum of exponentials."""
    shifted = x - x.max(axis=axis, keepdims=True)
    out[...] = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def hard_max_body(x: Any, out: Any, axis: int) -> None:
    """Mark the first largest element."""
    marks = np.zeros_like(x)
    np.put_along_axis(marks, np.argmax(x, axis=axis, keepdims=True), x.dtype.type(1), axis)
    out[...] = marks


def _normal_softmax(x: Array, axis: int) -> Array:
    """Run Softmax."""
    if x.dtype.name in ("float32", "float64"):
        found: Array = softmax(x, axis)
        return found
    return arrays.array(softmax(arrays.array(x, np.float32), axis), x.dtype)


def _line(body: Callable[..., None]) -> Callable[[Array, int], Array]:
    """Run LogSoftmax, Hardmax."""

    def run(x: Array, axis: int) -> Array:
        line, split = Whole((axis,)), tuple(a for a in range(x.ndim) if a != axis)
        return compute(KernelForm(body, (line,), split, (axis,), (line,), flops=8.0), [x], x.shape, x.dtype)

    return run


LINES = {"Softmax": _normal_softmax, "LogSoftmax": _line(log_softmax_body), "Hardmax": _line(hard_max_body)}


def along_line(call: OpCall) -> list[Array]:
    """Softmax and its relatives. Up to opset 12 all axes from the given one on are one line."""
    x = call.array(0)
    axis = int(call.attribute("axis", -1 if call.opset >= 13 else 1)) % x.ndim
    if call.opset >= 13:
        return [LINES[call.node.kind](x, axis)]
    rows = with_shape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return [with_shape(LINES[call.node.kind](rows, 1), x.shape)]


# Normalisation --------------------------------------------------------------------------------------------------------------


def layer_norm_body(
    x: Any, scale: Any, bias: Any, out: Any, mean: Any, deviation: Any, axis: int, eps: float, kind: str
) -> None:
    """Normalise from an axis on, and tell mean and inverse deviation."""
    axes = tuple(range(axis, x.ndim))
    wide = x.astype(kind)
    middle = wide.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(np.square(wide - middle).mean(axis=axes, keepdims=True) + wide.dtype.type(eps))
    out[...] = ((wide - middle) * inverse).astype(x.dtype) * scale + bias
    mean[...], deviation[...] = middle, inverse


def layer_norm(call: OpCall) -> list[Array]:
    """Run LayerNormalization."""
    x, scale = call.array(0), call.array(1)
    axis = int(call.attribute("axis", -1)) % x.ndim
    eps = call.number("epsilon", 1e-5)
    bias = call.array(2) if call.has(2) else arrays.zeros(scale.shape, scale.dtype)
    plain = axis == x.ndim - 1 and scale.shape == bias.shape == x.shape[-1:]
    if plain and not any(call.wanted[1:]) and x.dtype.name in ("float32", "float64"):
        return [layernorm(x, scale, bias, eps)]
    if axis == x.ndim - 1 and not any(call.wanted[1:]) and x.dtype.name in ("float32", "float64"):
        width = x.shape[-1:]
        ones, nothing = arrays.ones(width, x.dtype), arrays.zeros(width, x.dtype)
        return [layernorm(x, ones, nothing, eps) * scale + bias]
    moments = (*x.shape[:axis], *(1,) * (x.ndim - axis))
    kind = "float64" if x.dtype == np.float64 else "float32"
    results = [arrays.empty(x.shape, x.dtype), arrays.empty(moments, kind), arrays.empty(moments, kind)]
    kernel_of(whole(layer_norm_body, 3, axis, eps, kind, outputs=3, name="layer_norm"))(x, scale, bias, *results)
    return results[: len(call.wanted)]


def rms_body(x: Any, scale: Any, out: Any, axis: int, eps: float, kind: str) -> None:
    """Divide by the root of the mean square from an axis on."""
    wide = x.astype(kind)
    square = np.square(wide).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    out[...] = (wide / np.sqrt(square + wide.dtype.type(eps))).astype(x.dtype) * scale


def rms_norm(call: OpCall) -> list[Array]:
    """Run RMSNormalization."""
    x = call.array(0)
    axis = int(call.attribute("axis", -1)) % x.ndim
    kind = "float64" if x.dtype == np.float64 else "float32"
    mapper = Prefix(axis)
    form = KernelForm(
        rms_body,
        (mapper, map_all),
        tuple(range(axis)),
        (axis, call.number("epsilon", 1e-5), kind),
        (mapper,),
        flops=6.0,
    )
    scale = call.array(1)
    if scale.ndim > x.ndim - axis:
        form = whole(rms_body, 2, axis, call.number("epsilon", 1e-5), kind, name="rms_norm")
    return [compute(form, [x, scale], x.shape, x.dtype)]


def channelwise(vector: Array, ndim: int) -> Array:
    """Return a value per channel with the axes of an image."""
    return vector[(slice(None), *(None,) * (ndim - 2))]


def batch_norm(call: OpCall) -> list[Array]:
    """Run BatchNormalization."""
    x: Any = call.array(0)
    if call.flag("training_mode"):
        return _batch_norm_training(call)
    scale, bias, mean, variance = (call.array(i) for i in range(1, 5))
    eps = call.number("epsilon", 1e-5)
    factor: Any = scale / np.sqrt(variance + variance.dtype.type(eps))
    shift = bias - mean * factor
    if factor.dtype != x.dtype:
        factor, shift = arrays.array(factor, x.dtype), arrays.array(shift, x.dtype)
    return [x * channelwise(factor, x.ndim) + channelwise(shift, x.ndim)]


def batch_training_body(
    x: Any, scale: Any, bias: Any, mean: Any, var: Any, out: Any, m: Any, v: Any, eps: float, keep: float
) -> None:
    """Normalise with the moments of the batch, and follow them."""
    axes = (0, *range(2, x.ndim))
    middle, spread = x.mean(axis=axes), x.var(axis=axes)
    shape = (-1, *(1,) * (x.ndim - 2))
    normal = (x - middle.reshape(shape)) / np.sqrt(spread.reshape(shape) + x.dtype.type(eps))
    out[...] = normal * scale.reshape(shape) + bias.reshape(shape)
    m[...] = mean * keep + middle * (1 - keep)
    v[...] = var * keep + spread * (1 - keep)


def _batch_norm_training(call: OpCall) -> list[Array]:
    """Run _batch_norm_training."""
    results = [arrays.empty(t.shape, t.dtype) for t in call.types]
    fixed = (call.number("epsilon", 1e-5), call.number("momentum", 0.9))
    kernel_of(whole(batch_training_body, 5, *fixed, outputs=3, name="batch_norm"))(*call.arrays(), *results)
    return results


def group_norm_body(x: Any, scale: Any, bias: Any, out: Any, groups: int, eps: float, kind: str) -> None:
    """Normalise groups of channels of each image."""
    n, c = x.shape[:2]
    wide = x.reshape(n, groups, -1).astype(kind)
    middle = wide.mean(axis=2, keepdims=True)
    spread = np.square(wide - middle).mean(axis=2, keepdims=True)
    normal = ((wide - middle) / np.sqrt(spread + wide.dtype.type(eps))).reshape(x.shape)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    per = c // len(scale)  # opset 18 has a value per group, later ones one per channel
    out[...] = normal * np.repeat(scale, per).reshape(shape) + np.repeat(bias, per).reshape(shape)


def group_norm(call: OpCall) -> list[Array]:
    """Run InstanceNormalization, GroupNormalization."""
    x = call.array(0)
    groups = x.shape[1] if call.node.kind == "InstanceNormalization" else int(call.attribute("num_groups"))
    kind = "float64" if x.dtype == np.float64 else "float32"
    fixed = (groups, call.number("epsilon", 1e-5), kind)
    form = KernelForm(group_norm_body, (Prefix(1), map_all, map_all), (0,), fixed, (Prefix(1),), flops=8.0)
    return [compute(form, call.arrays(), x.shape, x.dtype)]


def lrn_body(x: Any, out: Any, alpha: float, beta: float, bias: float, size: int) -> None:
    """Divide by a power of the squares in neighbouring channels."""
    squares = np.square(x)
    total = np.zeros_like(x)
    c = x.shape[1]
    before = (size - 1) // 2
    for offset in range(-before, size - before):
        lo, hi = max(0, -offset), min(c, c - offset)
        if lo < hi:
            total[:, lo:hi] += squares[:, lo + offset : hi + offset]
    out[...] = x / (bias + alpha / size * total) ** beta


def lrn(call: OpCall) -> list[Array]:
    """Run LRN."""
    x = call.array(0)
    fixed = (
        call.number("alpha", 1e-4),
        call.number("beta", 0.75),
        call.number("bias", 1.0),
        int(call.attribute("size")),
    )
    line = Whole((1,))
    split = tuple(a for a in range(x.ndim) if a != 1)
    return [compute(KernelForm(lrn_body, (line,), split, fixed, (line,), flops=12.0), [x], x.shape, x.dtype)]


def lp_norm_body(x: Any, out: Any, axis: int, p: int) -> None:
    """Divide by the sum of absolute values, or the root of the sum of squares."""
    size = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(x).sum(axis, keepdims=True))
    out[...] = np.where(size == 0, x.dtype.type(0), x / size)


def lp_norm(call: OpCall) -> list[Array]:
    """Run LpNormalization."""
    x = call.array(0)
    axis = int(call.attribute("axis", -1)) % x.ndim
    line, split = Whole((axis,)), tuple(a for a in range(x.ndim) if a != axis)
    form = KernelForm(lp_norm_body, (line,), split, (axis, int(call.attribute("p", 2))), (line,))
    return [compute(form, [x], x.shape, x.dtype)]


def mvn_body(x: Any, out: Any, axes: Axes) -> None:
    """Shift and scale to mean 0 and variance 1."""
    middle = x.mean(axes, keepdims=True)
    out[...] = (x - middle) / (np.sqrt(np.square(x).mean(axes, keepdims=True) - np.square(middle)) + x.dtype.type(1e-9))


def mvn(call: OpCall) -> list[Array]:
    """Run MeanVarianceNormalization."""
    x = call.array(0)
    axes = positive(call.attribute("axes", (0, 2, 3)), x.ndim)
    return [compute(whole(mvn_body, 1, axes, name="mvn"), [x], x.shape, x.dtype)]


ALONG: dict[str, Run] = {**dict.fromkeys(REDUCTIONS, reduced), **dict.fromkeys(LINES, along_line)}
ALONG |= {
    "ArgMax": extreme, "ArgMin": extreme, "TopK": top, "LayerNormalization": layer_norm, "RMSNormalization": rms_norm,
    "BatchNormalization": batch_norm, "InstanceNormalization": group_norm, "GroupNormalization": group_norm, "LRN": lrn,
    "LpNormalization": lp_norm, "MeanVarianceNormalization": mvn,
}  # fmt: skip
STATIC = dict.fromkeys(REDUCTIONS, (1,)) | {"TopK": (1,)}
"""Operands that must be constants, by operator."""
