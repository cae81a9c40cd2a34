"""The NumPy body of cx.conv2d: pixels under the taps are gathered for some output rows at a time, then one BLAS call.

Before: program/body.py.  After: ops/conv2d.py, ops/on_torch.py.  Knows NumPy arrays only; `chunk` tells where its part begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..program.body import signature

GATHERED = 1 << 19  # elements that are gathered at a time: a few rows of a layer, within the cache that cores share
ALONE = 1 << 16  # pixels of the channels that are convolved together where each is alone: within a core's own cache
SCALARS = ("sh", "sw", "pad_top", "pad_left", "dh", "dw", "per_group")
Image = np.ndarray[Any, Any]


class Steps(NamedTuple):
    """How output pixels lie on the input rows and columns that are here."""

    stride: tuple[int, int]
    first: tuple[int, int]  # where the first output pixel's first tap lies; negative in the padding
    dilation: tuple[int, int]


class SumFinish(NamedTuple):
    """What is done to each sum before it leaves the cache, in this order."""

    biased: bool = False  # its channel's bias is added
    added: bool = False  # the element of another array of the output's shape is added
    low: float | None = None  # what is below becomes this
    high: float | None = None  # what is above becomes this

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the arrays that this takes."""
        return ("bias",) * self.biased + ("other",) * self.added


NOTHING = SumFinish()


class Finish:
    """Does what is done to sums, for some channels and rows of one image at a time. Works in place."""

    def __init__(self, after: SumFinish, operands: Sequence[Any]) -> None:
        self._low, self._high = after.low, after.high
        named = dict(zip(after.operands, operands, strict=True))
        self._bias, self._other = named.get("bias"), named.get("other")

    def __call__(self, part: Image, image: int, channels: slice, rows: slice) -> None:
        """Finish sums."""
        if self._bias is not None:
            part += self._bias[channels, None, None]
        if self._other is not None:
            part += self._other[image, channels, rows]
        if self._low is not None:
            np.maximum(part, part.dtype.type(self._low), out=part)
        if self._high is not None:
            np.minimum(part, part.dtype.type(self._high), out=part)


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
    finish: Callable[[Image, int, slice, slice], None] | None = None,
) -> None:
    """Convolve the images of a chunk."""
    top = chunk.lo[2] * sh - pad_top  # x begins with row max(top, 0)
    steps = Steps((sh, sw), (min(top, 0), -pad_left), (dh, dw))
    _convolve(x, w, out, steps, per_group, chunk.lo[1], finish or _leave)


def _leave(part: Image, image: int, channels: slice, rows: slice) -> None:
    """Do nothing to sums."""


class PlainConvolution:
    """A body: a convolution whose sums are left as they are."""

    def __init__(self, convolution: Callable[..., None]) -> None:
        self.__signature__ = signature(["x", "w", "out", *SCALARS, "chunk"])
        self.__name__ = convolution.__name__
        self._convolution = convolution

    def __call__(self, *arguments: Any) -> None:
        """Convolve the images of a chunk."""
        self._convolution(*arguments)


class FinishedConvolution:
    """A body: a convolution, and what is done to its sums while they are in the cache."""

    def __init__(self, after: SumFinish) -> None:
        self.__signature__ = signature(["x", "w", *after.operands, "out", *SCALARS, "chunk"])
        self.__name__ = "convolve_and_finish"
        self._convolution: Callable[..., None] = convolve
        self._finish, self.after = Finish, after

    def __call__(self, x: Any, w: Any, *rest: Any) -> None:
        """Convolve the images of a chunk and finish the sums."""
        count = len(self.after.operands)
        self._convolution(x, w, *rest[count:], self._finish(self.after, rest[:count]))


@lru_cache(maxsize=64)
def convolution_body(after: SumFinish) -> Any:
    """Return the body of a convolution."""
    return PlainConvolution(convolve) if after == NOTHING else FinishedConvolution(after)


def _convolve(x: Any, w: Any, out: Any, steps: Steps, per_group: int, first: int, finish: Any) -> None:
    """Convolve image by image and group by group; `first` is the output channel that the chunk begins with."""
    filters, channels = w.shape[:2]
    if channels == 1 and filters > 1 and per_group < 4:
        sources = [(first + o) // per_group - first // per_group for o in range(filters)]
        _convolve_alone(x, w, out, steps, sources, finish)
        return
    o = 0
    while o < filters:
        group = (first + o) // per_group
        end = min(filters, (group + 1) * per_group - first)
        at = (group - first // per_group) * channels
        for n in range(out.shape[0]):
            _multiply(x[n, at : at + channels], w, out, steps, finish, n, slice(o, end))
        o = end


def _multiply(x: Image, w: Any, out: Any, steps: Steps, finish: Any, image: int, some: slice) -> None:
    """Convolve one image with the filters of one group."""
    w, out = w[some], out[image, some]
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
        finish(part, image, some, slice(row, row + part.shape[1]))


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


def _convolve_alone(x: Any, w: Any, out: Any, steps: Steps, source: list[int], finish: Any) -> None:
    """Convolve where each group has one input channel: `source` names it for each output channel.

    Pixels that one tap meets are laid out in planes, rows behind each other with their padding, so that a tap of all output
    pixels is one stretch of a plane: each step is one long loop per channel. What lies beyond a row's end is dropped.
    """
    (down, across), (rows, columns) = w.shape[2:], out.shape[2:]
    (sh, sw), (dh, dw) = steps.stride, steps.dilation
    high, wide = rows + (down - 1) * dh // sh, columns + (across - 1) * dw // sw
    length, some = rows * wide, max(1, ALONE // max(1, high * wide))
    count = min(some, len(source))
    taps = [(r, s) for r in range(down) for s in range(across)]
    planes = {(r * dh % sh, s * dw % sw): np.zeros((count, (high + 1) * wide), out.dtype) for r, s in taps}
    total, products = np.empty((count, length), out.dtype), np.empty((count, length), out.dtype)
    for n, o in product(range(out.shape[0]), range(0, len(source), some)):
        target, weights = out[n, o : o + some], w[o : o + some, 0]
        images = x[n, o : o + some] if source[-1] == len(source) - 1 else x[n, source[o : o + some]]
        here = len(target)
        for (below, right), plane in planes.items():
            ys, from_y = _span(steps.first[0] + below, sh, x.shape[2], high)
            xs, from_x = _span(steps.first[1] + right, sw, x.shape[3], wide)
            plane[:here, : high * wide].reshape(here, high, wide)[:, ys, xs] = images[:, from_y, from_x]
        sums, one = total[:here], products[:here]
        sums[...] = 0
        for r, s in taps:
            at = r * dh // sh * wide + s * dw // sw
            seen = planes[r * dh % sh, s * dw % sw][:here, at : at + length]
            np.multiply(seen, weights[:, r, s, None], out=one)
            sums += one
        target[...] = sums.reshape(here, rows, wide)[:, :, :columns]
        finish(target, n, slice(o, o + some), slice(0, rows))


__all__ = ["NOTHING", "SCALARS", "SumFinish", "convolution_body", "convolve"]
