"""Sparse matrices by rows: values, columns and row ends as coexec arrays, and which of them belong to which rows.

Before: program/array.py.  After: ops/sparse.py, ops/rowwise.py.  Knows no device.

The row ends are known on the host from the beginning and never change: with them a chunk of rows is a box of the values. The
values are an array like any other, and live wherever they are needed.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError, UnsupportedError
from ..geometry import Box
from ..program import array as arrays
from ..program.array import Array
from ..program.kernel import Kernel
from ..program.later_stages import late
from ..program.mapper import Mapper

Shape = tuple[int, ...]
INDEX_TYPES = ("int32", "int64")


class StoredPattern:
    """Where the stored elements of a sparse matrix are. Matrices computed from one another share it."""

    def __init__(self, shape: tuple[int, int], indices: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        self.shape = shape
        self.ends = ends  # ours alone: element ends[i] is the first of row i
        self.indices = arrays.asarray(indices)
        self.indptr = arrays.asarray(ends)
        self.kernels: dict[Any, Kernel] = {}  # ops/ keeps here what it has made for this pattern

    @property
    def nnz(self) -> int:
        """How many elements are stored."""
        return int(self.ends[-1])

    @property
    def mean(self) -> float:
        """Stored elements of an average row."""
        return self.nnz / max(1, self.shape[0])

    def weight(self, rows: Any) -> Any:
        """Return the work of rows: their stored elements, and one for the row itself.

        Of many rows only some are asked for; each then stands for all up to halfway to its neighbours.
        """
        at = np.asarray(rows, dtype=np.int64)
        middle = (at[1:] + at[:-1] + 1) // 2
        edges = np.concatenate([[min(at[0], self.shape[0])], middle, [at[-1] + 1]])
        if len(at) > 1:  # the outermost reach as far to the outside as to the inside
            edges[0] = max(0, 2 * at[0] - middle[0])
            edges[-1] = min(self.shape[0], max(at[-1] + 1, 2 * at[-1] - middle[-1] + 1))
        return np.diff(self.ends[edges]) / np.diff(edges) + 1.0


class StoredOf(Mapper):
    """The stored elements of a chunk's rows."""

    def __init__(self, pattern: StoredPattern) -> None:
        self.pattern = pattern

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        del space
        if shape != (self.pattern.nnz,):
            raise ShapeError(f"array {name!r} has shape {shape}; the matrix has {self.pattern.nnz} stored elements")

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space, shape
        return Box((int(self.pattern.ends[chunk.lo[0]]),), (int(self.pattern.ends[chunk.hi[0]]),))


class EndsOf(Mapper):
    """Where the rows of a chunk begin and end: one more number than there are rows."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space, shape
        return Box((chunk.lo[0],), (chunk.hi[0] + (chunk.hi[0] > chunk.lo[0]),))


class CSR:
    """A sparse matrix by rows. `data` is a coexec array: kernels and ufuncs may read it like any other."""

    __array_ufunc__ = None  # NumPy must not take it for a scalar

    def __init__(self, data: Array, pattern: StoredPattern) -> None:
        self.data = data
        self.pattern = pattern

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored elements."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """How many elements are stored."""
        return self.pattern.nnz

    @property
    def indices(self) -> Array:
        """The column of each stored element."""
        return self.pattern.indices

    @property
    def indptr(self) -> Array:
        """Where each row begins among the stored elements, and where the last one ends."""
        return self.pattern.indptr

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    @property
    def nbytes(self) -> int:
        """Bytes of all that is stored."""
        return int(self.data.nbytes + self.indices.nbytes + self.indptr.nbytes)

    @cached_property
    def density(self) -> float:
        """Which part of the elements is stored."""
        return self.nnz / max(1, self.shape[0] * self.shape[1])

    def with_data(self, data: Any) -> CSR:
        """Return a matrix with the same pattern and other values, a coexec array with one for each stored element."""
        if not isinstance(data, Array) or data.shape != (self.nnz,):
            what = f"an array of shape {data.shape}" if isinstance(data, Array) else f"a {type(data).__name__}"
            raise ShapeError(f"with_data takes a coexec array of shape {(self.nnz,)}, not {what}")
        return CSR(data, self.pattern)

    def astype(self, dtype: Any) -> CSR:
        """Return the matrix with values of another type; itself if they have it."""
        return self if self.dtype == np.dtype(dtype) else CSR(arrays.array(self.data, dtype), self.pattern)

    def to_scipy(self) -> Any:
        """Wait for the values and return the matrix as SciPy's `csr_array`, with memory of its own."""
        from scipy.sparse import csr_array

        parts = (np.array(self.data), np.array(self.indices), self.pattern.ends.copy())
        return csr_array(parts, shape=self.shape)

    def toarray(self) -> np.ndarray[Any, Any]:
        """Wait for the values and return the matrix as a dense NumPy array."""
        dense: np.ndarray[Any, Any] = self.to_scipy().toarray()
        return dense

    def __matmul__(self, other: Any) -> Array:
        """Return the product with a dense matrix or vector, without waiting."""
        product: Array = late("ops.sparse:spmm")(self, other)
        return product

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
        """Refuse: it would fill the gaps with zeros silently."""
        raise UnsupportedError(
            f"a sparse matrix of shape {self.shape} would become dense; use .toarray(), .to_scipy() or np.asarray(s.data)"
        )

    def __repr__(self) -> str:
        return f"<cx.csr {self.shape[0]}x{self.shape[1]}, {self.nnz} stored, {self.dtype}>"


