"""Two star clusters pass through each other: direct gravity between all pairs of bodies.

Run it with: python examples/nbody.py [BODIES] [STEPS] [--devices DEVICES] [--picture FILE]
"""

from pathlib import Path

import numpy as np
from common import arguments, figure, timer

import coexec as cx

SOFT = 0.05  # length below which gravity weakens, so that close encounters need no smaller time step
DT = 0.01
PAIRS = 1 << 16  # of bodies computed at a time: what is known of them stays in the cache


@cx.kernel(
    split=0, over="mass", stars=cx.read(cx.all), mass=cx.read(cx.all), mine=cx.read, speed=cx.update, out=cx.write,
    flops=lambda stars, mine: 20.0 * len(stars) * len(mine), numerics=cx.close(1024),  # sums over stars in any order
)  # fmt: skip
def move(stars, mass, mine, speed, out, dt):
    """Let all stars pull mine for a time dt. Squares of distances, |a|^2 + |b|^2 - 2 a.b, and sums over stars are products."""
    near = np.column_stack([-2 * mine, (mine**2).sum(axis=1) + SOFT**2, np.ones(len(mine))])
    far = np.stack([*stars.T, np.ones(len(stars)), (stars**2).sum(axis=1)])
    weights = np.column_stack([stars, np.ones(len(stars))]) * mass[:, None]
    rows = max(1, PAIRS // len(stars))
    for lo in range(0, len(mine), rows):
        part = slice(lo, lo + rows)
        square = near[part] @ far
        pull = 1 / (square * np.sqrt(square)) @ weights
        speed[part] += dt * (pull[:, :3] - mine[part] * pull[:, 3:])  # the sum of m (b - a) / |b - a|^3
        out[part] = mine[part] + dt * speed[part]


move.opencl(
    Path(__file__).with_name("nbody.cl").read_text(encoding="utf-8"),
    global_size=lambda shape: (-(-shape[0] // 4),),
    numerics=cx.close(1e6),  # sums in another order
)


def start(bodies):
    """Return places, room for the next ones, speeds and masses: two clusters that will pass close to each other."""
    random = np.random.default_rng(3)
    place = random.normal(0, 0.25, (bodies, 3))
    speed = np.cross([0, 0, 1.0], place) * 1.2  # each turns about its own axis
    first = np.arange(bodies) < bodies // 2
    place += np.where(first[:, None], [-0.8, -0.25, 0], [0.8, 0.25, 0])
    speed += np.where(first[:, None], [0.6, 0, 0], [-0.6, 0, 0])
    return place, np.zeros_like(place), speed, np.full(bodies, 1 / bodies)


def compute(place, next, speed, mass, steps):
    """Return places and speeds after so many steps; returns at once."""
    for _ in range(steps):
        move(place, mass, place, speed, next, DT)  # the new places go elsewhere: siblings still read the old ones
        place, next = next, place
    return place, speed


def reference(place, _, speed, mass, steps):
    """Return the same, computed with NumPy."""
    for _ in range(steps):
        ray = place[None, :] - place[:, None]
        pull = mass / ((ray**2).sum(axis=2) + SOFT**2) ** 1.5
        speed = speed + DT * np.einsum("ij,ijk->ik", pull, ray)
        place = place + DT * speed
    return place, speed


def main():
    args = arguments(__doc__, bodies=2000, steps=100)
    given = start(args.bodies)
    with cx.Runtime(devices=args.devices), timer() as took:
        place, _ = map(np.asarray, compute(*map(cx.array, given), args.steps))  # waits
    with timer() as plain:
        expected, _ = reference(*given, args.steps)

    assert np.allclose(place, expected, atol=1e-6)
    print(
        f"{args.steps} steps of {args.bodies} bodies: {took.seconds:.2f} s, NumPy {plain.seconds:.2f} s, "
        f"places differ by {np.abs(place - expected).max():.0e}"
    )
    if args.picture:
        with figure(args.picture) as axes:
            for number, cluster in enumerate(np.split(place, [args.bodies // 2]), 1):
                axes.plot(cluster[:, 0], cluster[:, 1], ".", markersize=2, label=f"cluster {number}")
            axes.set(xlabel="x", ylabel="y", aspect="equal")
            axes.legend(markerscale=4)


if __name__ == "__main__":
    main()
