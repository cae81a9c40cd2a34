"""Arrays between NumPy and torch: without a copy wherever a tensor can be the same memory.

Before: program/view.py.  After: storage.py, body.py, check.py.  Knows no device and no instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...geometry import Box
from ...program.view import NEW, Cut


class _Writable:
    """The memory of a read-only array, as a writable one: torch has no read-only tensors, and warns about it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array  # kept alive by whoever holds the alias
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def torch_dtype(dtype: Any) -> Any:
    """Return torch's name for a NumPy dtype."""
    return getattr(torch, np.dtype(dtype).name)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's name for a torch dtype."""
    return np.dtype(str(dtype).removeprefix("torch."))


def shares(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether a tensor can be this very memory: torch has no negative strides, and counts in elements."""
    return all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)


def to_tensor(array: np.ndarray[Any, Any]) -> Any:
    """Return a tensor over the array's memory, or over a copy where torch cannot have such strides.

    A tensor over a read-only array could be written to; nobody but first-use and debug checks would notice.
    """
    if not shares(array):
        array = array.copy(order="C")
    elif not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return torch.from_numpy(array)


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a tensor of any device as an array; a copy unless it is in the host's memory."""
    array: np.ndarray[Any, Any] = tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    return array


def cut_out(data: Any, origin: tuple[int, ...], box: Box, cut: Cut | None) -> tuple[Any, tuple[int, ...]]:
    """Return a view's elements as a view of the tensor `data`, and the axes on which they run backwards there."""
    if cut is None:
        return data[(*box.slices(origin), ...)], ()
    slices: list[Any] = []
    for at, lo, hi, step in zip(origin, box.lo, box.hi, cut.steps, strict=True):
        first = lo + (hi - 1 - lo) % -step if step < 0 and hi > lo else lo  # a backward view starts at hi - 1
        slices.append(slice(first - at, hi - at, abs(step)))
    kept = [axis for axis in cut.axes if axis != NEW]
    data = data[(*slices, ...)]
    dropped = [slice(None) if axis in kept else 0 for axis in range(box.ndim)]
    data = data[(*dropped, ...)]
    order = sorted(kept)
    data = data.permute([order.index(axis) for axis in kept])
    data = data[(*(None if axis == NEW else slice(None) for axis in cut.axes), ...)]
    return data, tuple(n for n, axis in enumerate(cut.axes) if axis != NEW and cut.steps[axis] < 0)
