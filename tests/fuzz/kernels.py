"""The kernels of random programs, written as users write theirs: every access, mapper, border and policy has one at least.

A body with an OpenCL variant stands here once per number of axes, since a short source names its indices.
Bodies are exact on small whole numbers, whatever the type: there is no rounding to blame.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx
from tests.holding import pass_gate

# Elementwise ------------------------------------------------------------------------------------------------------------


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy1(s, x, y):
    y += s * x


axpy1.opencl("y(i) += s * x(i);")


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy2(s, x, y):
    y += s * x


axpy2.opencl("y(i, j) += s * x(i, j);")


@cx.kernel(split=0, x=cx.read, y=cx.write)
def double1(x, y):
    y[...] = x + x


double1.opencl("y(i) = x(i) + x(i);")


@cx.kernel(split=(0, 1), x=cx.read, y=cx.write)
def double2(x, y):
    y[...] = x + x


double2.opencl("y(i, j) = x(i, j) + x(i, j);")


@cx.kernel(split=0, y=cx.update)
def mirror1(y, at):
    y[...] = at - y


mirror1.opencl("y(i) = at - y(i);")


@cx.kernel(split=(1, 0), y=cx.update)
def mirror2(y, at):
    y[...] = at - y


mirror2.opencl("y(i, j) = at - y(i, j);")


@cx.kernel(split=0, x=cx.read, y=cx.write)
def shifted(x, y, by):
    y[...] = x + by


@cx.kernel(split=0, x=cx.read, y=cx.update, granule=4)
def in_fours(x, y):
    y += x


@cx.kernel(split=0, x=cx.read, y=cx.update, weight=lambda rows: rows + 1.0, flops=lambda y: 2.0 * y.size)
def weighted(x, y):
    y += x


@cx.kernel(x=cx.read, y=cx.update)
def whole(x, y):
    y += x


@cx.kernel(split=0, x=cx.update, y=cx.update)
def exchange(x, y):
    held = x + 0
    x[...] = y + 0
    y[...] = held


@cx.kernel(split=0, x=cx.read, y=cx.update)
def read_back(x, y):
    y += 1
    y += x


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def tripled(x):
    return x + x + x


# Mappers ----------------------------------------------------------------------------------------------------------------


@cx.kernel(split=1, x=cx.read(cx.axis(0)), out=cx.write)
def column_sums(x, out):
    out[...] = x.sum(axis=0, keepdims=True)


@cx.kernel(split=0, x=cx.read(cx.axis(1)), out=cx.write)
def row_sums(x, out):
    out[...] = x.sum(axis=1, keepdims=True)


@cx.kernel(split=0, x=cx.read(cx.all), out=cx.update)
def spread(x, out):
    out += x.max()


@cx.kernel(split=0, x=cx.read(cx.fixed(slice(0, 1))), out=cx.update)
def add_first(x, out):
    out += x


@cx.kernel(split=0, over="parts", x=cx.read(cx.even(2)), out=cx.write(cx.even(2)))
def dealt(x, out, parts):
    out[...] = x + parts


def pairs(chunk):
    return slice(2 * chunk.lo[0], 2 * chunk.hi[0])


@cx.kernel(split=0, x=cx.read(pairs), out=cx.write)
def add_pairs(x, out):
    out[...] = x[0::2] + x[1::2]


# Stencils ---------------------------------------------------------------------------------------------------------------


def along_rows(u, out):
    out[...] = u[:-2] + u[1:-1] - u[2:]


def stencil(name: str, body: Any, widths: Any, border: Any, split: Any = 0, shape: str = "box") -> Any:
    accesses: dict[str, Any] = {"u": cx.read(cx.halo(widths, border=border, shape=shape)), "out": cx.update}
    return cx.kernel(split=split, name=name, **accesses)(body)


ring = stencil("ring", along_rows, [(1, 1)], "wrap")
edged = stencil("edged", along_rows, [(1, 1)], "edge")
folded = stencil("folded", along_rows, [(1, 1)], "reflect")
padded = stencil("padded", along_rows, [(1, 1)], 5)
inner1 = stencil("inner1", along_rows, [(1, 1)], "inside")
inner1.opencl("out(i) = u(i) + u(i + 1) - u(i + 2);")


def behind(u, out):
    out[...] = u[:-2] + u[2:]


lagging = stencil("lagging", behind, [(2, 0)], "wrap")


def crosswise(u, out):
    out[...] = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] - u[1:-1, 2:]


cross_ring = stencil("cross_ring", crosswise, 1, "wrap", (0, 1), "axes")
cross_edge = stencil("cross_edge", crosswise, 1, "edge", (0, 1))
inner2 = stencil("inner2", crosswise, 1, "inside", (1, 0))
inner2.opencl("out(i, j) = u(i, j+1) + u(i+2, j+1) + u(i+1, j) - u(i+1, j+2);")


@cx.kernel(split=0, u=cx.read(cx.halo([(1, 1)])), out=cx.write)
def highest_near(u, out, chunk):
    best = u + 0
    best[1:] = np.maximum(best[1:], u[:-1])
    best[:-1] = np.maximum(best[:-1], u[1:])
    out[...] = best[chunk.at("u")]


# Reductions -------------------------------------------------------------------------------------------------------------


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def add_up(x, total):
    total += x.sum()


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum", fresh=True))
def add_up_afresh(x, total):
    total += x.sum()


@cx.kernel(split=0, over="x", x=cx.read, largest=cx.reduce("max", fresh=True))
def peak(x, largest):
    if x.size:
        np.maximum(largest, x.max(), out=largest)


@cx.kernel(split=0, over="x", x=cx.read, smallest=cx.reduce("min"))
def lowest(x, smallest):
    if x.size:
        np.minimum(smallest, x.min(), out=smallest)


@cx.kernel(split=0, over="x", x=cx.read, counts=cx.reduce("sum"))
def count_rests(x, counts):
    counts += np.bincount(np.abs(x).astype(np.int64).ravel() % counts.size, minlength=counts.size).astype(counts.dtype)


# Trouble ----------------------------------------------------------------------------------------------------------------


@cx.kernel(y=cx.update)
def fail(y):
    raise ValueError("drawn")


@cx.kernel(split=0, y=cx.update)
def fail_in_parts(y):
    raise ValueError("drawn")


@cx.kernel(y=cx.update)
def held(y, gate):
    pass_gate(gate)
    y += 1


@cx.host_task(x=cx.read)
def note(x, log):
    log.append(int(x.sum()))


KERNELS: dict[str, Any] = {
    name: value for name, value in globals().items() if isinstance(value, cx.Kernel) and not name.startswith("_")
}
"""Every kernel by its name in programs."""
