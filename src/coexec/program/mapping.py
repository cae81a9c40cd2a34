"""Range mappers that users write: a function of the chunk, its answer checked and made into boxes.

Before: program/mapper.py.  After: program/access.py, graph/call.py.  Knows shapes, never data.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

from ..errors import ArgumentError
from ..geometry import Box, Region, bounding
from .mapper import Mapper
from .padding import Shape


class ChunkRange(NamedTuple):
    """What a user's range mapper is given."""

    lo: Shape
    hi: Shape
    array_shape: Shape


class Function(Mapper):
    """Whatever a user's function says: chunk -> a slice or an integer per axis, or a list of such tuples."""

    several = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        boxes = self.boxes(chunk, space, shape)
        return bounding(boxes) if boxes else Box((0,) * len(shape), (0,) * len(shape))

    def boxes(self, chunk: Box, space: Shape, shape: Shape) -> tuple[Box, ...]:
        del space
        answer = self.function(ChunkRange(chunk.lo, chunk.hi, shape))
        parts = answer if isinstance(answer, list) else [answer]
        boxes = [box for part in parts if not (box := self._clamped(part, chunk, shape)).empty]
        return tuple(boxes) if len(boxes) < 2 else Region(boxes).boxes

    def _clamped(self, answer: Any, chunk: Box, shape: Shape) -> Box:
        entries = answer if isinstance(answer, tuple) else (answer,)
        if len(entries) > len(shape):
            raise self._wrong(answer, chunk, f"the array has {len(shape)} axes")
        los, his = [0] * len(shape), list(shape)
        for axis, entry in enumerate(entries):
            start, stop = self._ends(entry, answer, chunk, shape[axis])
            los[axis] = min(max(0, start), shape[axis])
            his[axis] = max(los[axis], min(shape[axis], stop))
        return Box(tuple(los), tuple(his))

    def _ends(self, entry: Any, answer: Any, chunk: Box, size: int) -> tuple[int, int]:
        if isinstance(entry, slice) and entry.step not in (None, 1):
            raise self._wrong(answer, chunk, "slices here have no step; pass a stepped view instead")
        try:
            if isinstance(entry, slice):
                return index(entry.start or 0), size if entry.stop is None else index(entry.stop)
            return index(entry), index(entry) + 1
        except TypeError:
            raise self._wrong(answer, chunk, f"{entry!r} is neither an integer nor a slice of integers") from None

    def _wrong(self, answer: Any, chunk: Box, why: str) -> ArgumentError:
        return ArgumentError(
            f"range mapper {self!r} returned {answer!r} for chunk {chunk}: {why}; return a slice or an integer per axis "
            "of the array, or a list of tuples of them"
        )

    def __repr__(self) -> str:
        return str(getattr(self.function, "__name__", self.function))


def as_mapper(value: Any) -> Mapper:
    """Return `value` as a range mapper, or raise."""
    if isinstance(value, Mapper):
        return value
    if callable(value):
        return Function(value)
    raise ArgumentError(
        f"{value!r} is not a range mapper; use cx.same, cx.all, cx.halo(n), cx.axis(d), cx.fixed(...), cx.even() or a "
        "function of the chunk"
    )
