"""How far measurements near a point lay from a fit: what interpolation adds to regression.

Before: predict/regression.py.  After: predict/table.py.  Knows rows of numbers and errors; no kernel, device or unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from .regression import Matrix

REACH = log(4.0)  # beyond a factor of four, a sample says nothing, unless all lie as far apart
BELL = 2.5  # the reach in widths of the bell of weights
NOISE = 0.04  # errors of this size may be of measuring, and are not to be interpolated
DOUBTFUL = 4.0  # standard deviations from what its neighbours say, and a sample is left out
LEAST_DOUBTFUL = 0.5  # less may well be an effect of size


class NearestSamples:
    """A correction by the errors of the nearest samples, in the space of the features' logarithms."""

    __slots__ = ("_errors", "_floor", "_logs", "_prior", "_reach2", "_squares", "left_out", "spread")

    def __init__(self, rows: Matrix, errors: Matrix) -> None:
        """`errors` are log(measured / fitted), one for each row."""
        positive = np.where(rows > 0.0, rows, np.inf).min(axis=0)
        self._floor = np.where(np.isfinite(positive), positive, 1.0) / 16.0  # stands for zero, in the feature's unit
        self._logs = np.log(np.maximum(rows, self._floor))
        self._squares = (self._logs**2).mean(axis=1)
        self._errors = errors
        squared = self._distances(self._logs)
        self._reach2 = max(REACH, 2.0 * _apart(squared)) ** 2
        weights = self._weights(squared)
        np.fill_diagonal(weights, 0.0)
        doubtful = _doubtful(weights, errors)
        weights[:, doubtful] = 0.0
        typical = float(np.sqrt(np.mean(errors[~doubtful] ** 2)))
        # the weight of "the fit is right", beside a sample at hand with 1: as in kriging, noise over signal
        self._prior = min(max((NOISE / max(typical, 1e-9)) ** 2, 0.05), 4.0)
        self.left_out = errors - weights @ errors / (weights.sum(axis=1) + self._prior)  # each by the others
        self.spread = float(np.median(np.abs(self.left_out)))
        self._keep(~doubtful)

    def _keep(self, which: NDArray[np.bool_]) -> None:
        self._logs, self._squares, self._errors = self._logs[which], self._squares[which], self._errors[which]

    def _distances(self, logs: Matrix) -> Matrix:
        """Return the squared distances of each row of `logs` to each sample: root mean squares of log ratios."""
        across: Matrix = logs @ self._logs.T * (-2.0 / logs.shape[1])
        across += (logs**2).mean(axis=1)[:, None] + self._squares
        return across

    def _weights(self, squared: Matrix) -> Matrix:
        """Return the weights of samples at these squared distances: 1 here, falling smoothly to 0 at the reach."""
        part = np.minimum(squared / self._reach2, 1.0)
        weights: Matrix = np.exp(part * (-0.5 * BELL**2)) * (1.0 - part)
        return weights

    def at(self, features: Sequence[float]) -> tuple[float, float]:
        """Return the factor for `features`, and how far away the nearest sample is (log of a ratio)."""
        logs = np.log(np.maximum(features, self._floor))
        squared = self._squares + (logs @ logs - 2.0 * (self._logs @ logs)) / len(logs)
        weights = self._weights(squared)
        factor = exp(float(weights @ self._errors) / (float(weights.sum()) + self._prior))
        return factor, sqrt(max(float(squared.min()), 0.0))


def _doubtful(weights: Matrix, errors: Matrix) -> NDArray[np.bool_]:
    """Return which samples are far from the weighted median of their neighbours: they were disturbed."""
    says = np.append(errors, 0.0)  # the fit has a say too
    weights = np.hstack([weights, np.full((len(errors), 1), 0.1)])
    order = np.argsort(says)
    sums = np.cumsum(weights[:, order], axis=1)
    middle = (sums >= sums[:, -1:] / 2.0).argmax(axis=1)
    beside = np.abs(errors - says[order][middle])
    found: NDArray[np.bool_] = beside > max(DOUBTFUL * 1.4826 * float(np.median(beside)), LEAST_DOUBTFUL)
    return found


def _apart(squared: Matrix) -> float:
    """Return how far samples typically are from their nearest neighbours."""
    if len(squared) < 2:
        return 0.0
    others = squared + np.diag(np.full(len(squared), np.inf))
    return sqrt(max(float(np.median(others.min(axis=1))), 0.0))
