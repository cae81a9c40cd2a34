"""Attention within a sliding window: each row looks at its neighbours only, so that time grows with rows times window.

Before: ops/rowwise.py, ops/op.py.  After: the package's own namespace.  Knows no device.

Sums and exponentials are computed in an order and a way that each variant chooses: they agree within `NUMERICS` units in the
last place of the largest value that is averaged.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np

from ..backend.opencl.source import SourceArgument, signature
from ..errors import ArgumentError, ShapeError
from ..geometry import Box
from ..program.access import read, write
from ..program.array import Array
from ..program.kernel import Kernel, kernel
from ..program.mapper import Mapper, axis
from ..program.variant import close
from .op import TILES, CheckedCall, Op, Tile, as_dtype, opencl_source, operand, output
from .rowwise import floats

Shape = tuple[int, ...]
NUMERICS = close(512)
BLOCK = 64
"""Rows whose neighbours are looked at together: a product of matrices, of which a part is thrown away."""
NARROW = 64
"""Rows to each side up to which it is quicker to look at each row's own neighbours."""
SCORES = 1 << 17
"""Scores that are computed at once then."""
WIDEST = 256
"""Elements of a row that an OpenCL work-item keeps in private memory; for longer rows there is no such variant."""


class NeighbourRows(Mapper):
    """The chunk's heads, and its rows with their neighbours as far as there are any."""

    def __init__(self, reach: int) -> None:
        self.reach = reach

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        if chunk.empty:
            return Box((*chunk.lo[:2], 0), (*chunk.lo[:2], 0))
        first, last = max(0, chunk.lo[1] - self.reach), min(shape[1], chunk.hi[1] + self.reach)
        return Box((chunk.lo[0], first, 0), (chunk.hi[0], last, shape[2]))


def seen(chunk: Any, first: int, rows: int, reach: int, keys: int) -> tuple[slice, slice]:
    """Return some rows of a chunk, and which of the keys that it was given they see."""
    begin = max(0, chunk.lo[1] - reach)  # the first key that it was given
    last = min(first + BLOCK, rows)
    lo = max(0, chunk.lo[1] + first - reach) - begin
    return slice(first, last), slice(lo, min(keys, chunk.lo[1] + last + reach - begin))


def apart(chunk: Any, rows: slice, near: slice, reach: int) -> Any:
    """Return how many rows lie between each of some rows and each of some keys."""
    keys = np.arange(near.start, near.stop) + max(0, chunk.lo[1] - reach)
    return np.abs(keys - np.arange(chunk.lo[1] + rows.start, chunk.lo[1] + rows.stop)[:, None])


def attend(q: Any, k: Any, v: Any, out: Any, reach: int, scale: float, chunk: Any) -> None:
    """Average the values near each row, weighted by how well its query matches their keys."""
    (attend_by_rows if reach <= NARROW else attend_by_blocks)(q, k, v, out, reach, scale, chunk)


