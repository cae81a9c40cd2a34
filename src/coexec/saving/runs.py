"""A box of an array in a file, as runs of bytes: where they begin, and which part of the box they hold.

Before: geometry/.  After: saving/npy.py, checkpoint.py.  Knows files only as descriptors with bytes at offsets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..geometry import Box, Point

WHOLE_ROWS = 4096
"""Bytes: runs below it are read together with what lies between them, since a call costs as much as reading that much."""
AT_ONCE = 16 << 20
"""Bytes that are read together at most, for runs that are read with what lies between them."""


def runs(box: Box, shape: Point) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield where each run of `box` begins in an array of `shape` in C order, and its outer index inside the box.

    The outer index has one number per axis in front of the run; every run is equally long: see `run_axis`.
    """
    axis = run_axis(box, shape)
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    tail = sum(low * stride for low, stride in zip(box.lo[axis:], strides[axis:], strict=True))
    for outer in product(*(range(n) for n in box.shape[:axis])):
        start = sum((low + i) * stride for low, i, stride in zip(box.lo, outer, strides, strict=False))
        yield start + tail, outer


def run_axis(box: Box, shape: Point) -> int:
    """Return the first axis of a run: behind it the box is as wide as the array."""
    axis = len(shape)
    while axis and box.shape[axis:] == shape[axis:]:
        axis -= 1
    return axis


def write_box(file: int, offset: int, shape: Point, box: Box, data: Any) -> None:
    """Write a box of an array that begins at `offset` of a file; nothing else is touched."""
    if box.empty:
        return
    axis, size = run_axis(box, shape), data.dtype.itemsize
    for start, outer in runs(box, shape):
        part = np.ascontiguousarray(data[outer]) if axis else np.ascontiguousarray(data)
        write_at(file, offset + start * size, as_bytes(part))


def read_box(file: int, offset: int, shape: Point, box: Box, into: Any) -> None:
    """Read a box of an array that begins at `offset` of a file into an ndarray of any strides."""
    if box.empty:
        return
    axis, size = run_axis(box, shape), into.dtype.itemsize
    length = prod(box.shape[axis:]) * size
    if axis and length < WHOLE_ROWS and prod(shape[axis - 1 :]) * size <= AT_ONCE:
        _read_between(file, offset, shape, box, into, axis)
        return
    for start, outer in runs(box, shape):
        target = into[outer] if axis else into
        if target.flags.c_contiguous and target.ndim:
            read_at(file, offset + start * size, as_bytes(target))
        else:
            found = np.empty(box.shape[axis:], into.dtype)
            read_at(file, offset + start * size, as_bytes(found))
            into[outer] = found


def _read_between(file: int, offset: int, shape: Point, box: Box, into: Any, axis: int) -> None:
    """Read short runs together with what lies between them, some whole rows at a time."""
    size, row = into.dtype.itemsize, prod(shape[axis:])
    rows = max(1, AT_ONCE // (row * size))
    inner = Box(box.lo[axis:], box.hi[axis:]).slices((0,) * (len(shape) - axis))
    low, high = box.lo[axis - 1], box.hi[axis - 1]
    strides = [prod(shape[i + 1 :]) for i in range(axis - 1)]
    for outer in product(*(range(n) for n in box.shape[: axis - 1])):
        start = sum((b + i) * stride for b, i, stride in zip(box.lo, outer, strides, strict=False))
        for first in range(low, high, rows):
            last = min(first + rows, high)
            found = np.empty((last - first, *shape[axis:]), into.dtype)
            read_at(file, offset + (start + first * row) * size, as_bytes(found))
            into[(*outer, slice(first - low, last - low))] = found[(slice(None), *inner)]


def as_bytes(part: Any) -> memoryview:
    """Return the bytes of a contiguous array, without a copy."""
    return memoryview(part.reshape(-1).view(np.uint8))


def write_at(file: int, offset: int, data: memoryview) -> None:
    """Write all bytes at an offset; the system may take them in several pieces."""
    while len(data):
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def read_at(file: int, offset: int, into: memoryview) -> None:
    """Fill `into` from an offset. Raise EOFError if the file ends before."""
    while len(into):
        read = os.preadv(file, [into], offset)
        if not read:
            raise EOFError(f"the file ends {len(into):,} bytes too early, at {offset:,}")
        into, offset = into[read:], offset + read