def csr(source: Any, shape: tuple[int, int] | None = None, dtype: Any = None) -> CSR:
    """Return a sparse matrix: from SciPy, from a dense 2-d array, or from (data, indices, indptr) and its `shape`.

    Memory of SciPy's CSR matrices and of NumPy arrays is borrowed for reading and never written; do not change it while
    tasks that read it may be pending. Other formats are converted. `data` may be a coexec array. Elements that are
    stored twice count twice, as in SciPy.
    """
    if isinstance(source, CSR):
        return source if dtype is None else source.astype(dtype)
    if isinstance(source, tuple | list) and len(source) == 3 and shape is not None:
        data, indices, indptr = source
    elif isinstance(source, Array):
        raise UnsupportedError("cx.csr of a coexec array would have to wait for it; use cx.csr(np.asarray(array))")
    elif shape is not None:
        raise ArgumentError("cx.csr: shape= goes with (data, indices, indptr); a matrix has a shape of its own")
    else:
        data, indices, indptr, shape = _taken_apart(source)
    made = _checked(data, np.asarray(indices), np.asarray(indptr), shape)
    return made if dtype is None else made.astype(dtype)


def _taken_apart(source: Any) -> tuple[Any, Any, Any, tuple[int, int]]:
    """Return values, columns, row ends and shape of anything that SciPy takes for a matrix."""
    from scipy import sparse

    if not sparse.issparse(source):
        dense = np.asarray(source)
        if dense.ndim != 2 or dense.dtype.kind not in "biufc":
            raise ArgumentError(
                f"cx.csr: a {type(source).__name__} of {dense.ndim} axes and {dense.dtype}; give a sparse matrix, a dense "
                "one of numbers, or (data, indices, indptr) with shape="
            )
        source = sparse.csr_array(dense)
    if source.ndim != 2:
        raise ShapeError(f"cx.csr: a sparse array of {source.ndim} axes; it takes matrices, with two")
    rows = source.tocsr()  # itself, if it is one
    return rows.data, rows.indices, rows.indptr, (int(rows.shape[0]), int(rows.shape[1]))


def _checked(data: Any, indices: np.ndarray[Any, Any], indptr: np.ndarray[Any, Any], shape: Any) -> CSR:
    """Return the matrix, or raise if its parts do not belong together: kernels rely on every index."""
    if not isinstance(shape, tuple | list) or len(shape) != 2 or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ShapeError(f"cx.csr: shape={shape!r}; give the numbers of rows and columns")
    rows, columns = shape
    if indptr.ndim != 1 or indices.ndim != 1 or indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise ArgumentError("cx.csr: indices and indptr are one-dimensional arrays of whole numbers")
    if indptr.size != rows + 1:
        raise ShapeError(f"cx.csr: {rows} rows need {rows + 1} entries of indptr, not {indptr.size}")
    if indptr[0] != 0 or (np.diff(indptr.astype(np.int64)) < 0).any():
        raise ShapeError("cx.csr: indptr must begin with 0 and never fall")
    stored = int(indptr[-1])
    if indices.size < stored or len(data) < stored:
        raise ShapeError(f"cx.csr: indptr ends with {stored}; there are {indices.size} indices and {len(data)} values")
    indices, values = indices[:stored], data[:stored]
    if stored and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        raise ShapeError(f"cx.csr: columns {indices.min()} to {indices.max()} of a matrix that has {columns}")
    kind = indices.dtype.name if indices.dtype.name in INDEX_TYPES else "int64"
    if kind == "int32" and stored >= 1 << 31:
        kind = "int64"
    pattern = StoredPattern((rows, columns), indices.astype(kind, copy=False), np.array(indptr, dtype=kind))
    return CSR(values if isinstance(values, Array) else arrays.asarray(np.asarray(values)), pattern)


__all__ = ["CSR", "EndsOf", "StoredOf", "StoredPattern", "csr"]
