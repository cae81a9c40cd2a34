"""ML: ridge regression and naive Bayes vote on the class of each row. Two branches of unlike length and a join.

Before: program.py.  After: dag/__init__.py.  Section 5.4 of the GrCUDA benchmarks, in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, DagProgram, KernelCall, blocks

FEATURES, CLASSES = 200, 10
ROWS = 2048  # rows a NumPy call works on


@cx.kernel(x=cx.read(cx.all), z=cx.write)
def rr1(x: Any, z: Any) -> None:
    """Standardise every column: mean 0, deviation 1."""
    count, columns = x.shape
    ones = np.ones(min(ROWS, count), z.dtype)
    square = np.empty((len(ones), columns), z.dtype)
    total, squares = np.zeros(columns), np.zeros(columns)
    for part in blocks(count, ROWS):
        rows = z[part]
        rows[...] = x[part]
        np.multiply(rows, rows, out=square[: len(rows)])
        total += ones[: len(rows)] @ rows
        squares += ones[: len(rows)] @ square[: len(rows)]
    mean = total / count
    spread = np.sqrt(np.maximum(squares / count - mean * mean, 1e-12))
    shift, scale = mean.astype(z.dtype), (1 / spread).astype(z.dtype)
    for part in blocks(count, ROWS):
        rows = z[part]
        rows -= shift
        rows *= scale


@cx.kernel(z=cx.read(cx.all), coef=cx.read(cx.all), r2=cx.update)
def rr2(z: Any, coef: Any, r2: Any) -> None:
    """Add the scores of the regression."""
    r2 += z @ coef.T


@cx.kernel(intercept=cx.read(cx.all), r2=cx.update)
def rr3(intercept: Any, r2: Any) -> None:
    """Add the intercepts."""
    r2 += intercept


@cx.kernel(x=cx.read(cx.all), logp=cx.read(cx.all), r1=cx.update)
def nb1(x: Any, logp: Any, r1: Any) -> None:
    """Add the log-likelihoods of the features."""
    real = np.empty((min(ROWS, len(x)), x.shape[1]), r1.dtype)
    for part in blocks(len(x), ROWS):
        rows = real[: part.stop - part.start]
        rows[...] = x[part]
        r1[part] += rows @ logp.T


@cx.kernel(r1=cx.read(cx.all), amax=cx.write)
def nb2(r1: Any, amax: Any) -> None:
    """Set amax to each row's maximum."""
    np.max(r1, axis=1, out=amax)


@cx.kernel(r1=cx.read(cx.all), amax=cx.read, log_sum=cx.write)
def nb3(r1: Any, amax: Any, log_sum: Any) -> None:
    """Set log_sum to the logarithm of each row's sum of exponentials."""
    shifted = r1 - amax[:, None]
    np.exp(shifted, out=shifted)
    np.sum(shifted, axis=1, out=log_sum)
    np.log(log_sum, out=log_sum)
    log_sum += amax


@cx.kernel(log_sum=cx.read(cx.all), r1=cx.update)
def nb4(log_sum: Any, r1: Any) -> None:
    """Turn log-likelihoods into probabilities."""
    r1 -= log_sum[:, None]
    np.exp(r1, out=r1)


@cx.kernel(r=cx.update)
def softmax(r: Any) -> None:
    """Turn each row of scores into probabilities."""
    np.exp(r, out=r)
    r /= r.sum(axis=1, keepdims=True)


@cx.kernel(r1=cx.read(cx.all), r2=cx.read(cx.all), best=cx.write)
def argmax(r1: Any, r2: Any, best: Any) -> None:
    """Set best to the index of each row's largest sum."""
    best[...] = np.argmax(r1 + r2, axis=1)


