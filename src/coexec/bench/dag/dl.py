"""DL: a small convolutional network over two images, one branch each, with a shared head. Two equal branches and a join.

Before: program.py.  After: dag/__init__.py.  Section 5.6 of the GrCUDA benchmarks, in float32, channels first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from .program import Arrays, DagProgram, KernelCall, blocks

CHANNELS1, CHANNELS2, POOL = 8, 16, 5
STRIDE = 2 * POOL * 2  # the image's side is a multiple of this
GROUP = 8  # filters one OpenCL work-item computes
PIXELS = 1 << 15  # output pixels per block


@cx.kernel(x=cx.read(cx.all), k=cx.read(cx.all), out=cx.write)
def convolve(x: Any, k: Any, out: Any) -> None:
    """Convolve with 3 x 3 filters at every second pixel, zeros around, and cut below zero."""
    filters, channels = k.shape[:2]
    height, width = out.shape[1:]
    rows = min(height, max(1, PIXELS // width))
    patches = np.zeros((channels, 3, 3, rows, width), x.dtype)
    weights = k.reshape(filters, -1)
    for part in blocks(height, rows):
        count = part.stop - part.start
        room = patches if count == rows else np.zeros((channels, 3, 3, count, width), x.dtype)
        _gather(x, part, room)
        target = out[:, part].reshape(filters, -1)
        np.matmul(weights, room.reshape(channels * 9, -1), out=target)
        np.maximum(target, np.float32(0), out=target)


def _gather(x: Any, part: slice, patches: Any) -> None:
    """Fill patches[c, a, b] with what filter element (a, b) sees of channel c. Its first column and row stay zero."""
    for a in range(3):
        skip = int(part.start == 0 and a == 0)  # the row above the image
        lo = 2 * (part.start + skip) + a - 1
        source = x[:, lo : 2 * part.stop + a - 1 : 2]
        patches[:, a, 0, :skip] = patches[:, a, 1, :skip] = patches[:, a, 2, :skip] = 0
        patches[:, a, 0, skip:, 1:] = source[:, :, 1:-2:2]
        patches[:, a, 1, skip:] = source[:, :, 0::2]
        patches[:, a, 2, skip:] = source[:, :, 1::2]


@cx.kernel(x=cx.read(cx.all), out=cx.write)
def mean_pool(x: Any, out: Any) -> None:
    """Set out to the means of windows of 5 x 5 pixels."""
    channels, height, width = out.shape
    windows = x.reshape(channels, height, POOL, width * POOL)
    rows = windows[:, :, 0] + windows[:, :, 1]
    for a in range(2, POOL):
        rows += windows[:, :, a]
    np.add(rows[..., 0::POOL], rows[..., 1::POOL], out=out)
    for b in range(2, POOL):
        out += rows[..., b::POOL]
    out *= np.float32(1 / POOL**2)


@cx.kernel(x=cx.read(cx.all), y=cx.read(cx.all), z=cx.write)
def concat(x: Any, y: Any, z: Any) -> None:
    """Put x and y side by side."""
    z[0] = x
    z[1] = y


@cx.kernel(z=cx.read(cx.all), weights=cx.read(cx.all), res=cx.update)
def dot(z: Any, weights: Any, res: Any) -> None:
    """Add the inner product of z and the weights to res[0]."""
    res += np.dot(z.reshape(-1), weights.reshape(-1))


convolve.opencl(
    f"""
const long first = {GROUP} * i, width = out_n2;  // this work-item computes one row for eight filters
for (long column = 0; column < width;) {{
    if (column >= 1 && column + 8 <= width) {{
        float8 sum[{GROUP}];
        for (int f = 0; f < {GROUP}; f++)
            sum[f] = 0.0f;
        for (long c = 0; c < x_n0; c++)
            for (long a = j == 0; a < 3; a++) {{
                const long row = 2 * j + a - 1;
                const float8 low = vload8(0, &x(c, row, 2 * column)), high = vload8(0, &x(c, row, 2 * column + 8));
                const float8 even = (float8)(low.even, high.even), odd = (float8)(low.odd, high.odd);
                const float8 before = (float8)(x(c, row, 2 * column - 1), odd.s0, odd.s1, odd.s2, odd.s3, odd.s4,
                                               odd.s5, odd.s6);
                for (int f = 0; f < {GROUP}; f++)
                    sum[f] += before * k(first + f, c, a, 0) + even * k(first + f, c, a, 1) + odd * k(first + f, c, a, 2);
            }}
        for (int f = 0; f < {GROUP}; f++)
            vstore8(fmax(sum[f], (float8)0.0f), 0, &out(first + f, j, column));
        column += 8;
    }} else {{
        for (int f = 0; f < {GROUP}; f++) {{
            float sum = 0.0f;
            for (long c = 0; c < x_n0; c++)
                for (long a = j == 0; a < 3; a++)
                    for (long b = column == 0; b < 3; b++)
                        sum += x(c, 2 * j + a - 1, 2 * column + b - 1) * k(first + f, c, a, b);
            out(first + f, j, column) = fmax(sum, 0.0f);
        }}
        column++;
    }}
}}
""",
    global_size=lambda shape: (1, shape[1], shape[0] // GROUP),
)
mean_pool.opencl(
    """
