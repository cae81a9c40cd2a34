"""Debug mode for bodies that touch only some boxes of the array they are given: the rest is poisoned, and must stay so.

Before: graph/instruction.py, program/view.py.  After: backend/launch.py.  Knows NumPy arrays, no thread and no kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ProgramError
from ..geometry import Box
from ..graph.instruction import Binding
from ..program.view import extract

SENTINEL = 0xCB  # what debug mode puts into every byte that a body must not rely on


ODD = -1234.56789  # what lies between the boxes of an output: arithmetic on it shows, unlike on NaN or on huge numbers


def poison_of(dtype: np.dtype[Any]) -> Any:
    """Return a value that nobody computes."""
    return np.frombuffer(bytes([SENTINEL]) * dtype.itemsize, dtype)[0]


class Hull:
    """A private copy of what one parameter sees: its boxes as they are, everything else poisoned."""

    def __init__(self, binding: Binding) -> None:
        allocation, boxes = binding.allocation, binding.boxes
        assert allocation is not None and boxes is not None
        self._binding, self._boxes = binding, boxes
        inexact = allocation.dtype.kind in "fc"
        self._rest = (ODD if binding.writes else np.nan) if inexact else poison_of(allocation.dtype)
        self._data = np.full(binding.box.shape, self._rest, allocation.dtype)
        for there, box in binding.touched():
            self._part(self._data, binding.box, box)[...] = self._part(there.data, there.box, box)

    def _part(self, data: Any, origin: Box, box: Box) -> Any:
        return extract(data, origin.lo, box, self._binding.cut)

    def seen(self) -> Any:
        """Return the array that the body gets."""
        data = self._part(self._data, self._binding.box, self._binding.box)
        if self._binding.pad is not None:
            return self._binding.pad.apply(data, np)
        if not self._binding.writes:
            data.flags.writeable = False
        return data

    def put_back(self, kernel: str) -> None:
        """Take over what the body wrote; raise if it wrote outside its boxes."""
        if not self._binding.writes:
            return
        for there, box in self._binding.touched():
            ours = self._part(self._data, self._binding.box, box)
            self._part(there.data, there.box, box)[...] = ours
            ours[...] = self._rest
        wrong = np.argwhere(self._data != np.full((), self._rest, self._data.dtype))
        if len(wrong):
            where = tuple(int(i) + low for i, low in zip(wrong[0], self._binding.box.lo, strict=True))
            raise ProgramError(
                f"kernel {kernel!r} wrote element {where} of {self._binding.name!r}, which lies between the boxes that "
                f"its range mapper names: {', '.join(map(repr, self._boxes))}; widen them, or write only there"
            )
