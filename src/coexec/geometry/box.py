"""Boxes: half-open N-dimensional ranges of integers, and the few operations every later stage is built from.

Before: nothing.  After: geometry/region.py, region_map.py, grid.py.  Knows nothing of arrays, devices or values.
Hot path: one and two dimensions are written out, subscripts beat attributes, and `_make` skips the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import le, lt
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
        return tuple([b - a if b > a else 0 for a, b in zip(self[0], self[1], strict=True)])

    @property
    def volume(self) -> int:
        """Number of points."""
        volume = 1
        hi = self[1]
        for axis, low in enumerate(self[0]):
            extent = hi[axis] - low
            if extent <= 0:
                return 0
            volume *= extent
        return volume

    @property
    def empty(self) -> bool:
        """Whether the box holds no point."""
        return any(map(le, self[1], self[0]))

    def translate(self, offset: Point) -> Box:
        """Return the box moved by `offset`."""
        return _make(
            Box,
            (
                tuple([a + o for a, o in zip(self[0], offset, strict=True)]),
                tuple([b + o for b, o in zip(self[1], offset, strict=True)]),
            ),
        )

    def grow(self, below: Point, above: Point) -> Box:
        """Return the box with `below` more points under and `above` more points over it, per axis."""
        return _make(
            Box,
            (
                tuple([a - n for a, n in zip(self[0], below, strict=True)]),
                tuple([b + n for b, n in zip(self[1], above, strict=True)]),
            ),
        )

    def slices(self, origin: Point) -> tuple[slice, ...]:
        """Return the slices that cut this box out of an array whose first element lies at `origin`."""
        return tuple([slice(a - o, b - o) for a, b, o in zip(self[0], self[1], origin, strict=True)])

    def __repr__(self) -> str:
        return "[" + ", ".join(f"{a}:{b}" for a, b in zip(self[0], self[1], strict=True)) + "]"


_make = cast("Callable[[type[Box], tuple[Point, Point]], Box]", tuple.__new__)


def _is_empty(lo: Point, hi: Point) -> bool:
    return any(map(le, hi, lo))


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
    if n == 1:
        if alo[0] >= blo[0]:
            if ahi[0] <= bhi[0]:
                return a if alo[0] < ahi[0] else None
            return _make(Box, (alo, bhi)) if alo[0] < bhi[0] else None
        if bhi[0] <= ahi[0]:
            return b if blo[0] < bhi[0] else None
        return _make(Box, (blo, ahi)) if blo[0] < ahi[0] else None
    if n == 2:
        l0, l1 = alo
        h0, h1 = ahi
        m0, m1 = blo
        k0, k1 = bhi
        same = True
        if m0 > l0:
            l0, same = m0, False
        if k0 < h0:
            h0, same = k0, False
        if l0 >= h0:
            return None
        if m1 > l1:
            l1, same = m1, False
        if k1 < h1:
            h1, same = k1, False
        if l1 >= h1:
            return None
        return a if same else _make(Box, ((l0, l1), (h0, h1)))
    return _overlap_nd(alo, ahi, blo, bhi)


def _overlap_nd(alo: Point, ahi: Point, blo: Point, bhi: Point) -> Box | None:
    lo: Point = ()
    hi: Point = ()
    for axis, low in enumerate(alo):
        other, high, stop = blo[axis], ahi[axis], bhi[axis]
        low = low if low > other else other  # noqa: FURB136, PLW2901  max() costs three times as much
        high = high if high < stop else stop  # noqa: FURB136
        if low >= high:
            return None
        lo = (*lo, low)
        hi = (*hi, high)
    return _make(Box, (lo, hi))


def overlaps(a: Box, b: Box) -> bool:
    """Tell whether the boxes share a point."""
    alo = a[0]
    blo = b[0]
    ahi = a[1]
    bhi = b[1]
    n = len(alo)
    if n == 1:
        return alo[0] < bhi[0] and blo[0] < ahi[0] and alo[0] < ahi[0] and blo[0] < bhi[0]
    if n == 2:
        l0, l1 = alo
        h0, h1 = ahi
        m0, m1 = blo
        k0, k1 = bhi
        return l0 < k0 and m0 < h0 and l1 < k1 and m1 < h1 and l0 < h0 and l1 < h1 and m0 < k0 and m1 < k1
    return all(map(lt, alo, bhi)) and all(map(lt, blo, ahi)) and all(map(lt, alo, ahi)) and all(map(lt, blo, bhi))


def covers(a: Box, b: Box) -> bool:
    """Tell whether `a` holds every point of `b`; an empty `b` is covered by anything."""
    if a is b:
        return True
    alo = a[0]
    blo = b[0]
    ahi = a[1]
    bhi = b[1]
    n = len(alo)
    if n == 1:
        return (alo[0] <= blo[0] and bhi[0] <= ahi[0]) or blo[0] >= bhi[0]
    if n == 2:
        l0, l1 = alo
        h0, h1 = ahi
        m0, m1 = blo
        k0, k1 = bhi
        return (l0 <= m0 and k0 <= h0 and l1 <= m1 and k1 <= h1) or m0 >= k0 or m1 >= k1
    return (all(map(le, alo, blo)) and all(map(le, bhi, ahi))) or _is_empty(blo, bhi)


def subtract(a: Box, b: Box) -> list[Box]:
    """Return the points of `a` that are not in `b`, as disjoint non-empty boxes in order of their lower corners."""
    alo = a[0]
    ahi = a[1]
    if len(alo) == 1:
        blo = b[0]
        bhi = b[1]
        i = alo[0]
        h = ahi[0]
        m = blo[0]
        k = bhi[0]
        if k <= i or h <= m or k <= m or h <= i:
            return [a] if i < h else []
        if i < m:
            return [_make(Box, (alo, blo)), _make(Box, (bhi, ahi))] if k < h else [_make(Box, (alo, blo))]
        return [_make(Box, (bhi, ahi))] if k < h else []
    if len(alo) == 2:
        return _subtract2(a, b)
    common = overlap(a, b)
    if common is None:
        return [] if _is_empty(alo, ahi) else [a]
    clo = common[0]
    chi = common[1]
    below, above = [], []
    for axis, (low, high) in enumerate(zip(clo, chi, strict=True)):  # left: `common` before `axis`, `a` from it on
        if alo[axis] < low:
            below.append(_make(Box, (clo[:axis] + alo[axis:], (*chi[:axis], low, *ahi[axis + 1 :]))))
        if high < ahi[axis]:
            above.append(_make(Box, ((*clo[:axis], high, *alo[axis + 1 :]), chi[:axis] + ahi[axis:])))
    above.reverse()
    return below + above


def _subtract2(a: Box, b: Box) -> list[Box]:
    alo, ahi = a
    l0, l1 = alo
    h0, h1 = ahi
    m0, m1 = b[0]
    k0, k1 = b[1]
    if l0 >= h0 or l1 >= h1:
        return []
    if m0 >= h0 or k0 <= l0 or m1 >= h1 or k1 <= l1 or m0 >= k0 or m1 >= k1:
        return [a]
    found = []
    if l0 < m0:
        found.append(_make(Box, (alo, (m0, h1))))
    else:
        m0 = l0
    k0 = min(k0, h0)
    if l1 < m1:
        found.append(_make(Box, ((m0, l1), (k0, m1))))
    if k1 < h1:
        found.append(_make(Box, ((m0, k1), (k0, h1))))
    if k0 < h0:
        found.append(_make(Box, ((k0, l1), ahi)))
    return found


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
