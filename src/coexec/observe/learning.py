"""Teach the predictors from what ran: kernels their models, copies their links.

Before: backend/base.py's Ran, predict/.  After: pump.py, which gives it what ran.  Owns nothing.

A device may run several kernels at once, which then share it. How long each of them took says less: alone it would take no
longer than that, and no less than its fair share of the time. What is known already counts, as far as it lies between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from ..backend.base import Ran
from ..graph.instruction import Copy, Launch
from ..predict.links import Links

LONG = 50e-6  # seconds: how long shorter kernels wait is measured by few backends, and says little about long ones

Spans = list[tuple[float, float]]
"""When kernels began and ended, in seconds."""


class Learning:
    """Learns from what ran."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._before: dict[str, Spans] = {}  # of the kernels that were reported last, by device

    def ran(self, records: Sequence[Ran]) -> None:
        """Learn from what finished."""
        kernels: dict[str, list[Ran]] = {}
        for record in records:
            if record.error is not None or record.stop == record.start:
                continue  # nothing was computed, so nothing is learnt
            step = record.instruction.step
            if type(step) is Launch:
                kernels.setdefault(record.device, []).append(record)
            elif type(step) is Copy:
                self._links.learn(step.source.memory, step.target.memory, step.nbytes, record.start, record.stop)
        self._links.update()
        for device, ran in kernels.items():
            spans = sorted([(record.start, record.stop) for record in ran])
            self._learn(ran, Shared(spans + [s for s in self._before.get(device, ()) if s[1] > spans[0][0]]))
            self._before[device] = spans

    def _learn(self, ran: Sequence[Ran], shared: Shared) -> None:
        """Take what the kernels of one device took."""
        for record in ran:
            step, instruction = record.instruction.step, record.instruction
            assert type(step) is Launch
            if step.model is None or instruction.redone or instruction.odd:
                continue
            seconds = record.stop - record.start - record.waited
            least = min(seconds, shared.seconds(record.start, record.stop))
            if least < seconds:
                known = step.model.estimate(step.work, together=step.together)
                seconds = least if known is None else min(max(known.seconds, least), seconds)
            step.model.learn(step.work, seconds, together=step.together)
            if seconds > LONG:
                step.model.learn_wait(record.waited, seconds, together=step.together)


class Shared:
    """Divides the time of a device evenly among the kernels that run at the same moment."""

    def __init__(self, spans: Spans) -> None:
        """Know the spans of all kernels on one device."""
        self._times: list[float] = []
        self._shares: list[float] = []  # seconds that a kernel has had which has run from the first moment on
        spans.sort()
        if all(end <= begin for (_, end), (begin, _) in pairwise(spans)):
            return  # one after the other
        changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
        running, last, share = 0, changes[0][0], 0.0
        for time, change in changes:
            if time > last:
                share += (time - last) / (running or 1)
                self._times.append(time)
                self._shares.append(share)
                last = time
            running += change
        self._times.insert(0, changes[0][0])
        self._shares.insert(0, 0.0)

    def seconds(self, start: float, stop: float) -> float:
        """Return the seconds of device time that a kernel from `start` to `stop` has had."""
        if not self._times:
            return stop - start
        return self._shares[bisect_left(self._times, stop)] - self._shares[bisect_left(self._times, start)]
