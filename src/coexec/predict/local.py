"""How far measurements near a point lay from a fit: what interpolation adds to regression.

Before: predict/regression.py.  After: predict/table.py.  Knows rows of features and errors; no kernel or device.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

REACH = log(4.0)  # beyond a factor of four, a sample says nothing
WIDTH = REACH / 2.5  # of the bell of weights
PRIORS = (0.2, 0.5, 2.0, 1e9)  # the weight of "the fit is right"; a sample at hand has 1
DOUBTFUL = 4.0  # standard deviations from what its neighbours say, and a sample is left out
LEAST_DOUBTFUL = 0.2


class Local:
    """A correction by the errors of the nearest samples, in the space of the features' logarithms."""

    __slots__ = ("_errors", "_floor", "_logs", "_prior", "_squares", "left_out", "spread")

    def __init__(self, rows: Matrix, errors: Matrix) -> None:
        """`errors` are log(measured / fitted), one for each row."""
        positive = np.where(rows > 0.0, rows, np.inf).min(axis=0)
        self._floor = np.where(np.isfinite(positive), positive, 1.0) / 16.0  # stands for zero, in the feature's unit
        self._logs = np.log(np.maximum(rows, self._floor))
        self._squares = (self._logs**2).mean(axis=1)
        self._errors = errors
        weights = _weights(self._distances(self._logs))
        np.fill_diagonal(weights, 0.0)
        doubtful = _doubtful(weights, errors)
        weights[:, doubtful] = 0.0
        # Noise is not to be interpolated: as much correction as foretells the samples best, each by the others.
        tried = [errors - weights @ errors / (weights.sum(axis=1) + prior) for prior in PRIORS]
        off = [float(np.abs(left[~doubtful]).mean()) for left in tried]
        best = min(range(len(PRIORS)), key=off.__getitem__)
        self._prior, self.left_out = PRIORS[best], tried[best]
        self.spread = float(np.median(np.abs(self.left_out)))
        self._keep(~doubtful)

    def _keep(self, which: NDArray[np.bool_]) -> None:
        self._logs, self._squares, self._errors = self._logs[which], self._squares[which], self._errors[which]

    def _distances(self, logs: Matrix) -> Matrix:
        """Return the squared distances of each row of `logs` to each sample: root mean squares of log ratios."""
        across: Matrix = logs @ self._logs.T * (-2.0 / logs.shape[1])
        across += (logs**2).mean(axis=1)[:, None] + self._squares
        return across

    def at(self, features: Sequence[float]) -> tuple[float, float]:
        """Return the factor for `features`, and how far away the nearest sample is (log of a ratio)."""
        logs = np.log(np.maximum(features, self._floor))
        squared = self._squares + (logs @ logs - 2.0 * (self._logs @ logs)) / len(logs)
        weights = _weights(squared)
        factor = exp(float(weights @ self._errors) / (float(weights.sum()) + self._prior))
        return factor, sqrt(max(float(squared.min()), 0.0))


def _doubtful(weights: Matrix, errors: Matrix) -> NDArray[np.bool_]:
    """Return which samples are far from what their neighbours say: a disturbed measurement, no effect of size."""
    bound = max(_far(np.abs(errors - np.median(errors))), LEAST_DOUBTFUL)
    held = np.clip(errors, -bound, bound)
    beside = np.abs(errors - weights @ held / (weights.sum(axis=1) + PRIORS[0]))
    found: NDArray[np.bool_] = beside > max(_far(beside), LEAST_DOUBTFUL)
    return found


def _far(off: Matrix) -> float:
    return DOUBTFUL * 1.4826 * float(np.median(off))


def _weights(squared: Matrix) -> Matrix:
    """Return the weights of samples at these squared distances: 1 here, nothing beyond reach."""
    weights: Matrix = np.exp(squared * (-0.5 / WIDTH**2))
    weights[squared > REACH**2] = 0.0
    return weights
