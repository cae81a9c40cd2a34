"""VEC: the sum of the differences of two vectors' squares. Two independent kernels and one that joins them.

Before: program.py.  After: dag/__init__.py.  Section 5.1 of the GrCUDA benchmarks, in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, DagProgram, KernelCall


@cx.kernel(x=cx.read, out=cx.write)
def square(x: Any, out: Any) -> None:
    """Square every element."""
    np.multiply(x, x, out=out)


@cx.kernel(x=cx.read(cx.all), y=cx.read(cx.all), res=cx.update)
def add_difference(x: Any, y: Any, res: Any) -> None:
    """Add the sum of x - y to res[0]."""
    res += x.sum() - y.sum()


square.opencl("out(i) = x(i) * x(i);")
add_difference.opencl(
    """
float8 sum = 0.0f;
float rest = 0.0f;
for (long lo = 0; lo < x_n0; lo += 4096) {  // short sums first: float32 would lose digits
    const long hi = min(x_n0, lo + 4096);
    float8 part = 0.0f;
    long at = lo;
    for (; at + 8 <= hi; at += 8)
        part += vload8(0, &x(at)) - vload8(0, &y(at));
    for (; at < hi; at++)
        rest += x(at) - y(at);
    sum += part;
}
const float4 four = sum.lo + sum.hi;
res(0) += rest + four.x + four.y + four.z + four.w;
"""
)


def make(n: int) -> DagProgram:
    """Return the program for vectors of `n` elements."""
    down = 1.0 / np.arange(1, n + 1)
    arrays: Arrays = {
        "x": down.astype(np.float32),
        "y": (2 * down).astype(np.float32),
        "x1": np.empty(n, np.float32),
        "y1": np.empty(n, np.float32),
        "res": np.zeros(1, np.float32),
    }
    steps = (
        KernelCall("K1", square, ("x", "x1")),
        KernelCall("K2", square, ("y", "y1")),
        KernelCall("K3", add_difference, ("x1", "y1", "res")),
    )
    return DagProgram("VEC", arrays, ("x", "y", "res"), steps, (("res", (0,)),), ("res",), expected)


def expected(arrays: Arrays) -> Arrays:
    """Return the result in plain NumPy."""
    x, y = (arrays[name].astype(np.float64) for name in "xy")
    return {"res": arrays["res"] + np.sum(x * x - y * y)}
