"""Which ranks hold which part of each array, and what has to be sent so that each rank has what it reads.

Before: geometry/, cluster/collectives.py's schedule.  After: cluster/dealing.py.  Knows neither tasks nor memories. Every rank computes the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from ..geometry import Box, Grid, Pattern, Region, RegionMap, grid_covers, grids_meet, overlap, subtract
from ..graph.command import Parcel, Parcels
from .collectives import gather_rounds

Boxes = tuple[Box, ...]
Moves = dict[tuple[int, int], Parcels]
"""What is sent, by sender and receiver."""
Steps = tuple[Moves, ...]
"""The same, one after the other: what came in earlier steps is passed on in later ones. No two ranks meet in two steps."""
Written = tuple[Box, Grid | None]
Strided = tuple[tuple[Box, Grid], ...]
"""Sets that were written over what others wrote, the oldest first."""
REMEMBERED = 4096  # patterns of holders
LEAST = 4  # ranks from which on passing on saves messages
SETS = 16  # strided sets of one array that are told apart from what lies between


class Holders(NamedTuple):
    """Who holds some elements, as bits, and a number that tells elements apart which different tasks wrote."""

    ranks: int
    writer: int = 0


class Exchange:
    """For each element of each array the ranks that hold its present value."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._everyone = (1 << ranks) - 1
        self._held: dict[int, RegionMap[Holders]] = {}
        self._strided: dict[int, Strided] = {}
        self._patterns: dict[Hashable, Pattern[Holders]] = {}

    def holders(self, array: int, extent: Box) -> RegionMap[Holders]:
        """Return who holds what of an array. A new one is the same everywhere: every rank ran what made it."""
        held = self._held.get(array)
        if held is None:
            held = self._held[array] = RegionMap(extent, Holders(self._everyone))
        return held

    def given(self, array: int, extent: Box, rank: int) -> None:
        """Note that one rank alone has the first contents of an array."""
        if not extent.empty:
            self.holders(array, extent).set(extent, Holders(1 << rank))

    def forget(self, array: int) -> None:
        """Forget an array that is gone."""
        self._held.pop(array, None)
        self._strided.pop(array, None)

    def pattern(self, array: int, extent: Box) -> tuple[Pattern[Holders], Strided]:
        """Return who holds what, to compare and to go back to; the pattern is the same object whenever it is the same."""
        held = self.holders(array, extent)
        if held.pattern is None:
            signature = held.signature()
            if len(self._patterns) >= REMEMBERED:
                self._patterns.clear()
            held.pattern = self._patterns.setdefault(signature, Pattern(held))
        return held.pattern, self._strided.get(array, ())

    def become(self, array: int, pattern: tuple[Pattern[Holders], Strided]) -> None:
        """Let an array be held as it was at some moment."""
        self._held[array].become(pattern[0])
        self._set_strided(array, pattern[1])

    def volume(self, array: int, extent: Box, boxes: Iterable[Box]) -> list[int]:
        """Return how many elements of `boxes` each rank holds."""
        found = [0] * self.ranks
        held = self.holders(array, extent)
        for box in boxes:
            for part, (mask, _) in held.get(box):
                for rank in _bits(mask):
                    found[rank] += part.volume
        return found

    def read(self, array: int, extent: Box, reads: Mapping[int, Iterable[Box]]) -> Moves:
        """Let each rank have what it reads; return what is sent for that, each element at most once to a rank.

        What one task wrote is sent apart from what others wrote: it is ready at another time, and may have failed alone.
        Strided sets go with the box around them, which names them.
        """
        held = self.holders(array, extent)
        if held.uniform is not None and held.uniform.ranks == self._everyone:
            return {}
        moves: dict[tuple[int, int], dict[int, list[Box]]] = {}
        for rank, boxes in reads.items():
            for box in Region(tuple(boxes)).boxes:
                for part, (mask, writer) in held.get(box):
                    if not mask >> rank & 1:
                        parts = moves.setdefault((self._sender(mask, rank), rank), {})
                        parts.setdefault(writer, []).append(part)
        for (_, rank), by_writer in moves.items():
            for gained in by_writer.values():
                self._gain(held, gained, 1 << rank)
        return {
            pair: tuple(
                [
                    Parcel(box, self._over(array, box))
                    for _, parts in sorted(by_writer.items())
                    for box in Region(tuple(parts)).boxes
                ]
            )
            for pair, by_writer in sorted(moves.items())
        }

    def steps(self, array: int, extent: Box, reads: Mapping[int, Iterable[Box]]) -> Steps:
        """Let each rank have what it reads, and pass on what all of them read of one another, in log2(ranks) steps."""
        found = self._gathered(array, extent, reads) if len(reads) == self.ranks >= LEAST else ()
        if not found and (moves := self.read(array, extent, reads)):
            found = (moves,)
        return found

    def _gathered(self, array: int, extent: Box, reads: Mapping[int, Iterable[Box]]) -> Steps:
        """Return the steps if all ranks read the same, and what not all have of it is with one rank each, by one task.

        P ranks then send P * ceil(log2 P) messages and a few more, where one from each to each would be P * (P - 1): what
        ranks side by side have written travels as one box.
        """
        held = self.holders(array, extent)
        wanted, *others = [Region(tuple(boxes)) for boxes in reads.values()]
        if self._strided.get(array) or any(other != wanted for other in others):
            return ()
        blocks: list[list[Box]] = [[] for _ in range(self.ranks)]
        writers = set()
        for box in wanted.boxes:
            for part, (mask, writer) in held.get(box):
                if mask == self._everyone:
                    continue
                if mask.bit_count() > 1:
                    return ()
                blocks[mask.bit_length() - 1].append(part)
                writers.add(writer)
        if len(writers) != 1:
            return ()
        for parts in blocks:
            for part in parts:
                held.set(part, Holders(self._everyone, *writers))
        steps: list[Moves] = [{} for _ in gather_rounds(0, self.ranks)]
        for rank in range(self.ranks):
            for moves, round in zip(steps, gather_rounds(rank, self.ranks), strict=True):
                owners = [(rank + round.first + block) % self.ranks for block in range(round.number)]
                got = Region(tuple([part for owner in owners for part in blocks[owner]])).boxes
                if got:
                    moves[round.source, rank] = tuple([Parcel(box) for box in got])
        return tuple(steps)

    def _over(self, array: int, box: Box) -> Strided:
        """Return the strided sets in a box."""
        return tuple(
            [
                (part, grid)
                for other, grid in self._strided.get(array, ())
                if (part := overlap(other, box)) is not None and grids_meet(part, grid, None)
            ]
        )

    def _gain(self, held: RegionMap[Holders], parts: Iterable[Box], bit: int) -> None:
        for part in parts:
            for piece, (mask, writer) in held.get(part):
                held.set(piece, Holders(mask | bit, writer))

    def wrote(self, array: int, extent: Box, writes: Mapping[int, Iterable[Written]]) -> None:
        """Note that boxes are held by their writer alone, who had read what lies between steps."""
        held = self.holders(array, extent)
        number = _free(held)
        for rank, written in writes.items():
            for box, grid in written:
                self._wrote(array, held, box, grid, Holders(1 << rank, number))

    def agreed(self, array: int, extent: Box, written: Iterable[Written]) -> None:
        """Note that every rank has made the same new contents of some boxes."""
        held = self.holders(array, extent)
        number = _free(held)
        for box, grid in written:
            self._wrote(array, held, box, grid, Holders(self._everyone, number))

    def _wrote(self, array: int, held: RegionMap[Holders], box: Box, grid: Grid | None, now: Holders) -> None:
        strided = self._strided.get(array, ())
        if grid is None or grid_covers(box, grid, box, None):
            held.set(box, now)
            if strided:
                rest = [(part, lattice) for other, lattice in strided for part in subtract(other, box)]
                self._set_strided(array, tuple(rest[-SETS:]))
            return
        for part, (_, writer) in held.get(box):
            held.set(part, Holders(now.ranks, writer))
        kept = [entry for entry in strided if not grid_covers(box, grid, *entry)]
        self._set_strided(array, (*kept[1 - SETS :], (box, grid)))

    def _set_strided(self, array: int, strided: Strided) -> None:
        if strided:
            self._strided[array] = strided
        else:
            self._strided.pop(array, None)

    def _sender(self, mask: int, rank: int) -> int:
        """Return who sends: the nearest holder below, by number, so that no rank sends to all."""
        assert mask, "somebody holds every element"
        return max(_bits(mask), key=lambda holder: -((rank - holder) % self.ranks))


def _free(held: RegionMap[Holders]) -> int:
    """Return the least number that no writer has: numbers come again, so that states repeat themselves."""
    taken = {writer for _, (_, writer) in held.entries()}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _bits(mask: int) -> list[int]:
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
