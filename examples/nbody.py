"""Two star clusters pass through each other: direct gravity between all pairs of bodies.

Run it with: python examples/nbody.py [BODIES] [STEPS] [--devices DEVICES] [--picture FILE]
"""

import argparse
import time

import numpy as np
import picture

import coexec as cx

SOFT = 0.05  # length below which gravity weakens, so that close encounters need no smaller time step
DT = 0.01
TILE = 64, 1024  # bodies pulled and bodies pulling at a time: a tile of their distances stays in the cache


@cx.kernel(
    split=0,
    over="mass",
    stars=cx.read(cx.all),
    mass=cx.read(cx.all),
    mine=cx.read,
    speed=cx.update,
    out=cx.write,
    flops=lambda stars, mine: 20.0 * len(stars) * len(mine),
)
def move(stars, mass, mine, speed, out, dt):
    """Let all stars pull mine for a time dt. Distances, |a|^2 + |b|^2 - 2 a.b, and sums over bodies are products."""
    rows, columns = TILE
    near = np.column_stack([-2 * mine, (mine**2).sum(axis=1) + SOFT**2, np.ones(len(mine))])
    far = np.stack([*stars.T, np.ones(len(stars)), (stars**2).sum(axis=1)])
    weights = np.column_stack([stars, np.ones(len(stars))]) * mass[:, None]
    room = np.empty((2, rows, columns))
    for lo in range(0, len(mine), rows):
        part = slice(lo, min(lo + rows, len(mine)))
        pull = np.zeros((part.stop - lo, 4))
        for left in range(0, len(stars), columns):
            others = slice(left, min(left + columns, len(stars)))
            cube, root = room[:, : len(pull), : others.stop - left]
            np.matmul(near[part], far[:, others], out=cube)
            np.sqrt(cube, out=root)
            cube *= root  # distances to the third power
            np.reciprocal(cube, out=cube)
            pull += cube @ weights[others]
        speed[part] += dt * (pull[:, :3] - mine[part] * pull[:, 3:])  # the sum of m (b - a) / |b - a|^3
        np.multiply(speed[part], dt, out=out[part])
        out[part] += mine[part]


move.opencl(
    """
    const long first = 4 * i;  // a work-item moves four bodies, in the four places of a vector
    double4 at[3], pull[3] = {0, 0, 0};
    for (int axis = 0; axis < 3; axis++)
        for (int k = 0; k < 4; k++)
            ((double *)&at[axis])[k] = mine(min(first + k, mine_n0 - 1), axis);
    for (long b = 0; b < stars_n0; b++) {
        const double4 dx = stars(b, 0) - at[0], dy = stars(b, 1) - at[1], dz = stars(b, 2) - at[2];
        const double4 square = dx * dx + dy * dy + dz * dz + SOFT * SOFT;
        const double4 weight = mass(b) / (square * sqrt(square));
        pull[0] += weight * dx;
        pull[1] += weight * dy;
        pull[2] += weight * dz;
    }
    for (int k = 0; k < 4 && first + k < mine_n0; k++)
        for (int axis = 0; axis < 3; axis++) {
            speed(first + k, axis) += dt * ((double *)&pull[axis])[k];
            out(first + k, axis) = mine(first + k, axis) + dt * speed(first + k, axis);
        }
    """.replace("SOFT", repr(SOFT)),
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
    for _ in range(steps):
        move(place, mass, place, speed, next, DT)
        place, next = next, place
    return place, speed


def run(place, next, speed, mass, steps):
    place, _ = compute(*map(cx.array, (place, next, speed, mass)), steps)
    return np.asarray(place)  # waits


def reference(place, _, speed, mass, steps):
    for _ in range(steps):
        dx, dy, dz = (c[None, :] - c[:, None] for c in place.T)
        pull = mass / (dx**2 + dy**2 + dz**2 + SOFT**2) ** 1.5
        speed += DT * np.stack([(pull * d).sum(axis=1) for d in (dx, dy, dz)], axis=1)
        place = place + DT * speed
    return place, speed


def main():
    parser = argparse.ArgumentParser(description="Two clusters of stars, with coexec and with NumPy.")
    parser.add_argument("bodies", nargs="?", type=int, default=2000)
    parser.add_argument("steps", nargs="?", type=int, default=100)
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="nbody.svg", metavar="FILE")
    args = parser.parse_args()

    given = start(args.bodies)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        place = run(*given, args.steps)
        took = time.perf_counter() - begin
    begin = time.perf_counter()
    expected, _ = reference(*given, args.steps)
    plain = time.perf_counter() - begin

    assert np.allclose(place, expected, atol=1e-6)
    off = np.max(np.abs(place - expected))
    print(f"{args.steps} steps of {args.bodies} bodies: {took:.2f} s, NumPy {plain:.2f} s, places differ by {off:.0e}")
    x, y, _ = place[:10_000].T
    half = min(args.bodies // 2, 5000)
    clusters = [
        picture.Series(f"cluster {n}", x[s], y[s], True, 1) for n, s in enumerate((slice(half), slice(half, None)), 1)
    ]
    picture.plot(args.picture, f"{args.bodies} bodies after {args.steps} steps", clusters, "x", "y", equal=True)


if __name__ == "__main__":
    main()
