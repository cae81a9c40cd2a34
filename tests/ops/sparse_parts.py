"""Sparse matrices for the tests: with empty rows, long rows, elements stored twice, columns in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

FLOATS = [np.float32, np.float64]


def scattered(
    rows: int, columns: int, mean: float = 4.0, dtype: Any = np.float32, seed: int = 0, index: Any = np.int32
) -> Any:
    """Return a SciPy matrix whose rows are of very different lengths."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.pareto(1.5, rows) * mean, 10 * mean).astype(int) if columns else np.zeros(rows, int)
    counts[rng.random(rows) < 0.2] = 0
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(index)
    indices = rng.integers(0, max(1, columns), ends[-1]).astype(index)
    return sparse.csr_array((rng.standard_normal(ends[-1]).astype(dtype), indices, ends), shape=(rows, columns))


def numbers(shape: Any, dtype: Any = np.float32, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_sums(got: Any, expected: Any, sizes: Any, ulp: float) -> None:
    """Compare with sums in double precision, within so many units in the last place of the sum of absolute values."""
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= ulp * np.spacing(sizes.astype(got.dtype))).all()
