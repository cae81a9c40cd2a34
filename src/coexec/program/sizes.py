"""How large an array may be at all.

Before: errors.py.  After: program/array.py.  Knows shapes and types, no array and no memory: what fits is lowering's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from .padding import Shape

MOST_BYTES = (1 << 63) - 1
"""No machine addresses more, nor does NumPy."""
MOST_AXES = 64
"""As in NumPy, which every read goes through."""


def check_size(shape: Shape, dtype: np.dtype[Any]) -> Shape:
    """Return `shape`; raise if no machine could ever hold such an array."""
    if len(shape) > MOST_AXES:
        raise ShapeError(f"an array of {len(shape)} axes; NumPy has at most {MOST_AXES}")
    size = max(1, dtype.itemsize)
    for extent in shape:
        size *= max(1, extent)  # as in NumPy, an axis of length zero excuses no other
        if size > MOST_BYTES:
            raise ShapeError(
                f"an array of shape {_shown(shape)} and type {dtype} is larger than any memory (2^63 bytes); check the extents"
            )
    return shape


def _shown(shape: Shape) -> str:
    parts = [str(n) if n < 1 << 70 else "more than 2^70" for n in shape[:8]]
    return f"({', '.join(parts)}{', ...' if len(shape) > len(parts) else ',' if len(shape) == 1 else ''})"
