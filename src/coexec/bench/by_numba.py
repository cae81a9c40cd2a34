"""The bodies of the compile benchmark as loops by hand, for Numba, where it is installed: what others would write.

Before: nothing.  After: bench/compiled.py.  Imported late: Numba takes half a second.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import Any


def _triad(x: Any, y: Any, out: Any, s: float) -> None:
    for i in range(out.size):
        out[i] = x[i] + s * y[i]


def _chain(x: Any, y: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = sqrt(x[i] * y[i] + 1) / 2 + x[i]


def _masked(x: Any, y: Any, out: Any, limit: float) -> None:
    for i in range(out.size):
        out[i] = out[i] + 0.5 * (y[i] - x[i]) if x[i] > limit else out[i] * 0.9


def _heat(u: Any, out: Any, k: float) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            here = u[i + 1, j + 1]
            out[i, j] = here + k * (u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2] - 4 * here)


def _wave(u: Any, out: Any, speed: float) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            near = u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2]
            out[i, j] = near * speed - out[i, j] + u[i + 1, j + 1] * (2 - 4 * speed)


_LOOPS: dict[str, Callable[..., None]] = {
    "triad": _triad,
    "chain": _chain,
    "masked": _masked,
    "heat": _heat,
    "wave": _wave,
}


@cache
def loops(name: str) -> Callable[..., None] | None:
    """Return a case as loops compiled by Numba, for one core; None without Numba, or if nobody wrote them."""
    if name not in _LOOPS or importlib.util.find_spec("numba") is None:
        return None
    numba: Any = importlib.import_module("numba")
    compiled: Callable[..., None] = numba.njit(nogil=True)(_LOOPS[name])
    return compiled
