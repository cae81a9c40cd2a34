"""The bodies of the compile benchmark as loops by hand, for Numba, where it is installed: what others would write.

Before: nothing.  After: bench/compile/harness.py.  Imported late: Numba takes half a second.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from math import exp, log, sqrt
from types import FunctionType
from typing import Any

prange = range  # what the loops over rows go by; on two threads it is Numba's

THREADS = 2


def _triad(x: Any, y: Any, out: Any, s: float) -> None:
    for i in prange(out.size):
        out[i] = x[i] + s * y[i]


def _in_place(x: Any, out: Any, s: float) -> None:
    for i in prange(out.size):
        out[i] = x[i] + s * out[i]


def _chain(x: Any, y: Any, out: Any) -> None:
    for i in prange(out.size):
        out[i] = sqrt(x[i] * y[i] + 1) / 2 + x[i]


def _masked(x: Any, y: Any, out: Any, limit: float) -> None:
    for i in prange(out.size):
        out[i] = out[i] + 0.5 * (y[i] - x[i]) if x[i] > limit else out[i] * 0.9


def _heat(u: Any, out: Any, k: float) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            here = u[i + 1, j + 1]
            out[i, j] = here + k * (u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2] - 4 * here)


def _wave(u: Any, out: Any, speed: float) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            near = u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2]
            out[i, j] = near * speed - out[i, j] + u[i + 1, j + 1] * (2 - 4 * speed)


def _below(x: float) -> float:
    z = abs(x)
    w = 1 / (1 + 0.2316419 * z)
    series = w * (0.319381530 + w * (-0.356563782 + w * (1.781477937 + w * (-1.821255978 + w * 1.330274429))))
    p = series * exp(-0.5 * z * z) * 0.3989422804014327
    return 1 - p if x > 0 else p


def _black_scholes(spot: Any, strike: Any, years: Any, call: Any, put: Any, rate: float, volatility: float) -> None:
    for i in prange(call.size):
        root = volatility * sqrt(years[i])
        d = (log(spot[i] / strike[i]) + (rate + 0.5 * volatility**2) * years[i]) / root
        discounted = strike[i] * exp(-rate * years[i])
        call[i] = spot[i] * _below(d) - discounted * _below(d - root)
        put[i] = call[i] - spot[i] + discounted


def _nbody(stars: Any, mass: Any, mine: Any, pull: Any) -> None:
    for i in prange(mine.shape[0]):
        x = y = z = 0.0
        for j in range(stars.shape[0]):
            dx, dy, dz = stars[j, 0] - mine[i, 0], stars[j, 1] - mine[i, 1], stars[j, 2] - mine[i, 2]
            square = dx * dx + dy * dy + dz * dz + 0.0025
            w = mass[j] / (square * sqrt(square))
            x += w * dx
            y += w * dy
            z += w * dz
        pull[i, 0], pull[i, 1], pull[i, 2] = x, y, z


def _assign(x: Any, centre: Any, label: Any) -> None:
    for i in prange(x.shape[0]):
        nearest, best = -1.0, 0
        for k in range(centre.shape[0]):
            total = 0.0
            for j in range(x.shape[1]):
                total += (x[i, j] - centre[k, j]) ** 2
            if nearest < 0 or total < nearest:
                nearest, best = total, k
        label[i] = best


def _softmax(x: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        top, total = x[i, 0], 0.0
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        for j in range(x.shape[1]):
            out[i, j] = exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


_LOOPS: dict[str, Callable[..., None]] = {
    "triad": _triad,
    "triad_in_place": _in_place,
    "chain": _chain,
    "masked": _masked,
    "heat": _heat,
    "wave": _wave,
    "black_scholes": _black_scholes,
    "nbody": _nbody,
    "nbody_close": _nbody,
    "kmeans_assign": _assign,
    "softmax": _softmax,
}


@cache
def loops(name: str, *, parallel: bool = False) -> Callable[..., None] | None:
    """Return a case as loops compiled by Numba, for one core or with `prange` for two; None without Numba."""
    if name not in _LOOPS or importlib.util.find_spec("numba") is None:
        return None
    numba: Any = importlib.import_module("numba")
    written = _LOOPS[name]
    assert isinstance(written, FunctionType)
    names = {**written.__globals__, "prange": numba.prange, "_below": numba.njit(_below)}
    compiled: Callable[..., None] = numba.njit(nogil=True, parallel=parallel)(
        FunctionType(written.__code__, names, written.__name__)
    )
    if not parallel:
        return compiled

    def on_two(**arguments: Any) -> None:
        numba.set_num_threads(min(THREADS, numba.config.NUMBA_NUM_THREADS))
        compiled(**arguments)

    return on_two
