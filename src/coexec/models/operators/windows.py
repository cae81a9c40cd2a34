"""Operators with windows: convolutions, transposed convolutions, pools.

Before: ops/conv2d.py, models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...geometry import Box
from ...ops.conv2d import ConvolutionWindow, conv2d_kernel
from ...ops.convolve import NOTHING, SumFinish
from ...program import array as arrays
from ...program.array import Array
from ...program.mapper import Mapper, all as map_all
from .along import reduced
from .calls import KernelForm, OpCall, Prefix, Run, Shape, compute, kernel_of, whole

Sizes = tuple[int, ...]


class Geometry(NamedTuple):
    """How windows lie on an image: one entry per spatial axis."""

    taps: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes  # padding; what is after follows from the output's shape
    after: Sizes

    def reach(self, axis: int) -> int:
        """Return how far a window reaches along an axis."""
        return (self.taps[axis] - 1) * self.dilations[axis] + 1


def geometry(call: OpCall, taps: Sizes, image: Shape) -> Geometry:
    """Return how an operator's windows lie, from its attributes and the shape of the image."""
    n = len(taps)
    strides = tuple(call.attribute("strides", (1,) * n))
    dilations = tuple(call.attribute("dilations", (1,) * n))
    pads = tuple(call.attribute("pads", (0,) * 2 * n))
    auto = str(call.attribute("auto_pad", "NOTSET"))
    if auto == "VALID":
        pads = (0,) * 2 * n
    elif auto != "NOTSET":
        total = [
            max(0, (-(-image[a] // strides[a]) - 1) * strides[a] + (taps[a] - 1) * dilations[a] + 1 - image[a])
            for a in range(n)
        ]
        small = [t // 2 for t in total]
        large = [t - s for t, s in zip(total, small, strict=True)]
        pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
    return Geometry(taps, strides, dilations, pads[:n], pads[n:])


# Convolutions ---------------------------------------------------------------------------------------------------------------


def conv(call: OpCall) -> list[Array]:
    """Run Conv."""
    x, w = call.array(0), call.array(1)
    shape = geometry(call, w.shape[2:], x.shape[2:])
    groups = int(call.attribute("group", 1))
    if len(shape.taps) <= 2 and x.dtype.name in ("float32", "float64"):
        return [convolution(call, x, w, shape, groups)]
    return [_any_convolution(x, w, call.array(2) if call.has(2) else None, shape, groups, call.shape)]


def convolution(call: OpCall, x: Array, w: Array, shape: Geometry, groups: int) -> Array:
    """Return a convolution along one or two axes by coexec's own kernel, with what was fused to it."""
    low, high = call.attribute("bounds", (None, None))
    after = SumFinish(call.has(2), call.has(3), low, high)
    other = [call.array(3)] if after.added else []
    result = arrays.empty(call.shape, x.dtype)
    target = result
    if len(shape.taps) == 1:
        x, w, target, *other = (images[:, :, None, :] for images in (x, w, result, *other))
        shape = Geometry(*((fill, *given) for fill, given in zip((1, 1, 1, 0, 0), shape, strict=True)))
    if result.size:
        kernel, scalars = conv_kernel(x, w, shape, groups, after)
        kernel(x, w, *([call.array(2)] if after.biased else []), *other, target, *scalars)
    return result


def conv_window(w: Shape, shape: Geometry, groups: int) -> ConvolutionWindow:
    """Return how windows lie, as coexec's convolution wants it."""
    (a, b), (c, d), (e, f), (g, h) = shape.strides, shape.before, shape.dilations, shape.taps
    return ConvolutionWindow((a, b), (c, d), (e, f), (g, h), (w[1], max(1, w[0] // groups)))


def conv_kernel(x: Array, w: Array, shape: Geometry, groups: int, after: SumFinish = NOTHING) -> tuple[Any, Sizes]:
    """Return the kernel of a convolution and its scalars."""
    window = conv_window(w.shape, shape, groups)
    return conv2d_kernel(x.dtype.name, window, after), window.scalars


def any_conv_body(x: Any, w: Any, out: Any, shape: Geometry, groups: int) -> None:
    """Convolve along any number of axes, tap by tap."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    widths = [(0, 0), (0, 0), *zip(shape.before, shape.after, strict=True)]
    padded = np.pad(x.astype(kind), widths)
    per_in, per_out = w.shape[1], w.shape[0] // groups
    sizes = out.shape[2:]
    total = np.zeros(out.shape, kind)
    for taps in product(*(range(k) for k in shape.taps)):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(taps, shape.dilations, shape.strides, sizes, strict=True)
        )
        seen = padded[(slice(None), slice(None), *at)]
        for g in range(groups):
            part = seen[:, g * per_in : (g + 1) * per_in]
            weights = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *taps)].astype(kind)
            total[:, g * per_out : (g + 1) * per_out] += np.moveaxis(np.tensordot(weights, part, (1, 1)), 0, 1)
    out[...] = total


def _any_convolution(x: Array, w: Array, bias: Array | None, shape: Geometry, groups: int, out: Shape) -> Array:
    """Run _any_convolution."""
    form = KernelForm(any_conv_body, (Prefix(1), map_all), (0,), (shape, groups), (Prefix(1),), name="conv")
    form = form._replace(flops=2.0 * prod(w.shape[1:]))
    result = compute(form, [x, w], out, x.dtype)
    return result if bias is None else added(result, bias)


def added(images: Array, bias: Array) -> Array:
    """Return images with a value added to each channel."""
    result: Array = images + bias[(slice(None), *(None,) * (images.ndim - 2))]
    return result


def transposed_body(x: Any, w: Any, out: Any, shape: Geometry, groups: int) -> None:
    """Spread each input point over the output points of its window, tap by tap."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    sizes = x.shape[2:]
    full = [max((n - 1) * s + shape.reach(a), out.shape[2 + a] + shape.before[a])
            for a, (n, s) in enumerate(zip(sizes, shape.strides, strict=True))]  # fmt: skip
    total = np.zeros((*out.shape[:2], *full), kind)
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    wide = x.astype(kind)
    for taps in product(*(range(k) for k in shape.taps)):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(taps, shape.dilations, shape.strides, sizes, strict=True)
        )
        for g in range(groups):
            weights = w[(slice(g * per_in, (g + 1) * per_in), slice(None), *taps)].astype(kind)
            part = np.moveaxis(np.tensordot(weights, wide[:, g * per_in : (g + 1) * per_in], (0, 1)), 0, 1)
            total[(slice(None), slice(g * per_out, (g + 1) * per_out), *at)] += part
    inside: Any = (..., *(slice(b, b + n) for b, n in zip(shape.before, out.shape[2:], strict=True)))
    out[...] = total[inside]


def transposed_torch(x: Any, w: Any, out: Any, shape: Geometry, groups: int) -> None:
    """Do the same on tensors, along one to three axes."""
    from torch.nn import functional

    function = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
    full = function[len(shape.taps)](x, w, stride=shape.strides, groups=groups, dilation=shape.dilations)
    for axis, (before, n) in enumerate(zip(shape.before, out.shape[2:], strict=True), 2):
        missing = before + n - full.shape[axis]
        if missing > 0:
            full = functional.pad(full, [0, 0] * (full.ndim - 1 - axis) + [0, missing])
        full = full.narrow(axis, before, n)
    out[...] = full


def transposed(call: OpCall) -> list[Array]:
    """Run ConvTranspose."""
    x, w = call.array(0), call.array(1)
    n = x.ndim - 2
    plain = geometry(call, w.shape[2:], x.shape[2:])
    extra = tuple(call.attribute("output_padding", (0,) * n))
    total = [(x.shape[2 + a] - 1) * plain.strides[a] + plain.reach(a) + extra[a] - call.shape[2 + a] for a in range(n)]
    before = plain.before
    auto = str(call.attribute("auto_pad", "NOTSET"))
    if call.attribute("output_shape") is not None or auto.startswith("SAME"):
        upper = auto == "SAME_UPPER"
        before = tuple(t // 2 if upper else t - t // 2 for t in total)
    shape = plain._replace(before=before, after=(0,) * n)
    form = KernelForm(
        transposed_body, (Prefix(1), map_all), (0,), (shape, int(call.attribute("group", 1))), (Prefix(1),),
        torch=transposed_torch if n <= 3 else None, flops=2.0 * prod(w.shape[1:]), name="conv_transpose",
    )  # fmt: skip
    result = compute(form, [x, w], call.shape, x.dtype)
    return [added(result, call.array(2)) if call.has(2) else result]


# Pools ----------------------------------------------------------------------------------------------------------------------


class Windowed(Mapper):
    """The chunk's images and channels, the rows under its windows, everything along further axes."""

    def __init__(self, shape: Geometry) -> None:
        self.shape = shape

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        first = chunk.lo[2] * self.shape.strides[0] - self.shape.before[0]
        end = (chunk.hi[2] - 1) * self.shape.strides[0] - self.shape.before[0] + self.shape.reach(0)
        lo = min(max(first, 0), shape[2])
        hi = max(lo, min(end, shape[2])) if not chunk.empty else lo
        return Box((*chunk.lo[:2], lo, *(0 for _ in shape[3:])), (*chunk.hi[:2], hi, *shape[3:]))


def laid_out(x: Any, out: Shape, chunk: Any, shape: Geometry, fill: Any) -> Any:
    """Return the rows that a chunk's windows see with all padding, filled with a value, as far as windows reach."""
    widths = [(0, 0), (0, 0)]
    for axis, n in enumerate(out[2:]):
        first = (chunk.lo[2] if axis == 0 else 0) * shape.strides[axis] - shape.before[axis]
        before = max(0, -first)
        needed = (n - 1) * shape.strides[axis] + shape.reach(axis)
        widths.append((before, max(0, needed - before - x.shape[2 + axis])))
    return np.pad(x, widths, constant_values=fill)


def seen_by(padded: Any, taps: Sequence[int], sizes: Shape, shape: Geometry) -> Any:
    """Return what one tap of every window sees."""
    at = (
        slice(t * d, t * d + (n - 1) * s + 1, s)
        for t, d, s, n in zip(taps, shape.dilations, shape.strides, sizes, strict=True)
    )
    return padded[(slice(None), slice(None), *at)]


def all_taps(shape: Geometry) -> Any:
    """Yield every tap of a window."""
    return product(*(range(k) for k in shape.taps))


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return what is below every number of a type."""
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def max_pool_body(x: Any, out: Any, chunk: Any, shape: Geometry) -> None:
    """Take the largest element of each window, along one axis after the other."""
    found = laid_out(x, out.shape, chunk, shape, lowest(x.dtype))
    for axis, (taps, stride, apart) in enumerate(zip(shape.taps, shape.strides, shape.dilations, strict=True), 2):
        last = (out.shape[axis] - 1) * stride + 1
        seen = [(*(slice(None),) * axis, slice(t * apart, t * apart + last, stride)) for t in range(taps)]
        largest = found[seen[0]].copy()
        for at in seen[1:]:
            np.maximum(largest, found[at], out=largest)
        found = largest
    out[...] = found


def max_pool_torch(x: Any, out: Any, chunk: Any, shape: Geometry) -> None:
    """Do the same on tensors, along one to three axes."""
    from torch.nn import functional

    widths: list[int] = []
    for axis, n in enumerate(out.shape[2:]):
        first = (chunk.lo[2] if axis == 0 else 0) * shape.strides[axis] - shape.before[axis]
        before = max(0, -first)
        needed = (n - 1) * shape.strides[axis] + shape.reach(axis)
        widths = [before, needed - before - x.shape[2 + axis], *widths]
    function = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}[len(shape.taps)]
    around = [max(0, width) for width in widths[::-2]]
    fits = all(2 * pad <= taps for pad, taps in zip(around, shape.taps, strict=True))
    sizes = [
        (n + 2 * pad - shape.reach(axis)) // shape.strides[axis] + 1
        for axis, (n, pad) in enumerate(zip(x.shape[2:], around, strict=True))
    ]
    if not fits or sizes != list(out.shape[2:]) or min(widths) < 0:  # otherwise than torch pads
        x, around = functional.pad(x, widths, value=float("-inf")), [0] * len(around)
    out[...] = function(x, shape.taps, shape.strides, around, shape.dilations)


def max_pool(call: OpCall) -> list[Array]:
    """Run MaxPool."""
    x = call.array(0)
    shape = geometry(call, tuple(call.attribute("kernel_shape")), x.shape[2:])
    if any(call.wanted[1:]):
        results = [arrays.empty(call.shape, x.dtype), arrays.empty(call.shape, np.int64)]
        kernel_of(whole(max_indices_body, 1, shape, call.flag("storage_order"), outputs=2, name="max_pool"))(
            x, *results
        )
        return results
    on_torch = max_pool_torch if len(shape.taps) <= 3 and x.dtype.kind == "f" else None
    return [pooled(max_pool_body, x, call.shape, shape, on_torch)]


def pooled(body: Any, x: Array, out: Shape, shape: Geometry, torch: Any = None, *fixed: Any) -> Array:
    """Return the result of a body on windows, which may be divided by images, channels and rows."""
    form = KernelForm(
        body, (Windowed(shape),), (0, 1, 2), (shape, *fixed), chunked=True, torch=torch, flops=float(prod(shape.taps))
    )
    return compute(form, [x], out, x.dtype)


def max_indices_body(x: Any, out: Any, at: Any, shape: Geometry, columns_first: bool) -> None:
    """Take the largest element of each window, and its position in the whole input."""
    order = "F" if columns_first else "C"
    images = x.shape[0] * x.shape[1]
    positions = np.arange(images).reshape(x.shape[:2] + (1,) * len(shape.taps)) * prod(x.shape[2:])
    positions = positions + np.arange(prod(x.shape[2:])).reshape(x.shape[2:], order=order)  # type: ignore[call-overload]

    class Everything:
        lo = (0,) * x.ndim

    padded = laid_out(x, out.shape, Everything, shape, lowest(x.dtype))
    where = laid_out(positions, out.shape, Everything, shape, -1)
    found: Any = None
    index: Any = None
    for taps in all_taps(shape):
        part, place = seen_by(padded, taps, out.shape[2:], shape), seen_by(where, taps, out.shape[2:], shape)
        if found is None:
            found, index = part.copy(), place.copy()
        better = (part > found) | ((index < 0) & (place >= 0))
        found, index = np.where(better, part, found), np.where(better, place, index)
    out[...], at[...] = found, index


def average_body(x: Any, out: Any, chunk: Any, shape: Geometry, whole_shape: Shape, padded_too: bool) -> None:
    """Take the mean of each window; of what is there, or of padding too, but not of what lies beyond it."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    padded = laid_out(x.astype(kind), out.shape, chunk, shape, 0)
    total = np.zeros(out.shape, kind)
    for taps in all_taps(shape):
        total += seen_by(padded, taps, out.shape[2:], shape)
    count = np.ones((1, 1, *(1,) * len(shape.taps)), kind)
    for axis, n in enumerate(out.shape[2:]):
        size = whole_shape[2 + axis]
        first = (np.arange(n) + (chunk.lo[2] if axis == 0 else 0)) * shape.strides[axis] - shape.before[axis]
        at = first[:, None] + np.arange(shape.taps[axis]) * shape.dilations[axis]
        lo, hi = (-shape.before[axis], size + shape.after[axis]) if padded_too else (0, size)
        inside = ((at >= lo) & (at < hi)).sum(axis=1)
        count = count * inside.reshape([-1 if a == 2 + axis else 1 for a in range(out.ndim)])
    out[...] = total / np.maximum(count, 1)


def average_pool(call: OpCall) -> list[Array]:
    """Run AveragePool."""
    x = call.array(0)
    shape = geometry(call, tuple(call.attribute("kernel_shape")), x.shape[2:])
    return [pooled(average_body, x, call.shape, shape, None, x.shape, call.flag("count_include_pad"))]


def lp_body(x: Any, out: Any, chunk: Any, shape: Geometry, p: int) -> None:
    """Take the norm of each window."""
    padded = np.abs(laid_out(x, out.shape, chunk, shape, 0)) ** p
    total = np.zeros(out.shape, x.dtype)
    for taps in all_taps(shape):
        total += seen_by(padded, taps, out.shape[2:], shape)
    out[...] = total ** (1.0 / p)


def lp_pool(call: OpCall) -> list[Array]:
    """Run LpPool."""
    x = call.array(0)
    shape = geometry(call, tuple(call.attribute("kernel_shape")), x.shape[2:])
    return [pooled(lp_body, x, call.shape, shape, None, int(call.attribute("p", 2)))]


GLOBAL = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}


def global_pool(call: OpCall) -> list[Array]:
    """Reduce over all axes but images and channels."""
    from dataclasses import replace

    axes = tuple(range(2, call.array(0).ndim))
    node = replace(call.node, kind=GLOBAL[call.node.kind], attributes={"axes": axes, "keepdims": 1})
    return list(reduced(OpCall(node, call.opset, call.types, [None], call.array)))


def global_lp(call: OpCall) -> list[Array]:
    """Run GlobalLpPool."""
    x = call.array(0)
    if x.ndim < 3:
        raise UnsupportedError(f"GlobalLpPool {call.node.name!r} needs an image, not shape {x.shape}")
    n = x.ndim - 2
    shape = Geometry(x.shape[2:], (1,) * n, (1,) * n, (0,) * n, (0,) * n)
    return [pooled(lp_body, x, call.shape, shape, None, int(call.attribute("p", 2)))]


WINDOWS: dict[str, Run] = {
    "Conv": conv, "ConvTranspose": transposed, "MaxPool": max_pool, "AveragePool": average_pool, "LpPool": lp_pool,
    "GlobalAveragePool": global_pool, "GlobalMaxPool": global_pool, "GlobalLpPool": global_lp,
}  # fmt: skip
