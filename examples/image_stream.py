"""A stream of compressed pictures: decode in plain Python, shrink, filter and classify on devices, many at once.

Run it with: python examples/image_stream.py [SIDE] [ITEMS] [--timeline FILE.svg]
Plan it for a machine that you do not have: coexec plan pipeline examples/image_stream.py:pictures --platform workstation
"""

import zlib

import numpy as np
from streaming import arguments, shown

import coexec as cx

CLASSES = 10


@cx.kernel(split=0, picture=cx.read(cx.halo(1, border="edge")), out=cx.write)
def sharpened(picture, out):
    p = picture
    out[...] = 5 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]


def classify(item, weights):
    """Return the scores of a compressed picture."""
    side, packed = item
    picture = cx.array(np.frombuffer(zlib.decompress(packed), np.float32).reshape(side, side))
    small = (picture[::2, ::2] + picture[1::2, ::2] + picture[::2, 1::2] + picture[1::2, 1::2]) / 4
    sharp = cx.empty(small.shape, small.dtype)
    sharpened(small, sharp)
    return np.tanh(cx.matmul(sharp, weights))


def with_numpy(item, weights):
    side, packed = item
    picture = np.frombuffer(zlib.decompress(packed), np.float32).reshape(side, side)
    small = (picture[::2, ::2] + picture[1::2, ::2] + picture[::2, 1::2] + picture[1::2, 1::2]) / 4
    sharp = np.empty_like(small)
    sharpened.function(np.pad(small, 1, mode="edge"), sharp)
    return np.tanh(sharp @ weights)


def start(side, count):
    """Return compressed pictures and weights."""
    y, x = np.mgrid[:side, :side].astype(np.float32) / side
    items = [(side, zlib.compress(np.sin(20 * x * y + n).astype(np.float32).tobytes(), 1)) for n in range(count)]
    weights = np.random.default_rng(0).standard_normal((side // 2, CLASSES)).astype(np.float32)
    return items, {"weights": weights}


def pictures(side=1024):
    """Return the pipeline and a sample, for `coexec plan pipeline`."""
    items, weights = start(side, 1)
    return cx.Pipeline(classify, **weights), items[0]


def main(side=512, count=24, timeline=""):
    items, weights = start(side, count)
    shown(f"{side} x {side}", classify, weights, items, lambda item: with_numpy(item, **weights), timeline)


if __name__ == "__main__":
    main(**arguments(__doc__, side=512, count=24))
