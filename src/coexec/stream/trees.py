"""Items and results as trees of tuples, lists and dicts: their arrays become coexec's on the way in, NumPy's on the way out.

Before: ops/csr.py, program/array.py.  After: stream/item.py.  Knows no stage and no device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ops.csr import CSR, csr
from ..program import array as arrays
from ..program.array import Array
from ..program.storage import Storage
from ..program.value import Value


def mapped(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a tree of tuples, lists and dicts with every leaf replaced."""
    if isinstance(tree, tuple):
        entries = [mapped(entry, leaf) for entry in tree]
        return type(tree)(*entries) if hasattr(tree, "_fields") else tuple(entries)
    if isinstance(tree, list):
        return [mapped(entry, leaf) for entry in tree]
    if isinstance(tree, dict):
        return {key: mapped(entry, leaf) for key, entry in tree.items()}
    return leaf(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, in order."""
    if isinstance(tree, tuple | list):
        for entry in tree:
            yield from leaves(entry)
    elif isinstance(tree, dict):
        for entry in tree.values():
            yield from leaves(entry)
    else:
        yield tree


def is_sparse(leaf: Any) -> bool:
    """Tell whether something is a matrix of SciPy's; SciPy is not imported to find out."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(leaf))


def taken(tree: Any) -> Any:
    """Return a tree with NumPy and SciPy arrays copied into coexec arrays: their owner may go on to use the memory."""
    return mapped(tree, _taken)


def _taken(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        if leaf.dtype.kind == "O":
            raise ArgumentError("an item has an array of objects; coexec's arrays have elements of a fixed size")
        return arrays.array(leaf)
    if is_sparse(leaf):
        rows = leaf.tocsr()
        shape = (int(rows.shape[0]), int(rows.shape[1]))
        return csr((rows.data.copy(), rows.indices.copy(), rows.indptr), shape=shape)
    return leaf


def kept(tree: Any) -> Any:
    """Return a tree whose NumPy and SciPy arrays are copies, to be taken later: their owner may go on to use the memory."""
    return mapped(tree, lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) or is_sparse(leaf) else leaf)


def own(tree: Any) -> Any:
    """Return a tree whose coexec arrays are copies; what a stream copies when it takes an item stays as it is."""

    def leaf(value: Any) -> Any:
        if isinstance(value, CSR):
            return value.with_data(value.data.copy())
        return value.copy() if isinstance(value, Array) else value

    return mapped(tree, leaf)


def copied(tree: Any) -> Any:
    """Return a tree with arrays of its own: whoever writes them changes nothing else."""

    def leaf(value: Any) -> Any:
        if isinstance(value, CSR):
            return value.with_data(value.data.copy())
        return value.copy() if isinstance(value, Array) else _taken(value)

    return mapped(tree, leaf)


def storages(tree: Any) -> Iterator[Storage]:
    """Yield what the coexec arrays of a tree are views of."""
    for leaf in leaves(tree):
        if isinstance(leaf, CSR):
            yield from (array._storage for array in (leaf.data, leaf.indices, leaf.indptr))
        elif isinstance(leaf, Array):
            yield leaf._storage


def result_arrays(tree: Any) -> list[Array]:
    """Return the coexec arrays that a result consists of, in order; those of a sparse matrix are its values and columns."""
    found: list[Array] = []
    for leaf in leaves(tree):
        if isinstance(leaf, CSR):
            found += [leaf.data, leaf.indices]
        elif isinstance(leaf, Array | Value):
            found.append(leaf)
    return found


def on_host(tree: Any, data: Iterator[Any]) -> Any:
    """Return a result with NumPy and SciPy arrays in the place of coexec's; `data` are theirs, as `result_arrays` has them."""

    def leaf(value: Any) -> Any:
        if isinstance(value, CSR):
            from scipy.sparse import csr_array

            parts = (np.array(next(data)), np.array(next(data)), value.pattern.ends.copy())
            return csr_array(parts, shape=value.shape)
        if isinstance(value, Value):
            return np.asarray(next(data))[()]
        return next(data) if isinstance(value, Array) else value

    return mapped(tree, leaf)


def nbytes(tree: Any) -> int:
    """Return the bytes of all arrays of a tree."""
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves(tree) if not isinstance(leaf, str | bytes | Mapping))


def described(leaf: Any) -> str:
    """Return what a leaf is, as far as it matters for a plan: shape and type, or the name of its class."""
    if isinstance(leaf, CSR) or is_sparse(leaf):
        return f"sparse {leaf.dtype} {tuple(leaf.shape)}, {leaf.nnz} stored"
    if isinstance(leaf, Array | np.ndarray):
        return f"{leaf.dtype} {tuple(leaf.shape)}"
    return type(leaf).__name__


def plain(leaf: Any) -> Any:
    """Return a constant as another runtime can take it."""
    if isinstance(leaf, CSR):
        return leaf.to_scipy()
    return np.asarray(leaf) if isinstance(leaf, Array) else leaf
