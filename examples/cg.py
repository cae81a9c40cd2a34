"""Solve a Poisson equation by conjugate gradients: a stencil, dot products as reductions, and a test in every step.

Run it with: python examples/cg.py [SIDE] [--devices NAMES] [--picture FILE]

The numbers of a step (`pq`, `rr`) are arrays without axes that stay with the devices. Only the test for convergence reads
one of them, in each step, and waits for nothing else.
"""

from pathlib import Path

import numpy as np
from common import arguments, figure, timer

import coexec as cx

NUMBER, SUM = cx.read(cx.all), cx.reduce("sum", fresh=True)


@cx.kernel(split=0, p=cx.read(cx.halo(1, border="inside")), q=cx.update, pq=SUM, flops=8.0)
def apply(p, q, pq):  # q = A p: 4 on the diagonal, -1 for each of the four neighbours; and p . q
    q[...] = 4 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]
    pq += (p[1:-1, 1:-1] * q).sum()


@cx.kernel(split=0, p=cx.read, q=cx.read, pq=NUMBER, rr=NUMBER, x=cx.update, r=cx.update, new=SUM, flops=6.0)
def advance(p, q, pq, rr, x, r, new):  # one step along p; r stays b - A x
    length = rr / pq
    x += length * p
    r -= length * q
    new += (r * r).sum()


@cx.kernel(split=0, r=cx.read, p=cx.update, flops=2.0)
def turn(r, p, new, rr):  # the next direction is conjugate to all before
    p[...] = new / rr * p + r


for kernel in (apply, advance):  # a work-group does a block of rows
    source = Path(__file__).with_name(f"cg_{kernel.name}.cl").read_text(encoding="utf-8")
    kernel.opencl(source, global_size=lambda _: (32, 1), local_size=(32, 1), numerics=cx.close(1e4))


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
    b = np.exp(-((y - 0.3) ** 2 + (x - 0.35) ** 2) * 100) - 0.6 * np.exp(-((y - 0.7) ** 2 + (x - 0.6) ** 2) * 44)
    b[[0, -1]] = b[:, [0, -1]] = 0.0
    return np.zeros_like(b), b, b.copy(), np.zeros_like(b), np.array((b * b).sum())


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
    args = arguments(__doc__, side=300)
    given = start(args.side)
    with cx.Runtime(devices=args.devices), timer() as took:
        x, steps = compute(*map(cx.array, given))
        x = np.asarray(x)
    with timer() as plain:
        expected, needed = reference(*given)

    size = np.abs(expected).max()
    assert np.allclose(x, expected, rtol=0, atol=1e-6 * size)
    print(f"{args.side}² unknowns, {steps} steps: {took.seconds:.2f} s, NumPy {needed} steps, {plain.seconds:.2f} s")
    if args.picture:
        with figure(args.picture) as axes:
            axes.figure.colorbar(axes.imshow(x, cmap="RdBu_r", vmin=-size, vmax=size))


if __name__ == "__main__":
    main()
