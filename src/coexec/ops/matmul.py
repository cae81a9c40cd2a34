"""Matrix products: NumPy's BLAS on the host, blocked and packed OpenCL C elsewhere.

Before: ops/op.py.  After: the package's own namespace.  Knows no device; files *.cl hold the sources.

`c[i, j]` is a sum of products in an order that each variant chooses. Variants agree within `NUMERICS` units in the last
place of the sum of the products' absolute values, which is more than those of the result where terms cancel.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..backend.opencl.source import SourceArgument, signature
from ..errors import ArgumentError, ShapeError
from ..geometry import Box
from ..program.access import read, write
from ..program.array import Array
from ..program.kernel import Kernel, kernel
from ..program.mapper import Mapper, axis
from ..program.variant import Variant, close
from . import on_torch
from .op import TILES, CheckedCall, Op, Tile, as_dtype, opencl_source, operand, output

Shape = tuple[int, ...]
NUMERICS = close(256)
SIDE, GROUP = 64, 16  # of a GPU's tile and work-group


class MatmulOperand(Mapper):
    """The chunk's batch and its rows (or columns), and everything along the axis that is summed over."""

    def __init__(self, summed: int) -> None:
        self.summed = summed  # counted from the end: 1 or 2

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        whole = len(shape) - self.summed
        los, his = list(chunk.lo), list(chunk.hi)
        for at, extent in enumerate(shape):
            if at == whole or (extent == 1 and at < len(shape) - 2):
                los[at], his[at] = 0, extent
        return Box(tuple(los), tuple(his))


def product(a: Any, b: Any, out: Any) -> None:
    """Multiply two matrices, or stacks of them."""
    if _blas_takes(out):
        np.matmul(_direct(a), _direct(b), out=out)
    else:
        out[...] = np.matmul(_direct(a), _direct(b))


def _direct(x: Any) -> Any:
    return x if _blas_takes(x) else np.ascontiguousarray(x)


def _blas_takes(x: Any) -> bool:
    """Tell whether NumPy hands `x` to BLAS as it lies; otherwise its own loops are many times slower than a copy."""
    if x.dtype.kind not in "fc":
        return True
    (rows, columns), (down, along) = x.shape[-2:], x.strides[-2:]
    item = x.itemsize
    return bool(
        (along == item and down % item == 0 and down >= columns * item)
        or (down == item and along % item == 0 and along >= rows * item)
        or (rows == 1 and along == item)
        or (columns == 1 and down == item)
    )


def flops(a: Any, out: Any) -> float:
    """Return the operations of a product or a part of one."""
    return 2.0 * float(out.size) * float(a.shape[-1])


@cache
def product_kernel(dtype: str, ndim: int) -> Kernel:
    """Return the kernel for operands of one type and results of `ndim` axes; operands have as many."""
    accesses = (read(axis(1)), read(axis(0))) if ndim == 2 else (read(MatmulOperand(1)), read(MatmulOperand(2)))
    made = kernel(
        split=tuple(range(ndim)), name=f"matmul_{dtype}", flops=flops, a=accesses[0], b=accesses[1], out=write
    )(product)
    made.op, made.by_itself = "matmul", True
    if dtype in TILES:
        tile = TILES[dtype]
        made.variant(on_torch.product, kind="torch", name="torch", numerics=NUMERICS)
        made.opencl(
            cpu_source(tile, ndim),
            global_size=lambda n: tile.groups(n[-2], n[-1], prod(n[:-2])),
            local_size=(1, 1, 1),
            numerics=NUMERICS,
            contract=True,
            elsewhere=gpu_variant(tile, ndim),
        )
    return made


def cpu_source(tile: Tile, ndim: int) -> str:
    """Return the source for an OpenCL device that is a CPU."""
    return "\n".join(
        [*tile.defines(), *_around(tile, ndim), opencl_source("block_cpu.cl"), opencl_source("matmul_cpu.cl")]
    )


