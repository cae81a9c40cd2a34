"""How the partial results of a reduction get to every rank: in log2(ranks) steps, each of which doubles what a rank has.

Before: cluster/collectives.py's schedule, graph/command.py.  After: cluster/dealing.py.  Pure; every rank computes the same.

P ranks send P * ceil(log2 P) messages, where one from each to each would be P * (P - 1). Who sends what does not decide any
bit: all ranks combine all blocks in the order of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..geometry import Box
from ..graph.command import AwaitPush, Parcel, Parcels, Push
from ..predict.features import part_of
from .collectives import gather_rounds

Span = tuple[int, int]


class Gathers:
    """The messages of one reduction. A rank without blocks has nothing of its own, and passes on what it gets."""

    def __init__(
        self, ranks: int, extents: Mapping[int, Box] | None = None, spans: Mapping[int, Span] | None = None
    ) -> None:
        """`extents` are private arrays by argument, a slot per block; `spans` are the slots that each rank fills."""
        self._ranks = ranks
        self._extents, self._spans = extents or {}, spans or {}

    def pushes(self, rank: int) -> Iterator[Push]:
        """Return what a rank sends, in steps."""
        if not self._extents:
            return
        for step, round in enumerate(gather_rounds(rank, self._ranks)):
            sent = [(rank + block) % self._ranks for block in range(round.number)]
            for argument, extent in self._extents.items():
                if parcels := self._parcels(extent, sent):
                    yield Push(argument, ((round.to, parcels),), partial=True, step=step)

    def awaits(self, rank: int) -> Iterator[AwaitPush]:
        """Return what a rank gets, in steps."""
        if not self._extents:
            return
        for step, round in enumerate(gather_rounds(rank, self._ranks)):
            got = [(rank + round.first + block) % self._ranks for block in range(round.number)]
            for argument, extent in self._extents.items():
                if parcels := self._parcels(extent, got):
                    yield AwaitPush(argument, ((round.source, parcels),), partial=True, step=step)

    def _parcels(self, extent: Box, owners: Sequence[int]) -> Parcels:
        """Return the slots that some ranks have filled, neighbours in one box."""
        joined: list[Span] = []
        for first, last in sorted([self._spans[owner] for owner in owners if owner in self._spans]):
            if joined and joined[-1][1] == first:
                joined[-1] = (joined[-1][0], last)
            elif first < last:
                joined.append((first, last))
        return tuple([Parcel(part_of(extent, 0, *span)) for span in joined])
