"""Range mappers: which boxes of an array a chunk of the index space touches.

Before: geometry/, program/padding.py.  After: program/user_mappers.py, program/access.py, lower/.  Knows shapes, never data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from numbers import Number
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..geometry import Box, Region, covers, overlap, overlaps, whole
from .padding import CUT, REPEATING, Border, Pad, Shape, runs_of

BORDERS = (*CUT, *REPEATING)
HALOS = ("box", "axes")


class Mapper:
    """Maps a chunk to boxes of one array. Subclasses are values: equal when they map alike."""

    pads = False  # a body may see more than there is
    fixed = True  # the same for the same chunk and shapes, always
    several = False  # what a chunk touches may be more than one box; a body still gets their hull

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        """Raise unless an array of `shape` fits an index space of shape `space`."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        """Return the hull of what the chunk touches, inside the array."""
        raise ArgumentError(f"{type(self).__name__} does not map boxes")  # pragma: no cover - subclasses do

    def boxes(self, chunk: Box, space: Shape, shape: Shape) -> tuple[Box, ...]:
        """Return what the chunk touches, exactly, as disjoint boxes that are not empty. Their hull is `box`."""
        box = self.box(chunk, space, shape)
        return () if box.empty else (box,)

    def pad(self, chunk: Box, shape: Shape) -> Pad | None:
        """Return how to complete the box beyond the border, or None."""
        del chunk, shape
        return None

    def spans(self, chunk: Box, shape: Shape, boxes: Sequence[Box]) -> tuple[Box, ...]:
        """Return what may lie in allocations of their own, because a body that reads gets a padded copy; none: one hull."""
        del chunk, shape, boxes
        return ()

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


class Even(Mapper):
    """A slab of axis 0 per point of a one-dimensional index space, all of about the same size."""

    def __init__(self, granularity: int = 1) -> None:
        if granularity < 1:
            raise ArgumentError(f"cx.even takes a granularity of at least 1, not {granularity}")
        self.granularity = granularity

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        if len(space) != 1 or not shape:
            raise ShapeError(
                f"array {name!r} has shape {shape}, the index space {space}; cx.even deals axis 0 of an array to the "
                "points of a one-dimensional index space: name one with over="
            )

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        first, last = (self._start(point, space[0], shape[0]) for point in (chunk.lo[0], chunk.hi[0]))
        return Box((first, *(0,) * (len(shape) - 1)), (max(first, last), *shape[1:]))

    def _start(self, point: int, points: int, rows: int) -> int:
        """Return where the slab of a point begins: bigger slabs first, and the last takes what is left of a granule."""
        if point >= points:
            return rows
        base, extra = divmod(rows // self.granularity, points)
        return (point * base + min(point, extra)) * self.granularity

    def __repr__(self) -> str:
        return f"even({self.granularity})"


class Halo(Mapper):
    """The chunk grown by a number of elements on each side: all axes together, or one at a time."""

    def __init__(
        self,
        widths: int | Sequence[int | tuple[int, int]],
        border: Border | Sequence[Border] = "clip",
        shape: str = "box",
    ) -> None:
        if shape not in HALOS:
            raise ArgumentError(f"shape={shape!r} is not one of {', '.join(HALOS)}")
        entries = (widths,) if isinstance(widths, int) else tuple(widths)
        self.per_axis = not isinstance(widths, int)
        self.widths = tuple((w, w) if isinstance(w, int) else (int(w[0]), int(w[1])) for w in entries)
        if any(w < 0 for pair in self.widths for w in pair):
            raise ArgumentError(f"cx.halo widths must not be negative: {widths!r}")
        self.border = tuple(border) if isinstance(border, list | tuple) else border
        self.borders = _borders(self.border)
        if self.per_axis and not self._uniform and len(self.borders) != len(self.widths):
            raise ArgumentError(
                f"cx.halo names {len(self.borders)} borders for {len(self.widths)} axes: border={border!r}, widths {widths!r}"
            )
        self.shape = shape
        self.pads = any(border not in CUT for border in self.borders)
        self.several = shape == "axes" or "wrap" in self.borders

    @property
    def _uniform(self) -> bool:
        return not isinstance(self.border, tuple)

    def _border(self, axis: int) -> Border:
        """Return what lies beyond an axis; axes that are not named have no halo."""
        if self._uniform:
            return self.borders[0]
        return self.borders[axis] if axis < len(self.borders) else "clip"

    def _width(self, axis: int) -> tuple[int, int]:
        if not self.per_axis:
            return self.widths[0]
        return self.widths[axis] if axis < len(self.widths) else (0, 0)

    def check(self, name: str, shape: Shape, space: Shape) -> None:
        _match_leading(name, shape, space)
        if self.per_axis and len(self.widths) > len(shape):
            raise ShapeError(f"array {name!r} has {len(shape)} axes; cx.halo names {len(self.widths)}")
        halos = min(len(shape), len(space))
        if not self._uniform and not self.per_axis and len(self.borders) != halos:
            raise ShapeError(
                f"cx.halo of array {name!r} names {len(self.borders)} borders, {self.border!r}, but the array shares {halos} "
                "axes with the index space: name one for each, or one for all"
            )
        for axis, size in enumerate(shape):
            if size == 0 and self._border(axis) in REPEATING:
                raise ShapeError(
                    f"array {name!r} of shape {shape} is empty; border={self.border!r} has nothing to repeat"
                )

    def _wanted(self, chunk: Box, shape: Shape) -> Box:
        box = _leading(chunk, shape)
        n = min(chunk.ndim, len(shape))
        lo = tuple(v - self._width(axis)[0] if axis < n else v for axis, v in enumerate(box.lo))
        return Box(lo, tuple(v + self._width(axis)[1] if axis < n else v for axis, v in enumerate(box.hi)))

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        wanted = self._wanted(chunk, shape)
        spans = [] if chunk.empty else self._runs(wanted, shape)
        if not spans or any(runs[0][0] >= runs[-1][1] for runs in spans):
            return Box(wanted.lo, wanted.lo)
        return Box(tuple(runs[0][0] for runs in spans), tuple(runs[-1][1] for runs in spans))

    def boxes(self, chunk: Box, space: Shape, shape: Shape) -> tuple[Box, ...]:
        if not self.several:
            return super().boxes(chunk, space, shape)
        if chunk.empty:
            return ()
        array = whole(shape)
        parts = self._arms(chunk, shape) if self.shape == "axes" else [self._wanted(chunk, shape)]
        if not any(border in REPEATING for border in self.borders) or covers(array, self._wanted(chunk, shape)):
            return tuple([inner for part in parts if (inner := overlap(part, array)) is not None])
        seen = [runs for part in parts for runs in product(*self._runs(part, shape))]
        found = [Box(tuple(lo for lo, _ in runs), tuple(hi for _, hi in runs)) for runs in seen]
        return Region([box for box in found if not box.empty]).boxes

    def spans(self, chunk: Box, shape: Shape, boxes: Sequence[Box]) -> tuple[Box, ...]:
        runs = self._runs(self._wanted(chunk, shape), shape)
        found = [Box(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends)) for ends in product(*runs)]
        found = [span for span in found if any(overlaps(span, box) for box in boxes)]
        return tuple(found) if len(found) > 1 else ()

    def _arms(self, chunk: Box, shape: Shape) -> list[Box]:
        """Return the chunk grown along one axis at a time, as disjoint boxes: the middle one along the last axis."""
        middle = _leading(chunk, shape)
        grown = self._wanted(chunk, shape)
        last = min(chunk.ndim, len(shape)) - 1
        found = []
        for axis in range(last):
            found.append(_between(middle, axis, grown.lo[axis], middle.lo[axis]))
            found.append(_between(middle, axis, middle.hi[axis], grown.hi[axis]))
        found.append(_between(middle, last, grown.lo[last], grown.hi[last]) if last >= 0 else middle)
        return [box for box in found if not box.empty]

    def _runs(self, wanted: Box, shape: Shape) -> list[list[tuple[int, int]]]:
        """Return, per axis, the positions that stand for those of `wanted`."""
        found = []
        for axis, (lo, hi, size) in enumerate(zip(wanted.lo, wanted.hi, shape, strict=True)):
            border = self._border(axis)
            inside = [(max(lo, 0), min(hi, size))]
            found.append(runs_of(lo, hi, size, border) if border in REPEATING and isinstance(border, str) else inside)
        return found

    def pad(self, chunk: Box, shape: Shape) -> Pad | None:
        if not self.pads or chunk.empty:
            return None
        wanted = self._wanted(chunk, shape)
        borders = tuple([self._border(axis) for axis in range(len(shape))])
        cut = [border in CUT for border in borders]
        lo = tuple([max(v, 0) if c else v for v, c in zip(wanted.lo, cut, strict=True)])
        hi = tuple([min(v, size) if c else v for v, size, c in zip(wanted.hi, shape, cut, strict=True)])
        seen = Box(lo, hi)
        return None if covers(whole(shape), seen) else Pad(seen, self.box(chunk, (), shape), shape, borders)

    def visited(self, space: Box, shape: Shape) -> Box:
        n = min(space.ndim, len(shape))
        rim = [self._width(a) if a < n and self._border(a) == "inside" else (0, 0) for a in range(space.ndim)]
        lo = tuple(v + before for v, (before, _) in zip(space.lo, rim, strict=True))
        hi = tuple(v - after for v, (_, after) in zip(space.hi, rim, strict=True))
        return Box(lo, tuple(max(a, b) for a, b in zip(lo, hi, strict=True)))

    def __repr__(self) -> str:
        return (
            f"halo({self.widths}, border={self.border!r}{', shape=' + repr(self.shape) if self.shape != 'box' else ''})"
        )


def _borders(border: Any) -> tuple[Border, ...]:
    """Return the borders that are named, checked."""
    found = border if isinstance(border, tuple) else (border,)
    for entry in found:
        if entry not in BORDERS if isinstance(entry, str) else not isinstance(entry, Number):
            raise ArgumentError(
                f"border={border!r}: {entry!r} is not one of {', '.join(BORDERS)} or a number; give one for all axes, or "
                "one per axis"
            )
    if not found:
        raise ArgumentError("border=() names no border; give one for all axes, or one per axis")
    return found


def _between(box: Box, axis: int, lo: int, hi: int) -> Box:
    """Return the box with other ends along one axis."""
    return Box((*box.lo[:axis], lo, *box.lo[axis + 1 :]), (*box.hi[:axis], hi, *box.hi[axis + 1 :]))


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


def even(granularity: int = 1) -> Even:
    """Range mapper: axis 0 of the array dealt evenly, by `granularity` rows, to a one-dimensional index space."""
    return Even(granularity)


def halo(
    widths: int | Sequence[int | tuple[int, int]], border: Border | Sequence[Border] = "clip", *, shape: str = "box"
) -> Halo:
    """Range mapper: the chunk grown by `widths` (one number, or one per axis) on each side.

    `border` says what happens at the array's edge, for all axes or for each: "clip" cuts, "inside" visits only points
    whose whole halo exists, "wrap", "edge", "reflect" or a number complete the box. `shape="axes"` grows along one axis at a time, as stencils
    without diagonals need: the body gets the same box, but its corners hold anything, and are not copied.
    """
    return Halo(widths, border, shape)
