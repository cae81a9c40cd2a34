"""Range mappers that users write: a function of the chunk, its answer checked and made into boxes.

Before: program/mapper.py.  After: program/access.py, graph/call.py.  Knows shapes, never data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError
from ..geometry import Box, Region, bounding
from .mapper import Mapper
from .padding import Shape

if TYPE_CHECKING:
    from random import Random

SAMPLES = 16  # random parts of parts at which a function is looked at in debug mode


class ChunkRange(NamedTuple):
    """What a user's range mapper is given."""

    lo: Shape
    hi: Shape
    array_shape: Shape


class Function(Mapper):
    """Whatever a user's function says: chunk -> a slice or an integer per axis, or a list of such tuples."""

    several = True
    fixed = False

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


def not_monotonic(mapper: Mapper, box: Box, space: Shape, shape: Shape) -> str:
    """Return what is wrong if some part of a chunk in `box` maps to more than the chunk itself, else nothing."""
    for outer, inner in _nested(box):
        around, within = (Region(mapper.boxes(chunk, space, shape)) for chunk in (outer, inner))
        if not all(around.contains(part) for part in within.boxes):
            beyond = (within - around).boxes[0]
            return (
                f"chunk {outer} maps to {around}, but its part {inner} to {within}, of which {beyond} lies outside; a "
                "part of a chunk may touch only what the chunk touches"
            )
    return ""


def _nested(box: Box) -> Iterator[tuple[Box, Box]]:
    """Yield chunks and parts of them: both halves along each axis, the first and last point, and random ones."""
    if box.empty:
        return
    for axis, (lo, hi) in enumerate(zip(box.lo, box.hi, strict=True)):
        if hi - lo > 1:
            middle = (lo + hi) // 2
            yield box, Box(box.lo, (*box.hi[:axis], middle, *box.hi[axis + 1 :]))
            yield box, Box((*box.lo[:axis], middle, *box.lo[axis + 1 :]), box.hi)
    yield box, Box(box.lo, tuple(lo + 1 for lo in box.lo))
    yield box, Box(tuple(hi - 1 for hi in box.hi), box.hi)
    from random import Random  # loads a lot, for debug mode alone

    random = Random(0)  # the same answer for the same program
    for _ in range(SAMPLES):
        outer = _some_part(box, random)
        yield box, outer
        yield outer, _some_part(outer, random)


def _some_part(box: Box, random: Random) -> Box:
    ends = [sorted(random.sample(range(lo, hi + 1), 2)) for lo, hi in zip(box.lo, box.hi, strict=True)]
    return Box(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends))


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
