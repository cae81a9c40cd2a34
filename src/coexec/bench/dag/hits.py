"""HITS: hubs and authorities of a graph by power iteration. Two branches that exchange their results every time.

Before: program.py.  After: dag/__init__.py.  Section 5.5 of the GrCUDA benchmarks, in float32. As there, the host writes
the norms back to zero after every iteration. Edges have random weights, or all vertices would stay equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, DagProgram, KernelCall, Reset, Step, blocks

ITERATIONS, DEGREE = 5, 3
ROWS = 1 << 17  # vertices a NumPy call works on


@cx.kernel(ptr=cx.read(cx.all), idx=cx.read(cx.all), val=cx.read(cx.all), x=cx.read(cx.all), out=cx.write)
def spmv(ptr: Any, idx: Any, val: Any, x: Any, out: Any) -> None:
    """Set out to the product of a sparse matrix (compressed rows, none empty) and x."""
    for part in blocks(len(out), ROWS):
        edges = slice(ptr[part.start], ptr[part.stop])
        terms = np.take(x, idx[edges], mode="clip")  # the indices are known to be good: no check per element
        terms *= val[edges]
        _sum_rows(terms, ptr[part.start : part.stop + 1], out[part])


def _sum_rows(terms: Any, ptr: Any, out: Any) -> None:
    """Sum the terms of each row. Rows of equal length are summed column by column: reduceat keeps the interpreter lock."""
    width = len(terms) // len(out)
    if width < 2 or not (np.diff(ptr) == width).all():
        np.add.reduceat(terms, ptr[:-1] - ptr[0], out=out)
        return
    columns = terms.reshape(len(out), width).T
    np.add(columns[0], columns[1], out=out)
    for column in columns[2:]:
        out += column


@cx.kernel(x=cx.read(cx.all), norm=cx.update)
def add_sum(x: Any, norm: Any) -> None:
    """Add the sum of x to norm[0]."""
    norm += x.sum()


@cx.kernel(x=cx.read, norm=cx.read(cx.all), out=cx.write)
def divide(x: Any, norm: Any, out: Any) -> None:
    """Set out to x / norm[0]."""
    np.divide(x, norm[0], out=out)


spmv.opencl(
    """
float sum = 0.0f;
for (long e = ptr(i); e < ptr(i + 1); e++)
    sum += val(e) * x(idx(e));
out(i) = sum;
"""
)
add_sum.opencl(
    """
float8 sum = 0.0f;
float rest = 0.0f;
for (long lo = 0; lo < x_n0; lo += 4096) {  // short sums first: float32 would lose digits
    const long hi = min(x_n0, lo + 4096);
    float8 part = 0.0f;
    long at = lo;
    for (; at + 8 <= hi; at += 8)
        part += vload8(0, &x(at));
    for (; at < hi; at++)
        rest += x(at);
    sum += part;
}
const float4 four = sum.lo + sum.hi;
norm(0) += rest + four.x + four.y + four.z + four.w;
"""
)
divide.opencl("out(i) = x(i) / norm(0);")


def make(n: int) -> DagProgram:
    """Return the program for a graph of `n` vertices."""
    random = np.random.default_rng(7)
    graph: Arrays = {
        "ptr": np.arange(0, DEGREE * n + 1, DEGREE),
        "idx": random.integers(0, n, DEGREE * n),
        "val": random.random(DEGREE * n, np.float32),
    }
    copies = {f"{name}2": array.copy() for name, array in graph.items()}
    vectors = {name: np.ones(n, np.float32) for name in ("auth1", "auth2", "hub1", "hub2")}
    norms = {name: np.zeros(1, np.float32) for name in ("auth_norm", "hub_norm")}
    arrays: Arrays = {**graph, **copies, **vectors, **norms}
    iteration: tuple[Step, ...] = (
        KernelCall("A1", spmv, ("ptr2", "idx2", "val2", "hub1", "auth2")),
        KernelCall("H1", spmv, ("ptr", "idx", "val", "auth1", "hub2")),
        KernelCall("A2", add_sum, ("auth2", "auth_norm")),
        KernelCall("H2", add_sum, ("hub2", "hub_norm")),
        KernelCall("A3", divide, ("auth2", "auth_norm", "auth1")),
        KernelCall("H3", divide, ("hub2", "hub_norm", "hub1")),
        Reset("reset auth_norm", "auth_norm", 0.0, "A2"),
        Reset("reset hub_norm", "hub_norm", 0.0, "H2"),
    )
    ends = (("auth1", (0,)), ("hub1", (0,)))
    return DagProgram("HITS", arrays, tuple(arrays), iteration * ITERATIONS, ends, ("auth1", "hub1"), expected)


def expected(arrays: Arrays) -> Arrays:
    """Return the scores in plain NumPy, in float64."""
    auth, hub = arrays["auth1"].astype(np.float64), arrays["hub1"].astype(np.float64)
    idx, val = arrays["idx"].reshape(-1, DEGREE), arrays["val"].reshape(-1, DEGREE).astype(np.float64)
    for _ in range(ITERATIONS):
        auth, hub = (val * hub[idx]).sum(axis=1), (val * auth[idx]).sum(axis=1)
        auth, hub = auth / auth.sum(), hub / hub.sum()
    return {"auth1": auth, "hub1": hub}
