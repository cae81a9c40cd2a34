"""Sort points into clusters: a divided task that writes labels and adds up into arrays, and a small one that follows it.

Run it with: python examples/kmeans.py [POINTS] [CLUSTERS] [STEPS] [--devices NAMES] [--picture FILE]
"""

import argparse
import time

import numpy as np
import picture

import coexec as cx

ROWS = 1 << 14  # points at a time: what is computed about them stays near, and every NumPy call takes a while


def norms(centre):
    return 0.5 * np.einsum("kd,kd->k", centre, centre)[:, None]


@cx.kernel(
    split=0,
    over="x",
    x=cx.read,
    centre=cx.read(cx.all),
    label=cx.write,
    sums=cx.reduce("sum", fresh=True),  # every part adds up its own; the parts are then added in order
    count=cx.reduce("sum", fresh=True),
    flops=lambda x, centre: 4.0 * x.size * centre.shape[0],
)
def assign(x, centre, label, sums, count):
    length, number = norms(centre), np.arange(len(centre), dtype=np.int32)[:, None]
    for lo in range(0, len(x), ROWS):
        points = x[lo : lo + ROWS]
        near = centre @ points.T  # |x - c|^2 / 2 less |x|^2 / 2, with the other sign: the largest is the nearest
        near -= length
        mine = label[lo : lo + ROWS]
        np.max((near == near.max(axis=0)) * number, axis=0, out=mine)
        member = (number == mine).astype(x.dtype)
        sums += member @ points
        count += member.sum(axis=1)


@cx.kernel(sums=cx.read, count=cx.read, centre=cx.update)
def move(sums, count, centre):  # a cluster without points stays where it is
    np.divide(sums, count[:, None], out=centre, where=count[:, None] > 0)


# One work-group does a block of points, tile by tile: its items first find labels, then each adds up one coordinate.
assign.opencl(
    """
#define TILE 256
__kernel void assign(
    __global const double *x_data, const long x_start, const long x_stride0, const long x_stride1,
    __global const double *centre_data, const long centre_start, const long centre_stride0, const long centre_stride1,
    __global int *label_data, const long label_start, const long label_stride0,
    __global double *sums_data, const long sums_start, const long sums_stride0, const long sums_stride1,
    __global double *count_data, const long count_start, const long count_stride0,
    const long n0, const long n1, const long centre_n0)
{
    __local int found[TILE];
    const int item = get_local_id(0), items = get_local_size(0);
    for (long lo = 0; lo < n0; lo += TILE) {
        const int rows = min((long)TILE, n0 - lo);
        for (int row = item; row < rows; row += items) {
            double best = INFINITY;
            int nearest = 0;
            for (int c = 0; c < centre_n0; c++) {
                double distance = 0.0;
                for (int d = 0; d < n1; d++) {
                    const double difference = x(lo + row, d) - centre(c, d);
                    distance += difference * difference;
                }
                if (distance <= best) { best = distance; nearest = c; }
            }
            found[row] = nearest;
            label(lo + row) = nearest;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = item; d <= n1; d += items)
            for (int row = 0; row < rows; row++)
                if (d < n1) sums(found[row], d) += x(lo + row, d); else count(found[row]) += 1.0;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
""",
    global_size=lambda _: (64, 1),
    local_size=(64, 1),
    numerics=cx.close(1e6),  # sums in another order
)
move.opencl(
    """
if (count(i) > 0) centre(i, j) = sums(i, j) / count(i);
"""
)


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


def run(*arrays, steps=10):
    """Return labels and centres, computed with coexec."""
    return tuple(map(np.asarray, compute(*map(cx.array, arrays), steps)))  # waits


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("points", nargs="?", type=int, default=500_000)
    parser.add_argument("clusters", nargs="?", type=int, default=16)
    parser.add_argument("steps", nargs="?", type=int, default=10)
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="kmeans.svg", metavar="FILE")
    args = parser.parse_args()

    given = start(args.points, args.clusters)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        label, centre = run(*given, steps=args.steps)
        took = time.perf_counter() - begin
    begin = time.perf_counter()
    expected, places = reference(*given, steps=args.steps)
    plain = time.perf_counter() - begin

    assert np.allclose(centre, places, rtol=1e-6)
    assert np.mean(label != expected) < 1e-5  # a point half-way between two centres may go either way
    print(
        f"{args.points:,} points, {args.clusters} clusters, {args.steps} steps: {took:.2f} s, NumPy {plain:.2f} s, "
        f"{np.count_nonzero(label != expected)} labels differ"
    )
    shown = given[0][:6000]
    groups = [shown[label[:6000] == number] for number in range(args.clusters)]
    series = [picture.Series("", group[:, 0], group[:, 1], points=True) for group in groups]
    series.append(picture.Series("centres", centre[:, 0], centre[:, 1], points=True, size=5, colour="#000000"))
    picture.plot(args.picture, "k-means", series, "first coordinate", "second coordinate", equal=True)


if __name__ == "__main__":
    main()
