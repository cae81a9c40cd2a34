"""Heat spreads on a plate: a stencil, divided over the devices, step after step.

Run it with: python examples/heat.py [SIDE] [STEPS]
"""

import sys

import numpy as np

import coexec as cx


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def step(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


def start(side):
    """Return a plate with a hot band, twice: each step reads one and writes the other."""
    plate = np.zeros((side, side))
    plate[side // 4 : side // 2] = 100.0
    return plate, plate.copy()


def compute(u, v, steps):
    """Return the temperatures after so many steps, and before the last; returns at once."""
    for _ in range(steps):
        step(u, v, 0.2)  # each half waits for the other's edge only
        u, v = v, u
    return u, v


def main(side=500, steps=50):
    plate, other = start(side)
    u, _ = compute(cx.array(plate), cx.array(other), steps)
    result = np.asarray(u)  # waits

    a, b = plate.copy(), plate.copy()  # the same with NumPy: the body gets the rows and columns inside the rim
    for _ in range(steps):
        step.function(a, b[1:-1, 1:-1], 0.2)
        a, b = b, a
    assert np.array_equal(result, a)
    print(f"{steps} steps on a {side} x {side} plate: {result.mean():.6f} degrees on average, the same bits as NumPy")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
