"""Hand out the rows of a running task, piece by piece, to whoever asks: for when predictions are poor.

Before: plan/divider.py.  After: execute/on_demand.py.  Knows rows and devices only: no clock, thread or instruction.

`dynamic`: one common stock, pieces shrink with what is left, in proportion to predicted speed. `auto`: each device has the
rows that the plan gave it, and takes them in pieces that halve; one that runs dry takes half of what the device that is
farthest behind has left. With good predictions `auto` is the plan, with a few more launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Stock(NamedTuple):
    """The rows a device begins with, and what is known of it."""

    device: str
    lo: int
    hi: int
    rate: float  # predicted rows per second
    granule: int = 1


class Handout:
    """What is left of one task, and who may have it."""

    def __init__(self, stocks: Sequence[Stock], *, policy: str, least: int) -> None:
        self._policy = policy
        self._least = max(1, least)  # rows that a piece has at least, if there are so many
        self._rates = {s.device: max(s.rate, 1e-30) for s in stocks}
        self._granules = {s.device: max(1, s.granule) for s in stocks}
        self._owner = {s.device: i for i, s in enumerate(stocks)}
        self._gone: set[str] = set()
        self._left: list[list[int]] = [[s.lo, s.hi] for s in stocks]
        if policy == "dynamic":
            self._left = [[min(s.lo for s in stocks), max(s.hi for s in stocks)]]

    @property
    def rows(self) -> int:
        """Rows that nobody has yet."""
        return sum(hi - lo for lo, hi in self._left)

    def take(self, device: str) -> tuple[int, int] | None:
        """Return the next rows for `device`, or None if there is nothing left that it should have."""
        if device in self._gone:
            return None
        if self._policy == "dynamic":
            rates = sum(rate for name, rate in self._rates.items() if name not in self._gone)
            return self._front(0, device, self._rates[device] / (2.0 * rates))
        own = self._owner[device]
        if self._left[own][1] > self._left[own][0]:
            return self._front(own, device, 0.5)
        for gone in self._gone:
            if (rows := self._front(self._owner[gone], device, 0.5)) is not None:
                return rows
        return self._from_the_last(device)

    def _front(self, span: int, device: str, part: float) -> tuple[int, int] | None:
        """Take the first rows of a span: `part` of it, in whole granules, all of it if little would be left."""
        lo, hi = self._left[span]
        if hi <= lo:
            return None
        granule = self._granules[device]
        rows = max(self._least, int((hi - lo) * part))
        rows = min(hi - lo, -(-rows // granule) * granule)
        if hi - lo - rows < self._least:
            rows = hi - lo
        self._left[span][0] = lo + rows
        return lo, lo + rows

    def _from_the_last(self, device: str) -> tuple[int, int] | None:
        """Take half of what the device has left that would need longest for it, from its end."""
        behind = max(self._owner, key=self._seconds)
        span = self._left[self._owner[behind]]
        rows = span[1] - span[0]
        if rows < 2 * self._least:
            return None  # its owner is about to finish: a piece so small costs more than it brings
        both = self._rates[device] + self._rates[behind]
        granule = self._granules[device]
        taken = max(self._least, int(rows * self._rates[device] / both) // granule * granule)
        span[1] -= taken
        return span[1], span[1] + taken

    def _seconds(self, device: str) -> float:
        lo, hi = self._left[self._owner[device]]
        return (hi - lo) / self._rates[device]

    def measured(self, device: str, rate: float) -> None:
        """Correct what is known of a device's speed: rows per second, as it runs."""
        if rate > 0.0:
            self._rates[device] = rate

    def leave(self, device: str) -> list[str]:
        """Give a device nothing any more, and what it has not taken to the others; return who they are."""
        self._gone.add(device)
        return [name for name in self._owner if name not in self._gone]

    def rest(self) -> list[tuple[int, int]]:
        """Give away everything that is left."""
        rest = [(lo, hi) for lo, hi in self._left if hi > lo]
        self._left = [[hi, hi] for _, hi in self._left]
        return rest
