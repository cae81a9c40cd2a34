"""Range mappers: which box of an array a chunk of the index space touches.

Before: geometry/.  After: program/access.py, lower/.  Knows shapes, never data; `Pad` alone touches values, at launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError, ShapeError
from ..geometry import Box, bounding, covers, overlap, whole

Shape = tuple[int, ...]
BORDERS = ("clip", "inside", "wrap", "edge", "reflect")


class Pad(NamedTuple):
    """How a body's box is completed beyond the array's border. All boxes in the view's coordinates."""

    wanted: Box  # may reach outside the array
    hull: Box  # what is read
    shape: Shape  # of the array
    border: str | float

    def apply(self, data: Any, xp: Any) -> Any:
        """Return a new array of `wanted`'s shape from `data`, which holds `hull`."""
        if not isinstance(self.border, str):
            padded = xp.full(self.wanted.shape, self.border, dtype=data.dtype)
            inner = overlap(self.wanted, self.hull)
            if inner is not None:
                padded[inner.slices(self.wanted.lo)] = data[inner.slices(self.hull.lo)]
            return padded
        for axis in range(self.wanted.ndim):
            positions = _positions(self.wanted.lo[axis], self.wanted.hi[axis], self.shape[axis], self.border)
            data = xp.take(data, xp.asarray([p - self.hull.lo[axis] for p in positions]), axis=axis)
        return data


def _positions(lo: int, hi: int, size: int, border: str) -> list[int]:
    """Return, for each position in [lo, hi), the position inside [0, size) that stands for it."""
    if border == "wrap":
        return [p % size for p in range(lo, hi)]
    if border == "edge":
        return [min(max(p, 0), size - 1) for p in range(lo, hi)]
    period = max(1, 2 * (size - 1))  # reflect, without repeating the edge
    folded = [p % period for p in range(lo, hi)]
    return [p if p < size else period - p for p in folded]


class Mapper:
    """Maps a chunk to a box of one array. Subclasses are values: equal when they map alike."""

    pads = False  # a body may see more than there is

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        """Raise unless an array of `shape` fits an index space of shape `space`."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        """Return the hull of what the chunk touches, inside the array."""
        raise ArgumentError(f"{type(self).__name__} does not map boxes")  # pragma: no cover - subclasses do

    def pad(self, chunk: Box, shape: Shape) -> Pad | None:
        """Return how to complete the box beyond the border, or None."""
        del chunk, shape
        return None

    def visited(self, space: Box, shape: Shape) -> Box:
        """Return the part of the index space that is visited at all."""
        del shape
        return space

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted((k, str(v)) for k, v in self.__dict__.items()))))

    def __repr__(self) -> str:
        return type(self).__name__.lower()


def _leading(chunk: Box, shape: Shape) -> Box:
    """Return the chunk on the array's leading axes and everything on its further axes."""
    n = min(chunk.ndim, len(shape))
    return Box(chunk.lo[:n] + (0,) * (len(shape) - n), chunk.hi[:n] + shape[n:])


def _match_leading(name: str, shape: Shape, space: Shape) -> None:
    n = min(len(shape), len(space))
    if shape[:n] != space[:n]:
        raise ShapeError(
            f"array {name!r} has shape {shape}, the index space {space}; 'same' needs equal leading axes. "
            "Declare another range mapper (cx.all, cx.axis, ...) or name the index space with over="
        )


class Same(Mapper):
    """The chunk itself, on the axes that array and index space share."""

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        _match_leading(name, shape, space)

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        return chunk if chunk.ndim == len(shape) else _leading(chunk, shape)


