"""cx.fromfunction: an array from a function of its indices, of which each rank and device computes its part only.

Before: program/kernel.py.  After: the package's own namespace.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..program import array as arrays
from ..program.access import write
from ..program.array import Array
from ..program.body import signature
from ..program.kernel import Kernel


class FromIndices:
    """A body: the function of the indices of one chunk."""

    def __init__(self, function: Callable[..., Any], dtype: np.dtype[Any]) -> None:
        self.__signature__ = signature(["out", "chunk"])
        self.__name__ = f"fromfunction {getattr(function, '__name__', 'function')}"
        self._function, self._dtype = function, dtype

    def __call__(self, out: Any, chunk: Any) -> None:
        """Compute one chunk."""
        sparse = np.ogrid[tuple([slice(lo, hi) for lo, hi in zip(chunk.lo, chunk.hi, strict=True)])]
        indices = [np.broadcast_to(axis, out.shape).astype(self._dtype) for axis in sparse]
        result = np.asarray(self._function(*indices))
        if result.shape not in ((), out.shape):
            raise ShapeError(
                f"cx.fromfunction: for indices of shape {out.shape} the function returned {result.shape}; "
                "it must compute element by element"
            )
        out[...] = result


@lru_cache(maxsize=256)
def _kernel(function: Callable[..., Any], dtype: np.dtype[Any], axes: int) -> Kernel:
    return Kernel(FromIndices(function, dtype), {"out": write}, split=0 if axes else None)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float) -> Array:
    """Return an array whose element (i, j, ...) is `function(i, j, ...)`, called with arrays of indices as NumPy's does.

    `dtype` is the type of the indices; that of the result is what the function makes of one element. Each rank computes
    its part only, so the function must not depend on which elements it is called for together.
    """
    extents = arrays.check_shape(shape)
    kind = np.dtype(dtype)
    one = np.asarray(function(*[np.zeros((1,) * len(extents), kind) for _ in extents]))
    found = arrays.empty(extents, one.dtype)
    if found.size:
        _kernel(function, kind, len(extents))(found)
    return found
