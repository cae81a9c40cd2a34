"""IMG: an image sharpened where it has edges and blurred elsewhere. Eleven kernels, two long branches and a short one.

Before: program.py.  After: dag/__init__.py.  Section 5.3 of the GrCUDA benchmarks, in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, DagProgram, KernelCall, blocks

AMOUNT = 0.5
BLOCK = 1 << 18  # pixels a NumPy call works on


def gaussian(diameter: int, sigma: float) -> Any:
    """Return a normalised filter; the two-dimensional one is its product with itself."""
    distance = np.arange(diameter) - diameter // 2
    weights = np.exp(-(distance**2) / (2 * sigma**2))
    return (weights / weights.sum()).astype(np.float32)


def _rows(image: Any) -> int:
    return max(1, BLOCK // max(1, int(image.shape[1])))


def _padded(image: Any, part: slice, border: int, scratch: Any) -> Any:
    """Return the rows of `part` with `border` zeros around the image, in `scratch`."""
    lo, hi = part.start - border, part.stop + border
    inside = slice(max(lo, 0), min(hi, len(image)))
    frame = scratch[: hi - lo]
    frame[: inside.start - lo] = 0
    frame[inside.stop - lo :] = 0
    frame[inside.start - lo : inside.stop - lo, border:-border] = image[inside]
    return frame


def _scratch(image: Any, border: int) -> tuple[Any, Any, Any]:
    """Return room for a padded block of rows, and for two unpadded ones."""
    rows, columns = min(_rows(image), len(image)) + 2 * border, image.shape[1]
    frame = np.empty((rows, columns + 2 * border), image.dtype)
    frame[:, :border] = frame[:, columns + border :] = 0
    return frame, np.empty((rows, columns), image.dtype), np.empty((rows, columns), image.dtype)


@cx.kernel(image=cx.read, weights=cx.read(cx.all), out=cx.write)
def blur(image: Any, weights: Any, out: Any) -> None:
    """Blur with a symmetric separable filter, first along the rows, then along the columns."""
    border, columns = len(weights) // 2, image.shape[1]
    frame, across, pair = _scratch(image, border)
    for part in blocks(len(image), _rows(image)):
        source = _padded(image, part, border, frame)
        wide, two, target = across[: len(source)], pair[: len(source)], out[part]
        np.multiply(source[:, border : border + columns], weights[border], out=wide)
        for i in range(border):
            np.add(source[:, i : i + columns], source[:, 2 * border - i :][:, :columns], out=two)
            two *= weights[i]
            wide += two
        rows = len(target)
        np.multiply(wide[border : border + rows], weights[border], out=target)
        for i in range(border):
            np.add(wide[i : i + rows], wide[2 * border - i :][:rows], out=two[:rows])
            two[:rows] *= weights[i]
            target += two[:rows]


@cx.kernel(image=cx.read, out=cx.write)
def sobel(image: Any, out: Any) -> None:
    """Set out to the magnitude of the gradient, with zeros around the image."""
    frame, across, down = _scratch(image, 1)
    smooth, step = np.empty_like(frame), np.empty_like(frame)
    for part in blocks(len(image), _rows(image)):
        source = _padded(image, part, 1, frame)
        rows = len(source) - 2
        s, d, gx, gy = smooth[:rows], step[:rows], across[:rows], down[:rows]
        above, here, below = source[:-2], source[1:-1], source[2:]
        np.subtract(below, above, out=d)
        np.add(below, above, out=s)
        s += here
        s += here
        np.subtract(s[:, 2:], s[:, :-2], out=gx)
        np.add(d[:, 2:], d[:, :-2], out=gy)
        gy += d[:, 1:-1]
        gy += d[:, 1:-1]
        gx *= gx
        gy *= gy
        gx += gy
        np.sqrt(gx, out=out[part])


@cx.kernel(image=cx.read(cx.all), top=cx.update)
def maximum(image: Any, top: Any) -> None:
    """Raise top[0] to the largest pixel."""
    np.maximum(top, image.max(), out=top)


@cx.kernel(image=cx.read(cx.all), low=cx.update)
def minimum(image: Any, low: Any) -> None:
    """Lower low[0] to the smallest pixel."""
    np.minimum(low, image.min(), out=low)


@cx.kernel(image=cx.update, low=cx.read(cx.all), top=cx.read(cx.all))
def extend(image: Any, low: Any, top: Any) -> None:
    """Stretch the image by five times its range, at most to one."""
    scale = np.float32(5) / (top[0] - low[0])
    for part in blocks(len(image), _rows(image)):
        rows = image[part]
        rows -= low[0]
        rows *= scale
        np.minimum(rows, np.float32(1), out=rows)


@cx.kernel(image=cx.read, blurred=cx.read, out=cx.write)
def unsharpen(image: Any, blurred: Any, out: Any, amount: float) -> None:
    """Take away a share of the blurred image, within zero and one."""
    half = np.empty((min(_rows(image), len(image)), image.shape[1]), image.dtype)
    for part in blocks(len(image), _rows(image)):
        rows = out[part]
        taken = half[: len(rows)]
        np.multiply(blurred[part], amount, out=taken)
        np.multiply(image[part], 1 + amount, out=rows)
        rows -= taken
        np.clip(rows, np.float32(0), np.float32(1), out=rows)


@cx.kernel(a=cx.read, b=cx.read, mask=cx.read, out=cx.write)
def combine(a: Any, b: Any, mask: Any, out: Any) -> None:
    """Set out to a where the mask is one, to b where it is zero."""
    for part in blocks(len(out), _rows(out)):
        rows, back = out[part], b[part]
        np.subtract(a[part], back, out=rows)
        rows *= mask[part]
        rows += back


def _row(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return one work-item per row."""
    return 1, shape[0]


