"""The ready-made operations in torch's own words: library calls on tensors.

Before: ops/convolve.py.  After: ops/matmul.py, ops/conv2d.py.  torch is imported when the first of them runs, on its device.
"""

from __future__ import annotations

from typing import Any

from .convolve import WithBias


def product(a: Any, b: Any, out: Any) -> None:
    """Multiply two matrices, or stacks of them."""
    import torch

    torch.matmul(a, b, out=out)


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
) -> None:
    """Convolve the images of a chunk."""
    from torch.nn.functional import conv2d, pad

    above = max(0, pad_top - chunk.lo[2] * sh)
    rows = (out.shape[2] - 1) * sh + (w.shape[2] - 1) * dh + 1
    columns = (out.shape[3] - 1) * sw + (w.shape[3] - 1) * dw + 1
    padded = pad(x, (pad_left, columns - pad_left - x.shape[3], above, rows - above - x.shape[2]))
    channels, first = w.shape[1], chunk.lo[1]
    if first % per_group == 0 and len(w) % per_group == 0:  # whole groups
        out[...] = conv2d(padded, w, stride=(sh, sw), dilation=(dh, dw), groups=len(w) // per_group)
        return
    for group in range(first // per_group, (first + len(w) - 1) // per_group + 1):
        begin = max(0, group * per_group - first)
        part = slice(begin, min(len(w), (group + 1) * per_group - first))
        inputs = (group - first // per_group) * channels
        seen = padded[:, inputs : inputs + channels]
        out[:, part] = conv2d(seen, w[part], stride=(sh, sw), dilation=(dh, dw))


convolve_and_add = WithBias(convolve)
