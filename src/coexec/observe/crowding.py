"""How many copies were under way at the same time on what links share.

Before: trace.py.  After: path.py, report.py.  Knows rows only; how bandwidth is shared is the devices' business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from .trace import Row, Trace


class Crowding:
    """The copies of a run, by what they pass through."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        events: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for row in trace.work:
            if row["kind"] == "copy" and row["stop"] > row["start"]:
                for shared in trace.passes(row):
                    events[shared] += [(row["start"], 1), (row["stop"], -1)]
        self._loads = {name: _Load(found) for name, found in events.items()}

    def others(self, row: Row) -> float:
        """Return how many other copies a copy shared a wire with, on average over its time."""
        seconds = float(row["stop"] - row["start"])
        if seconds <= 0:
            return 0.0
        loads = [self._loads[name].within(row["start"], row["stop"]) for name in self._trace.passes(row)]
        return max(0.0, max(loads, default=seconds) / seconds - 1.0)


class _Load:
    """How many were under way at each moment, and the integral of that over time."""

    def __init__(self, events: list[tuple[float, int]]) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []
        self._before: list[float] = []
        count, total, last = 0, 0.0, 0.0
        for time, change in sorted(events):
            total += count * (time - last)
            count, last = count + change, time
            if self._times and self._times[-1] == time:
                self._counts[-1] = count
            else:
                self._times.append(time)
                self._counts.append(count)
                self._before.append(total)

    def within(self, start: float, stop: float) -> float:
        return self._until(stop) - self._until(start)

    def _until(self, time: float) -> float:
        at = bisect_right(self._times, time) - 1
        return self._before[at] + self._counts[at] * (time - self._times[at]) if at >= 0 else 0.0
