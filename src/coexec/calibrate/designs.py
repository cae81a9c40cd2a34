"""What calibration measures: for each ready-made operation, calls over a designed range of sizes and proportions.

Before: ops/.  After: calibrate/measuring.py.  Knows no device and no clock.

Sizes are spread evenly on a logarithmic scale, so that small and large ones count alike, and not all in one proportion,
or the features of a product (its operands, its result, its operations) could not be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import unknown_name
from ..ops import conv2d as convolution, matmul as product
from ..ops.attention import window_attention
from ..ops.csr import csr
from ..ops.reductions import max as maximum, sum as total
from ..ops.rowwise import gelu, layernorm, softmax
from ..ops.sparse import sddmm, spmm, spmv
from ..program import array as arrays
from ..program.array import Array

Shape = tuple[int, ...]
LARGEST = 1 << 26
"""Bytes of the largest operand: more than most caches hold."""


class DesignedCall(NamedTuple):
    """One designed call: the same numbers each time, in arrays that begin on the host."""

    op: str
    label: str
    cost: float  # operations or bytes: tells how much longer than another case of its op it takes
    inputs: tuple[Any, ...]
    call: Callable[..., Any]
    together_only: bool = False  # too large to be worth running on each device by itself
    own: bool = False  # the user's: may write its arrays, so they are copied; its failures are the user's too
    chain: bool = False  # its operations are one kernel
    plain: int = 0  # so many of the first inputs stay NumPy arrays: the parts of a sparse matrix


class Design(NamedTuple):
    """The cases of one operation, the cheapest first, and its part of the time."""

    name: str
    weight: float
    cases: Callable[[], list[DesignedCall]]
    about: str


@cache
def numbers(dtype: str) -> np.ndarray[Any, Any]:
    """Return the elements that every operand is a view of: no case has to fill its own."""
    block = np.random.default_rng(0).random(1 << 16).astype(dtype) + np.dtype(dtype).type(0.5)
    return np.tile(block, LARGEST // block.nbytes)


def operand(shape: Shape, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return an operand of some shape."""
    return numbers(dtype)[: prod(shape)].reshape(shape)


# Products -----------------------------------------------------------------------------------------------------------------

SQUARES = (64, 96, 144, 216, 324, 512, 720, 1024, 1448, 2048)
PROPORTIONS = {
    "tall": (4, 1, 1),
    "wide": (1, 4, 1),
    "deep": (1, 1, 4),
    "flat": (4, 4, 1),  # a large result of a short sum
    "thin": (1, 8, 8),  # few rows: what a small share of a product is
}
SIDES = (48, 160, 448)
FAR = ((4096, 1024, 1024), (1024, 4096, 1024), (3072, 3072, 3072), (4096, 4096, 4096))
"""Rows, columns, sum: measured as divided tasks only."""


def products(dtype: str, squares: Sequence[int] = SQUARES, far: Sequence[Shape] = FAR) -> list[DesignedCall]:
    """Return matrix products: square, tall, wide, deep, flat and thin ones."""
    shapes = [(side, side, side) for side in squares]
    shapes += [(side * p[0], side * p[1], side * p[2]) for side in SIDES for p in PROPORTIONS.values()]
    cases = [_product(shape, dtype) for shape in shapes if max(shape) <= 2 * max(squares)]
    return sorted(cases, key=_cost) + [_product(shape, dtype)._replace(together_only=True) for shape in far]


def _product(shape: Shape, dtype: str) -> DesignedCall:
    rows, columns, inner = shape
    inputs = (operand((rows, inner), dtype), operand((inner, columns), dtype))
    return DesignedCall(f"matmul {dtype}", f"{rows}x{columns}x{inner}", 2.0 * rows * columns * inner, inputs, product)


# Convolutions -------------------------------------------------------------------------------------------------------------


class ConvolutionShape(NamedTuple):
    """A convolution: images, channels, their side, filters, the filters' side, stride."""

    images: int
    channels: int
    side: int
    filters: int
    taps: int
    stride: int = 1


LAYERS = (
    ConvolutionShape(1, 8, 16, 8, 3),
    ConvolutionShape(1, 3, 64, 16, 3),
    ConvolutionShape(2, 32, 28, 32, 1),
    ConvolutionShape(1, 64, 14, 128, 3),
    ConvolutionShape(4, 16, 32, 64, 3),
    ConvolutionShape(1, 3, 160, 32, 7, 2),
    ConvolutionShape(2, 48, 28, 96, 5),
    ConvolutionShape(1, 128, 28, 256, 1),
    ConvolutionShape(4, 64, 28, 64, 3),
    ConvolutionShape(8, 96, 14, 192, 3, 2),
    ConvolutionShape(2, 64, 56, 96, 3),
    ConvolutionShape(4, 256, 14, 256, 3),
    ConvolutionShape(1, 384, 20, 512, 3),
    ConvolutionShape(4, 3, 224, 64, 7, 2),
    ConvolutionShape(2, 128, 56, 160, 3),
    ConvolutionShape(1, 64, 192, 64, 3),
    ConvolutionShape(8, 192, 28, 256, 3),
)