def _once(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return one work-item for all rows: it sums each column without taking turns."""
    return tuple(1 for _ in shape)


def _row(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return one work-item per row."""
    return 1, shape[0]


rr1.opencl(
    """
float total[256], squares[256];
for (long f = 0; f < n1; f++)
    total[f] = squares[f] = 0.0f;
for (long lo = 0; lo < n0; lo += 512) {  // short sums first: float32 would lose digits
    float sum[256], square[256];
    for (long f = 0; f < n1; f++)
        sum[f] = square[f] = 0.0f;
    for (long row = lo; row < min(n0, lo + 512); row++)
        for (long f = 0; f < n1; f++) {
            const float value = x(row, f);
            sum[f] += value;
            square[f] += value * value;
        }
    for (long f = 0; f < n1; f++) {
        total[f] += sum[f];
        squares[f] += square[f];
    }
}
for (long f = 0; f < n1; f++) {
    total[f] /= n0;
    squares[f] = 1.0f / sqrt(fmax(squares[f] / n0 - total[f] * total[f], 1e-12f));
}
for (long row = 0; row < n0; row++)
    for (long f = 0; f < n1; f++)
        z(row, f) = (x(row, f) - total[f]) * squares[f];
""",
    global_size=_once,
)
_SCORES = f"""
float8 sum[{CLASSES}];
for (int c = 0; c < {CLASSES}; c++)
    sum[c] = 0.0f;
for (long f = 0; f < {FEATURES}; f += 8) {{
    const float8 features = CONVERT(vload8(0, &@(i, f)));
    for (int c = 0; c < {CLASSES}; c++)
        sum[c] += features * vload8(0, &#(c, f));
}}
for (int c = 0; c < {CLASSES}; c++) {{
    const float4 four = sum[c].lo + sum[c].hi;
    TARGET(i, c) += four.x + four.y + four.z + four.w;
}}
"""


def _scores(rows: str, weights: str, target: str, convert: str) -> str:
    """Return the OpenCL text that adds rows . weights^T to the target, one work-item per row."""
    text = _SCORES.replace("@", rows).replace("#", weights)
    return text.replace("TARGET", target).replace("CONVERT", convert)


rr2.opencl(_scores("z", "coef", "r2", ""), global_size=_row, local_size=(1, 16))
nb1.opencl(_scores("x", "logp", "r1", "convert_float8"), global_size=_row, local_size=(1, 16))
rr3.opencl("r2(i, j) += intercept(j);")
nb2.opencl(
    """
float top = r1(i, 0);
for (long c = 1; c < r1_n1; c++)
    top = fmax(top, r1(i, c));
amax(i) = top;
"""
)
nb3.opencl(
    """
float sum = 0.0f;
for (long c = 0; c < r1_n1; c++)
    sum += exp(r1(i, c) - amax(i));
log_sum(i) = log(sum) + amax(i);
"""
)
nb4.opencl("r1(i, j) = exp(r1(i, j) - log_sum(i));")
softmax.opencl(
    """
float sum = 0.0f;
for (long c = 0; c < n1; c++) {
    r(i, c) = exp(r(i, c));
    sum += r(i, c);
}
for (long c = 0; c < n1; c++)
    r(i, c) /= sum;
""",
    global_size=_row,
    local_size=(1, 64),
)
argmax.opencl(
    """
int found = 0;
for (long c = 1; c < r1_n1; c++)
    found = r1(i, c) + r2(i, c) > r1(i, found) + r2(i, found) ? (int)c : found;
best(i) = found;
"""
)


def make(n: int) -> DagProgram:
    """Return the program for `n` rows."""
    random = np.random.default_rng(6)
    real = np.float32
    shares = random.random((CLASSES, FEATURES)) + 0.1
    arrays: Arrays = {
        "x": random.integers(0, 10, (n, FEATURES), np.int32),
        "z": np.empty((n, FEATURES), real),
        "coef": (0.1 * random.standard_normal((CLASSES, FEATURES))).astype(real),
        "intercept": random.random(CLASSES).astype(real),
        "logp": (0.01 * np.log(shares / shares.sum(axis=1, keepdims=True))).astype(real),
        "r1": np.full((n, CLASSES), np.log(1 / CLASSES), real),
        "r2": np.zeros((n, CLASSES), real),
        "amax": np.empty(n, real),
        "log_sum": np.empty(n, real),
        "best": np.empty(n, np.int32),
    }
    steps = (
        KernelCall("rr1", rr1, ("x", "z")),
        KernelCall("nb1", nb1, ("x", "logp", "r1")),
        KernelCall("rr2", rr2, ("z", "coef", "r2")),
        KernelCall("nb2", nb2, ("r1", "amax")),
        KernelCall("nb3", nb3, ("r1", "amax", "log_sum")),
        KernelCall("rr3", rr3, ("intercept", "r2")),
        KernelCall("nb4", nb4, ("log_sum", "r1")),
        KernelCall("sm1", softmax, ("r1",)),
        KernelCall("sm2", softmax, ("r2",)),
        KernelCall("argmax", argmax, ("r1", "r2", "best")),
    )
    return DagProgram("ML", arrays, ("r1", "r2"), steps, (("best", (0,)),), ("r1", "r2", "best"), expected, 1e-3)


def expected(arrays: Arrays) -> Arrays:
    """Return probabilities and classes in plain NumPy, in float64."""
    x = arrays["x"].astype(np.float64)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    r2 = _plain_softmax(arrays["r2"] + z @ arrays["coef"].T + arrays["intercept"])
    r1 = arrays["r1"] + x @ arrays["logp"].T.astype(np.float64)
    top = r1.max(axis=1, keepdims=True)
    r1 = _plain_softmax(np.exp(r1 - top - np.log(np.exp(r1 - top).sum(axis=1, keepdims=True))))
    return {"r1": r1, "r2": r2, "best": np.argmax(r1 + r2, axis=1)}


def _plain_softmax(r: Any) -> Any:
    powers = np.exp(r)
    return powers / powers.sum(axis=1, keepdims=True)
