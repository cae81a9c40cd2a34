"""Products with sparse matrices: SciPy on the host, OpenCL C and torch elsewhere, divided by stored elements.

Before: ops/csr.py, ops/op.py.  After: the package's own namespace.  Knows no device; spmm_*.cl hold the sources.

A result is a sum of products in an order that each variant chooses: they agree as ops/matmul.py says.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..backend.opencl.source import C_TYPES, SourceArgument, signature
from ..errors import ArgumentError, ShapeError
from ..program.access import read, write
from ..program.array import Array
from ..program.kernel import Kernel, kernel
from ..program.mapper import all as map_all
from ..program.variant import Variant
from . import sparse_bodies as bodies
from .csr import CSR, EndsOf, StoredOf, StoredPattern, csr
from .matmul import NUMERICS
from .op import TILES, CheckedCall, Op, Tile, as_dtype, opencl_source, operand, output

GROUP = 64
"""Columns of the result that a GPU's work-group computes."""


class OpOnCsr(Op):
    """An operation whose first operand may be sparse; it then gives a sparse matrix with the same pattern."""

    def __call__(self, first: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(first, "tocsr"):  # SciPy's
            first = csr(first)
        result = super().__call__(first, *args, **kwargs)
        return first.with_data(result) if isinstance(first, CSR) else result

    def using(self, **options: Any) -> OpOnCsr:
        """Return this operation with options for the calls made through it, as kernels have them."""
        return OpOnCsr(self.prepare, {**self._options, **options})


def multiply_kernel(pattern: StoredPattern, dtype: str) -> Kernel:
    """Return the kernel that multiplies matrices of one pattern; kernels of one type share body and sources."""
    key = ("spmm", dtype)
    if key not in pattern.kernels:
        mean = pattern.mean
        stored = read(StoredOf(pattern))
        made = kernel(
            split=0,
            over="out",
            name=f"spmm_{dtype}",
            flops=lambda out: 2.0 * mean * out.size,  # of rows as long as the mean: `weight` does the rest
            weight=pattern.weight,
            data=stored,
            indices=stored,
            indptr=read(EndsOf()),
            b=read(map_all),
            out=write,
        )(bodies.multiply)
        made.op = "spmm"
        if dtype in TILES:
            made.variant(bodies.multiply_torch, kind="torch", name="torch", numerics=NUMERICS)
            tile, index = TILES[dtype], pattern.indices.dtype.name
            made.opencl(
                source(tile, index, "spmm_cpu.cl"),
                global_size=lambda n: (n[0],),
                numerics=NUMERICS,
                contract=True,
                elsewhere=gpu_variant(tile, index),
            )
        pattern.kernels[key] = made
    return pattern.kernels[key]


def gpu_variant(tile: Tile, index: str) -> Variant:
    """Return the variant for an OpenCL device that is no CPU."""
    return Variant(
        "opencl",
        "opencl",
        source=source(tile, index, "spmm_gpu.cl"),
        global_size=lambda n: (n[1], n[0]),
        local_size=(GROUP, 1),
        numerics=NUMERICS,
        contract=True,
    )


@cache
def source(tile: Tile, index: str, name: str) -> str:
    """Return one of the sources with its parameters."""
    arguments = [
        SourceArgument("data", tile.dtype, 1),
        SourceArgument("indices", index, 1),
        SourceArgument("indptr", index, 1),
        SourceArgument("b", tile.dtype, 2),
        SourceArgument("out", tile.dtype, 2, writes=True),
    ]
    defined = {"T": tile.c_type, "W": tile.width, "INDEX": C_TYPES[index]}
    defined["PARAMETERS"] = ", ".join(signature(arguments, 2))
    return "\n".join([*(f"#define {key} {value}" for key, value in defined.items()), opencl_source(name)])


def sample_kernel(pattern: StoredPattern, dtype: str) -> Kernel:
    """Return the kernel that samples products at one pattern."""
    key = ("sddmm", dtype)
    if key not in pattern.kernels:
        mean, rows = pattern.mean, pattern.shape[0]
        stored = StoredOf(pattern)
        made = kernel(
            split=0,
            over=(rows,),
            name=f"sddmm_{dtype}",
            flops=lambda a: 2.0 * mean * a.size,
            weight=pattern.weight,
            data=read(stored),
            indices=read(stored),
            indptr=read(EndsOf()),
            a=read,
            b=read(map_all),
            out=write(stored),
        )(bodies.sample)
        made.op = "sddmm"
        if dtype in TILES:
            made.variant(bodies.sample_torch, kind="torch", name="torch", numerics=NUMERICS)
        pattern.kernels[key] = made
    return pattern.kernels[key]


def _spmm(s: Any, b: Any, out: Array | None = None) -> CheckedCall:
    """Return the product of a sparse matrix with a dense matrix or vector, as a new array.

    `s` is a cx.csr or what that takes, `b` may be a NumPy array. Operands of unlike types are converted first. With
    `out`, the result goes there.
    """
    return _product("cx.spmm", s, b, out)


def _spmv(s: Any, x: Any, out: Array | None = None) -> CheckedCall:
    """Return the product of a sparse matrix with a vector, as a new array."""
    vector = operand("cx.spmv", "x", x)
    if vector.ndim != 1:
        raise ShapeError(f"cx.spmv: x has shape {vector.shape}; it takes a vector, and cx.spmm a matrix")
    return _product("cx.spmv", s, vector, out)


def _product(op: str, s: Any, b: Any, out: Array | None) -> CheckedCall:
    left, right = sparse_operand(op, s), operand(op, "b", b)
    if right.ndim not in (1, 2):
        raise ShapeError(f"{op}: b has shape {right.shape}; it takes a matrix or a vector")
    if left.shape[1] != right.shape[0]:
        raise ShapeError(
            f"{op}: shapes {left.shape} and {right.shape} do not match: the sparse matrix has {left.shape[1]} columns, b "
            f"has {right.shape[0]} rows"
        )
    dtype = np.result_type(left.dtype, right.dtype)
    left, right = left.astype(dtype), as_dtype(right, dtype)
    shape = (left.shape[0], *right.shape[1:])
    result, computed = output(op, out, shape, dtype, (left.data, left.indices, left.indptr, right))
    matrix, target = (right, computed) if right.ndim == 2 else (right[:, None], computed[:, None])
    made = multiply_kernel(left.pattern, dtype.name)
    return CheckedCall(made, (left.data, left.indices, left.indptr, matrix, target), result, computed)


def _sddmm(s: Any, a: Any, b: Any) -> CheckedCall:
    """Return `s` with each stored element multiplied by that element of `a @ b`, of which no others are computed.

    `a` has as many rows as `s`, `b` as many columns; a `b` that is a transposed array is read along its memory.
    """
    op = "cx.sddmm"
    sparse, left, right = sparse_operand(op, s), operand(op, "a", a), operand(op, "b", b)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ShapeError(
            f"{op}: a has shape {left.shape} and b {right.shape}; they need to be matrices that a @ b takes"
        )
    if (left.shape[0], right.shape[1]) != sparse.shape:
        raise ShapeError(f"{op}: a @ b has shape {(left.shape[0], right.shape[1])}, the sparse matrix {sparse.shape}")
    dtype = np.result_type(sparse.dtype, left.dtype, right.dtype)
    sparse, left, right = sparse.astype(dtype), as_dtype(left, dtype), as_dtype(right, dtype)
    result, computed = output(op, None, (sparse.nnz,), dtype, ())
    made = sample_kernel(sparse.pattern, dtype.name)
    return CheckedCall(made, (sparse.data, sparse.indices, sparse.indptr, left, right, computed), result, computed)


def sparse_operand(op: str, value: Any) -> CSR:
    """Return an operand as a sparse matrix."""
    if isinstance(value, CSR):
        return value
    if isinstance(value, Array):
        raise ArgumentError(f"{op}: s is a dense coexec array; pass a cx.csr, or use cx.matmul")
    return csr(value)


spmm = Op(_spmm)
spmv = Op(_spmv)
sddmm = OpOnCsr(_sddmm)

__all__ = ["multiply_kernel", "sample_kernel", "sddmm", "spmm", "spmv"]