def convolutions(layers: Sequence[ConvolutionShape] = LAYERS) -> list[DesignedCall]:
    """Return convolutions like the layers of image networks."""
    return sorted(map(_convolution, layers), key=_cost)


def _convolution(layer: ConvolutionShape) -> DesignedCall:
    images = operand((layer.images, layer.channels, layer.side, layer.side))
    filters = operand((layer.filters, layer.channels, layer.taps, layer.taps))
    points = layer.images * layer.filters * (layer.side // layer.stride) ** 2
    call = partial(convolution, stride=layer.stride, padding=layer.taps // 2)
    label = f"{'x'.join(map(str, images.shape))} * {'x'.join(map(str, filters.shape))}"
    return DesignedCall("conv2d float32", label, 2.0 * points * layer.channels * layer.taps**2, (images, filters), call)


# One element at a time, and all in one ------------------------------------------------------------------------------------

SIZES = (1 << 11, 1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 24)
UFUNCS = (np.add, np.multiply, np.exp, np.sqrt)


def elementwise(sizes: Sequence[int] = SIZES) -> list[DesignedCall]:
    """Return NumPy functions on long vectors of both float types."""
    return sorted(_each(sizes, {ufunc.__name__: (ufunc, ufunc.nin) for ufunc in UFUNCS}), key=_cost)


def reductions(sizes: Sequence[int] = SIZES) -> list[DesignedCall]:
    """Return sums and maxima of long vectors of both float types."""
    return sorted(_each(sizes, {"sum": (total, 1), "max": (maximum, 1)}), key=_cost)


def _each(sizes: Sequence[int], functions: dict[str, tuple[Callable[..., Any], int]]) -> Iterator[DesignedCall]:
    for dtype in ("float32", "float64"):
        for name, (function, operands) in functions.items():
            for size in (n for n in sizes if n * np.dtype(dtype).itemsize <= LARGEST):
                inputs = tuple(operand((size,), dtype) for _ in range(operands))
                yield DesignedCall(
                    f"{name} {dtype}", f"{size} elements", float(sum(x.nbytes for x in inputs)), inputs, function
                )


CHAINS: dict[str, Callable[..., Any]] = {
    "x * y + 1": lambda x, y: x * y + 1.0,
    "sqrt(x * y + 1) / 2 + x": lambda x, y: np.sqrt(x * y + 1.0) / 2.0 + x,
    "exp(-x * x) * y": lambda x, y: np.exp(-x * x) * y,
    "log(x + 1) / (y + sin(x))": lambda x, y: np.log(x + 1.0) / (y + np.sin(x)),
}
"""Bodies with unlike shares of bytes and of each class of operations: what chains that never ran are predicted from."""
CHAINED = (1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 23)
"""Elements of each operand: the smallest results are not held back, and the largest are in no cache."""


def chains(sizes: Sequence[int] = CHAINED) -> list[DesignedCall]:
    """Return chains of operators and NumPy functions on long vectors of both float types, each as one kernel."""
    found = [
        DesignedCall(
            f"chain {dtype}", f"{name} of {size}", float(size), (operand((size,), dtype),) * 2, function, chain=True
        )
        for dtype in ("float32", "float64")
        for name, function in CHAINS.items()
        for size in sizes
        if size * np.dtype(dtype).itemsize <= LARGEST
    ]
    return sorted(found, key=_cost)


# Sparse products, attention within a window, rows ---------------------------------------------------------------------------

GRAPHS = ((500, 4), (2_000, 16), (2_000, 128), (8_000, 6), (20_000, 30), (60_000, 4), (60_000, 16))
"""Rows and stored elements in each: citation networks have few, social ones many."""
SPARSE_WIDTHS = (1, 16, 64)  # columns of the other factor; 1 is a product with a vector


def sparse_products() -> list[DesignedCall]:
    """Return sparse matrices times dense ones and vectors, and sampled products."""
    found = []
    for rows, degree in GRAPHS:
        parts = _pattern(rows, degree)
        stored = len(parts[0])
        for width in SPARSE_WIDTHS:
            vector = width == 1
            inputs = (*parts, operand((rows,) if vector else (rows, width)))
            name = "spmv float32" if vector else "spmm float32"
            label, call = f"{rows} rows of {degree} x {width}", partial(_sparse, spmv if vector else spmm)
            found.append(DesignedCall(name, label, 2.0 * stored * width, inputs, call, plain=3))
        inputs = (*parts, operand((rows, 16)), operand((16, rows)))
        call = partial(_sparse, sddmm)
        found.append(
            DesignedCall("sddmm float32", f"{rows} rows of {degree} x 16", 32.0 * stored, inputs, call, plain=3)
        )
    return sorted(found, key=_cost)


@cache
def _pattern(rows: int, degree: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Return a sparse matrix taken apart: rows are unlike, as in most graphs, and have `degree` elements on average."""
    random = np.random.default_rng(rows)
    lengths = np.minimum(rows, np.maximum(1, random.pareto(1.5, rows) * degree / 2).astype(np.int64))
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = random.integers(0, rows, int(ends[-1])).astype(np.int32)
    return operand((int(ends[-1]),)), indices, ends


def _sparse(op: Callable[..., Any], data: Any, indices: Any, ends: Any, *others: Any) -> Any:
    rows = len(ends) - 1
    return op(csr((data, indices, ends), shape=(rows, rows)), *others)


WINDOWS = ((128, 16), (512, 64), (1024, 128), (2048, 64), (2048, 256), (4096, 128), (8192, 256))
"""Tokens, and how many of them each one sees."""


def attention() -> list[DesignedCall]:
    """Return attention within a window: heads of 64 elements."""
    found = [
        DesignedCall(
            "window_attention float32",
            f"{rows} tokens, window {window}",
            4.0 * rows * window * 64,
            (operand((rows, 64)),) * 3,
            partial(_attended, window),
        )
        for rows, window in WINDOWS
    ]
    return sorted(found, key=_cost)


def _attended(window: int, q: Any, k: Any, v: Any) -> Any:
    return window_attention(q, k, v, window)


ROWS = ((64, 64), (512, 256), (256, 2048), (4096, 512), (2048, 3072), (16_384, 256))


def rowwise() -> list[DesignedCall]:
    """Return softmax, layernorm and gelu of matrices."""
    functions = {"softmax": softmax, "layernorm": layernorm, "gelu": gelu}
    found = [
        DesignedCall(f"{name} float32", "x".join(map(str, shape)), 4.0 * prod(shape), (operand(shape),), function)
        for name, function in functions.items()
        for shape in ROWS
    ]
    return sorted(found, key=_cost)


def _cost(case: DesignedCall) -> float:
    return case.cost


DESIGNS = {
    design.name: design
    for design in (
        Design("matmul", 0.4, lambda: products("float32"), "cx.matmul of float32"),
        Design("conv2d", 0.2, convolutions, "cx.conv2d of float32"),
        Design("elementwise", 0.12, elementwise, "add, multiply, exp and sqrt of both float types"),
        Design("chains", 0.05, chains, "chains of operators and functions of both float types"),
        Design("reduce", 0.08, reductions, "sum and max of both float types"),
        Design("sparse", 0.1, sparse_products, "cx.spmm, cx.spmv and cx.sddmm of float32"),
        Design("attention", 0.07, attention, "cx.window_attention of float32"),
        Design("rowwise", 0.05, rowwise, "cx.softmax, cx.layernorm and cx.gelu of float32"),
        Design("matmul64", 0.15, lambda: products("float64", SQUARES[:-1], FAR[:2]), "cx.matmul of float64"),
    )
}
"""Every designed operation by its name, in the order of measuring."""


def designs(names: Sequence[str] | None = None) -> list[Design]:
    """Return the named designs, or all."""
    for name in names or ():
        if name not in DESIGNS:
            raise unknown_name("operation", name, list(DESIGNS))
    return [design for name, design in DESIGNS.items() if names is None or name in names]


# Calls of the user's own ----------------------------------------------------------------------------------------------------


def own(kernels: Sequence[tuple[Any, Sequence[Sequence[Any]]]]) -> list[Design]:
    """Return designs for a user's kernels: each with its calls, whose arrays are NumPy's or coexec's."""
    made = []
    for kernel, calls in kernels:
        name = str(getattr(kernel, "name", None) or getattr(kernel, "__name__", repr(kernel)))
        cases = [_own(name, kernel, tuple(call)) for call in calls]
        made.append(Design(name, 1.0, partial(sorted, cases, key=_cost), f"{len(cases)} calls"))
    return made


def _own(name: str, kernel: Callable[..., Any], call: tuple[Any, ...]) -> DesignedCall:
    values = tuple(np.asarray(v) if isinstance(v, Array) else v for v in call)
    sizes = [v for v in values if isinstance(v, np.ndarray)]
    label = ", ".join("x".join(map(str, v.shape)) or "0-d" for v in sizes)
    return DesignedCall(name, label, float(sum(v.nbytes for v in sizes)) + 1.0, values, kernel, own=True)


def begin(case: DesignedCall) -> tuple[Any, ...]:
    """Return a case's arguments as arrays of the current runtime, all on the host."""
    make = arrays.array if case.own else arrays.asarray
    made = [make(value) if isinstance(value, np.ndarray) else value for value in case.inputs[case.plain :]]
    return (*case.inputs[: case.plain], *made)


__all__ = ["DESIGNS", "Design", "DesignedCall", "begin", "designs", "numbers", "operand", "own"]
