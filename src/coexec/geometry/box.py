"""Boxes: half-open N-dimensional ranges of integers, and the few operations every later stage is built from.

Before: nothing.  After: geometry/region.py, region_map.py, grid.py.  Knows nothing of arrays, devices or values.
Hot path: one and two dimensions are written out, subscripts beat attributes, and `_make` skips the constructor.
"""

# ruff: noqa: FURB136, PLR1730  (max and min cost a call each, three times what a comparison does)
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

Point = tuple[int, ...]


class Box(NamedTuple):
    """The points `lo <= x < hi`, per axis. A 0-d box holds exactly one point."""

    lo: Point
    hi: Point

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self[0])

    @property
    def shape(self) -> Point:
        """Extent per axis; never negative."""
        return tuple(
            [h - l if h > l else 0 for l, h in zip(self[0], self[1], strict=True)]
        )

    @property
    def volume(self) -> int:
        """Number of points."""
        volume = 1
        for l, h in zip(self[0], self[1], strict=True):
            if h <= l:
                return 0
            volume *= h - l
        return volume

    @property
    def empty(self) -> bool:
        """Whether the box holds no point."""
        return _is_empty(self[0], self[1])

    def translate(self, offset: Point) -> Box:
        """Return the box moved by `offset`."""
        return _make(
            Box,
            (
                tuple([l + o for l, o in zip(self[0], offset, strict=True)]),
                tuple([h + o for h, o in zip(self[1], offset, strict=True)]),
            ),
        )

    def grow(self, below: Point, above: Point) -> Box:
        """Return the box with `below` more points under and `above` more points over it, per axis."""
        return _make(
            Box,
            (
                tuple([l - n for l, n in zip(self[0], below, strict=True)]),
                tuple([h + n for h, n in zip(self[1], above, strict=True)]),
            ),
        )

    def slices(self, origin: Point) -> tuple[slice, ...]:
        """Return the slices that cut this box out of an array whose first element lies at `origin`."""
        return tuple(
            [
                slice(l - o, h - o)
                for l, h, o in zip(self[0], self[1], origin, strict=True)
            ]
        )

    def __repr__(self) -> str:
        return (
            "["
            + ", ".join(f"{l}:{h}" for l, h in zip(self[0], self[1], strict=True))
            + "]"
        )


_make = cast("Callable[[type[Box], tuple[Point, Point]], Box]", tuple.__new__)


def _is_empty(lo: Point, hi: Point) -> bool:
    for l, h in zip(lo, hi, strict=True):
        if h <= l:
            return True
    return False


def whole(shape: Point) -> Box:
    """Return the box of an array of that shape: from the origin."""
    return _make(Box, ((0,) * len(shape), tuple(shape)))


def overlap(a: Box, b: Box) -> Box | None:
    """Return the points of both boxes as a box, or None if there are none."""
    alo = a[0]
    blo = b[0]
    ahi = a[1]
    bhi = b[1]
    n = len(alo)
    if n == 1:  # tuples of one integer compare like the integer
        lo = alo if alo >= blo else blo
        hi = ahi if ahi <= bhi else bhi
        if lo >= hi:
            return None
        return a if lo is alo and hi is ahi else _make(Box, (lo, hi))
    if n == 2:
        return _overlap2(a, b)
    low, high = [], []
    for al, ah, bl, bh in zip(alo, ahi, blo, bhi, strict=True):
        l = al if al >= bl else bl
        h = ah if ah <= bh else bh
        if l >= h:
            return None
        low.append(l)
        high.append(h)
    return _make(Box, (tuple(low), tuple(high)))


def _overlap2(a: Box, b: Box) -> Box | None:
    l0, l1 = a[0]
    h0, h1 = a[1]
    m0, m1 = b[0]
    k0, k1 = b[1]
    if m0 > l0:
        l0 = m0
    if k0 < h0:
        h0 = k0
    if l0 >= h0:
        return None
    if m1 > l1:
        l1 = m1
    if k1 < h1:
        h1 = k1
    if l1 >= h1:
        return None
    return _make(Box, ((l0, l1), (h0, h1)))


