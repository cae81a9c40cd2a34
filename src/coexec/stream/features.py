"""What an item is like, read from it cheaply: numbers that say how long its calls take, and a key for items that are alike.

Before: stream/trees.py.  After: stream/rescheduling.py.  Looks at shapes and row ends, never at elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor, log2
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ops.csr import CSR
from ..program.array import Array
from .trees import leaves

FINE = 2  # buckets per doubling: items within a factor of 1.4 are alike
LOOKED_AT = 4096  # rows at which the degrees of a sparse matrix are looked at
Features = Mapping[str, float]
Key = tuple[Any, ...]


def features_of(item: Any, added: Mapping[str, Callable[[Any], float]]) -> dict[str, float]:
    """Return the features of an item: extents of its arrays, stored elements, density and skew of matrices, and added ones."""
    found: dict[str, float] = {}
    for number, leaf in enumerate(leaves(item)):
        if isinstance(leaf, CSR):
            found |= _sparse(f"[{number}]", leaf)
        elif isinstance(leaf, Array | np.ndarray):
            found |= {f"[{number}].shape[{axis}]": float(n) for axis, n in enumerate(leaf.shape)}
        elif isinstance(leaf, str | bytes):
            found[f"[{number}].length"] = float(len(leaf))
        elif isinstance(leaf, int | float) and not isinstance(leaf, bool):
            found[f"[{number}]"] = float(leaf)
    for name, function in added.items():
        value: Any = function(item)
        if not isinstance(value, int | float | np.generic) or not np.isfinite(value):
            raise ArgumentError(f"feature {name!r} is {value!r} for an item; features are finite numbers")
        found[name] = float(value)
    return found


def _sparse(name: str, matrix: CSR) -> dict[str, float]:
    rows, columns = matrix.shape
    degrees = np.diff(matrix.pattern.ends[:: max(1, rows // LOOKED_AT)])
    mean = float(degrees.mean()) if degrees.size else 0.0
    return {
        f"{name}.rows": float(rows),
        f"{name}.columns": float(columns),
        f"{name}.nonzeros": float(matrix.nnz),
        f"{name}.density": float(matrix.density),
        f"{name}.skew": float(degrees.std() / mean) if mean else 0.0,  # of row degrees: deviation over mean
    }


def key_of(features: Features) -> Key:
    """Return the bucket of an item: logarithmic, so that items within a factor of about 1.4 in everything share one."""
    return tuple((name, bucket(value)) for name, value in features.items())


def bucket(value: float) -> int:
    """Return the bucket of a number; numbers below 0 have buckets of their own."""
    if value == 0.0:
        return -(10**6)  # below every other
    size = floor(FINE * log2(abs(value)) + 0.5)
    return size if value > 0.0 else -(10**7) - size
