"""Two-dimensional convolution: matrix products of pixels gathered block by block, on the host and in OpenCL C.

Before: ops/op.py.  After: the package's own namespace.  Knows no device; ops/convolve.py is the body, conv2d_*.cl the rest.

An output is a sum of products in an order that each variant chooses: they agree as ops/matmul.py says.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..backend.opencl.source import SourceArgument, signature
from ..errors import ArgumentError, ShapeError
from ..geometry import Box
from ..program.access import read, write
from ..program.array import Array
from ..program.kernel import Kernel, kernel
from ..program.mapper import Mapper
from ..program.variant import Variant
from . import on_torch
from .convolve import NOTHING, SCALARS, SumFinish, convolution_body
from .matmul import NUMERICS
from .op import TILES, CheckedCall, Op, Tile, as_dtype, opencl_source, operand, output

Shape = tuple[int, ...]
Pair = tuple[int, int]
PIXELS, TOGETHER = 64, 4  # a GPU's work-group, and output channels of one work-item


class ConvolutionWindow(NamedTuple):
    """How output pixels lie on the input: what a kernel is called with, and what its range mapper needs."""

    stride: Pair
    padding: Pair  # above and to the left; what is below and to the right follows from the output's shape
    dilation: Pair
    taps: Pair
    channels: Pair  # input and output channels of one group

    @property
    def scalars(self) -> tuple[int, ...]:
        """The values of `SCALARS`."""
        return (*self.stride, *self.padding, *self.dilation, self.channels[1])


class InputUnderTaps(Mapper):
    """What a chunk of the output sees of the input: its images, its groups' channels, and the rows under its taps."""

    def __init__(self, window: ConvolutionWindow) -> None:
        self.window = window

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        inputs, outputs = self.window.channels
        first = chunk.lo[2] * self.window.stride[0] - self.window.padding[0]
        reach = (self.window.taps[0] - 1) * self.window.dilation[0] + 1
        top = min(max(first, 0), shape[2])
        end = first + (chunk.hi[2] - chunk.lo[2] - 1) * self.window.stride[0] + reach
        bottom = max(top, min(end, shape[2]))
        lo = (chunk.lo[0], chunk.lo[1] // outputs * inputs, top, 0)
        if chunk.empty:
            return Box(lo, lo)
        return Box(lo, (chunk.hi[0], (-(-chunk.hi[1] // outputs)) * inputs, bottom, shape[3]))


class Channels(Mapper):
    """The chunk's output channels, along the array's first axis; everything along the others."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        return Box((chunk.lo[1], *(0 for _ in shape[1:])), (chunk.hi[1], *shape[1:]))


def flops(w: Any, out: Any) -> float:
    """Return the operations of a convolution or a part of one."""
    return 2.0 * float(out.size) * float(np.prod(w.shape[1:]))


def gathered(x: Any, w: Any, out: Any) -> float:
    """Return how many pixels are packed or copied, once per tap that sees them."""
    return float(out.shape[0] * out.shape[2] * out.shape[3] * x.shape[1] * w.shape[2] * w.shape[3])


@lru_cache(maxsize=256)
def conv2d_kernel(dtype: str, window: ConvolutionWindow, after: SumFinish = NOTHING) -> Kernel:
    """Return the kernel for one type, window and what is done to sums; those that differ by windows share body and sources."""
    accesses: dict[str, Any] = {"x": read(InputUnderTaps(window)), "w": read(Channels()), "out": write}
    if after.biased:
        accesses["bias"] = read(Channels())
    if after.added:
        accesses["other"] = read
    made = kernel(
        split=(0, 1, 2), over="out", name=f"conv2d_{dtype}", flops=flops, features={"gathered": gathered}, **accesses
    )(convolution_body(after))
    made.op, made.by_itself = "conv2d", True
    tile = TILES[dtype]
    made.variant(on_torch.convolution_body(after), kind="torch", name="torch", numerics=NUMERICS)
    return made.opencl(
        source(tile, "conv2d_cpu.cl", after),
        global_size=lambda n: tile.groups(n[1], n[0] * n[2] * n[3]),
        local_size=(1, 1, 1),
        numerics=NUMERICS,
        contract=True,
        elsewhere=gpu_variant(tile, after),
    )


def gpu_variant(tile: Tile, after: SumFinish = NOTHING) -> Variant:
    """Return the variant for an OpenCL device that is no CPU."""
    return Variant(
        "opencl",
        "opencl",
        source=source(tile, "conv2d_gpu.cl", after),
        global_size=lambda n: (n[2] * n[3], -(-n[1] // TOGETHER), n[0]),
        local_size=(PIXELS, 1, 1),
        numerics=NUMERICS,
        contract=True,
    )


@lru_cache(maxsize=64)
def source(tile: Tile, name: str, after: SumFinish) -> str:
    """Return one of the sources with its parameters."""
    arguments = [SourceArgument(n, tile.dtype, 4) for n in ("x", "w")] + [
        SourceArgument("bias", tile.dtype, 1)
    ] * after.biased
    arguments += [SourceArgument("other", tile.dtype, 4)] * after.added
    arguments += [SourceArgument("out", tile.dtype, 4, writes=True), *(SourceArgument(n, "int64") for n in SCALARS)]
    extents = (("x", 2), ("x", 3), ("w", 1), ("w", 2), ("w", 3))
    parameters = f"#define PARAMETERS {', '.join(signature(arguments, 4, extents, origin=True))}"
    parts = [opencl_source("block_cpu.cl")] * (name == "conv2d_cpu.cl") + [opencl_source(name)]
    bounds = [f"#define {at} ((T){_literal(bound)})" for at, bound in (("LOW", after.low), ("HIGH", after.high))
              if bound is not None]  # fmt: skip
    finish = ["#define BIAS"] * after.biased + ["#define OTHER"] * after.added + bounds
    return "\n".join([*tile.defines(), parameters, *finish, *parts])


def _literal(bound: float) -> str:
    """Return a number in C; infinities have a name there."""
    return repr(float(bound)) if np.isfinite(bound) else "INFINITY" if bound > 0 else "(-INFINITY)"


def _conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    out: Array | None = None,
) -> CheckedCall:
    """Return the convolution (correlation, as in neural networks) of images `x` with filters `w`, as a new array.

    `x` has axes (image, channel, row, column), `w` (output channel, channel of its group, row, column), `bias` one value
    per output channel. `padding` is a number of zeros on each side, "valid" (none) or "same" (the output has the rows and
    columns of x; stride 1). Numbers or pairs (rows, columns). Elements are float32 or float64; with `out`, the result
    goes there.
    """
    given = [operand("cx.conv2d", name, v) for name, v in (("x", x), ("w", w), ("bias", bias)) if v is not None]
    dtype = np.result_type(*(array.dtype for array in given))
    if dtype.name not in TILES:
        raise ArgumentError(
            f"cx.conv2d takes float32 or float64, not {', '.join(str(a.dtype) for a in given)}; convert with "
            "cx.array(x, dtype=np.float32)"
        )
    shapes = [array.shape for array in given]
    _check_shapes(shapes, groups)
    (count, _, *size), (filters, channels, *taps) = shapes[:2]
    steps, dilations = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    pads = _pads(padding, steps, dilations, (taps[0], taps[1]))
    extents = [
        (size[a] + sum(pads[a]) - (taps[a] - 1) * dilations[a] - 1) // steps[a] + 1 if taps[a] else 0 for a in (0, 1)
    ]
    if min(extents) < 1 and min(*size, *taps) > 0:
        raise ShapeError(
            f"cx.conv2d: filters of {shapes[1]} (dilation {dilations}) do not fit into images of {shapes[0]} with "
            f"padding {pads}; pad more, or use smaller filters"
        )
    shape = (count, filters, max(0, extents[0]), max(0, extents[1]))
    arrays = tuple(as_dtype(array, dtype) for array in given)
    result, computed = output("cx.conv2d", out, shape, dtype, arrays)
    window = ConvolutionWindow(
        steps, (pads[0][0], pads[1][0]), dilations, (taps[0], taps[1]), (channels, max(1, filters // groups))
    )
    made = conv2d_kernel(dtype.name, window, SumFinish(biased=len(given) > 2))
    return CheckedCall(made, (*arrays, computed, *window.scalars), result, computed)


conv2d = Op(_conv2d)


def _check_shapes(shapes: list[Shape], groups: Any) -> None:
    """Raise unless images, filters and bias belong together."""
    x, w = shapes[:2]
    if len(x) != 4 or len(w) != 4:
        raise ShapeError(
            f"cx.conv2d: x has shape {x} and w {w}; both need four axes, (image, channel, row, column) and (output "
            "channel, channel, row, column). A single image is x[None]"
        )
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer) or groups < 1:
        raise ArgumentError(f"cx.conv2d: groups={groups!r}; give a whole number from 1")
    if x[1] != w[1] * groups:
        raise ShapeError(
            f"cx.conv2d: x of shape {x} has {x[1]} channels, w of shape {w} with groups={groups} takes {w[1] * groups}"
        )
    if w[0] % groups:
        raise ShapeError(f"cx.conv2d: the {w[0]} filters of w, shape {w}, cannot be divided into {groups} groups")
    if len(shapes) > 2 and shapes[2] != (w[0],):
        raise ShapeError(f"cx.conv2d: bias has shape {shapes[2]}, w {w}; it needs one value per filter: {(w[0],)}")


def _pair(name: str, value: Any, least: int) -> Pair:
    """Return a number, or a pair of them, as a pair."""
    entries = value if isinstance(value, tuple | list) else (value, value)
    try:
        pair = tuple(operator.index(entry) for entry in entries)
    except TypeError:
        pair = ()
    if len(pair) != 2 or min(pair) < least:
        raise ArgumentError(f"cx.conv2d: {name}={value!r}; give a whole number from {least}, or a pair (rows, columns)")
    return pair[0], pair[1]


def _pads(padding: Any, stride: Pair, dilation: Pair, taps: Pair) -> tuple[Pair, Pair]:
    """Return the padding (above, below) and (left, right)."""
    if padding == "same":
        if stride != (1, 1):
            raise ArgumentError(f"cx.conv2d: padding='same' needs stride 1, not {stride}; give padding as numbers")
        total = [max(0, (taps[axis] - 1) * dilation[axis]) for axis in (0, 1)]
        return (total[0] // 2, total[0] - total[0] // 2), (total[1] // 2, total[1] - total[1] // 2)
    if isinstance(padding, str) and padding != "valid":
        raise ArgumentError(f"cx.conv2d: padding={padding!r}; give numbers, 'valid' or 'same'")
    rows, columns = (0, 0) if padding == "valid" else _pair("padding", padding, 0)
    return (rows, rows), (columns, columns)


__all__ = ["conv2d", "conv2d_kernel"]
