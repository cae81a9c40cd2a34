"""Which rank would be done first with an undivided call, as predicted from what all ranks were told.

Before: cluster/speeds.py's words.  After: cluster/dealing.py.  Pure: the same on every rank.

Time is counted as the program goes: a rank is free once it is done with what it got, an array is there once its writer is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

BANDWIDTH = 9e9
"""Bytes per second between ranks: what one gives another on a machine with much else to do (cluster/gridding.py)."""
MESSAGE = 30e-6
"""Seconds that a message takes beside its bytes."""
LEAST = 1e-3
"""Seconds of a call that is worth another rank: shorter ones stay where most of their data is, so that loops repeat themselves."""

Table = Mapping[str, Sequence[float]]
"""Seconds of undivided calls by kind: on each rank."""


class Earliest:
    """When ranks are done with what they got, and when arrays are there."""

    def __init__(self, ranks: int) -> None:
        self._free = [0.0] * ranks
        self._there: dict[int, float] = {}  # by array
        self._table: Table = {}

    @property
    def known(self) -> bool:
        """Whether anything was told."""
        return bool(self._table)

    def told(self, table: Table) -> None:
        """Take what ranks know of undivided calls."""
        self._table = table

    def seconds(self, kind: str) -> Sequence[float] | None:
        """Return what a kind of call takes on each rank; None if nobody knows, or if it is too short to be moved."""
        found = self._table.get(kind)
        return found if found is not None and min(found) >= LEAST else None

    def choose(
        self, seconds: Sequence[float], able: Iterable[int], lacking: Sequence[int], reads: Iterable[int]
    ) -> int:
        """Return the rank that would be done first; `lacking` is in bytes, `reads` are the arrays that the call reads."""
        there = max([self._there.get(array, 0.0) for array in reads], default=0.0)

        def done(rank: int) -> float:
            arrives = there + (MESSAGE + lacking[rank] / BANDWIDTH if lacking[rank] else 0.0)
            return max(self._free[rank], arrives) + seconds[rank]

        return min(able, key=lambda rank: (done(rank), lacking[rank], rank))

    def gave(
        self, work: Mapping[int, float], lacking: Mapping[int, int], reads: Iterable[int], writes: Iterable[int]
    ) -> None:
        """Note that ranks got a call, or parts of it: seconds of each, as far as they are known."""
        there = max([self._there.get(array, 0.0) for array in reads], default=0.0)
        for rank, seconds in work.items():
            late = MESSAGE + lacking[rank] / BANDWIDTH if lacking.get(rank) else 0.0
            self._free[rank] = max(self._free[rank], there + late) + seconds
        end = max([self._free[rank] for rank in work], default=there)
        for array in writes:
            self._there[array] = end

    def waited(self, readers: Iterable[int], array: int) -> None:
        """Note that the program waits for an array on some ranks before it goes on there."""
        there = self._there.get(array, 0.0)
        for rank in readers:
            self._free[rank] = max(self._free[rank], there)

    def forget(self, array: int) -> None:
        """Forget an array that is gone."""
        self._there.pop(array, None)