def gpu_variant(tile: Tile, ndim: int) -> Variant:
    """Return the variant for an OpenCL device that is no CPU."""
    return Variant(
        "opencl",
        "opencl",
        source="\n".join([*tile.defines(), *_around(tile, ndim), opencl_source("matmul_gpu.cl")]),
        global_size=lambda n: (-(-n[-1] // SIDE) * GROUP, -(-n[-2] // SIDE) * GROUP, prod(n[:-2])),
        local_size=(GROUP, GROUP, 1),
        numerics=NUMERICS,
        contract=True,
    )


def _around(tile: Tile, ndim: int) -> list[str]:
    """Return what the sources leave open: parameters, names for the last two axes, and where a batch's matrices lie."""
    names = ("a", "b", "out")
    arguments = [SourceArgument(name, tile.dtype, ndim, name == "out") for name in names]
    row, column = ndim - 2, ndim - 1
    extents = [(name, at) for name in ("a", "b") for at in range(row)]
    extents.insert(row, ("a", column))
    defined = {"INNER": f"a_n{column}", "OUT_N0": f"n{row}", "OUT_N1": f"n{column}"}
    for name in names:
        defined |= {f"{name.upper()}_S0": f"{name}_stride{row}", f"{name.upper()}_S1": f"{name}_stride{column}"}
    locate = [f"long {name}_at = {name}_start;" for name in names]
    locate += ["long rest = get_group_id(2);"] if ndim > 2 else []
    for at in range(ndim - 3, -1, -1):
        locate += [f"if ({name}_n{at} > 1) {name}_at += rest % n{at} * {name}_stride{at};" for name in ("a", "b")]
        locate += [f"out_at += rest % n{at} * out_stride{at}; rest /= n{at};"]
    defined |= {"PARAMETERS": ", ".join(signature(arguments, ndim, extents)), "LOCATE": " ".join(locate)}
    return [f"#define {name} {value}" for name, value in defined.items()]


def _matmul(a: Any, b: Any, out: Array | None = None) -> CheckedCall:
    """Return the matrix product of `a` and `b` as np.matmul does: vectors, matrices, or stacks of them, as a new array.

    One operand may be a NumPy array. Operands of unlike types are converted first. With `out`, the result goes there.
    """
    left, right = operand("cx.matmul", "a", a), operand("cx.matmul", "b", b)
    shape = result_shape(left.shape, right.shape)
    dtype = _result_dtype(left.dtype, right.dtype)
    left, right = as_dtype(left, dtype), as_dtype(right, dtype)
    result, computed = output("cx.matmul", out, shape, dtype, (left, right))
    target = computed
    if left.ndim == 1:
        left, target = left[None, :], target[..., None, :] if right.ndim > 1 else target[..., None]
    if right.ndim == 1:
        right, target = right[:, None], target[..., None]
    left, right = (x[(None,) * (target.ndim - x.ndim)] if x.ndim < target.ndim else x for x in (left, right))
    return CheckedCall(product_kernel(dtype.name, target.ndim), (left, right, target), result, computed)


matmul = Op(_matmul)


def result_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of the product of operands of these shapes, or raise."""
    if not a or not b:
        raise ShapeError(f"cx.matmul: shapes {a} and {b}: a 0-d operand has no axis to sum over; use a * b instead")
    inner = b[0] if len(b) == 1 else b[-2]
    if a[-1] != inner:
        raise ShapeError(
            f"cx.matmul: shapes {a} and {b} do not match: a's last axis has {a[-1]} elements, b's "
            f"{'only' if len(b) == 1 else 'last but one'} has {inner}; transpose one of them?"
        )
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ShapeError(
            f"cx.matmul: shapes {a} and {b} do not match: the stacks {a[:-2]} and {b[:-2]} cannot be broadcast together"
        ) from None
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


@cache
def _result_dtype(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.matmul(np.empty((0, 0), a), np.empty((0, 0), b)).dtype
    except TypeError:
        raise ArgumentError(f"cx.matmul: {a} and {b} cannot be multiplied; convert them to numbers first") from None
    return dtype


__all__ = ["matmul", "product_kernel", "result_shape"]
