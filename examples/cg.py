"""Solve a Poisson equation by conjugate gradients: a stencil, dot products as reductions, and a test in every step.

Run it with: python examples/cg.py [SIDE] [--devices NAMES] [--picture FILE]

The numbers of a step (`pq`, `rr`) are arrays without axes that stay with the devices. Only the test for convergence reads
one of them, in each step, and waits for nothing else.
"""

import argparse
import time

import numpy as np
import picture

import coexec as cx

POINTS = 1 << 16  # computed at a time: the few arrays of so many numbers stay in the cache


def bands(array):
    rows = max(1, POINTS // array.shape[1])
    return [slice(lo, lo + rows) for lo in range(0, len(array), rows)]


def dot(a, b):
    return np.einsum("ij,ij->", a, b)


@cx.kernel(split=0, p=cx.read(cx.halo(1, border="inside")), q=cx.update, pq=cx.reduce("sum", fresh=True), flops=8.0)
def apply(p, q, pq):  # q = A p: 4 on the diagonal, -1 for each of the four neighbours; and p . q
    for rows in bands(q):
        out, near = q[rows], p[rows.start : rows.stop + 2]
        middle = near[1:-1, 1:-1]
        np.multiply(middle, 4.0, out=out)
        out -= near[:-2, 1:-1]
        out -= near[2:, 1:-1]
        out -= near[1:-1, :-2]
        out -= near[1:-1, 2:]
        pq += dot(middle, out)


@cx.kernel(
    split=0,
    p=cx.read,
    q=cx.read,
    pq=cx.read(cx.all),
    rr=cx.read(cx.all),
    x=cx.update,
    r=cx.update,
    new=cx.reduce("sum", fresh=True),
    flops=6.0,
)
def advance(p, q, pq, rr, x, r, new):  # one step along p; r stays b - A x
    length = rr / pq
    for rows in bands(r):
        x[rows] += length * p[rows]
        r[rows] -= length * q[rows]
        new += dot(r[rows], r[rows])


@cx.kernel(split=0, r=cx.read, p=cx.update, flops=2.0)
def turn(r, p, new, rr):  # the next direction is conjugate to all before
    p[...] = new / rr * p + r


# For OpenCL a work-group does a block, its items a row each, four numbers at a time; then the first adds up what all have.
FOUR = "#define FOUR(a, i, j) (double4)(a((i), (j)), a((i), (j) + 1), a((i), (j) + 2), a((i), (j) + 3))\n"
BEGIN = """
    __local double found[32];
    const int item = get_local_id(0), items = get_local_size(0);
    double4 four = 0.0;
    double one = 0.0;
    for (long i = item, j; i < n0; i += items) {
"""
END = """
    }
    found[item] = one + four.s0 + four.s1 + four.s2 + four.s3;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int other = 0; item == 0 && other < items; other++)"""
ONE_GROUP = {"global_size": lambda _: (32, 1), "local_size": (32, 1), "numerics": cx.close(1e4)}
apply.opencl(
    f"""{FOUR}
__kernel void apply(
    __global const double *p_data, const long p_start, const long p_stride0, const long p_stride1,
    __global double *q_data, const long q_start, const long q_stride0, const long q_stride1,
    __global double *pq_data, const long pq_start, const long n0, const long n1)
{{ {BEGIN}
        for (j = 0; j < n1; j++)
            q(i, j) = 4.0 * p(i + 1, j + 1) - p(i, j + 1) - p(i + 2, j + 1) - p(i + 1, j) - p(i + 1, j + 2);
        for (j = 0; j + 4 <= n1; j += 4) four += FOUR(p, i + 1, j + 1) * FOUR(q, i, j);
        for (; j < n1; j++) one += p(i + 1, j + 1) * q(i, j); {END} pq() += found[other];
}}""",
    **ONE_GROUP,
)
advance.opencl(
    f"""{FOUR}
__kernel void advance(
    __global const double *p_data, const long p_start, const long p_stride0, const long p_stride1,
    __global const double *q_data, const long q_start, const long q_stride0, const long q_stride1,
    __global const double *pq_data, const long pq_start, __global const double *rr_data, const long rr_start,
    __global double *x_data, const long x_start, const long x_stride0, const long x_stride1,
    __global double *r_data, const long r_start, const long r_stride0, const long r_stride1,
    __global double *new_data, const long new_start, const long n0, const long n1)
{{
    const double length = rr() / pq(); {BEGIN}
        for (j = 0; j < n1; j++) x(i, j) += length * p(i, j);
        for (j = 0; j < n1; j++) r(i, j) -= length * q(i, j);
        for (j = 0; j + 4 <= n1; j += 4) four += FOUR(r, i, j) * FOUR(r, i, j);
        for (; j < n1; j++) one += r(i, j) * r(i, j); {END} new() += found[other];
}}""",
    **ONE_GROUP,
)


def compute(x, r, p, q, rr, tolerance=1e-8, most=10_000):
    """Solve A x = b, beginning with x = 0, r = p = b and rr = b . b; return x and the number of steps."""
    pq, new = cx.empty_like(rr), cx.empty_like(rr)
    enough, step = tolerance**2 * float(rr), 0
    while float(rr) > enough and step < most:  # waits for this number; `turn` runs on
        apply(p, q, pq)
        advance(p, q, pq, rr, x, r, new)
        turn(r, p, new, rr)
        rr, new, step = new, rr, step + 1
    return x, step


def start(side):
    """Return x = 0, r = p = b, room for A p, and b . b: two wells of unlike depth under a membrane held at its rim."""
    y, x = np.mgrid[0 : side + 2, 0 : side + 2] / (side + 1)
    b = np.zeros((side + 2, side + 2))
    for depth, at, width in ((1.0, (0.3, 0.35), 0.1), (-0.6, (0.7, 0.6), 0.15)):
        b += depth * np.exp(-((y - at[0]) ** 2 + (x - at[1]) ** 2) / width**2)
    b[[0, -1]] = b[:, [0, -1]] = 0.0
    return np.zeros_like(b), b, b.copy(), np.zeros_like(b), np.array((b * b).sum())


def run(*arrays, tolerance=1e-8):
    """Return the solution and the number of steps, computed with coexec."""
    x, steps = compute(*map(cx.array, arrays), tolerance)
    return np.asarray(x), steps


def reference(x, r, p, q, rr, tolerance=1e-8, most=10_000):
    """Return the solution and the number of steps, computed with NumPy."""
    x, r, p, q, rr, step = x.copy(), r.copy(), p.copy(), q.copy(), float(rr), 0
    enough = tolerance**2 * rr
    while rr > enough and step < most:
        q[1:-1, 1:-1] = 4 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]
        length = rr / np.vdot(p, q)
        x += length * p
        r -= length * q
        new = np.vdot(r, r)
        p *= new / rr
        p += r
        rr, step = new, step + 1
    return x, step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("side", nargs="?", type=int, default=300, help="unknowns along each side")
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="cg.png", metavar="FILE")
    args = parser.parse_args()

    given = start(args.side)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        x, steps = run(*given)
        took = time.perf_counter() - begin
    begin = time.perf_counter()
    expected, needed = reference(*given)
    plain = time.perf_counter() - begin

    size = np.abs(expected).max()
    assert np.allclose(x, expected, rtol=0, atol=1e-6 * size)
    print(
        f"{args.side} x {args.side} unknowns, {steps} steps: {took:.2f} s, NumPy {needed} steps, {plain:.2f} s, "
        f"off by {np.abs(x - expected).max() / size:.0e}"
    )
    picture.heat_map(args.picture, x, picture.BALANCE, -size, size, scale=max(1, 500 // args.side))


if __name__ == "__main__":
    main()
