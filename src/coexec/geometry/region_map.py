"""A map from the points of a box to values, kept as few boxes of equal value.

Before: geometry/box.py and region.py.  After: graph/ and lower/.  Knows nothing of what the values mean.
Most maps hold one value, or bands along one axis (a split array): those are one entry, or a sorted list with bisect.
Any other pattern is a plain list that is scanned, or a pile if it is long; no two entries of it could be joined to one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from .box import Box, overlap, overlaps, subtract
from .region import Region

if TYPE_CHECKING:
    from .pile import Pile

V = TypeVar("V")
LIMIT = 64
"""How many entries a pattern may have before it is rebuilt from the sets of points of equal value."""
FEW = 32  # entries without an order that are quicker looked at one by one


class Pattern(Generic[V]):
    """What a map held at some moment, to compare by identity and to go back to."""

    __slots__ = ("axis", "complete", "entries", "limit", "starts", "uniform")

    def __init__(self, map: RegionMap[V]) -> None:
        self.entries = tuple(map._all())
        self.starts = None if map._starts is None else tuple(map._starts)
        self.axis, self.limit, self.uniform = map._axis, map._limit, map.uniform
        self.complete = all(value for _, value in self.entries)  # no point has a value that is 0 or None


class RegionMap(Generic[V]):
    """Maps every point of `extent` to a value. Values are compared with ==, and must not change once they are in."""

    __slots__ = ("_axis", "_entries", "_limit", "_pile", "_starts", "extent", "pattern", "uniform")
    extent: Box
    """The points the map is defined at."""
    pattern: Pattern[V] | None
    """What the map holds, if it was asked for or gone back to, and nothing was set since."""
    uniform: V | None
    """The value, if all points have the same one; otherwise None."""

    def __init__(self, extent: Box, value: V) -> None:
        self.extent = extent
        self.uniform = value
        self._entries: list[tuple[Box, V]] = [] if extent.empty else [(extent, value)]
        self._starts: list[int] | None = None  # lower edges of the bands; None: one entry, or no bands
        self._pile: Pile[V] | None = None  # many entries that are no bands; then the list is empty
        self._axis = 0  # the axis the bands follow each other on
        self._limit = LIMIT
        self.pattern = None

    def signature(self) -> Hashable:
        """Return what two maps have in common that hold the same and will go on in the same way."""
        bands = -1 if self._starts is None else self._axis
        return (self.extent, bands, self._limit, tuple(self._all()))

    def become(self, pattern: Pattern[V]) -> None:
        """Hold what a map of the same extent held at some moment."""
        self._entries, self._pile = list(pattern.entries), None
        self._starts = None if pattern.starts is None else list(pattern.starts)
        self._axis, self._limit, self.uniform = pattern.axis, pattern.limit, pattern.uniform
        self.pattern = pattern

    def get(self, box: Box) -> list[tuple[Box, V]]:
        """Return the values inside `box`, as disjoint boxes that cover all of it within the extent."""
        entries = self._entries
        extent = self.extent
        if box is extent or box == extent:
            return self.entries()
        part = overlap(box, extent)
        if part is None:
            return []
        if len(entries) == 1:
            return [(part, entries[0][1])]
        if self._starts is None:
            return _scan(entries if self._pile is None else self._pile.meeting(part), part)
        axis = self._axis
        first = bisect_right(self._starts, part[0][axis]) - 1
        stop = part[1][axis]
        if stop <= entries[first][0][1][axis]:
            return [(part, entries[first][1])]
        found = []
        for entry in entries[first : bisect_left(self._starts, stop, first)]:
            inner = overlap(entry[0], part)
            if inner is not None:
                found.append(entry if inner is entry[0] else (inner, entry[1]))
        return found

    def set(self, box: Box, value: V) -> None:
        """Map every point of `box` within the extent to `value`."""
        extent = self.extent
        entries = self._entries
        self.pattern = None
        if len(entries) == 1 and (box is extent or box == extent):
            entries[0] = (extent, value)
            self.uniform = value
            return
        part = overlap(box, extent)
        if part is None:
            if extent.empty:
                self.uniform = value
            return
        if part == extent:
            self._set_whole(value)
            return
        axis = _band_axis(extent, part)
        if len(entries) == 1:
            if value == entries[0][1]:
                return
            if axis >= 0:
                self._axis = axis
                self._starts = [extent[0][axis]]
        if axis >= 0 and axis == self._axis and self._starts is not None:
            self._set_band(part, value)
        else:
            self._set_any(part, value, axis)

    def apply(self, f: Callable[[V], V]) -> None:
        """Replace every value by `f(value)`."""
        self.pattern = None
        mapped = [(box, f(value)) for box, value in self._all()]
        self._pile = None
        if len(mapped) < 2:
            self._entries = mapped
            self.uniform = mapped[0][1] if mapped else f(cast("V", self.uniform))
            return
        joined: list[tuple[Box, V]] = []
        for box, value in mapped:
            if self._starts is None:
                _absorb(joined, box, value)
            elif joined and joined[-1][1] == value:
                joined[-1] = (Box(joined[-1][0].lo, box.hi), value)
            else:
                joined.append((box, value))
        self._entries = joined
        if self._starts is not None:
            self._starts = [box[0][self._axis] for box, _ in joined]
        self._settle()

    def entries(self) -> list[tuple[Box, V]]:
        """Return all boxes and their values."""
        return self._entries[:] if self._pile is None else self._pile.entries()

    def _all(self) -> list[tuple[Box, V]]:
        return self._entries if self._pile is None else self._pile.entries()

    def __len__(self) -> int:
        return len(self._entries if self._pile is None else self._pile)

    def __repr__(self) -> str:
        return "{" + ", ".join([f"{box}: {value!r}" for box, value in self._all()]) + "}"

    def _set_whole(self, value: V) -> None:
        self._entries, self._pile = [(self.extent, value)], None
        self._starts = None
        self._limit = LIMIT
        self.uniform = value

    def _set_band(self, part: Box, value: V) -> None:
        """Put a band into the sorted list: cut what it overlaps, join neighbours of equal value."""
        entries, starts, axis = self._entries, self._starts, self._axis
        assert starts is not None
        lo, hi = part[0][axis], part[1][axis]
        first = bisect_right(starts, lo) - 1
        last = bisect_left(starts, hi, first + 1) - 1
        if first == last and entries[first][1] == value:
            return
        if starts[first] == lo and first and entries[first - 1][1] == value:
            first -= 1
        below, before = entries[first]
        if last + 1 < len(entries) and starts[last + 1] == hi and entries[last + 1][1] == value:
            last += 1
        above, after = entries[last]
        if first == last and below[0][axis] == lo and above[1][axis] == hi:
            entries[first] = (part, value)
            return
        new: list[tuple[Box, V]] = []
        if starts[first] < lo:
            if before == value:
                part = Box(below[0], part[1])
            else:
                new.append((Box(below[0], _moved(below[1], axis, lo)), before))
        if hi < above[1][axis]:
            if after == value:
                new.append((Box(part[0], above[1]), value))
            else:
                new += [(part, value), (Box(_moved(above[0], axis, hi), above[1]), after)]
        else:
            new.append((part, value))
        entries[first : last + 1] = new
        starts[first : last + 1] = [box[0][axis] for box, _ in new]
        self._settle()

    def _set_any(self, part: Box, value: V, axis: int) -> None:
        """Put a box into the unsorted entries: cut what it overlaps, join whatever can be joined."""
        self._starts = None
        if self._pile is None and len(self._entries) > FEW:
            from .pile import Pile  # few programs need it

            self._pile, self._entries = Pile(self._entries), []
        if self._pile is not None:
            self._pile.set(part, value)
        else:
            self._entries = _with(self._entries, part, value)
        if len(self) > self._limit:
            self._rebuild()
        if self._pile is not None and len(self._pile) <= FEW // 2:
            self._entries, self._pile = self._pile.entries(), None
        if axis >= 0:
            self._find_bands(axis)
        self._settle()

    def _settle(self) -> None:
        """Notice that all values are equal."""
        if self._pile is not None and not self._pile.one_value():
            self.uniform = None
            return
        entries = self._all()
        value = entries[0][1]
        if len(entries) > 1 and (self._starts is not None or any(other != value for _, other in entries)):
            self.uniform = None
        else:
            self._set_whole(value)

    def _find_bands(self, axis: int) -> None:
        """Go back to the sorted list if all entries are bands along `axis` again."""
        entries = self._all()
        for box, _ in entries:
            if _band_axis(self.extent, box) != axis:
                return
        self._entries, self._pile = entries, None
        self._entries.sort(key=lambda entry: entry[0].lo[axis])
        self._axis = axis
        self._starts = [box.lo[axis] for box, _ in self._entries]

    def _rebuild(self) -> None:
        """Build the entries anew from the set of points of each value, if that takes fewer boxes."""
        from .pile import Pile

        groups: list[tuple[V, list[Box]]] = []
        for box, value in self._all():
            for known, boxes in groups:
                if known == value:
                    boxes.append(box)
                    break
            else:
                groups.append((value, [box]))
        rebuilt: Pile[V] = Pile(())
        for value, boxes in groups:
            for box in Region(boxes).boxes:
                rebuilt.absorb(box, value)
        if len(rebuilt) < len(self):
            self._entries, self._pile = rebuilt.entries(), None
        self._limit = max(LIMIT, 2 * len(self))  # so that rebuilding stays rare where it does not help


def _band_axis(extent: Box, box: Box) -> int:
    """Return the one axis along which `box` does not fill `extent`, or -1 if there are more."""
    elo, ehi = extent
    lo, hi = box
    if len(elo) == 1:
        return 0
    found = -1
    for axis, low in enumerate(lo):
        if low != elo[axis] or hi[axis] != ehi[axis]:
            if found >= 0:
                return -1
            found = axis
    return found


def _moved(corner: tuple[int, ...], axis: int, edge: int) -> tuple[int, ...]:
    return (*corner[:axis], edge, *corner[axis + 1 :])


def _scan(entries: list[tuple[Box, V]], part: Box) -> list[tuple[Box, V]]:
    """Return the values inside `part` among unsorted entries."""
    found: list[tuple[Box, V]] = []
    for box, value in entries:
        inner = overlap(part, box)
        if inner is part:
            return [(part, value)]
        if inner is not None:
            _absorb(found, inner, value)
    return found


def _with(entries: list[tuple[Box, V]], part: Box, value: V) -> list[tuple[Box, V]]:
    """Return unsorted entries with a value for `part`: what it overlaps is cut, whatever can be joined is."""
    kept: list[tuple[Box, V]] = []
    pieces: list[tuple[Box, V]] = []
    for entry in entries:
        if overlaps(entry[0], part):
            pieces += [(piece, entry[1]) for piece in subtract(entry[0], part)]
        else:
            kept.append(entry)
    for piece, old in pieces:
        _absorb(kept, piece, old)
    _absorb(kept, part, value)
    return kept


def _absorb(entries: list[tuple[Box, V]], box: Box, value: V) -> None:
    """Add a box to disjoint entries, joined with those of equal value as long as the result is a box."""
    index = 0
    while index < len(entries):
        other, known = entries[index]
        if known == value:
            joined = _joined(box, other)
            if joined is not None:
                box = joined
                del entries[index]
                index = 0
                continue
        index += 1
    entries.append((box, value))


def _joined(a: Box, b: Box) -> Box | None:
    """Return the union of two disjoint boxes if it is a box."""
    alo, ahi = a
    blo, bhi = b
    at = -1
    for axis, low in enumerate(alo):
        if low != blo[axis] or ahi[axis] != bhi[axis]:
            if at >= 0:
                return None
            at = axis
    if ahi[at] == blo[at]:
        return Box(alo, bhi)
    if bhi[at] == alo[at]:
        return Box(blo, ahi)
    return None