def overlaps(a: Box, b: Box) -> bool:
    """Tell whether the boxes share a point."""
    alo = a[0]
    blo = b[0]
    ahi = a[1]
    bhi = b[1]
    if len(alo) == 1:
        return alo < bhi and blo < ahi and alo < ahi and blo < bhi
    for al, ah, bl, bh in zip(alo, ahi, blo, bhi, strict=True):
        if (al if al >= bl else bl) >= (ah if ah <= bh else bh):
            return False
    return True


def covers(a: Box, b: Box) -> bool:
    """Tell whether `a` holds every point of `b`; an empty `b` is covered by anything."""
    if a is b:
        return True
    alo = a[0]
    blo = b[0]
    ahi = a[1]
    bhi = b[1]
    if len(alo) == 1:
        return (alo <= blo and bhi <= ahi) or blo >= bhi
    for al, ah, bl, bh in zip(alo, ahi, blo, bhi, strict=True):
        if bl < al or bh > ah:
            return _is_empty(blo, bhi)
    return True


def subtract(a: Box, b: Box) -> list[Box]:
    """Return the points of `a` that are not in `b`, as disjoint non-empty boxes in order of their lower corners."""
    common = overlap(a, b)
    if common is None:
        return [] if _is_empty(a[0], a[1]) else [a]
    if common == a:
        return []
    alo = a[0]
    ahi = a[1]
    clo = common[0]
    chi = common[1]
    if len(alo) == 1:
        if alo == clo:
            return [_make(Box, (chi, ahi))]
        if ahi == chi:
            return [_make(Box, (alo, clo))]
        return [_make(Box, (alo, clo)), _make(Box, (chi, ahi))]
    below, above = [], []
    for axis in range(
        len(alo)
    ):  # what is left is `common` before `axis`, `a` from it on
        l, h = clo[axis], chi[axis]
        if alo[axis] < l:
            below.append(
                _make(
                    Box, (clo[:axis] + alo[axis:], (*chi[:axis], l, *ahi[axis + 1 :]))
                )
            )
        if h < ahi[axis]:
            above.append(
                _make(
                    Box, ((*clo[:axis], h, *alo[axis + 1 :]), chi[:axis] + ahi[axis:])
                )
            )
    above.reverse()
    return below + above


def bounding(boxes: Iterable[Box]) -> Box:
    """Return the smallest box that holds all of them; empty ones count only if there are no others."""
    given = list(boxes)
    if not given:
        raise ValueError("bounding() needs at least one box")
    solid = [box for box in given if not _is_empty(box[0], box[1])]
    if len(solid) < 2:
        return solid[0] if solid else given[0]
    lo = tuple([min(values) for values in zip(*[box[0] for box in solid], strict=True)])
    hi = tuple([max(values) for values in zip(*[box[1] for box in solid], strict=True)])
    return _make(Box, (lo, hi))


def cut(box: Box, axis: int, parts: int, granule: int = 1) -> list[Box]:
    """Cut a box along `axis` into at most `parts` non-empty parts whose sizes differ by at most one granule.

    Cuts lie at multiples of `granule` from the box's lower edge, bigger parts come first, and the last part takes
    what is left of an incomplete granule. An empty box has no parts.
    """
    if _is_empty(box[0], box[1]):
        return []
    lo, hi = box
    first, last = lo[axis], hi[axis]
    granules = -((first - last) // granule)
    parts = min(parts, granules)
    if parts <= 1:
        return [box]
    base, extra = divmod(granules, parts)
    if extra and (last - first) % granule:
        extra -= 1  # the last part is one of the bigger ones, as its last granule is incomplete
    found = []
    for part in range(parts - 1):
        stop = first + (base + 1 if part < extra else base) * granule
        found.append(
            _make(
                Box,
                (
                    (*lo[:axis], first, *lo[axis + 1 :]),
                    (*hi[:axis], stop, *hi[axis + 1 :]),
                ),
            )
        )
        first = stop
    found.append(_make(Box, ((*lo[:axis], first, *lo[axis + 1 :]), hi)))
    return found
