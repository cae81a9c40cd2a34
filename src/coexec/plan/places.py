"""Where the elements of one array are, seen from all memories at once: what each lacks, has, and could get from whom.

Before: geometry/.  After: plan/offering.py.  Knows boxes and memories as bits, no task and no link.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ..geometry import Box

Pieces = Sequence[tuple[Box, int]]
"""Disjoint parts of an array, and the memories (as bits) that hold each; none where there is nothing to copy."""
ALL = -1  # bits: where nothing need be copied, every memory has what it needs


class Places:
    """The rows of a task along one axis of an array, and who has them. One pass serves every memory."""

    def __init__(self, pieces: Pieces, axis: int, start: int, rows: int) -> None:
        self._held: dict[int, int] = {}  # memory -> elements
        self._total = 0  # elements that are somewhere
        self._common = ALL  # the memories that have all of them
        self._somewhere = 0
        for box, mask in pieces:
            if mask:
                volume = box.volume
                self._total += volume
                self._common &= mask
                self._somewhere |= mask
                for memory in memories(mask):
                    self._held[memory] = self._held.get(memory, 0) + volume
        self._pieces, self._axis, self._start, self._rows = pieces, axis, start, rows
        self._runs: dict[int, tuple[int, int]] | None = None
        self._empty = (0, 0)  # the longest run of rows that need not be copied at all
        self._edges: list[int] = []
        self._main: list[int] = []  # who has the widest piece between two edges

    def absent(self, memory: int) -> int:
        """Return how many elements a memory lacks."""
        return self._total - self._held.get(memory, 0)

    def present(self, memory: int) -> tuple[int, int]:
        """Return the longest run of rows of which a memory lacks nothing."""
        if self._runs is None:
            self._runs = self._find_runs()
        return self._runs.get(memory, self._empty)

    def sources(self, memory: int) -> list[int]:
        """Return who has what a memory lacks: who has the rows next to its own, or else all of it; as bits.

        Empty if the rows are spread, and the memory has none of them.
        """
        lo, hi = self.present(memory)
        if lo < hi:
            found = []
            at = bisect_left(self._edges, lo)
            if at and at < len(self._edges) and self._edges[at] == lo:
                found.append(self._main[at - 1])
            at = bisect_left(self._edges, hi)
            if at < len(self._main) and self._edges[at] == hi:
                found.append(self._main[at])
            found = [mask for mask in found if mask and not mask >> memory & 1]
            if found:
                return found
        return [self._common] if self._common > 0 else []

    def anybody(self, memory: int) -> int:
        """Return who has the first piece that a memory lacks, as bits."""
        return next((mask for _, mask in self._pieces if mask and not mask >> memory & 1), 0)

    def _find_runs(self) -> dict[int, tuple[int, int]]:
        had = self._by_rows()
        runs: dict[int, tuple[int, int]] = {}
        since: dict[int, int] = {}
        before, nobody = 0, 0
        for i, mask in enumerate([*had, 0]):
            edge = self._edges[i]
            now = mask & self._somewhere
            for memory in memories(now ^ before):
                if now >> memory & 1:
                    since[memory] = edge
                    continue
                known, begin = runs.get(memory, (0, 0)), since[memory]
                if edge - begin > known[1] - known[0]:
                    runs[memory] = (begin, edge)
            before = now
            if mask != ALL:
                if edge - nobody > self._empty[1] - self._empty[0]:
                    self._empty = (nobody, edge)
                nobody = self._edges[min(i + 1, len(self._edges) - 1)]
        return dict.fromkeys(self._held, (0, 0)) | runs

    def _by_rows(self) -> list[int]:
        """Cut the rows where pieces begin or end, and return who has all of each part."""
        widest: dict[tuple[int, int], tuple[int, int]] = {}
        every: dict[tuple[int, int], int] = {}
        axis, start, rows = self._axis, self._start, self._rows
        for box, mask in self._pieces if rows else ():
            span = (max(0, box[0][axis] - start), min(rows, box[1][axis] - start))
            if mask and span[0] < span[1]:
                every[span] = every.get(span, ALL) & mask
                widest[span] = max(widest.get(span, (0, 0)), (box.volume // (box[1][axis] - box[0][axis]), mask))
        self._edges = sorted({0, rows, *[edge for span in every for edge in span]})
        at = {edge: i for i, edge in enumerate(self._edges)}
        had = [ALL] * (len(self._edges) - 1)
        width = [(0, 0)] * len(had)
        for (lo, hi), mask in every.items():
            for i in range(at[lo], at[hi]):
                had[i] &= mask
                width[i] = max(width[i], widest[lo, hi])
        self._main = [mask for _, mask in width]
        return had


def memories(mask: int) -> Iterator[int]:
    """Yield the memories of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
