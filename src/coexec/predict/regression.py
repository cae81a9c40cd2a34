"""Robust non-negative regression: seconds as a sum of features, bent where one line does not fit.

Before: nothing.  After: predict/table.py.  Knows rows of numbers and their seconds; no kernel, device or unit.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

ITERATIONS = 4  # of re-weighting; the weights hardly move after the third
LOOKS = 2  # iterations, when a break is only tried
RIDGE = 1e-4  # against features that say the same: the smallest coefficients of all equal fits
FITS_WELL = 0.02  # relative error below which one line is good enough
CLEARLY = 0.75  # a break must bring the error below this part of what it was
ASTRAY = 0.2  # a median error above which outliers may have led the fit astray
TRIED = 5  # positions tried for a break
LEAST_BESIDE = 3  # samples on either side of a break
TINY = 1e-12  # seconds; what divides by a time must not divide by zero


class Term(NamedTuple):
    """A slope that holds while feature `feature` lies between `low` and `high`."""

    feature: int
    low: float
    high: float
    slope: float


class Fit:
    """Seconds as a function of features: never negative, never falling when a feature grows, never jumping."""

    __slots__ = ("_constant", "_terms", "breaks", "coefficients")

    def __init__(
        self, coefficients: tuple[float, ...], corners: Sequence[Sequence[float]], breaks: tuple[float, ...]
    ) -> None:
        self.coefficients = coefficients  # the constant, then seconds per unit of each feature, piece after piece
        self.breaks = breaks  # sizes (values of the first feature) where the slopes may change
        self._constant = coefficients[0]
        self._terms = _terms(coefficients[1:], corners)

    def seconds(self, features: Sequence[float]) -> float:
        """Return the fitted seconds of `features`."""
        total = self._constant
        for feature, low, high, slope in self._terms:
            value = features[feature]
            if value > low:
                total += slope * (min(value, high) - low)
        return total


def _terms(slopes: Sequence[float], corners: Sequence[Sequence[float]]) -> list[Term]:
    found = []
    width = len(slopes) // (len(corners) + 1)
    for index, slope in enumerate(slopes):
        piece, feature = divmod(index, width)
        low = corners[piece - 1][feature] if piece else 0.0
        high = corners[piece][feature] if piece < len(corners) else float("inf")
        if slope > 0.0:
            found.append(Term(feature, low, high, float(slope)))
    return found


class _Trial(NamedTuple):
    """One fit and how far the samples lie from it."""

    coefficients: Matrix
    corners: tuple[Matrix, ...]
    breaks: tuple[float, ...]
    error: float  # the mean relative error, outliers cut off, dearer the more coefficients it took


def fit(rows: Sequence[Sequence[float]] | Matrix, seconds: Sequence[float] | Matrix) -> Fit:
    """Return seconds as a non-negative sum of (1, *features), least in relative error, outliers aside.

    The first feature is the size: one or two breaks in it are kept if they fit clearly better.
    """
    x = np.asarray(rows, dtype=float)
    y = np.maximum(np.asarray(seconds, dtype=float), TINY)
    best = _try(x, y, ())
    for _ in range(2):
        if best.error < FITS_WELL:
            break
        tried = (_try(x, y, breaks, LOOKS) for breaks in _more(x[:, 0], best.breaks))
        bent = min(tried, key=lambda trial: trial.error, default=best)
        if bent.error > CLEARLY * best.error:
            break
        best = _try(x, y, bent.breaks)
    return Fit(tuple(map(float, best.coefficients)), [c.tolist() for c in best.corners], best.breaks)


def _more(sizes: Matrix, breaks: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Return `breaks` with one more, for each place where enough samples lie on either side."""
    ordered = np.unique(sizes)
    if len(ordered) < 2 * LEAST_BESIDE:
        return []
    places = np.unique(np.linspace(LEAST_BESIDE - 1, len(ordered) - LEAST_BESIDE - 1, TRIED).round().astype(int))
    between = [float(np.sqrt(max(ordered[i], TINY) * ordered[i + 1])) for i in places]
    found = [tuple(sorted((*breaks, place))) for place in between if place not in breaks]
    return [f for f in found if np.histogram(sizes, [-1.0, *f, np.inf])[0].min() >= LEAST_BESIDE]


def _try(x: Matrix, y: Matrix, breaks: tuple[float, ...], iterations: int = ITERATIONS) -> _Trial:
    corners: tuple[Matrix, ...] = ()
    for place in breaks:
        corners += (np.maximum(_corner(x, place), corners[-1] if corners else 0.0),)
    basis = _basis(x, corners)
    coefficients = _robust(basis, y, iterations)
    off = np.abs(_log_errors(basis, coefficients, y))
    cut = 3.0 * _sigma(off)
    used = int(np.count_nonzero(coefficients))
    free = len(y) - used
    error = float(np.minimum(off, cut).mean()) * len(y) / free if free > 0 else (float("inf") if breaks else 0.0)
    return _Trial(coefficients, corners, breaks, error)


