"""How far results of a device may lie from NumPy's, before its variant is used: what first-use checks compare.

Before: nothing.  After: backend/torch/check.py, backend/opencl/check.py.  Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RTOL = {2: 1e-2, 4: 1e-5, 8: 1e-12}
"""Relative tolerance by the bytes of a real number, for bodies whose variant declares nothing tighter or wider."""


def gap_of(wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], ulp: float | None) -> tuple[float, float]:
    """Return the largest difference of two arrays and the largest that is allowed, beside their largest value."""
    if wanted.dtype.kind not in "fc" or not wanted.size:
        return float(not np.array_equal(wanted, got)), 0.0
    sound = np.isfinite(wanted)
    odd = ~sound
    if not np.array_equal(sound, np.isfinite(got)) or not np.array_equal(wanted[odd], got[odd], equal_nan=True):
        return float("inf"), 0.0
    if not sound.any():
        return 0.0, 0.0
    real = wanted.real.dtype
    tolerance = RTOL[real.itemsize] if ulp is None else ulp * float(np.finfo(real).eps)
    wide = np.result_type(wanted.dtype, np.float64)
    gaps = np.abs(wanted[sound].astype(wide) - got[sound].astype(wide))
    return float(gaps.max()), tolerance * float(np.abs(wanted[sound]).max())
