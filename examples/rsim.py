"""A flash of light in a room: each patch of wall shines on all others, and what arrives left them some time ago.

Step t reads all earlier rows of the light's history and writes row t: accesses that grow.

Run it with: python examples/rsim.py [PATCHES_PER_EDGE] [STEPS] [--devices DEVICES] [--picture FILE]
"""

import argparse
import time

import numpy as np
import picture

import coexec as cx

PACE = 8  # time steps that light needs for the length of the room
REFLECT = 0.75  # share of the light that a wall gives back
BLOCK = 1 << 17  # pairs of patches computed at a time: what was gathered is still in the cache when it is summed up
SCREEN = np.array([[0.15, 0.45, 0.3], [0.5, 0.9, 0.35]])  # a board that hangs in the room, as two corners of a box


@cx.kernel(split=0, form=cx.read, when=cx.read, past=cx.read(cx.all), out=cx.write, flops=lambda form: 2 * form.size)
def bounce(form, when, past, out):
    """Add up what arrives at my patches. `when` says which element of the past, counted from its end, reaches whom now."""
    history = past.reshape(-1)
    rows = max(1, BLOCK // form.shape[1])
    for lo in range(0, len(out), rows):
        part = slice(lo, lo + rows)
        np.vecdot(form[part], history[when[part]], out=out[part])


bounce.opencl(
    """
    __global const double *now = &past(0, 0) + past_n0 * past_n1;
    double4 sum = 0;
    long j = 0;
    for (; j + 4 <= form_n1; j += 4)
        sum += vload4(0, &form(i, j))
            * (double4)(now[when(i, j)], now[when(i, j + 1)], now[when(i, j + 2)], now[when(i, j + 3)]);
    double light = sum.s0 + sum.s1 + sum.s2 + sum.s3;
    for (; j < form_n1; j++)
        light += form(i, j) * now[when(i, j)];
    out(i) = light;
    """,
    numerics=cx.close(1e4),  # sums in another order
)


def walls(edge):
    """Return the middles of all patches of the room, a cube of side 1, and which way each one faces."""
    a, b = (np.mgrid[:edge, :edge].reshape(2, -1) + 0.5) / edge
    places, ways = [], []
    for axis in range(3):
        for end in (0.0, 1.0):
            places.append(np.insert(np.stack([a, b], axis=1), axis, end, axis=1))
            ways.append(np.tile(np.eye(3)[axis] * (1 - 2 * end), (edge**2, 1)))
    return np.concatenate(places), np.concatenate(ways)


def start(edge, steps):
    """Return form factors, delays, and the light's history with its beginning: darkness, then a flash of the lamp."""
    place, way = walls(edge)
    count = len(place)
    form, when = np.empty((count, count)), np.empty((count, count), np.intp)
    for i in range(count):
        ray = place - place[i]
        square = (ray**2).sum(axis=1)
        facing = np.maximum(ray @ way[i], 0) * np.maximum((-ray * way).sum(axis=1), 0)  # the cosines, times the square
        form[i] = REFLECT * _seen(place[i], ray) * facing / np.maximum(square, 1e-9) / (np.pi * square * edge**2 + 1)
        when[i] = np.arange(count) - count * (1 + (PACE * np.sqrt(square)).astype(int))
    dark = int(PACE * 3**0.5) + 1
    history = np.zeros((dark + 1 + steps, count))
    history[dark, (abs(place - [0.5, 0.5, 1.0]) < 0.15).all(axis=1)] = 1.0  # the lamp, in the middle of the ceiling
    return form, when, history


def _seen(place, ray):
    """Tell for each ray from a place whether it misses the screen: where it is inside all three pairs of planes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = (SCREEN[:, None] - place) / ray
    enters, leaves = np.nanmax(hits.min(axis=0), axis=1), np.nanmin(hits.max(axis=0), axis=1)
    return (enters > leaves) | (leaves < 0) | (enters > 1)


def compute(form, when, history, steps):
    for t in range(len(history) - steps, len(history)):
        bounce(form, when, history[:t], history[t])  # views: this waits for earlier rows only
    return (history,)


def run(form, when, history, steps):
    (history,) = compute(*map(cx.array, (form, when, history)), steps)
    return np.asarray(history)  # waits


def reference(form, when, history, steps):
    for t in range(len(history) - steps, len(history)):
        history[t] = (form * history[:t].ravel()[when]).sum(axis=1)
    return (history,)


def unfolded(light, edge):
    """Return the six walls side by side: the ceiling above, the four sides, the floor below."""
    back, front, left, right, floor, ceiling = light.reshape(6, edge, edge)
    picture = np.full((3 * edge, 4 * edge), np.nan)
    for row, column, wall in (
        (0, 1, ceiling[::-1].T), (1, 0, back.T[::-1, ::-1]), (1, 1, left.T[::-1]), (1, 2, front.T[::-1]),
        (1, 3, right.T[::-1, ::-1]), (2, 1, floor.T),
    ):  # fmt: skip
        picture[row * edge : (row + 1) * edge, column * edge : (column + 1) * edge] = wall
    return picture


def main():
    parser = argparse.ArgumentParser(description="Light in a room, with coexec and with NumPy.")
    parser.add_argument("edge", nargs="?", type=int, default=16, help="patches along each edge of the room")
    parser.add_argument("steps", nargs="?", type=int, default=60)
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="rsim.png", metavar="FILE")
    args = parser.parse_args()

    given = start(args.edge, args.steps)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        history = run(*given, args.steps)
        took = time.perf_counter() - begin
    begin = time.perf_counter()
    (expected,) = reference(*given, args.steps)
    plain = time.perf_counter() - begin

    assert np.allclose(history, expected, rtol=1e-9)
    off = np.max(np.abs(history - expected))
    print(
        f"{args.steps} steps of {6 * args.edge**2} patches: {took:.2f} s, NumPy {plain:.2f} s, light differs by {off:.0e}"
    )
    light = history[-args.steps :].sum(axis=0)
    picture.heat_map(args.picture, unfolded(light, args.edge), picture.INFERNO, low=0.0, scale=max(1, 160 // args.edge))


if __name__ == "__main__":
    main()