def attend_by_rows(q: Any, k: Any, v: Any, out: Any, reach: int, scale: float, chunk: Any) -> None:
    """Do so row by row, some thousand scores at a time: nothing is computed that nobody sees, in few calls of NumPy."""
    width, rows = 2 * reach + 1, out.shape[1]
    step = max(1, SCORES // max(1, len(q) * width))
    given = max(0, chunk.lo[1] - reach)  # the first key that it was given
    for first in range(0, rows, step):
        last = min(first + step, rows)
        begin, end = chunk.lo[1] + first - reach - given, chunk.lo[1] + last + reach - given
        above, below = max(0, -begin), max(0, end - k.shape[1])  # rows that are not there
        near = [around(x[:, max(0, begin) : end], above, below, width) for x in (k, v)]
        scores = np.matmul((q[:, first:last] * q.dtype.type(scale))[:, :, None], near[0])[:, :, 0]
        for row in range(min(above, last - first)):
            scores[:, row, : above - row] = -np.inf
        for row in range(max(0, last - first - below), last - first):
            scores[:, row, width - (row - (last - first - below)) - 1 :] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        out[:, first:last] = np.matmul(near[1], scores[..., None])[..., 0]


def around(x: Any, above: int, below: int, width: int) -> Any:
    """Return the rows around each row, as the last axis; rows of zeros stand for some above and below."""
    if above or below:
        padded = np.zeros((len(x), above + x.shape[1] + below, x.shape[2]), x.dtype)
        padded[:, above : above + x.shape[1]] = x
        x = padded
    return np.lib.stride_tricks.sliding_window_view(x, width, axis=1)


def attend_by_blocks(q: Any, k: Any, v: Any, out: Any, reach: int, scale: float, chunk: Any) -> None:
    """Do so for some rows at a time, with all keys that one of them sees: products of matrices, of which a part is thrown away."""
    for first in range(0, out.shape[1], BLOCK):
        rows, near = seen(chunk, first, out.shape[1], reach, k.shape[1])
        values = v[:, near]
        scores = np.matmul(q[:, rows] * q.dtype.type(scale), k[:, near].transpose(0, 2, 1))
        far = apart(chunk, rows, near, reach) > reach
        scores[:, far] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        if np.isfinite(values).all():
            out[:, rows] = np.matmul(scores, values)
        else:  # nothing times infinity is no number: rows that do not see it must not meet it
            for at, row in enumerate(range(rows.start, rows.stop)):
                out[:, row] = np.matmul(scores[:, at : at + 1, ~far[at]], values[:, ~far[at]])[:, 0]


def attend_torch(q: Any, k: Any, v: Any, out: Any, reach: int, scale: float, chunk: Any) -> None:
    """Do the same on tensors."""
    import torch

    for first in range(0, out.shape[1], BLOCK):
        rows, near = seen(chunk, first, out.shape[1], reach, k.shape[1])
        values = v[:, near]
        scores = torch.matmul(q[:, rows] * scale, k[:, near].transpose(1, 2))
        far = torch.as_tensor(apart(chunk, rows, near, reach) > reach, device=q.device)
        scores = torch.softmax(scores.masked_fill_(far, -torch.inf), -1)
        if bool(torch.isfinite(values).all()):
            out[:, rows] = torch.matmul(scores, values)
        else:
            for at, row in enumerate(range(rows.start, rows.stop)):
                out[:, row] = torch.matmul(scores[:, at : at + 1, ~far[at]], values[:, ~far[at]])[:, 0]


@lru_cache(maxsize=256)
def attention_kernel(dtype: str, reach: int, widths: tuple[int, int]) -> Kernel:
    """Return the kernel for one window and rows of so many elements; kernels of one type share body and sources."""
    made = kernel(
        split=(0, 1),
        over="out",
        name=f"window_attention_{dtype}",
        flops=lambda q, out: 2.0 * (2 * reach + 1) * (q.size + out.size),
        scratch=lambda out: (
            16.0 * max(out.shape[0] * BLOCK * (2 * reach + BLOCK), min(SCORES, out.size * (2 * reach + 1)))
        ),
        q=read(axis(2)),
        k=read(NeighbourRows(reach)),
        v=read(NeighbourRows(reach)),
        out=write,
    )(attend)
    made.op = "window_attention"
    made.variant(attend_torch, kind="torch", name="torch", numerics=NUMERICS)
    if max(widths) <= WIDEST and min(widths) > 0:
        made.opencl(source(TILES[dtype], widths), global_size=lambda n: (n[1], n[0]), numerics=NUMERICS, contract=True)
    return made


@lru_cache(maxsize=64)
def source(tile: Tile, widths: tuple[int, int]) -> str:
    """Return the OpenCL C for rows of so many elements."""
    arguments = [SourceArgument(name, tile.dtype, 3) for name in ("q", "k", "v")]
    arguments += [SourceArgument("out", tile.dtype, 3, writes=True), SourceArgument("reach", "int64")]
    arguments += [SourceArgument("scale", "float32" if tile.dtype == "float32" else "float64")]
    defined = {"T": tile.c_type, "W": tile.width, "D": widths[0], "DV": widths[1]}
    defined["PARAMETERS"] = ", ".join(signature(arguments, 3, (("k", 1),), origin=True))
    text = opencl_source("window_attention.cl")
    return "\n".join([*(f"#define {key} {value}" for key, value in defined.items()), text])


def _window_attention(
    q: Any, k: Any, v: Any, window: int, *, scale: float | None = None, out: Array | None = None
) -> CheckedCall:
    """Return softmax(q k^T * scale) v, where each row sees the `window` rows around it only, as a new array.

    `q`, `k` and `v` have axes (row, element) or (head, row, element). Row i sees rows i - window // 2 to i + window // 2.
    `scale` is one over the root of q's last axis unless given. With `out`, the result goes there.
    """
    op = "cx.window_attention"
    given = [operand(op, name, value) for name, value in (("q", q), ("k", k), ("v", v))]
    dtype = floats(op, *given)
    reach = _reach(op, window)
    shapes = [array.shape for array in given]
    if len(shapes[0]) not in (2, 3) or shapes[0] != shapes[1] or shapes[0][:-1] != shapes[2][:-1]:
        raise ShapeError(
            f"{op}: q, k and v have shapes {shapes[0]}, {shapes[1]} and {shapes[2]}; they need (row, element) or (head, "
            "row, element), q and k alike, v with as many heads and rows"
        )
    factor = 1.0 / float(np.sqrt(max(1, shapes[0][-1]))) if scale is None else float(scale)
    arrays = tuple(as_dtype(array, dtype) for array in given)
    result, computed = output(op, out, shapes[2], dtype, arrays)
    target = computed
    if len(shapes[0]) == 2:
        arrays, target = tuple(array[None] for array in arrays), computed[None]
    reach = min(reach, max(0, shapes[0][-2] - 1))
    made = attention_kernel(dtype.name, reach, (shapes[0][-1], shapes[2][-1]))
    return CheckedCall(made, (*arrays, target, reach, factor), result, computed)


def _reach(op: str, window: Any) -> int:
    try:
        width = operator.index(window)
    except TypeError:
        width = 0
    if width < 1 or isinstance(window, bool):
        raise ArgumentError(f"{op}: window={window!r}; give a whole number of rows from 1")
    return width // 2


window_attention = Op(_window_attention)

__all__ = ["attention_kernel", "window_attention"]
