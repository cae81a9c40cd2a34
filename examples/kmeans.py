"""Sort points into clusters: a divided task that writes labels and adds up into arrays, and a small one that follows it.

Run it with: python examples/kmeans.py [POINTS] [CLUSTERS] [STEPS] [--devices NAMES] [--picture FILE]
"""

from pathlib import Path

import numpy as np
from common import arguments, figure, timer

import coexec as cx

SUM = cx.reduce("sum", fresh=True)  # every part adds up its own; the parts are then added in order
ROWS = 1 << 14  # points at a time: what is computed about them stays in the cache


def norms(centre):
    return 0.5 * (centre**2).sum(axis=1)[:, None]


@cx.kernel(
    split=0, over="x", x=cx.read, centre=cx.read(cx.all), label=cx.write, sums=SUM, count=SUM,
    flops=lambda x, centre: 4.0 * x.size * centre.shape[0],
)  # fmt: skip
def assign(x, centre, label, sums, count):
    number = np.arange(len(centre), dtype=np.int32)[:, None]
    for lo in range(0, len(x), ROWS):
        points = x[lo : lo + ROWS]
        near = centre @ points.T  # less |c|^2 / 2 this is (|x|^2 - |x - c|^2) / 2: the largest is the nearest
        near -= norms(centre)
        mine = label[lo : lo + ROWS]
        np.max((near == near.max(axis=0)) * number, axis=0, out=mine)
        member = (number == mine).astype(x.dtype)
        sums += member @ points
        count += member.sum(axis=1)


@cx.kernel(sums=cx.read, count=cx.read, centre=cx.update)
def move(sums, count, centre):  # a cluster without points stays where it is
    np.divide(sums, count[:, None], out=centre, where=count[:, None] > 0)


source = Path(__file__).with_name("kmeans.cl").read_text(encoding="utf-8")  # it adds up in another order
assign.opencl(source, global_size=lambda _: (64, 1), local_size=(64, 1), numerics=cx.close(1e6))
move.opencl("if (count(i) > 0) centre(i, j) = sums(i, j) / count(i);")


def compute(x, centre, label, sums, count, steps=10):
    """Move the centres `steps` times; returns at once."""
    for _ in range(steps):
        assign(x, centre, label, sums, count)
        move(sums, count, centre)
    return label, centre


def start(points, clusters, dimensions=8):
    """Return points around as many places as there are clusters, the first ones as centres, and room for results."""
    random = np.random.default_rng(3)
    place = random.uniform(-2, 2, (clusters, dimensions))
    turns, far = 2.4 * np.arange(clusters), 3 * np.sqrt(np.arange(clusters))  # laid out like the seeds of a sunflower
    place[:, :2] = np.stack([far * np.cos(turns), far * np.sin(turns)], axis=1)
    x = place[random.integers(clusters, size=points)] + random.normal(size=(points, dimensions))
    return x, x[:clusters].copy(), np.zeros(points, np.int32), np.zeros_like(place), np.zeros(clusters)


def reference(x, centre, *_, steps=10):
    """Return labels and centres, computed with NumPy."""
    centre = centre.copy()
    for _ in range(steps):
        label = np.argmax(centre @ x.T - norms(centre), axis=0).astype(np.int32)
        count = np.bincount(label, minlength=len(centre))[:, None]
        sums = np.stack([np.bincount(label, weights, len(centre)) for weights in x.T], axis=1)
        np.divide(sums, count, out=centre, where=count > 0)
    return label, centre


def main():
    args = arguments(__doc__, points=500_000, clusters=16, steps=10)
    given = start(args.points, args.clusters)
    with cx.Runtime(devices=args.devices), timer() as took:
        label, centre = map(np.asarray, compute(*map(cx.array, given), args.steps))  # waits
    with timer() as plain:
        expected, places = reference(*given, steps=args.steps)

    assert np.allclose(centre, places, rtol=1e-6)
    assert np.mean(label != expected) < 1e-5  # a point half-way between two centres may go either way
    print(
        f"{args.points:,} points, {args.clusters} clusters, {args.steps} steps: {took.seconds:.2f} s, "
        f"NumPy {plain.seconds:.2f} s, {np.count_nonzero(label != expected)} labels differ"
    )
    if args.picture:
        with figure(args.picture) as axes:
            axes.scatter(*given[0][:6000, :2].T, c=label[:6000], cmap="tab20", s=2)
            axes.plot(*centre[:, :2].T, "k.")
            axes.set(xlabel="first coordinate", ylabel="second coordinate", aspect="equal", title="points and centres")


if __name__ == "__main__":
    main()
