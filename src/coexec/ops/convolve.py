"""The NumPy body of cx.conv2d: pixels under the taps are gathered for some output rows at a time, then one BLAS call.

Before: program/body.py.  After: ops/conv2d.py, ops/on_torch.py.  Knows NumPy arrays only; `chunk` tells where its part begins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..program.body import signature

GATHERED = 1 << 19  # elements that are gathered at a time: a few rows of a layer, within the cache that cores share
Image = np.ndarray[Any, Any]


class Steps(NamedTuple):
    """How output pixels lie on the input rows and columns that are here."""

    stride: tuple[int, int]
    first: tuple[int, int]  # where the first output pixel's first tap lies; negative in the padding
    dilation: tuple[int, int]


def convolve(
    x: Any,
    w: Any,
    out: Any,
    sh: int,
    sw: int,
    pad_top: int,
    pad_left: int,
    dh: int,
    dw: int,
    per_group: int,
    chunk: Any,
) -> None:
    """Convolve the images of a chunk."""
    top = chunk.lo[2] * sh - pad_top  # x begins with row max(top, 0)
    _convolve(x, w, out, Steps((sh, sw), (min(top, 0), -pad_left), (dh, dw)), per_group, chunk.lo[1])


class WithBias:
    """A body: a convolution, and each output channel's bias added to it. NumPy's and torch's alike."""

    def __init__(self, convolution: Callable[..., None]) -> None:
        x, w, *rest = inspect.signature(convolution).parameters
        self.__signature__ = signature([x, w, "bias", *rest])
        self.__name__ = f"{convolution.__name__}_and_add"
        self._convolution = convolution

    def __call__(self, x: Any, w: Any, bias: Any, out: Any, *rest: Any) -> None:
        """Convolve the images of a chunk and add the bias."""
        self._convolution(x, w, out, *rest)
        out += bias[:, None, None]


convolve_and_add = WithBias(convolve)


def _convolve(x: Any, w: Any, out: Any, steps: Steps, per_group: int, first: int) -> None:
    """Convolve image by image and group by group; `first` is the output channel that the chunk begins with."""
    filters, channels = w.shape[:2]
    if channels == 1 and filters > 1 and per_group < 4:
        _convolve_alone(x, w, out, steps, [(first + o) // per_group - first // per_group for o in range(filters)])
        return
    o = 0
    while o < filters:
        group = (first + o) // per_group
        end = min(filters, (group + 1) * per_group - first)
        at = (group - first // per_group) * channels
        for n in range(out.shape[0]):
            _multiply(x[n, at : at + channels], w[o:end], out[n, o:end], steps)
        o = end


def _multiply(x: Image, w: Image, out: Image, steps: Steps) -> None:
    """Convolve one image with the filters of one group."""
    (filters, *inner), (rows, columns) = w.shape, out.shape[1:]
    depth = int(np.prod(inner))
    weights = np.ascontiguousarray(w.reshape(filters, depth))
    block = max(1, min(rows, GATHERED // max(1, depth * columns)))
    direct = inner[1:] == [1, 1] and steps.stride == (1, 1) and steps.first == (0, 0) and x.flags.c_contiguous
    direct = direct and x.shape[1:] == (rows, columns)
    gathered = np.empty(0 if direct else (depth * block * columns), out.dtype)
    joined = out.strides[2] == out.itemsize and out.strides[1] == columns * out.itemsize
    for row in range(0, rows, block):
        part = out[:, row : row + block]
        count = part.shape[1] * columns
        if direct:
            pixels = x[:, row : row + block].reshape(depth, count)
        else:
            pixels = gathered[: depth * count].reshape(depth, count)
            _gather(x, pixels.reshape(*inner, part.shape[1], columns), steps, row)
        if joined:
            np.matmul(weights, pixels, out=part.reshape(filters, count))
        else:
            part[...] = np.matmul(weights, pixels).reshape(part.shape)


def _gather(x: Image, pixels: Image, steps: Steps, row: int) -> None:
    """Copy what each tap meets into pixels[channel, tap row, tap column, output row from `row`, output column]."""
    _, down, across, rows, columns = pixels.shape
    for r in range(down):
        above = row * steps.stride[0] + steps.first[0] + r * steps.dilation[0]
        ys, from_y = _span(above, steps.stride[0], x.shape[1], rows)
        for s in range(across):
            xs, from_x = _span(steps.first[1] + s * steps.dilation[1], steps.stride[1], x.shape[2], columns)
            target = pixels[:, r, s]
            if (ys.stop - ys.start, xs.stop - xs.start) != (rows, columns):
                target[...] = 0
            target[:, ys, xs] = x[:, from_y, from_x]


def _span(offset: int, step: int, size: int, count: int) -> tuple[slice, slice]:
    """Return which of positions offset + i * step, i < count, lie in [0, size): the i, and the positions."""
    lo = min(count, max(0, -(offset // step)))
    hi = max(lo, min(count, (size - 1 - offset) // step + 1))
    start = offset + lo * step
    return slice(lo, hi), slice(start, max(start, offset + (hi - 1) * step + 1), step) if hi > lo else slice(0, 0)


def _convolve_alone(x: Any, w: Any, out: Any, steps: Steps, source: list[int]) -> None:
    """Convolve where each group has one input channel: `source` names it for each output channel."""
    rows, columns = out.shape[2:]
    some = max(1, GATHERED // 8 // max(1, rows * columns))  # channels whose sums stay in a core's own cache
    for n in range(out.shape[0]):
        for o in range(0, len(source), some):
            target, weights = out[n, o : o + some], w[o : o + some, 0, :, :, None, None]
            images = x[n, o : o + some] if source[-1] == len(source) - 1 else x[n, source[o : o + some]]
            target[...] = 0
            for r in range(w.shape[2]):
                ys, from_y = _span(steps.first[0] + r * steps.dilation[0], steps.stride[0], x.shape[2], rows)
                for s in range(w.shape[3]):
                    xs, from_x = _span(steps.first[1] + s * steps.dilation[1], steps.stride[1], x.shape[3], columns)
                    target[:, ys, xs] += images[:, from_y, from_x] * weights[:, r, s]


__all__ = ["convolve", "convolve_and_add"]
