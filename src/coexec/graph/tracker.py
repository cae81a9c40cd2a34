"""Who wrote and who read which box last: the one structure behind the edges of the task and instruction graphs.

Before: geometry/.  After: graph/task_graph.py, lower/.  Knows ids and boxes; ids grow in program order.

Dense boxes live in dictionaries: a box that is asked for as it was written is found by one look-up, which makes
whole arrays and aligned partitions cheap. Strided sets (red-black) live in a list beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..geometry import Box, Grid, Region, covers, grid_covers, grids_meet, overlap, overlaps, subtract


class Tracker:
    """Last writers and, since then, readers of every element of one box."""

    __slots__ = ("_aligned", "_extent", "_readers", "_strided", "_writers")

    def __init__(self, extent: Box, origin: int) -> None:
        self._extent = extent
        self._writers: dict[Box, int] = {extent: origin}  # disjoint, covering the extent
        self._readers: dict[Box, list[int]] = {}
        self._strided: list[tuple[Box, Grid, int, bool]] = []
        self._aligned = True  # every reader's box is also a writer's box

    def before_read(self, box: Box, grid: Grid | None, found: set[int]) -> None:
        """Add the ids whose results a read of `box` sees."""
        writer = self._writers.get(box)
        if writer is not None and not self._strided:
            found.add(writer)
            return
        for other, id in self._writers.items():
            if (common := overlap(other, box)) is not None and (grid is None or grids_meet(common, None, grid)):
                found.add(id)
        for other, lattice, id, writes in self._strided:
            if writes and (common := overlap(other, box)) is not None and grids_meet(common, lattice, grid):
                found.add(id)

    def before_write(self, box: Box, grid: Grid | None, found: set[int]) -> None:
        """Add the ids that must be over before `box` is overwritten: readers, and writers nobody read since."""
        if self._aligned and not self._strided:
            writer = self._writers.get(box)
            if writer is not None:
                readers = self._readers.get(box)
                if readers:
                    found.update(readers)
                else:
                    found.add(writer)
                return
        hit = []
        for other, ids in self._readers.items():
            if (common := overlap(other, box)) is not None and (grid is None or grids_meet(common, None, grid)):
                found.update(ids)
                hit.append(other)
        for other, id in self._writers.items():
            common = overlap(other, box)
            if common is None or (grid is not None and not grids_meet(common, None, grid)):
                continue
            if not any(overlaps(other, reader) for reader in hit):  # such a reader waited for this writer
                found.add(id)
        for other, lattice, id, _ in self._strided:
            if (common := overlap(other, box)) is not None and grids_meet(common, lattice, grid):
                found.add(id)

    def did_read(self, box: Box, grid: Grid | None, id: int) -> None:
        """Note that `id` reads `box`."""
        if grid is not None:
            self._strided.append((box, grid, id, False))
            return
        readers = self._readers.get(box)
        if readers is None:
            self._readers[box] = [id]
            if self._aligned and box not in self._writers:
                self._aligned = False
        elif readers[-1] != id:
            readers.append(id)

    def did_write(self, box: Box, grid: Grid | None, id: int) -> None:
        """Note that `id` writes `box`: nobody older needs to be asked about it again."""
        if grid is not None:
            kept = [e for e in self._strided if not grid_covers(box, grid, e[0], e[1])]
            self._strided = [*kept, (box, grid, id, True)]
            return
        if self._aligned and not self._strided and box in self._writers:
            self._writers[box] = id
            self._readers.pop(box, None)
            return
        self._carve(box)
        self._writers[box] = id
        self._aligned = all(reader in self._writers for reader in self._readers)

    def _carve(self, box: Box) -> None:
        """Take `box` out of every entry."""
        for other in [other for other in self._writers if overlaps(other, box)]:
            id = self._writers.pop(other)
            for rest in subtract(other, box):
                self._writers[rest] = id
        for other in [other for other in self._readers if overlaps(other, box)]:
            ids = self._readers.pop(other)
            for rest in subtract(other, box):
                self._readers[rest] = [*self._readers.get(rest, ()), *ids]
        self._strided = [e for e in self._strided if not covers(box, e[0])]

    def writers(self, box: Box) -> Iterator[tuple[Box, int]]:
        """Yield the parts of `box` with the dense writer of each."""
        for other, id in self._writers.items():
            if (common := overlap(other, box)) is not None:
                yield common, id

    def ids(self) -> set[int]:
        """Return every id that something later could depend on."""
        found = set(self._writers.values())
        for ids in self._readers.values():
            found.update(ids)
        found.update(entry[2] for entry in self._strided)
        return found

    def collapse(self, horizon: int, keep: Collection[int] = ()) -> None:
        """Replace everything older than `horizon` by it, except the ids in `keep`."""
        old = [box for box, id in self._writers.items() if id < horizon and id not in keep]
        if len(old) == len(self._writers):
            self._writers = {self._extent: horizon}
        elif old:
            for box in old:
                del self._writers[box]
            for box in Region(old).boxes:
                self._writers[box] = horizon
        if self._readers:
            recent = {box: [i for i in ids if i >= horizon] for box, ids in self._readers.items()}
            self._readers = {box: ids for box, ids in recent.items() if ids}
        if self._strided:
            self._strided = [e for e in self._strided if e[2] >= horizon or e[2] in keep]
        self._aligned = all(box in self._writers for box in self._readers)

    def __len__(self) -> int:
        return len(self._writers) + sum(map(len, self._readers.values())) + len(self._strided)
