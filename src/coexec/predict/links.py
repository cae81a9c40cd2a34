"""How fast data moves between memories: latency and bandwidth per direction, learnt from every copy.

Before: machine/platform.py.  After: observe/learning.py, assembly.py.  Owned by a runtime; told of copies, never of devices.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ..machine.platform import Link, Platform
from .window import centre

WINDOW = 32  # copies remembered per link and size: enough for medians, few enough to follow a change
LARGE = 1 << 20  # bytes from which a copy says something about bandwidth; smaller ones tell the latency
ENOUGH = 3


class Links:
    """Measured links of one platform, which it corrects in place."""

    def __init__(self, platform: Platform, known: dict[tuple[str, str], tuple[float, float]]) -> None:
        self._platform = platform
        self._small: dict[tuple[int, int], deque[float]] = {}
        self._large: dict[tuple[int, int], deque[tuple[int, float]]] = {}
        self._delays: dict[tuple[int, int], deque[float]] = {}
        self._last: dict[tuple[int, int], tuple[float, float, int]] = {}  # begin, end and bytes of copies side by side
        self._changed: set[tuple[int, int]] = set()
        self._stated = {pair: link.latency for pair, link in platform.links.items()}
        for pair in list(platform.links):
            found = known.get(self._names(pair))
            if found is not None:
                self._set(pair, *found)

    def learn(self, source: int, target: int, nbytes: int, start: float, stop: float) -> None:
        """Take the measurement of one copy. Copies side by side share a link: together they tell how fast it is."""
        pair = (source, target)
        if pair not in self._platform.links or stop <= start or nbytes <= 0:
            return
        last = self._last.get(pair)
        if last is not None and start < last[1] and stop > last[0]:
            self._take_back(pair, *last)
            start, stop, nbytes = min(start, last[0]), max(stop, last[1]), nbytes + last[2]
        elif nbytes <= LARGE // 64:
            self._small.setdefault(pair, deque(maxlen=WINDOW)).append(stop - start)
        self._last[pair] = (start, stop, nbytes)
        if nbytes >= LARGE:
            self._large.setdefault(pair, deque(maxlen=WINDOW)).append((nbytes, stop - start))
        self._changed.add(pair)

    def delayed(self, source: int, target: int, seconds: float) -> None:
        """Take how long it took until who waited for a small copy alone went on: threads that wake and queues of drivers count."""
        pair = (source, target)
        if pair in self._platform.links and seconds >= 0.0:
            self._delays.setdefault(pair, deque(maxlen=WINDOW)).append(seconds)
            self._changed.add(pair)

    def _take_back(self, pair: tuple[int, int], start: float, stop: float, nbytes: int) -> None:
        """Forget the last measurement: another copy went on at the same time."""
        large, small = self._large.get(pair), self._small.get(pair)
        if large and large[-1] == (nbytes, stop - start):
            large.pop()
        elif small and small[-1] == stop - start:
            small.pop()

    def update(self) -> None:
        """Correct the platform by what was learnt since the last time."""
        changed, self._changed = self._changed, set()
        for pair in changed:
            link = self._platform.links[pair]
            small, large = list(self._small.get(pair, ())), list(self._large.get(pair, ()))  # others may go on learning
            latency = centre(small) if len(small) >= ENOUGH else min(link.latency, self._stated[pair])
            rates = [nbytes / max(seconds - latency, 0.1 * seconds) for nbytes, seconds in large]
            delays = list(self._delays.get(pair, ()))
            if len(delays) >= ENOUGH:
                latency = max(latency, centre(delays))
            elif len(small) < ENOUGH:
                latency = link.latency
            self._set(pair, latency, centre(rates) if len(rates) >= ENOUGH else link.bandwidth)

    def measured(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Return what was measured, by names of memories: seconds of latency and bytes per second."""
        self.update()
        pairs = {*self._small, *self._large, *self._delays}
        return {
            self._names(pair): (link.latency, link.bandwidth)
            for pair in pairs
            if (link := self._platform.links.get(pair)) is not None
        }

    def _names(self, pair: tuple[int, int]) -> tuple[str, str]:
        memories = self._platform.memories
        return memories[pair[0]].name, memories[pair[1]].name

    def _set(self, pair: tuple[int, int], latency: float, bandwidth: float) -> None:
        old = self._platform.links[pair]
        links: dict[tuple[int, int], Link] = self._platform.links  # type: ignore[assignment]  # ours to correct
        links[pair] = replace(old, latency=latency, bandwidth=bandwidth)
