"""Waves on a pond: the 2-d wave equation, a stencil whose two arrays swap their roles after every step.

Run it with: python examples/wave_sim.py [SIDE] [STEPS] [--devices DEVICES] [--picture FILE]
"""

import argparse
import time

import numpy as np
import picture

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
    for _ in range(steps):
        step(now, before, SPEED)  # returns at once; each part waits for its neighbours' edges only
        before, now = now, before
    return before, now


def run(before, now, steps):
    _, now = compute(cx.array(before), cx.array(now), steps)
    return np.asarray(now)  # waits


def reference(before, now, steps):
    for _ in range(steps):
        old, u = before[1:-1, 1:-1], now
        old[...] = (
            (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * SPEED - old + u[1:-1, 1:-1] * (2 - 4 * SPEED)
        )
        before, now = now, before
    return before, now


def main():
    parser = argparse.ArgumentParser(description="Waves on a pond, with coexec and with NumPy.")
    parser.add_argument("side", nargs="?", type=int, default=1000, help="points along each side")
    parser.add_argument("steps", nargs="?", type=int, default=500)
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="wave_sim.png", metavar="FILE")
    args = parser.parse_args()

    given = start(args.side)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        heights = run(*given, args.steps)
        took = time.perf_counter() - begin
    begin = time.perf_counter()
    _, expected = reference(*given, args.steps)
    plain = time.perf_counter() - begin

    assert np.allclose(heights, expected, atol=1e-4)
    same = "the same bits" if np.array_equal(heights, expected) else f"off by {np.max(np.abs(heights - expected)):.0e}"
    print(f"{args.steps} steps of {args.side} x {args.side} points: {took:.2f} s, NumPy {plain:.2f} s, {same}")
    picture.heat_map(
        args.picture, heights[:: args.side // 500 or 1, :: args.side // 500 or 1], picture.BALANCE, -0.15, 0.15
    )


if __name__ == "__main__":
    main()
