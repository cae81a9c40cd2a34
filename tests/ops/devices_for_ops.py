"""What the tests of ready-made operations share: device mixes, runtimes, and arrays that lie in memory in odd ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import coexec as cx
from tests.devices import MIXED

MIXES = ["cpu:0", "opencl:0", "cpu:0,opencl:0"]
"""NumPy alone, OpenCL alone, and both, each with a part."""
MEMORIES = ["shared", "own"]
LAYOUTS = ["dense", "transposed", "stepped", "reversed", "inside", "borrowed"]


@contextmanager
def mixed_runtime(memory: str) -> Iterator[cx.Runtime]:
    """Run a core and an OpenCL device, on the host's memory or with one of its own."""
    with cx.Runtime(MIXED, memory={"opencl:0": memory}) as runtime:
        yield runtime


def laid_out(data: np.ndarray, layout: str) -> Any:
    """Return a coexec array, or a view of one, with the elements of `data`."""
    if layout == "transposed":
        order = (*range(data.ndim - 2), data.ndim - 1, data.ndim - 2) if data.ndim > 1 else (0,)
        return cx.array(np.ascontiguousarray(data.transpose(order))).transpose(order)
    if layout == "stepped":
        wide = np.full((*data.shape[:-1], 2 * data.shape[-1]), 77, data.dtype)
        wide[..., ::2] = data
        return cx.array(wide)[..., ::2]
    if layout == "reversed":
        return cx.array(np.ascontiguousarray(data[..., ::-1]))[..., ::-1]
    if layout == "inside":
        around = np.full(tuple(n + 3 for n in data.shape), 77, data.dtype)
        part = tuple(slice(1, 1 + n) for n in data.shape)
        around[part] = data
        return cx.array(around)[part]
    return cx.asarray(data) if layout == "borrowed" else cx.array(data)
