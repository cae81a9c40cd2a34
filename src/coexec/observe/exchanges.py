"""Learn how long it takes until one device goes on with what another made: the links of a platform as programs meet them.

Before: backend/base.py's Ran, predict/links.py.  After: pump.py, which gives it what ran.  Owns nothing.

A small copy takes a microsecond by the clock of a driver. But a thread has to wake and enqueue it, the driver to begin it, and
another thread to wake before the kernel begins that waited for nothing else: half a millisecond, in every turn of a loop whose
parts exchange what lies at their borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..backend.base import Ran
from ..graph.instruction import Copy, Launch
from ..machine.platform import HOST, Platform
from ..predict.links import LARGE, Links

MOST = 4096  # instructions of which it is remembered when they were over
LITTLE = LARGE // 64  # bytes: what takes longer to bring is seen by how long it takes
LATEST = 5e-3  # seconds: what comes later than this was kept by something else
OFTEN = 64  # exchanges, after which few are looked at
FEW = 16  # of the batches of records


def exchanging(platform: Platform) -> bool:
    """Tell whether some device that takes time has a memory of its own."""
    return any(device.memory != HOST and device.kind != "null" for device in platform.devices)


class EndedInstruction(NamedTuple):
    """An instruction that is over."""

    stop: float
    pair: tuple[int, int] | None = None  # of memories, if it is a small copy
    ready: float = 0.0  # when what it copied was made


class Exchanges:
    """Learns from small copies of what was made just now."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._over: dict[int, EndedInstruction] = {}
        self._free: dict[str, float] = {}  # since when devices run no kernel
        self._seen = self._batches = 0

    def ran(self, records: Sequence[Ran]) -> None:
        """Learn from what finished."""
        self._batches += 1
        if (
            self._seen >= OFTEN and self._batches % FEW > 1
        ):  # two that follow each other: copies, and who waited for them
            return
        if len(self._over) > MOST:
            self._over.clear()
        for record in records:
            step = record.instruction.step
            if record.error is not None or record.start == record.stop:
                continue
            if type(step) is Copy and step.nbytes <= LITTLE:
                self._copied(record, (step.source.memory, step.target.memory))
            elif type(step) is Launch:
                self._computed(record)

    def _parents(self, record: Ran) -> list[EndedInstruction]:
        known = self._over
        return [known[id] for id in (*record.instruction.needs, *record.instruction.after) if id in known]

    def _copied(self, record: Ran, pair: tuple[int, int]) -> None:
        """Note a copy; one of what was made long ago tells nothing."""
        parents = self._parents(record)
        if parents:
            self._over[record.instruction.id] = EndedInstruction(
                record.stop, pair, max([over.stop for over in parents])
            )

    def _computed(self, record: Ran) -> None:
        """Note a kernel. If it waited for a copy alone, that is how long an exchange takes."""
        parents = self._parents(record)
        last = max(parents, key=lambda over: over.stop, default=None)
        if last is not None and last.pair is not None:
            others = [over.stop for over in parents if over.pair is None]
            began = max([last.ready, self._free.get(record.device, last.ready), *others])
            if 0.0 <= record.start - began < LATEST and began <= last.stop:
                self._seen += 1
                self._links.delayed(*last.pair, record.start - began)
        self._over[record.instruction.id] = EndedInstruction(record.stop)
        self._free[record.device] = max(record.stop, self._free.get(record.device, record.stop))