def _corner(x: Matrix, place: float) -> Matrix:
    """Return the features that samples of size `place` have: where each feature's slope may change."""
    away = np.abs(np.log(np.maximum(x[:, 0], TINY) / place))
    near = np.argsort(away, kind="stable")[:4]
    corner: Matrix = np.exp(np.log(np.maximum(x[near], 1e-300)).mean(axis=0))
    corner[0] = place
    return corner


def _basis(x: Matrix, corners: tuple[Matrix, ...]) -> Matrix:
    """Return the columns (1, *features), the features cut into the parts between their corners."""
    parts = []
    low: Matrix | float = 0.0
    for corner in corners:
        parts.append(np.clip(x, low, corner) - low)
        low = corner
    parts.append(np.maximum(x, low) - low)
    return np.hstack([np.ones((len(x), 1)), *parts])


def _robust(basis: Matrix, y: Matrix, iterations: int) -> Matrix:
    """Return the non-negative coefficients by Huber's re-weighting of relative errors."""
    even = np.ones(len(y))
    found = _reweighted(basis, y, even, iterations)
    off = _off(basis, found, y)
    if off < ASTRAY:
        return found
    # A time far too short has a row far too long, which drags the first solution along: begin without such rows.
    other = _reweighted(basis, y, _likely(basis, y), iterations)
    return other if _off(basis, other, y) < off else found


def _likely(basis: Matrix, y: Matrix) -> Matrix:
    """Return 1 for times that one feature alone explains about as well as it does the others, else 0."""
    logs = np.log(y[:, None] / np.maximum(basis, 1e-300))
    away = np.abs(logs - np.median(logs, axis=0))
    typical = np.median(away, axis=0)
    best = int(np.argmin(typical))
    likely: Matrix = (away[:, best] <= 1.0 + 3.0 * typical[best]).astype(float)
    return likely


def _reweighted(basis: Matrix, y: Matrix, weights: Matrix, iterations: int) -> Matrix:
    coefficients = np.zeros(basis.shape[1])
    for _ in range(iterations):
        coefficients = _solve(basis * (weights / y)[:, None], weights)
        off = np.abs(_log_errors(basis, coefficients, y))
        bound = 1.345 * _sigma(off)
        weights = np.sqrt(bound / np.maximum(off, bound))
        weights[off > max(6.0 * bound, 1.0)] = 0.0  # no noise: something else ran
    return coefficients


def _off(basis: Matrix, coefficients: Matrix, y: Matrix) -> float:
    return _middle(np.abs(_log_errors(basis, coefficients, y)))


def _norms(a: Matrix) -> Matrix:
    norms: Matrix = np.linalg.norm(a, axis=0)
    norms[norms == 0.0] = 1.0
    return norms


@cache
def solver() -> Callable[..., tuple[Matrix, float]]:
    """Return SciPy's solver; the first call takes half a second, for the import."""
    from scipy.optimize import nnls

    found: Callable[..., tuple[Matrix, float]] = nnls
    return found


_fetching: list[threading.Thread] = []  # the thread that imports it, while it does


def at_hand() -> bool:
    """Tell whether the solver is there; if not, a thread fetches it meanwhile. `settle` waits for that thread."""
    if "scipy.optimize" in sys.modules and not any(thread.is_alive() for thread in _fetching):
        return True
    if not _fetching:
        _fetching.append(threading.Thread(target=solver, name="coexec-scipy", daemon=True))
        _fetching[0].start()
    return False


def settle() -> None:
    """Wait until nothing is being fetched."""
    for thread in _fetching:
        thread.join()


def _solve(a: Matrix, b: Matrix) -> Matrix:
    """Return the x >= 0 with the least |ax - b|, whatever the columns' units."""
    norms = _norms(a)
    width = a.shape[1]
    found, _ = solver()(
        np.vstack([a / norms, RIDGE * np.eye(width)]), np.append(b, np.zeros(width)), maxiter=50 * width
    )
    solution: Matrix = found / norms
    return solution


def _log_errors(basis: Matrix, coefficients: Matrix, y: Matrix) -> Matrix:
    errors: Matrix = np.log(y / np.maximum(basis @ coefficients, TINY))
    return errors


def _sigma(off: Matrix) -> float:
    """Return the standard deviation that the median of absolute errors stands for, at least half a percent."""
    return max(1.4826 * _middle(off), 0.005)


def _middle(values: Matrix) -> float:
    return float(np.sort(values)[len(values) // 2])  # numpy's median takes ten times as long for so few
