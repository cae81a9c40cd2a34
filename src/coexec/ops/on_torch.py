"""The ready-made operations in torch's own words: library calls on tensors.

Before: ops/convolve.py.  After: ops/matmul.py, ops/conv2d.py.  torch is imported when the first of them runs, on its device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..program.body import signature
from .convolve import SCALARS, SumFinish


def product(a: Any, b: Any, out: Any) -> None:
    """Multiply two matrices, or stacks of them."""
    import torch

    torch.matmul(a, b, out=out)


class TorchConvolution:
    """A body: a convolution by torch, and what is done to its sums."""

    def __init__(self, after: SumFinish) -> None:
        self.__signature__ = signature(["x", "w", *after.operands, "out", *SCALARS, "chunk"])
        self.__name__ = "convolve"
        self._convolution: Callable[..., None] = convolve
        self._after = after

    def __call__(self, x: Any, w: Any, *rest: Any) -> None:
        """Convolve the images of a chunk and finish the sums."""
        count = len(self._after.operands)
        self._convolution(x, w, *rest[count:], self._after, rest[:count])


@lru_cache(maxsize=64)
def convolution_body(after: SumFinish) -> Any:
    """Return the body of a convolution."""
    return TorchConvolution(after)


def convolve(
    x: Any,
    w: Any,
    out: Any,
    sh: int,
    sw: int,
    pad_top: int,
    pad_left: int,
    dh: int,
    dw: int,
    per_group: int,
    chunk: Any,
    after: SumFinish,
    operands: tuple[Any, ...],
) -> None:
    """Convolve the images of a chunk, then do what is done to sums, in place."""
    from torch.nn.functional import conv2d, pad

    bias = operands[0] if after.biased else None
    above = max(0, pad_top - chunk.lo[2] * sh)
    reach = (w.shape[2] - 1) * dh + 1, (w.shape[3] - 1) * dw + 1
    below = (out.shape[2] - 1) * sh + reach[0] - above - x.shape[2]
    right = (out.shape[3] - 1) * sw + reach[1] - pad_left - x.shape[3]
    around = (above, pad_left)
    sizes = (x.shape[2] + 2 * above - reach[0]) // sh + 1, (x.shape[3] + 2 * pad_left - reach[1]) // sw + 1
    if sizes != tuple(out.shape[2:]):  # other zeros below or to the right than torch would add
        x, around = pad(x, (pad_left, right, above, below)), (0, 0)
    channels, first = w.shape[1], chunk.lo[1]
    step, apart = (sh, sw), (dh, dw)
    if first % per_group == 0 and len(w) % per_group == 0:  # whole groups
        found = conv2d(x, w, bias, stride=step, padding=around, dilation=apart, groups=len(w) // per_group)
    else:
        found = out
        for group in range(first // per_group, (first + len(w) - 1) // per_group + 1):
            begin = max(0, group * per_group - first)
            part = slice(begin, min(len(w), (group + 1) * per_group - first))
            inputs = (group - first // per_group) * channels
            seen, some = x[:, inputs : inputs + channels], None if bias is None else bias[part]
            out[:, part] = conv2d(seen, w[part], some, stride=step, padding=around, dilation=apart)
    if after.added:
        found += operands[-1]
    if after.low is not None or after.high is not None:
        found.clamp_(after.low, after.high)
    if found is not out:
        out[...] = found