float sum = 0.0f;
for (long a = 0; a < 5; a++)
    for (long b = 0; b < 5; b++)
        sum += x(i, 5 * j + a, 5 * k + b);
out(i, j, k) = sum * 0.04f;
"""
)
concat.opencl("z(i0, i1, i2, i3) = i0 ? y(i1, i2, i3) : x(i1, i2, i3);")
dot.opencl(
    """
const long count = z_n0 * z_n1 * z_n2 * z_n3;
float8 sum = 0.0f;
long at = 0;
for (; at + 8 <= count; at += 8)
    sum += vload8(0, &z(0, 0, 0, at)) * vload8(0, &weights(0, 0, 0, at));
float rest = 0.0f;
for (; at < count; at++)
    rest += z(0, 0, 0, at) * weights(0, 0, 0, at);
const float4 four = sum.lo + sum.hi;
res(0) += rest + four.x + four.y + four.z + four.w;
"""
)


def make(n: int) -> DagProgram:
    """Return the program for two images of n x n pixels; n is a multiple of 20."""
    if n % STRIDE:
        raise ValueError(f"the images of DL have a multiple of {STRIDE} pixels on each side, not {n}")
    random = np.random.default_rng(10)
    real = np.float32
    arrays: Arrays = {"res": np.zeros(1, real)}
    for name, first, second in (("x", "k1", "k2"), ("y", "k3", "k4")):
        arrays[name] = random.random((1, n, n), real)
        arrays[first] = random.uniform(-1, 1, (CHANNELS1, 1, 3, 3)).astype(real)
        arrays[second] = random.uniform(-1, 1, (CHANNELS2, CHANNELS1, 3, 3)).astype(real)
        arrays[f"{name}1"] = np.empty((CHANNELS1, n // 2, n // 2), real)
        arrays[f"{name}11"] = np.empty((CHANNELS1, n // 10, n // 10), real)
        arrays[f"{name}2"] = np.empty((CHANNELS2, n // 20, n // 20), real)
    arrays["z"] = np.empty((2, CHANNELS2, n // 20, n // 20), real)
    arrays["weights"] = np.asarray(random.uniform(-1, 1, arrays["z"].shape), real)
    steps = (
        KernelCall("conv1x", convolve, ("x", "k1", "x1")),
        KernelCall("conv1y", convolve, ("y", "k3", "y1")),
        KernelCall("poolx", mean_pool, ("x1", "x11")),
        KernelCall("pooly", mean_pool, ("y1", "y11")),
        KernelCall("conv2x", convolve, ("x11", "k2", "x2")),
        KernelCall("conv2y", convolve, ("y11", "k4", "y2")),
        KernelCall("concat", concat, ("x2", "y2", "z")),
        KernelCall("dot", dot, ("z", "weights", "res")),
    )
    return DagProgram("DL", arrays, ("x", "y", "res"), steps, (("res", (0,)),), ("x2", "y2", "res"), expected, 1e-3)


def expected(arrays: Arrays) -> Arrays:
    """Return the branches' ends and the answer in plain NumPy, in float64."""
    found = {}
    for name, first, second in (("x", "k1", "k2"), ("y", "k3", "k4")):
        wide = _plain_convolve(arrays[name].astype(np.float64), arrays[first])
        channels, height, width = wide.shape
        windows = wide.reshape(channels, height // POOL, POOL, width // POOL, POOL)
        found[f"{name}2"] = _plain_convolve(windows.mean(axis=(2, 4)), arrays[second])
    z = np.stack([found["x2"], found["y2"]])
    return {**found, "res": arrays["res"] + np.sum(z * arrays["weights"])}


def _plain_convolve(x: Any, k: Any) -> Any:
    padded = np.pad(x, ((0, 0), (1, 0), (1, 0)))
    height, width = x.shape[1] // 2, x.shape[2] // 2
    sums = np.zeros((len(k), height, width))
    for a in range(3):
        for b in range(3):
            seen = padded[:, a : a + 2 * height : 2, b : b + 2 * width : 2]
            sums += np.einsum("fc,chw->fhw", k[:, :, a, b], seen)
    return np.maximum(sums, 0)
