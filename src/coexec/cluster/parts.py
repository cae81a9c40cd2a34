"""Large boxes travel in parts: cut by shape alone, so that both sides cut alike, and packed where rows are not whole.

Before: nothing.  After: cluster/postbox.py.  Knows NumPy's strides; no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def parts(data: Any, limit: int) -> Iterator[Any]:
    """Yield views of `data` of at most `limit` bytes, or of one element, in C order; together they are all of it.

    Shape and item size alone decide where it is cut: whoever has a box of the same shape, cuts it alike.
    """
    if not data.nbytes:
        return
    if data.nbytes <= limit or data.size == 1:
        yield data
        return
    per_row = data.nbytes // len(data)
    if per_row > limit and data.ndim > 1:
        for row in data:
            yield from parts(row, limit)
        return
    rows = max(1, limit // per_row)
    for first in range(0, len(data), rows):
        yield data[first : first + rows]


def in_place(part: Any) -> bool:
    """Tell whether the bytes of a part lie one behind the other, in C order."""
    return bool(part.flags.c_contiguous)


def as_bytes(part: Any) -> Any:
    """Return a part whose bytes lie together as an array of bytes, without a copy."""
    return part.reshape(-1).view(np.uint8)


def packed(part: Any) -> Any:
    """Return the bytes of a part: its own where they lie together, else a copy."""
    return as_bytes(part if in_place(part) else part.copy(order="C"))


def unpack(found: Any, part: Any) -> None:
    """Set a part to bytes that arrived for it."""
    part[...] = np.ndarray(part.shape, part.dtype, found)
