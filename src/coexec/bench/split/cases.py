"""What is computed: matrix products, layers of image networks, a chain of elementwise operations, and a sum.

Before: ops/.  After: the ways (single.py, opencl.py, through.py).  Knows no device and no clock.

Each problem is written as a good programmer would with each library: NumPy and torch with out=, the chain in blocks that
stay in a core's cache; OpenCL with the text of coexec's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ...backend.launch import aligned_empty
from ...ops import conv2d, matmul
from ...ops.convolve import convolve
from ...ops.reductions import sum as total

Values = np.ndarray[Any, Any]
Shape = tuple[int, ...]
FLOAT: np.dtype[Any] = np.dtype(np.float32)
BLOCK = 1 << 14  # elements of the chain that are computed at a time: five blocks of them fill 320 KB


@dataclass(frozen=True)
class Problem:
    """One computation on given numbers, in each library. Functions get (*inputs, out)."""

    op: str
    shape: str
    size: float  # cube root of the multiplications, or elements
    operations: float
    inputs: tuple[Values, ...]
    out: Shape
    in_numpy: Callable[..., Any]
    in_torch: Callable[..., Any]  # returns the result, which may be another tensor than `out`
    in_coexec: Callable[..., Any]  # returns the result, which may be another array than `out`, without waiting
    finish: Callable[[Values, Values], Any] | None = None  # (what an OpenCL kernel gave, out): what is left to the host

    @property
    def name(self) -> str:
        """How progress calls it."""
        return f"{self.op} {self.shape}"

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the inputs: tells one call of an operation from another."""
        return tuple(array.shape for array in self.inputs)


class SplitCase(NamedTuple):
    """A problem that is made when its turn comes: the largest ones take hundreds of megabytes."""

    op: str
    shape: str
    make: Callable[[], Problem]


def numbers(*shape: int) -> Values:
    """Return random numbers from 0.5 to 1.5, in memory that every device can use in place."""
    made = aligned_empty(shape, FLOAT)
    np.random.default_rng(prod(shape)).random(dtype=np.float32, out=made)
    made += np.float32(0.5)
    return made


# Products -----------------------------------------------------------------------------------------------------------------


def product(rows: int, columns: int, inner: int) -> SplitCase:
    """Return a matrix product of float32."""
    label = f"{rows}x{columns}x{inner}"
    return SplitCase("matmul", label, partial(_product, rows, columns, inner))


def _product(rows: int, columns: int, inner: int) -> Problem:
    return Problem(
        "matmul",
        f"{rows}x{columns}x{inner}",
        round((rows * columns * inner) ** (1 / 3), 1),
        2.0 * rows * columns * inner,
        (numbers(rows, inner), numbers(inner, columns)),
        (rows, columns),
        lambda a, b, out: np.matmul(a, b, out=out),
        _torch_product,
        lambda a, b, out: matmul(a, b, out=out),
    )


def _torch_product(a: Any, b: Any, out: Any) -> Any:
    import torch

    return torch.matmul(a, b, out=out)


# Convolutions -------------------------------------------------------------------------------------------------------------


class ConvolutionLayer(NamedTuple):
    """A convolution with stride 1 whose output has the input's rows and columns."""

    name: str
    images: int
    channels: int
    side: int
    filters: int
    taps: int


def convolution(layer: ConvolutionLayer) -> SplitCase:
    """Return a layer of an image network on a few images of float32."""
    return SplitCase("conv2d", _label(layer), partial(_convolution, layer))


def _label(layer: ConvolutionLayer) -> str:
    images = f"{layer.images}x{layer.channels}x{layer.side}x{layer.side}"
    return f"{layer.name} {images} * {layer.filters}x{layer.channels}x{layer.taps}x{layer.taps}"


def _convolution(layer: ConvolutionLayer) -> Problem:
    out = (layer.images, layer.filters, layer.side, layer.side)
    padding = layer.taps // 2
    products = float(prod(out) * layer.channels * layer.taps**2)
    here = SimpleNamespace(lo=(0, 0, 0, 0))
    return Problem(
        "conv2d",
        _label(layer),
        round(products ** (1 / 3), 1),
        2.0 * products,
        (
            numbers(layer.images, layer.channels, layer.side, layer.side),
            numbers(layer.filters, layer.channels, layer.taps, layer.taps),
        ),
        out,
        lambda x, w, out: convolve(x, w, out, 1, 1, padding, padding, 1, 1, layer.filters, here),
        partial(_torch_convolution, padding),
        lambda x, w, out: conv2d(x, w, padding=padding, out=out),
    )


