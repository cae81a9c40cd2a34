"""Sharpen a picture's edges: two blurs and an edge detector, independent branches that join at the end.

Run it with: python examples/image.py [SIDE]
"""

import sys

import numpy as np

import coexec as cx


@cx.kernel(split=0, picture=cx.read(cx.halo([2, 0], border="edge")), out=cx.write)
def blur_down(picture, out):
    out[...] = (picture[:-4] + 4 * picture[1:-3] + 6 * picture[2:-2] + 4 * picture[3:-1] + picture[4:]) / 16


@cx.kernel(split=0, picture=cx.read(cx.halo([0, 2], border="edge")), out=cx.write)
def blur_across(picture, out):
    p = picture
    out[...] = (p[:, :-4] + 4 * p[:, 1:-3] + 6 * p[:, 2:-2] + 4 * p[:, 3:-1] + p[:, 4:]) / 16


@cx.kernel(split=0, picture=cx.read(cx.halo(1, border="edge")), out=cx.write)
def edges(picture, out):
    p = picture
    down = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    across = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    out[...] = np.sqrt(down * down + across * across)


@cx.kernel(split=0, over="x", x=cx.read, largest=cx.reduce("max"))
def maximum(x, largest):
    np.maximum(largest, x.max(), out=largest)


@cx.kernel(split=0, picture=cx.read, soft=cx.read, edge=cx.read, out=cx.write)
def combine(picture, soft, edge, largest, out):
    share = edge / largest
    out[...] = soft + share * (1.5 * picture - 0.5 * soft - soft)


def with_numpy(picture):
    rows, ring = (np.pad(picture, width, mode="edge") for width in (((2, 2), (0, 0)), 1))
    soft, edge, out = np.empty_like(picture), np.empty_like(picture), np.empty_like(picture)
    blur_down.function(rows, soft)
    sides = np.pad(soft, ((0, 0), (2, 2)), mode="edge")
    soft = np.empty_like(picture)
    blur_across.function(sides, soft)
    edges.function(ring, edge)
    combine.function(picture, soft, edge, edge.max(), out)
    return out


def start(side):
    """Return a picture."""
    y, x = np.mgrid[:side, :side] / side
    return (np.sin(40 * x * y) + (x + y > 1),)


def compute(picture):
    """Return the sharper picture; returns at once."""
    half, soft, edge, out = (cx.empty_like(picture) for _ in range(4))
    blur_down(picture, half)
    blur_across(half, soft)
    edges(picture, edge)  # needs no blur, so it does not wait for one
    largest = cx.zeros(())
    maximum(edge, largest)
    combine(picture, soft, edge, largest, out)  # `largest` stays where it is: nothing waits for it here
    return (out,)


def main(side=600):
    (picture,) = start(side)
    (out,) = compute(cx.array(picture))
    assert np.array_equal(np.asarray(out), with_numpy(picture))
    print(f"a {side} x {side} picture, sharper where it has edges, the same bits as NumPy")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
