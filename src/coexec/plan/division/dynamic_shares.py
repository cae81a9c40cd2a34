"""Hand out the rows of a running task, piece by piece, to whoever asks: for when predictions are poor.

Before: plan/division/divider.py.  After: schedule/dynamic_shares.py.  Knows rows and devices only: no clock, thread or instruction.

`dynamic`: one common stock, pieces shrink with what is left, in proportion to speed. `auto`: each device begins with the
rows that the plan gave it; one that runs dry takes from the device that is farthest behind. Both commit little before a
device's speed was measured, and then at most half of its fair part of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FIRST = 0.2  # of its fair part that a device gets while its speed is only predicted
LATER = 0.5


class Stock(NamedTuple):
    """The rows a device begins with, and what is known of it."""

    device: str
    lo: int
    hi: int
    rate: float  # predicted rows per second
    granule: int = 1


class DynamicShares:
    """What is left of one task, and who may have it."""

    def __init__(self, stocks: Sequence[Stock], *, policy: str, least: float, worth: float = 0.0) -> None:
        """Take the plan; a piece should last at least `least` of the whole time, and at least `worth` seconds."""
        self._policy = policy
        self._rates = {s.device: max(s.rate, 1e-30) for s in stocks}
        self._granules = {s.device: max(1, s.granule) for s in stocks}
        self._owner = {s.device: i for i, s in enumerate(stocks)}
        self._gone: set[str] = set()
        self._measured: set[str] = set()
        self._worth = worth
        self._floor: dict[str, int] = {}  # rows that a device's pieces have at least: smaller ones were too short
        self._left: list[list[int]] = [[s.lo, s.hi] for s in stocks]
        if policy == "dynamic":
            self._left = [[min(s.lo for s in stocks), max(s.hi for s in stocks)]]
        self._least = least * self.rows

    @property
    def rows(self) -> int:
        """Rows that nobody has yet."""
        return sum(hi - lo for lo, hi in self._left)

    def take(self, device: str) -> tuple[int, int] | None:
        """Return the next rows for `device`, or None if there is nothing left that it should have."""
        if device in self._gone:
            return None
        wanted = self._fair(device) * self.rows * (LATER if device in self._measured else FIRST)
        if self._policy == "dynamic":
            return self._front(0, device, wanted)
        own = self._owner[device]
        lo, hi = self._left[own]
        if hi > lo:
            return self._front(own, device, wanted)
        for gone in self._gone:
            if (rows := self._front(self._owner[gone], device, wanted)) is not None:
                return rows
        return self._from_the_last(device, wanted)

    def _fair(self, device: str) -> float:
        """Return the part of all work that a device should do, by what is known of its speed."""
        return self._rates[device] / sum(rate for name, rate in self._rates.items() if name not in self._gone)

    def _at_least(self, device: str) -> int:
        return max(self._floor.get(device, 1), int(self._least * self._fair(device)))

    def _front(self, span: int, device: str, wanted: float) -> tuple[int, int] | None:
        """Take the first rows of a span, in whole granules; all of it if little would be left."""
        lo, hi = self._left[span]
        if hi <= lo:
            return None
        granule, least = self._granules[device], self._at_least(device)
        rows = max(least, int(wanted))
        rows = min(hi - lo, -(-rows // granule) * granule)
        if hi - lo - rows < least:
            rows = hi - lo
        self._left[span][0] = lo + rows
        return lo, lo + rows

    def _from_the_last(self, device: str, wanted: float) -> tuple[int, int] | None:
        """Take rows from the end of what the device has left that would need longest for it."""
        behind = max(self._owner, key=self._seconds)
        span = self._left[self._owner[behind]]
        rows, granule = span[1] - span[0], self._granules[device]
        if rows < 2 * self._at_least(behind):
            return None  # its owner is about to finish: a piece so small costs more than it brings
        together = rows * self._rates[device] / (self._rates[device] + self._rates[behind])  # both finish at once
        taken = int(min(max(wanted, self._at_least(device)), together))
        taken = max(1, taken // granule * granule)
        stop = span[1]
        span[1] = max(span[0], (stop - taken) // granule * granule)  # the last rows may be no whole granule
        return span[1], stop

    def _seconds(self, device: str) -> float:
        lo, hi = self._left[self._owner[device]]
        return (hi - lo) / self._rates[device]

    def measured(self, device: str, rows: int, seconds: float) -> None:
        """Correct what is known of a device's speed by a piece that it has finished."""
        if seconds > 0.0:
            rate = rows / seconds
            if (
                seconds < self._worth
            ):  # mostly the cost of a launch: the device is at least so fast, its pieces too small
                self._floor[device] = max(self._floor.get(device, 1), 2 * rows)
                rate = max(rate, self._rates[device])
            self._rates[device] = rate
            self._measured.add(device)

    def leave(self, device: str) -> list[str]:
        """Give a device nothing any more, and what it has not taken to the others; return who they are."""
        self._gone.add(device)
        return [name for name in self._owner if name not in self._gone]

    def rest(self) -> list[tuple[int, int]]:
        """Give away everything that is left."""
        rest = [(lo, hi) for lo, hi in self._left if hi > lo]
        self._left = [[hi, hi] for _, hi in self._left]
        return rest