def _torch_convolution(padding: int, x: Any, w: Any, out: Any) -> Any:
    import torch

    del out  # torch has no out= here
    return torch.nn.functional.conv2d(x, w, padding=padding)


# A chain, and a sum -------------------------------------------------------------------------------------------------------


def chain(elements: int) -> SplitCase:
    """Return sqrt(x y + 1) / 2 + x over vectors of float32."""
    return SplitCase("chain", f"{elements}", partial(_chain, elements))


def _chain(elements: int) -> Problem:
    return Problem(
        "chain",
        f"{elements}",
        float(elements),
        5.0 * elements,
        (numbers(elements), numbers(elements)[::-1].copy()),
        (elements,),
        numpy_chain,
        _torch_chain,
        lambda x, y, _: np.sqrt(x * y + 1.0) * 0.5 + x,  # with out=, the last step would not be fused
    )


def numpy_chain(x: Values, y: Values, out: Values) -> None:
    """Compute the chain block by block, each in its part of the output: nothing but operands and result leaves the cache."""
    for start in range(0, len(x), BLOCK):
        some, part = x[start : start + BLOCK], out[start : start + BLOCK]
        np.multiply(some, y[start : start + BLOCK], out=part)
        np.add(part, np.float32(1.0), out=part)
        np.sqrt(part, out=part)
        np.multiply(part, np.float32(0.5), out=part)
        np.add(part, some, out=part)


def _torch_chain(x: Any, y: Any, out: Any) -> Any:
    import torch

    block = 4 * BLOCK  # a call of torch costs more than one of NumPy
    for start in range(0, len(x), block):
        some, part = x[start : start + block], out[start : start + block]
        torch.mul(some, y[start : start + block], out=part)
        part.add_(1.0).sqrt_().mul_(0.5).add_(some)
    return out


def summation(elements: int) -> SplitCase:
    """Return the sum of a vector of float32."""
    return SplitCase("sum", f"{elements}", partial(_summation, elements))


def _summation(elements: int) -> Problem:
    return Problem(
        "sum",
        f"{elements}",
        float(elements),
        float(elements),
        (numbers(elements),),
        (),
        lambda x, out: np.add.reduce(x, out=out),
        _torch_sum,
        lambda x, out: total(x, out=out),
        lambda parts, out: np.add.reduce(parts, out=out),
    )


def _torch_sum(x: Any, out: Any) -> Any:
    import torch

    return torch.sum(x, dim=0, out=out)


# The tables ---------------------------------------------------------------------------------------------------------------

LAYERS = (
    ConvolutionLayer("VGG16 conv1_2", 2, 64, 224, 64, 3),
    ConvolutionLayer("VGG16 conv3_2", 2, 256, 56, 256, 3),
    ConvolutionLayer("ResNet50 conv3_x", 16, 128, 28, 128, 3),
)
CASES = (
    *(product(side, side, side) for side in (512, 1024, 2048, 4096)),
    product(8192, 512, 512),
    product(4096, 256, 1024),
    product(512, 8192, 512),
    *map(convolution, LAYERS),
    chain(20_000_000),
    summation(20_000_000),
)
QUICK = (
    product(96, 96, 96),
    product(512, 64, 80),
    convolution(ConvolutionLayer("tiny", 2, 8, 20, 16, 3)),
    chain(200_000),
    summation(200_001),
)
UNSEEN = (
    *(product(side, side, side) for side in (640, 1200, 1800, 3000)),
    product(2500, 900, 1500),
    convolution(ConvolutionLayer("ResNet50 conv4_x", 8, 256, 14, 256, 3)),
    convolution(ConvolutionLayer("VGG16 conv4_2", 1, 512, 28, 512, 3)),
    summation(7_000_000),
)
"""Predicted, then run through coexec alone: shapes that no calibration has measured."""
QUICK_UNSEEN = (product(130, 110, 90),)
