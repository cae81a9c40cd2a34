"""Who wrote and who read which box last: the one structure behind the edges of the task and instruction graphs.

Before: geometry/.  After: graph/task_graph.py, lower/.  Knows ids and boxes; ids grow in program order.

The usual array is touched as a whole: one writer, and the readers since. Once boxes differ, dense boxes live in
dictionaries, where a box that is asked for as it was written is found by one look-up; strided sets (red-black) live in
a list beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from ..geometry import (
    Box,
    Grid,
    Region,
    covers,
    every_point,
    grid_covers,
    grids_meet,
    meeting,
    overlap,
    overlaps,
    shelved,
    subtract,
)  # fmt: skip
from .forms import FoldedForm, Form, Ids, Numbering
from .strided import CARRIED, READ, WROTE, Strided, last_writers, meets, outliving, shares

FEW = 12  # boxes that are looked at one by one
MANY = 4  # writers of what is read, from which on it pays to look whether one of them waited for others
NO_MARK = (
    -1
)  # no horizon stands for older ids yet; other negative numbers are symbols (graph/edge_cache.py, lower/recipe.py)
LAST = 4  # newest readers that are looked at, where looking at all takes too long


class Tracker:
    """Last writers and, since then, readers of every element of one box."""

    __slots__ = (
        "_boxes",
        "_looked",
        "_mark",
        "_readers",
        "_strided",
        "_writers",
        "extent",
        "folded",
        "ids_folded",
        "one_writer",
        "whole_readers",
    )

    def __init__(self, extent: Box, origin: int) -> None:
        self.extent = extent
        self.folded: FoldedForm | None = None  # instead of the rest, if whoever owns it works by forms
        self.ids_folded: Ids = []
        self._mark = NO_MARK  # the last horizon that stands for older ids; readers from before that did not wait for it
        self._boxes = False  # whether boxes differ; until then the two whole-array fields hold everything
        self.one_writer = origin
        self.whole_readers: list[int] = []
        self._writers: dict[Box, int] = {}  # disjoint, covering the extent
        self._readers: dict[Box, list[int]] = {}
        self._strided: list[Strided] = []
        self._looked: tuple[Box, list[tuple[Box, list[int]]]] | None = None  # who read the box that is to be written

    # One access, asked and noted at once: for tasks that are not divided and touch the array once ----------------------

    def read_by(self, box: Box, grid: Grid | None, id: int, needs: set[int]) -> None:
        """Add to `needs` whose results a read of `box` by `id` sees, and note it."""
        if not self._boxes and (box is self.extent or box == self.extent) and grid is None:
            needs.add(self.one_writer)
            self.whole_readers.append(id)
            return
        self.before_read(box, grid, needs)
        self.did_read(box, grid, id)

    def write_by(self, box: Box, grid: Grid | None, id: int, needs: set[int] | None, after: set[int]) -> None:
        """Add to `after` what must be over before `id` overwrites `box`, to `needs` what it reads of it; note it."""
        if not self._boxes and (box is self.extent or box == self.extent) and grid is None:
            if needs is not None:
                needs.add(self.one_writer)
            if self.whole_readers:
                after.update(self.whole_readers)
                self.whole_readers = []
                if self.one_writer == self._mark:
                    after.add(self._mark)
            else:
                after.add(self.one_writer)
            self.one_writer = id
            return
        if needs is not None:
            self.before_read(box, grid, needs)
        self.before_write(box, grid, after)
        self.did_write(box, grid, id)

    # Asked first, noted later: for divided tasks, whose chunks do not wait for each other -------------------------------

    def before_read(self, box: Box, grid: Grid | None, found: set[int]) -> None:
        """Add the ids whose results a read of `box` sees."""
        if not self._boxes:
            found.add(self.one_writer)
            return
        writer = self._writers.get(box)
        if writer is not None and not self._strided:
            found.add(writer)
            return
        if self._strided:
            found |= last_writers(self._strided, meeting(self._writers, box), box, grid)
            return
        if grid is None and self._readers and len(self._writers) > FEW and self._read_on(box, found):
            return
        hit = meeting(self._writers, box)
        if grid is not None:
            hit = [entry for entry in hit if shares(entry[0], box, grid)]
        ids = {id for _, id in hit}
        if grid is None and len(ids) > MANY and self._readers:
            ids = {id for _, id in self._without_ancestors(hit, box)}
        found |= ids

    def _read_on(self, box: Box, found: set[int]) -> bool:
        """Add the ids whose results a read of `box` sees, if it goes on from a read by one of them; tell whether it does.

        A step that reads all rows so far and writes the next one waits for the step before it, not for all: that one has
        waited for the others. Only the rows that it did not read are looked at.
        """
        for seen in islice(reversed(self._readers), LAST):
            ids = self._readers[seen]
            if len(ids) == 1 and covers(box, seen):
                further = {id for part in subtract(box, seen) for _, id in meeting(self._writers, part)}
                if ids[0] in further:
                    found |= further
                    return True
        return False

    def _without_ancestors(self, hit: list[tuple[Box, int]], box: Box) -> list[tuple[Box, int]]:
        """Leave out writers that another one of them has waited for, because it read what they wrote."""
        ids = {id for _, id in hit}
        known = [(seen, readers) for seen, readers in meeting(self._readers, box) if not ids.isdisjoint(readers)]
        if not known:
            return hit
        seen, readers = max(known, key=lambda entry: entry[0].volume)
        return [(other, id) for other, id in hit if id in readers or not covers(seen, other)]

    def before_write(self, box: Box, grid: Grid | None, found: set[int]) -> None:
        """Add the ids that must be over before `box` is overwritten: readers, and writers nobody read since."""
        if not self._boxes:
            found.update(self.whole_readers)
            if not self.whole_readers or self.one_writer == self._mark:
                found.add(self.one_writer)
            return
        hit = meeting(self._readers, box) if self._readers else []
        if grid is None:
            self._looked = (box, hit)
        else:
            hit = [entry for entry in hit if shares(entry[0], box, grid)]
        for _, ids in hit:
            found.update(ids)
        writer = self._writers.get(box) if grid is None else None
        if writer is None:
            self._unread_writers(box, grid, hit, found)
        elif not hit or writer == self._mark:
            found.add(writer)
        found.update([entry.id for entry in self._strided if meets(box, grid, entry)])

    def _unread_writers(
        self, box: Box, grid: Grid | None, readers: Sequence[tuple[Box, list[int]]], found: set[int]
    ) -> None:
        """Add the writers in `box` that none of the readers has waited for; always the mark, which none waits for."""
        for other, id in meeting(self._writers, box):
            if id in found or (grid is not None and not shares(other, box, grid)):
                continue
            if id == self._mark or not any(overlaps(other, reader) for reader, _ in readers):
                found.add(id)

    def did_read(self, box: Box, grid: Grid | None, id: int, waited: Collection[int] = ()) -> None:
        """Note that `id` reads `box`, and that it comes after those in `waited`."""
        if not self._boxes:
            if grid is None and box == self.extent:
                self.whole_readers.append(id)
                return
            self._spread()
        if grid is not None:
            self._strided.append(Strided(box, grid, id, READ))
            return
        self._looked = None
        if waited and self._readers:
            self._forget_readers(box, waited)
        readers = self._readers.get(box)
        if readers is None:
            self._readers[box] = [id]
            if len(self._readers) > FEW:
                self._readers = shelved(self._readers)
        elif readers[-1] != id:
            readers.append(id)

    def _forget_readers(self, box: Box, waited: Collection[int]) -> None:
        """Forget readers of parts of `box` that one who reads all of it now comes after: whoever waits for it does so."""
        for seen in list(islice(reversed(self._readers), LAST)):
            ids = self._readers[seen]
            if ids[-1] in waited and covers(box, seen):
                if len(ids) > 1 and (left := [id for id in ids if id not in waited]):
                    self._readers[seen] = left
                else:
                    del self._readers[seen]

    def did_write(self, box: Box, grid: Grid | None, id: int, by: int | None = None) -> None:
        """Note that `id` writes `box`: nobody older needs to be asked about it again.

        `by` has brought a strided set here that `id` wrote elsewhere: who reads it needs both.
        """
        if grid is None and (box is self.extent or box == self.extent):
            self._gather(id)
            return
        if not self._boxes:
            self._spread()
        if grid is not None:
            self._strided = [e for e in self._strided if not grid_covers(box, grid, e[0], e[1])]
            self._strided.append(Strided(box, grid, id))
            if by is not None:
                self._strided.append(Strided(box, grid, by, CARRIED))
            return
        if box not in self._writers:
            self._carve(box)
        self._writers[box] = id
        if self._readers:
            self._carve_readers(box)
        self._looked = None
        if self._strided:
            self._strided = [
                entry._replace(box=rest)
                for entry in self._strided
                for rest in subtract(entry.box, box)  # the lattice's phase is absolute, so it stays valid
            ]

    def _spread(self) -> None:
        """Go over to boxes."""
        self._boxes = True
        self._writers, self._readers = {}, {}
        self._writers[self.extent] = self.one_writer
        if self.whole_readers:
            self._readers[self.extent] = self.whole_readers
        self._strided = []
        self._looked = None

    def _gather(self, writer: int) -> None:
        """Go back to the whole: `writer` wrote everything, and nobody has read it."""
        self._boxes = False
        self.one_writer = writer
        self.whole_readers = []

    def _carve(self, box: Box) -> None:
        """Take `box` out of what others wrote."""
        for other, id in meeting(self._writers, box):
            del self._writers[other]
            for rest in subtract(other, box):
                self._writers[rest] = id
        self._writers = shelved(self._writers)

    def _carve_readers(self, box: Box) -> None:
        """Take `box` out of what others read."""
        readers, looked = self._readers, self._looked
        for other, ids in looked[1] if looked is not None and looked[0] is box else meeting(readers, box):
            del readers[other]
            if other is not box:
                for rest in subtract(other, box):
                    if (known := readers.get(rest)) is not None:
                        known.extend(ids)
                    else:
                        readers[rest] = ids.copy()

    # Questions and clean-up ---------------------------------------------------------------------------------------------

    @property
    def strided(self) -> bool:
        """Whether there are strided sets beside the dense boxes."""
        return self._boxes and bool(self._strided)

    def writers(self, box: Box) -> list[tuple[Box, int]]:
        """Return the parts of `box` with the dense writer of each."""
        if not self._boxes:
            return [(box, self.one_writer)]
        writer = self._writers.get(box)
        if writer is not None:
            return [(box, writer)]
        return [
            (common, id) for other, id in meeting(self._writers, box) if (common := overlap(box, other)) is not None
        ]

    def strided_writers(self, box: Box) -> list[tuple[Box, Grid, int]]:
        """Return the parts of `box` in which strided sets were written over what `writers` says, the oldest first."""
        if not self._boxes or not self._strided:
            return []
        return [
            (common, lattice, id)
            for other, lattice, id, how in self._strided
            if how == WROTE and (common := overlap(other, box)) is not None and grids_meet(common, lattice, None)
        ]

    def sets(self, boxes: Sequence[Box], writer: int) -> list[tuple[Box, Grid, int]]:
        """Return who wrote which sets of `boxes` last, the lowest first, if some are strided; else nothing.

        The boxes themselves, which `writer` wrote, are the lowest.
        """
        over = [entry for box in boxes for entry in self.strided_writers(box)]
        return [*[(box, every_point(box), writer) for box in boxes], *over] if over else []

    def ids(self) -> set[int]:
        """Return every id that something later could depend on."""
        self.unfold()
        if not self._boxes:
            return {self.one_writer, *self.whole_readers}
        found = set(self._writers.values())
        for ids in self._readers.values():
            found.update(ids)
        found.update(entry[2] for entry in self._strided)
        return found

    def collapse(self, horizon: int, keep: Collection[int] = ()) -> None:
        """Replace everything older than `horizon` by it, except the ids in `keep`."""
        self.unfold()
        self._mark = horizon
        if not self._boxes:
            if self.one_writer < horizon and self.one_writer not in keep:
                self.one_writer = horizon
            if self.whole_readers:
                self.whole_readers = [id for id in self.whole_readers if id >= horizon]
            return
        old = [box for box, id in self._writers.items() if id < horizon and id not in keep]
        for box in old:
            del self._writers[box]
        for box in Region(old).boxes:
            self._writers[box] = horizon
        self._writers = shelved(dict(self._writers))
        recent = [(box, [i for i in ids if i >= horizon]) for box, ids in self._readers.items()]
        self._readers = shelved({box: ids for box, ids in recent if ids})
        if self._strided:
            failed = [box for box, id in self._writers.items() if id in keep]
            self._strided = outliving(self._strided, horizon, keep, failed)
        self._looked = None
        if len(self._writers) == 1 and not self._readers and not self._strided:
            self._gather(next(iter(self._writers.values())))

    def form(self, numbers: Numbering) -> Form:
        """Return everything remembered but for the ids, which are given numbers."""
        one, several = numbers.one, numbers.several
        mark = one(self._mark) if self._mark != NO_MARK else -1
        if not self._boxes:
            return mark, one(self.one_writer), several(self.whole_readers) if self.whole_readers else -1
        writers = tuple([(box, one(id)) for box, id in self._writers.items()])
        readers = tuple([(box, several(ids)) for box, ids in self._readers.items()])
        if not self._strided:
            return mark, writers, readers, ()
        reads: dict[tuple[Box, Grid], list[int]] = {}
        for box, grid, id, how in self._strided:
            if how == READ:
                reads.setdefault((box, grid), []).append(id)
        strided = [(box, grid, one(id), how) for box, grid, id, how in self._strided if how != READ]
        strided += [(box, grid, several(ids), READ) for (box, grid), ids in reads.items()]
        return mark, writers, readers, tuple(strided)

    def unfold(self) -> None:
        """Remember by box again what was remembered by form."""
        if self.folded is not None:
            form, self.folded = self.folded.form, None
            self.become(form, self.ids_folded)

    def become(self, form: Form, ids: Any) -> None:
        """Remember what a form says, with these ids."""
        self._looked = None
        self._mark = ids[form[0]] if form[0] >= 0 else NO_MARK
        if len(form) == 3:
            self._boxes = False
            self.one_writer = ids[form[1]]
            self.whole_readers = _listed(ids[form[2]]) if form[2] >= 0 else []
            return
        self._boxes = True
        self._writers = shelved({box: ids[number] for box, number in form[1]})
        self._readers = shelved({box: _listed(ids[number]) for box, number in form[2]})
        self._strided = [
            Strided(box, grid, id, how) for box, grid, number, how in form[3] for id in _listed(ids[number])
        ]

    def __len__(self) -> int:
        self.unfold()
        if not self._boxes:
            return 1 + len(self.whole_readers)
        return len(self._writers) + sum(map(len, self._readers.values())) + len(self._strided)


def _listed(ids: int | list[int]) -> list[int]:
    return [ids] if type(ids) is int else list(ids)  # type: ignore[arg-type]