class All(Mapper):
    """The whole array, whatever the chunk."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del chunk, space
        return whole(shape)


class Axis(Mapper):
    """The chunk, but everything along the named axes of the array."""

    def __init__(self, *axes: int) -> None:
        if not axes or any(axis < 0 for axis in axes):
            raise ArgumentError(f"cx.axis takes axis numbers from 0, not {axes}")
        self.axes = axes

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        if max(self.axes) >= len(shape):
            raise ShapeError(f"array {name!r} has {len(shape)} axes; cx.axis{self.axes} names one it does not have")
        for axis in range(min(len(shape), len(space))):
            if axis not in self.axes and shape[axis] != space[axis]:
                raise ShapeError(f"array {name!r} has shape {shape}, the index space {space}: axis {axis} differs")

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        box = _leading(chunk, shape)
        lo = tuple(0 if axis in self.axes else v for axis, v in enumerate(box.lo))
        return Box(lo, tuple(shape[axis] if axis in self.axes else v for axis, v in enumerate(box.hi)))


class Fixed(Mapper):
    """One constant box, given as slices."""

    def __init__(self, *slices: slice | int) -> None:
        self.slices = slices

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        del space
        if len(self.slices) > len(shape):
            raise ShapeError(f"array {name!r} has {len(shape)} axes; cx.fixed names {len(self.slices)}")
        if any(isinstance(s, slice) and s.step not in (None, 1) for s in self.slices):
            raise ShapeError("cx.fixed takes slices without a step; pass a stepped view instead")

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del chunk, space
        los, his = [0] * len(shape), list(shape)
        for axis, entry in enumerate(self.slices):
            cut = slice(entry, entry + 1) if isinstance(entry, int) else entry
            los[axis], stop, _ = cut.indices(shape[axis])
            his[axis] = max(los[axis], stop)
        return Box(tuple(los), tuple(his))


class Halo(Mapper):
    """The chunk grown by a number of elements on each side."""

    def __init__(self, widths: int | Sequence[int | tuple[int, int]], border: str | float = "clip") -> None:
        if isinstance(border, str) and border not in BORDERS:
            raise ArgumentError(f"border={border!r} is not one of {', '.join(BORDERS)} or a number")
        entries = (widths,) if isinstance(widths, int) else tuple(widths)
        self.per_axis = not isinstance(widths, int)
        self.widths = tuple((w, w) if isinstance(w, int) else (int(w[0]), int(w[1])) for w in entries)
        if any(w < 0 for pair in self.widths for w in pair):
            raise ArgumentError(f"cx.halo widths must not be negative: {widths!r}")
        self.border = border
        self.pads = border not in ("clip", "inside")

    def _width(self, axis: int) -> tuple[int, int]:
        if not self.per_axis:
            return self.widths[0]
        return self.widths[axis] if axis < len(self.widths) else (0, 0)

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        _match_leading(name, shape, space)
        if self.per_axis and len(self.widths) > len(shape):
            raise ShapeError(f"array {name!r} has {len(shape)} axes; cx.halo names {len(self.widths)}")
        if self.border in ("wrap", "edge", "reflect") and 0 in shape:
            raise ShapeError(f"array {name!r} of shape {shape} is empty; border={self.border!r} has nothing to repeat")

    def _wanted(self, chunk: Box, shape: Shape) -> Box:
        box = _leading(chunk, shape)
        n = min(chunk.ndim, len(shape))
        lo = tuple(v - self._width(axis)[0] if axis < n else v for axis, v in enumerate(box.lo))
        return Box(lo, tuple(v + self._width(axis)[1] if axis < n else v for axis, v in enumerate(box.hi)))

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        wanted = self._wanted(chunk, shape)
        if chunk.empty:
            return Box(wanted.lo, wanted.lo)
        if self.border in ("wrap", "edge", "reflect") and not covers(whole(shape), wanted):
            border = str(self.border)
            spans = [_positions(lo, hi, size, border) for lo, hi, size in zip(wanted.lo, wanted.hi, shape, strict=True)]
            return Box(tuple(min(s) for s in spans), tuple(max(s) + 1 for s in spans))
        return overlap(wanted, whole(shape)) or Box(wanted.lo, wanted.lo)

    def pad(self, chunk: Box, shape: Shape) -> Pad | None:
        wanted = self._wanted(chunk, shape)
        if self.border in ("clip", "inside") or chunk.empty or covers(whole(shape), wanted):
            return None
        return Pad(wanted, self.box(chunk, (), shape), shape, self.border)

    def visited(self, space: Box, shape: Shape) -> Box:
        if self.border != "inside":
            return space
        n = min(space.ndim, len(shape))
        lo = tuple(v + self._width(a)[0] if a < n else v for a, v in enumerate(space.lo))
        hi = tuple(v - self._width(a)[1] if a < n else v for a, v in enumerate(space.hi))
        return Box(lo, tuple(max(a, b) for a, b in zip(lo, hi, strict=True)))

    def __repr__(self) -> str:
        return f"halo({self.widths}, border={self.border!r})"


class Function(Mapper):
    """Whatever a user's function says: chunk -> slices, or a list of boxes as tuples of slices."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        answer = self.function(ChunkRange(chunk.lo, chunk.hi, shape))
        parts = answer if isinstance(answer, list) else [answer]
        boxes = [self._clamped(part, shape) for part in parts]
        boxes = [box for box in boxes if not box.empty]
        return bounding(boxes) if boxes else Box((0,) * len(shape), (0,) * len(shape))

    def _clamped(self, answer: Any, shape: Shape) -> Box:
        entries = answer if isinstance(answer, tuple) else (answer,)
        if len(entries) > len(shape) or any(not isinstance(e, slice | int) for e in entries):
            raise ArgumentError(
                f"range mapper {getattr(self.function, '__name__', self.function)!r} returned {answer!r}; "
                f"return a slice (or integer) per axis of the array, at most {len(shape)}"
            )
        los, his = [0] * len(shape), list(shape)
        for axis, entry in enumerate(entries):
            start, stop = (entry, entry + 1) if isinstance(entry, int) else (entry.start or 0, entry.stop)
            los[axis] = min(max(0, start), shape[axis])
            his[axis] = max(los[axis], min(shape[axis], shape[axis] if stop is None else stop))
        return Box(tuple(los), tuple(his))


class ChunkRange(NamedTuple):
    """What a user's range mapper is given."""

    lo: Shape
    hi: Shape
    array_shape: Shape


same = Same()
"""Range mapper: the chunk itself (the default)."""
all = All()
"""Range mapper: the whole array."""


def axis(*axes: int) -> Axis:
    """Range mapper: the chunk, but everything along `axes` of the array."""
    return Axis(*axes)


def fixed(*slices: slice | int) -> Fixed:
    """Range mapper: one constant box."""
    return Fixed(*slices)


def halo(widths: int | Sequence[int | tuple[int, int]], border: str | float = "clip") -> Halo:
    """Range mapper: the chunk grown by `widths` (one number, or one per axis) on each side.

    `border` says what happens at the array's edge: "clip" cuts, "inside" visits only points whose whole halo exists,
    "wrap", "edge", "reflect" or a number complete the box.
    """
    return Halo(widths, border)


def as_mapper(value: Any) -> Mapper:
    """Return `value` as a range mapper, or raise."""
    if isinstance(value, Mapper):
        return value
    if callable(value):
        return Function(value)
    raise ArgumentError(f"{value!r} is not a range mapper; use cx.same, cx.all, cx.halo(n), cx.axis(d), cx.fixed(...)")