blur.opencl(
    """
const long r = weights_n0 / 2, above = max(-r, -i), below = min(r, n0 - 1 - i);
for (long c = 0; c < n1;) {
    if (c >= r && c + 8 + r <= n1) {
        float8 sum = 0.0f;
        for (long a = above; a <= below; a++) {
            float8 row = 0.0f;
            for (long b = -r; b <= r; b++)
                row += weights(b + r) * vload8(0, &image(i + a, c + b));
            sum += weights(a + r) * row;
        }
        vstore8(sum, 0, &out(i, c));
        c += 8;
    } else {
        float sum = 0.0f;
        for (long a = above; a <= below; a++) {
            float row = 0.0f;
            for (long b = max(-r, -c); b <= min(r, n1 - 1 - c); b++)
                row += weights(b + r) * image(i + a, c + b);
            sum += weights(a + r) * row;
        }
        out(i, c) = sum;
        c++;
    }
}
""",
    global_size=_row,
)
sobel.opencl(
    """
const long up = max(i - 1, 0L), down = min(i + 1, n0 - 1);
const float north = i > 0, south = i < n0 - 1;  // 0 beyond the image
for (long c = 0; c < n1;) {
    if (c >= 1 && c + 9 <= n1) {
        const float8 nw = vload8(0, &image(up, c - 1)) * north, ne = vload8(0, &image(up, c + 1)) * north;
        const float8 sw = vload8(0, &image(down, c - 1)) * south, se = vload8(0, &image(down, c + 1)) * south;
        const float8 n = vload8(0, &image(up, c)) * north, s = vload8(0, &image(down, c)) * south;
        const float8 w = vload8(0, &image(i, c - 1)), e = vload8(0, &image(i, c + 1));
        const float8 gx = ne + 2 * e + se - nw - 2 * w - sw, gy = sw + 2 * s + se - nw - 2 * n - ne;
        vstore8(sqrt(gx * gx + gy * gy), 0, &out(i, c));
        c += 8;
    } else {
        const long left = max(c - 1, 0L), right = min(c + 1, n1 - 1);
        const float west = c > 0, east = c < n1 - 1;
        const float nw = image(up, left) * north * west, ne = image(up, right) * north * east;
        const float sw = image(down, left) * south * west, se = image(down, right) * south * east;
        const float n = image(up, c) * north, s = image(down, c) * south;
        const float w = image(i, left) * west, e = image(i, right) * east;
        const float gx = ne + 2 * e + se - nw - 2 * w - sw, gy = sw + 2 * s + se - nw - 2 * n - ne;
        out(i, c) = sqrt(gx * gx + gy * gy);
        c++;
    }
}
""",
    global_size=_row,
)
_EXTREME = """
float8 found = @(0);
for (long a = 0; a < image_n0; a++) {
    long b = 0;
    for (; b + 8 <= image_n1; b += 8)
        found = OP(found, vload8(0, &image(a, b)));
    for (; b < image_n1; b++)
        found.x = OP(found.x, image(a, b));
}
const float4 four = OP(found.lo, found.hi);
@(0) = OP(OP(four.x, four.y), OP(four.z, four.w));
"""
maximum.opencl(_EXTREME.replace("@", "top").replace("OP", "fmax"))
minimum.opencl(_EXTREME.replace("@", "low").replace("OP", "fmin"))
extend.opencl(
    """
const float stretched = (image(i, j) - low(0)) * (5.0f / (top(0) - low(0)));
image(i, j) = stretched < 1.0f ? stretched : 1.0f;
"""
)
unsharpen.opencl(
    """
float pixel = image(i, j) * (1 + amount) - blurred(i, j) * amount;
pixel = pixel < 0.0f ? 0.0f : pixel;
out(i, j) = pixel > 1.0f ? 1.0f : pixel;
"""
)
combine.opencl("out(i, j) = b(i, j) + (a(i, j) - b(i, j)) * mask(i, j);")


