"""Waves on a pond: the 2-d wave equation, a stencil whose two arrays swap their roles after every step.

Run it with: python examples/wave_sim.py [SIDE] [STEPS] [--devices DEVICES] [--picture FILE]
"""

import numpy as np
from common import arguments, figure, timer

import coexec as cx

SPEED = 0.25  # (wave speed x time step / grid spacing) squared; up to 0.5 is stable


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def step(u, out, speed):
    """Overwrite the heights before u's by those after; the rim stays as it is. `u` is one wider than `out` all around."""
    near = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    out[...] = near * speed - out + u[1:-1, 1:-1] * (2 - 4 * speed)


def start(side):
    """Return the heights before the first step and at it: drops have just fallen, and the water rests."""
    y, x = np.mgrid[:side, :side] / np.float32(side)
    heights = np.zeros((side, side), np.float32)
    for at_y, at_x, depth in ((0.3, 0.35, 1.0), (0.62, 0.7, 1.0), (0.75, 0.2, -0.8)):
        heights += depth * np.exp(-((y - at_y) ** 2 + (x - at_x) ** 2) * 2500)
    heights[[0, -1]] = heights[:, [0, -1]] = 0
    return heights, heights.copy()


def compute(before, now, steps):
    """Return the heights before the last step and after it; returns at once."""
    for _ in range(steps):
        step(now, before, SPEED)  # each part waits for its neighbours' edges only
        before, now = now, before
    return before, now


def reference(before, now, steps):
    """Return the same as compute(), with NumPy; it changes its arguments."""
    for _ in range(steps):
        old, u = before[1:-1, 1:-1], now
        old[...] = (
            (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * SPEED - old + u[1:-1, 1:-1] * (2 - 4 * SPEED)
        )
        before, now = now, before
    return before, now


def main():
    args = arguments(__doc__, side=1000, steps=500)
    given = start(args.side)
    with cx.Runtime(devices=args.devices), timer() as took:
        _, heights = compute(*map(cx.array, given), args.steps)
        heights = np.asarray(heights)  # waits
    with timer() as plain:
        _, expected = reference(*given, args.steps)

    assert np.allclose(heights, expected, atol=1e-4)
    print(
        f"{args.steps} steps of {args.side} x {args.side} points: {took.seconds:.2f} s, NumPy {plain.seconds:.2f} s, "
        f"off by {np.abs(heights - expected).max():.0e}"
    )
    if args.picture:
        with figure(args.picture) as axes:
            image = axes.imshow(heights, cmap="RdBu_r", vmin=-0.15, vmax=0.15)
            axes.figure.colorbar(image, label="height")


if __name__ == "__main__":
    main()
