"""B&S: Black-Scholes call prices of ten stocks, in float64. Ten independent kernels.

Before: program.py.  After: dag/__init__.py.  Section 5.2 of the GrCUDA benchmarks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, DagProgram, KernelCall, blocks

STOCKS = 10
R, V, T, K = 0.08, 0.3, 1.0, 60.0  # rate, volatility, time to maturity, strike price
DRIFT = (R + V * V / 2) * T
SPREAD = V * math.sqrt(T)
DISCOUNT = K * math.exp(-R * T)
SLOPE = 0.2316419
TERMS = (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530)  # Abramowitz-Stegun, highest power first
DENSITY = 1 / math.sqrt(2 * math.pi)
GROUP = 1024  # elements one OpenCL work-item computes
BLOCK = 1 << 16  # elements: every NumPy call takes 50 us or more, and the temporaries stay in the cache


def _normal(d: Any, out: Any, t: Any, u: Any) -> None:
    """Set `out` to the cumulative normal distribution at d; t and u are scratch."""
    np.abs(d, out=t)
    t *= SLOPE
    t += 1.0
    np.divide(1.0, t, out=t)
    np.multiply(t, TERMS[0], out=out)
    for term in TERMS[1:]:
        out += term
        out *= t
    np.multiply(d, d, out=u)
    u *= -0.5
    np.exp(u, out=u)
    u *= DENSITY
    out *= u
    np.subtract(0.5, out, out=out)  # 1 - out for positive d, out for negative
    np.copysign(out, d, out=out)
    out += 0.5


@cx.kernel(x=cx.read, y=cx.write)
def price(x: Any, y: Any) -> None:
    """Set y to the price of a call option on a share of price x."""
    scratch = np.empty((4, 2, min(BLOCK, len(x))))
    for part in blocks(len(x), BLOCK):
        share, value = x[part], y[part]
        d, n, t, u = (array[:, : len(share)] for array in scratch)
        d1, d2 = d
        np.divide(share, K, out=d1)
        np.log(d1, out=d1)
        d1 += DRIFT
        d1 /= SPREAD
        np.subtract(d1, SPREAD, out=d2)
        _normal(d, n, t, u)
        n[1] *= DISCOUNT
        np.multiply(share, n[0], out=value)
        value -= n[1]


_OPENCL_NORMAL = """
        const double4 k@ = 1.0 / (1.0 + 0.2316419 * fabs(d@));
        const double4 tail@ = exp(-0.5 * d@ * d@) * 0.3989422804014327 * k@ * (0.319381530 + k@ * (-0.356563782
            + k@ * (1.781477937 + k@ * (-1.821255978 + k@ * 1.330274429))));
        const double4 n@ = 0.5 + copysign(0.5 - tail@, d@);"""
_VECTOR = 4
price.opencl(
    f"""
const long lo = {GROUP} * i, hi = min(x_n0, lo + {GROUP});
for (long at = lo; at < hi; at += {_VECTOR}) {{
    const long left = min(at, hi - {_VECTOR});  // the last vector may overlap the one before
    if (left >= 0) {{
        const double4 share = vload4(0, &x(left));
        const double4 d1 = (log(share / {K!r}) + {DRIFT!r}) / {SPREAD!r};
        const double4 d2 = d1 - {SPREAD!r};
        {_OPENCL_NORMAL.replace("@", "1")}
        {_OPENCL_NORMAL.replace("@", "2")}
        vstore4(share * n1 - {DISCOUNT!r} * n2, 0, &y(left));
    }}
}}
""",
    global_size=lambda shape: (-(-shape[0] // GROUP),),
    numerics=cx.close(1e4),
)


def make(n: int) -> DagProgram:
    """Return the program for `n` prices per stock."""
    random = np.random.default_rng(5)
    arrays: Arrays = {f"x{j}": 59.5 + random.random(n) for j in range(STOCKS)}
    arrays |= {f"y{j}": np.empty(n) for j in range(STOCKS)}
    steps = tuple(KernelCall(f"K{j}", price, (f"x{j}", f"y{j}")) for j in range(STOCKS))
    results = tuple(f"y{j}" for j in range(STOCKS))
    reads = tuple((name, (0,)) for name in results)
    return DagProgram("B&S", arrays, tuple(f"x{j}" for j in range(STOCKS)), steps, reads, results, expected, 1e-9)


def expected(arrays: Arrays) -> Arrays:
    """Return the prices in plain NumPy."""
    found = {}
    for j in range(STOCKS):
        x = arrays[f"x{j}"]
        d1 = (np.log(x / K) + DRIFT) / SPREAD
        found[f"y{j}"] = x * _plain_normal(d1) - DISCOUNT * _plain_normal(d1 - SPREAD)
    return found


def _plain_normal(d: Any) -> Any:
    k = 1 / (1 + SLOPE * np.abs(d))
    tail = DENSITY * np.exp(-d * d / 2) * k * np.polyval(TERMS, k)
    return np.where(d > 0, 1 - tail, tail)
