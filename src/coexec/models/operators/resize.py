"""Resize: interpolation axis by axis, each a product with a small matrix, or a choice of rows.

Before: models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...program import array as arrays
from ...program.array import Array
from ...program.mapper import all as map_all
from .calls import KernelForm, OpCall, Plain, Run, Whole, compute, positive


class ResizeSampling(NamedTuple):
    """How coordinates and weights are found."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool
    extrapolate: float


def coordinate(how: str, at: int, scale: float, old: int, new: float, roi: tuple[float, float]) -> float:
    """Return where in the old axis an index of the new one lies. `new` is the exact length, which need not be whole."""
    match how:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjusted = int(new) / new if new else 1.0
            return old / 2 * (1 - adjusted) + (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if int(new) > 1 else 0.0
        case "align_corners":
            return at * (old - 1) / (new - 1) if new != 1 else 0.0
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case "tf_crop_and_resize":
            first, last = roi
            if int(new) > 1:
                return first * (old - 1) + at * (last - first) * (old - 1) / (int(new) - 1)
            return 0.5 * (first + last) * (old - 1)
    raise UnsupportedError(f"Resize: coordinate_transformation_mode {how!r} is not known")


def chosen(how: str, x: float) -> int:
    """Return the nearest old index."""
    match how:
        case "floor":
            return floor(x)
        case "ceil":
            return ceil(x)
        case "round_prefer_ceil":
            return floor(x + 0.5)
        case _:
            return ceil(x - 0.5)


def weight(sampling: ResizeSampling, distance: float, scale: float) -> float:
    """Return the weight of an old element at some distance; below scale 1 with antialias, filters grow wider."""
    d = abs(distance) * (min(scale, 1.0) if sampling.antialias else 1.0)
    if sampling.mode == "linear":
        return max(0.0, 1.0 - d)
    a = sampling.cubic
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def axis_matrix(
    sampling: ResizeSampling, old: int, new: int, scale: float, exact: float, roi: tuple[float, float]
) -> Plain:
    """Return the matrix that makes the new axis of the old one."""
    found = np.zeros((new, old))
    wide = (1 if sampling.mode == "linear" else 2) / (min(scale, 1.0) if sampling.antialias else 1.0)
    for at in range(new):
        x = coordinate(sampling.coordinates, at, scale, old, exact, roi)
        if sampling.mode == "nearest":
            found[at, min(max(chosen(sampling.nearest, x), 0), old - 1)] = 1.0
            continue
        row = np.zeros(old)
        for i in range(floor(x - wide), ceil(x + wide) + 1):
            w = weight(sampling, x - i, scale)
            if w and (0 <= i < old or not sampling.exclude):
                row[min(max(i, 0), old - 1)] += w
        total = row.sum()
        found[at] = row / total if (sampling.exclude or sampling.antialias) and total else row
    return found


def outside(
    sampling: ResizeSampling, old: int, new: int, scale: float, exact: float, roi: tuple[float, float]
) -> Plain:
    """Return which new indices lie outside the old axis."""
    at = [coordinate(sampling.coordinates, i, scale, old, exact, roi) for i in range(new)]
    return np.array([x < 0 or x > old - 1 for x in at])


def matrix_body(x: Any, m: Any, out: Any, axis: int) -> None:
    """Multiply along an axis."""
    out[...] = np.moveaxis(
        np.tensordot(m.astype(np.result_type(m, x) if x.dtype.kind == "f" else m.dtype), x, (1, axis)), 0, axis
    )


def rows_body(x: Any, at: Any, out: Any, axis: int) -> None:
    """Take rows along an axis."""
    out[...] = np.take(x, at, axis=axis)


def along(x: Array, matrix: Plain, axis: int, *, nearest: bool) -> Array:
    """Return an array with one axis made new."""
    shape = tuple(len(matrix) if a == axis else n for a, n in enumerate(x.shape))
    split = tuple(a for a in range(x.ndim) if a != axis)
    if nearest:
        form = KernelForm(
            rows_body, (Whole((axis,)), map_all), split, (axis,), (Whole((axis,)),), name="resize_nearest"
        )
        return compute(form, [x, arrays.array(matrix.argmax(axis=1))], shape, x.dtype)
    kind = np.float64 if x.dtype == np.float64 else np.float32
    line = Whole((axis,))
    form = KernelForm(matrix_body, (line, map_all), split, (axis,), (line,), flops=2.0 * x.shape[axis], name="resize")
    return compute(form, [x, arrays.array(matrix.astype(kind))], shape, kind if x.dtype.kind == "f" else np.float32)


def _scales(call: OpCall, x: Array, axes: tuple[int, ...]) -> dict[int, float]:
    """Return the exact scale of each axis that is resized."""
    position = 1 if call.node.kind == "Upsample" or call.opset < 11 else 2
    given = call.fixed(position)
    if call.node.kind == "Upsample" and given is None:
        given = np.array(call.attribute("scales"), np.float32)
    if given is not None and given.size:
        return {a: float(s) for a, s in zip(axes, given, strict=True)}
    sizes = [int(n) for n in call.fixed(3)]  # type: ignore[union-attr]
    scales = [n / x.shape[a] for a, n in zip(axes, sizes, strict=True)]
    policy = str(call.attribute("keep_aspect_ratio_policy", "stretch"))
    if policy == "not_larger":
        scales = [min(scales)] * len(scales)
    elif policy == "not_smaller":
        scales = [max(scales)] * len(scales)
    return dict(zip(axes, scales, strict=True))


def resize(call: OpCall) -> list[Array]:
    """Run Resize, Upsample."""
    x = call.array(0)
    axes = positive(call.attribute("axes", tuple(range(x.ndim))), x.ndim)
    scales = _scales(call, x, axes)
    old_style = call.node.kind == "Upsample" or call.opset < 11
    mode = str(call.attribute("mode", "nearest"))
    sampling = ResizeSampling(
        mode, "asymmetric" if old_style else str(call.attribute("coordinate_transformation_mode", "half_pixel")),
        "floor" if old_style else str(call.attribute("nearest_mode", "round_prefer_floor")),
        call.number("cubic_coeff_a", -0.75), call.flag("exclude_outside"), call.flag("antialias"),
        call.number("extrapolation_value", 0.0),
    )  # fmt: skip
    rois = call.fixed(1) if not old_style else None
    half = len(axes)
    result = x
    beyond: list[tuple[int, Plain]] = []
    for i, axis in enumerate(axes):
        old, new, scale = x.shape[axis], call.shape[axis], scales[axis]
        roi = (0.0, 1.0) if rois is None or not rois.size else (float(rois[i]), float(rois[half + i]))
        cropped = sampling.coordinates == "tf_crop_and_resize"
        if scale == 1.0 and old == new and not cropped:
            continue
        exact = old * scale if not cropped and call.fixed(2 if not old_style else 1) is not None else float(new)
        matrix = axis_matrix(sampling, old, new, scale, exact, roi)
        result = along(result, matrix, axis, nearest=mode == "nearest")
        if cropped:
            beyond.append((axis, outside(sampling, old, new, scale, exact, roi)))
    for axis, mask in beyond:
        spread: Any = arrays.array(mask.reshape([-1 if a == axis else 1 for a in range(x.ndim)]))
        blended: Any = np.where(spread, result.dtype.type(sampling.extrapolate), result)
        result = blended
    if result.dtype != call.dtype:
        result = arrays.array(np.rint(result) if call.dtype.kind in "iu" else result, call.dtype)
    return [result]


RESIZE: dict[str, Run] = {"Resize": resize, "Upsample": resize}
STATIC = {"Resize": (1, 2, 3), "Upsample": (1,)}
"""Operands that must be constants, by operator."""
