"""Results of items as bytes that other ranks read: trees of tuples, lists and dicts with arrays, numbers and texts.

Before: stream/trees.py.  After: stream/on_ranks.py.  Nothing that is read is executed or unpickled.
"""

from __future__ import annotations

import json
import struct
from ast import literal_eval
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ClusterError
from .trees import is_sparse

LENGTH = struct.Struct("<Q")
PLAIN = (type(None), bool, int, float, str)
"""What JSON writes and reads as it is."""


def packed(tree: Any) -> bytes:
    """Return a tree as bytes. Raise ArgumentError if it has something that cannot travel."""
    contents: list[bytes] = []
    header = json.dumps(_described(tree, contents)).encode()
    return b"".join([LENGTH.pack(len(header)), header, *contents])


def unpacked(words: bytes) -> Any:
    """Return the tree that bytes describe; its arrays are read-only. Raise ClusterError for what is none."""
    try:
        end = LENGTH.size + LENGTH.unpack_from(words)[0]
        return _read(json.loads(words[LENGTH.size : end]), _Contents(words, end))
    except (ValueError, TypeError, KeyError, IndexError, SyntaxError, struct.error) as error:
        raise ClusterError(f"another rank sent what is no result of an item: {error}") from error


def _described(tree: Any, contents: list[bytes]) -> list[Any]:
    """Return a tree as JSON, and put the bytes of its arrays into `contents`, in order."""
    kind = type(tree)
    if kind in PLAIN:
        return ["plain", tree]
    if kind in (tuple, list):
        return [kind.__name__, [_described(entry, contents) for entry in tree]]
    if kind is dict:
        return ["dict", [[_described(k, contents), _described(v, contents)] for k, v in tree.items()]]
    if kind is complex:
        return ["complex", [tree.real, tree.imag]]
    if kind is bytes:
        contents.append(tree)
        return ["bytes", len(tree)]
    if isinstance(tree, np.ndarray | np.generic) and not tree.dtype.hasobject:
        data = np.ascontiguousarray(tree)
        contents.append(data.tobytes())
        what = "array" if isinstance(tree, np.ndarray) else "number"
        return [what, [list(np.shape(tree)), repr(np.lib.format.dtype_to_descr(data.dtype))]]
    if is_sparse(tree):
        rows = tree.tocsr()
        return ["sparse", [_described(part, contents) for part in (rows.data, rows.indices, rows.indptr, rows.shape)]]
    raise ArgumentError(
        f"a {kind.__name__} in the result of an item cannot travel to the other ranks; "
        "return arrays, numbers, texts, and tuples, lists and dicts of these"
    )


class _Contents:
    """The bytes of a tree's arrays, one after the other."""

    def __init__(self, words: bytes, at: int) -> None:
        self._words, self._at = words, at

    def next(self, nbytes: int) -> bytes:
        """Return the next so many bytes."""
        first, self._at = self._at, self._at + nbytes
        if nbytes < 0 or self._at > len(self._words):
            raise ValueError(f"{nbytes} bytes are wanted of {len(self._words) - first}")
        return self._words[first : self._at]


def _read(described: Sequence[Any], contents: _Contents) -> Any:
    kind, what = described
    if kind == "plain":
        return what
    if kind in ("tuple", "list"):
        entries = [_read(entry, contents) for entry in what]
        return tuple(entries) if kind == "tuple" else entries
    if kind == "dict":
        return {_read(key, contents): _read(value, contents) for key, value in what}
    if kind == "complex":
        return complex(*what)
    if kind == "bytes":
        return contents.next(int(what))
    if kind in ("array", "number"):
        shape, dtype = tuple(map(int, what[0])), np.lib.format.descr_to_dtype(literal_eval(what[1]))
        if dtype.hasobject:
            raise ValueError("arrays of objects do not travel")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        found = np.ndarray(shape, dtype, contents.next(nbytes)).copy()
        found.flags.writeable = False
        return found[()] if kind == "number" else found
    if kind == "sparse":
        from scipy.sparse import csr_array

        data, indices, ends, shape = [_read(part, contents) for part in what]
        return csr_array((data.copy(), indices.copy(), ends.copy()), shape=shape)
    raise ValueError(f"{kind!r} is unknown")
