"""ML: ridge regression and naive Bayes vote on the class of each row. Two branches of unlike length and a join.

Before: program.py.  After: dag/__init__.py.  Section 5.4 of the GrCUDA benchmarks, in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, Call, Program, blocks

FEATURES, CLASSES = 200, 10
ROWS = 2048  # rows a NumPy call works on


@cx.kernel(x=cx.read(cx.all), z=cx.write)  # type: ignore[untyped-decorator]
def rr1(x: Any, z: Any) -> None:
    """Standardise every column: mean 0, deviation 1."""
    z[...] = x
    ones = np.ones(len(z), z.dtype)
    mean = ones @ z / len(z)
    for part in blocks(len(z), ROWS):
        z[part] -= mean
    spread = np.sqrt(np.einsum("ij,ij->j", z, z) / len(z))
    scale = 1 / np.where(spread == 0, 1, spread)
    for part in blocks(len(z), ROWS):
        z[part] *= scale


@cx.kernel(z=cx.read(cx.all), coef=cx.read(cx.all), r2=cx.update)  # type: ignore[untyped-decorator]
def rr2(z: Any, coef: Any, r2: Any) -> None:
    """Add the scores of the regression."""
    r2 += z @ coef.T


@cx.kernel(intercept=cx.read(cx.all), r2=cx.update)  # type: ignore[untyped-decorator]
def rr3(intercept: Any, r2: Any) -> None:
    """Add the intercepts."""
    r2 += intercept


@cx.kernel(x=cx.read(cx.all), logp=cx.read(cx.all), r1=cx.update)  # type: ignore[untyped-decorator]
def nb1(x: Any, logp: Any, r1: Any) -> None:
    """Add the log-likelihoods of the features."""
    real = np.empty((min(ROWS, len(x)), x.shape[1]), r1.dtype)
    for part in blocks(len(x), ROWS):
        rows = real[: part.stop - part.start]
        rows[...] = x[part]
        r1[part] += rows @ logp.T


@cx.kernel(r1=cx.read(cx.all), amax=cx.write)  # type: ignore[untyped-decorator]
def nb2(r1: Any, amax: Any) -> None:
    """Set amax to each row's maximum."""
    np.max(r1, axis=1, out=amax)


@cx.kernel(r1=cx.read(cx.all), amax=cx.read, log_sum=cx.write)  # type: ignore[untyped-decorator]
def nb3(r1: Any, amax: Any, log_sum: Any) -> None:
    """Set log_sum to the logarithm of each row's sum of exponentials."""
    shifted = r1 - amax[:, None]
    np.exp(shifted, out=shifted)
    np.sum(shifted, axis=1, out=log_sum)
    np.log(log_sum, out=log_sum)
    log_sum += amax


@cx.kernel(log_sum=cx.read(cx.all), r1=cx.update)  # type: ignore[untyped-decorator]
def nb4(log_sum: Any, r1: Any) -> None:
    """Turn log-likelihoods into probabilities."""
    r1 -= log_sum[:, None]
    np.exp(r1, out=r1)


@cx.kernel(r=cx.update)  # type: ignore[untyped-decorator]
def softmax(r: Any) -> None:
    """Turn each row of scores into probabilities."""
    np.exp(r, out=r)
    r /= r.sum(axis=1, keepdims=True)


@cx.kernel(r1=cx.read(cx.all), r2=cx.read(cx.all), best=cx.write)  # type: ignore[untyped-decorator]
def argmax(r1: Any, r2: Any, best: Any) -> None:
    """Set best to the index of each row's largest sum."""
    best[...] = np.argmax(r1 + r2, axis=1)
