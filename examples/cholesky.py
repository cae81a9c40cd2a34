"""Factor a matrix into triangles, tile by tile: four kinds of task on views of one array, and no barrier anywhere.

Run it with: python examples/cholesky.py [SIZE] [TILE] [--devices NAMES] [--picture FILE]

Each call says what it reads and updates; from the tiles they share, coexec finds the graph. Columns are factored while
others are still being updated, as far as the graph allows, which no loop with a barrier per column would do.
"""

import numpy as np
from common import arguments, figure, timer

import coexec as cx


def invert(lower, out):
    """Set `out` to the inverse of a lower triangle: of its halves first, so that nearly all of it is products."""
    half = len(lower) // 2
    if half < 16:
        out[...] = np.linalg.inv(lower)
        return
    invert(lower[:half, :half], out[:half, :half])
    invert(lower[half:, half:], out[half:, half:])
    out[half:, :half] = -out[half:, half:] @ (lower[half:, :half] @ out[:half, :half])
    out[:half, half:] = 0


@cx.kernel(a=cx.update, inverse=cx.write)
def potrf(a, inverse):  # the diagonal tile; with its inverse, the solves below it are products, as is usual on GPUs
    a[...] = np.linalg.cholesky(a)
    invert(a, inverse)


@cx.kernel(inverse=cx.read, a=cx.update)
def trsm(inverse, a):  # a tile below the diagonal
    a[...] = a @ inverse.T


@cx.kernel(left=cx.read, a=cx.update)
def syrk(left, a):  # what a column takes from a diagonal tile to its right
    a -= left @ left.T


@cx.kernel(left=cx.read, top=cx.read, a=cx.update)
def gemm(left, top, a):  # and from the other tiles
    a -= left @ top.T


def compute(a, tile=256):
    """Turn a coexec array into its Cholesky factor; returns at once."""
    cuts = [slice(lo, min(lo + tile, len(a))) for lo in range(0, len(a), tile)]
    for k, column in enumerate(cuts):
        below = cuts[k + 1 :]
        inverse = cx.empty_like(a[column, column])
        potrf.using(priority=3)(a[column, column], inverse)  # what most tasks wait for goes first
        for row in below:
            trsm.using(priority=2)(inverse, a[row, column])
        for i, row in enumerate(below):
            syrk.using(priority=1)(a[row, column], a[row, row])
            for other in below[:i]:
                gemm(a[row, column], a[other, column], a[row, other])
        if below:
            a[column, column.stop :] = 0.0  # above the diagonal
    return (a,)


def start(size):
    """Return the covariances of a rough surface at points on a line: a positive definite matrix."""
    place = np.linspace(0.0, 12.0, size)
    distance = np.abs(place[:, None] - place)
    return ((1 + np.cos(3 * distance)) * np.exp(-distance) + 0.01 * np.eye(size),)


def reference(matrix):
    """Return the Cholesky factor, computed with NumPy."""
    return (np.linalg.cholesky(matrix),)


def main():
    args = arguments(__doc__, size=2048, tile=256)
    given = start(args.size)
    with cx.Runtime(devices=args.devices), timer() as took:
        (lower,) = map(np.asarray, compute(*map(cx.array, given), args.tile))  # waits
    with timer() as plain:
        (expected,) = reference(*given)

    assert np.allclose(lower, expected, rtol=1e-9, atol=1e-9)
    tiles = -(-args.size // args.tile)
    print(
        f"{args.size} x {args.size} in {tiles * (tiles + 1) * (tiles + 2) // 6} tasks: {took.seconds:.2f} s, "
        f"NumPy {plain.seconds:.2f} s, off by {np.abs(lower - expected).max():.0e}"
    )
    if args.picture:
        with figure(args.picture) as axes:
            axes.figure.colorbar(axes.imshow(np.log10(np.abs(lower) + 1e-4)), label="log10 of the element")


if __name__ == "__main__":
    main()