def make(n: int) -> DagProgram:
    """Return the program for an image of n x n pixels."""
    image = np.random.default_rng(8).random((n, n), np.float32)
    filters = {"small": gaussian(3, 1), "large": gaussian(5, 10), "unsharp": gaussian(3, 5)}
    planes = {name: np.empty((n, n), np.float32) for name in ("bs", "bl", "bu", "ms", "ml", "iu", "image2", "image3")}
    scalars = {"mx": np.zeros(1, np.float32), "mn": np.full(1, 1e9, np.float32)}
    arrays: Arrays = {"image": image, **filters, **planes, **scalars}
    steps = (
        KernelCall("k1", blur, ("image", "small", "bs")),
        KernelCall("k2", blur, ("image", "large", "bl")),
        KernelCall("k3", blur, ("image", "unsharp", "bu")),
        KernelCall("k4", sobel, ("bs", "ms")),
        KernelCall("k5", sobel, ("bl", "ml")),
        KernelCall("k6", maximum, ("ml", "mx")),
        KernelCall("k7", minimum, ("ml", "mn")),
        KernelCall("k8", extend, ("ml", "mn", "mx")),
        KernelCall("k9", unsharpen, ("image", "bu", "iu", AMOUNT)),
        KernelCall("k10", combine, ("iu", "bl", "ml", "image2")),
        KernelCall("k11", combine, ("image2", "bs", "ms", "image3")),
    )
    return DagProgram("IMG", arrays, ("mx", "mn"), steps, (("image3", (0, 0)),), ("image3",), expected)


def expected(arrays: Arrays) -> Arrays:
    """Return the picture in plain NumPy, in float64."""
    image = arrays["image"].astype(np.float64)
    bs, bl, bu = (_plain_blur(image, arrays[name].astype(np.float64)) for name in ("small", "large", "unsharp"))
    ms, ml = _plain_sobel(bs), _plain_sobel(bl)
    ml = np.minimum(1, 5 * (ml - ml.min()) / (ml.max() - ml.min()))
    iu = np.clip(image * (1 + AMOUNT) - bu * AMOUNT, 0, 1)
    image2 = iu * ml + bl * (1 - ml)
    return {"image3": image2 * ms + bs * (1 - ms)}


def _plain_blur(image: Any, weights: Any) -> Any:
    border = len(weights) // 2
    padded = np.pad(image, border)
    n, m = image.shape
    pairs = ((a, b) for a in range(len(weights)) for b in range(len(weights)))
    return sum(weights[a] * weights[b] * padded[a : a + n, b : b + m] for a, b in pairs)


def _plain_sobel(image: Any) -> Any:
    p = np.pad(image, 1)
    s, d = p[:-2] + 2 * p[1:-1] + p[2:], p[2:] - p[:-2]
    return np.hypot(s[:, 2:] - s[:, :-2], d[:, 2:] + 2 * d[:, 1:-1] + d[:, :-2])
