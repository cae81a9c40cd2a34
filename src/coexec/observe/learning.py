"""Teach the predictors from what ran: kernels their models, copies their links.

Before: backend/base.py's Ran, predict/.  After: pump.py, which gives it what ran.  Owns nothing.

A device may run several kernels at once, which then share it. How long each of them took says less: alone it would take no
longer than that, and no less than its fair share of the time. What is known already counts, as far as it lies between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import Any

from ..backend.base import Ran
from ..graph.instruction import Copy, Launch
from ..predict.links import Links

LONG = 50e-6  # seconds: how long shorter kernels wait is measured by few backends, and says little about long ones

Spans = Sequence[tuple[float, float]]
"""When kernels began and ended, in seconds."""
LONG_AGO: Spans = ((-inf, -inf),)


class Learning:
    """Learns from what ran."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._before: dict[
            str, Spans
        ] = {}  # of the kernels that were reported last, by device; the last to end is the last

    def ran(self, records: Sequence[Ran]) -> None:
        """Learn from what finished."""
        kernels: dict[str, list[Ran]] = {}
        computed = [
            record for record in records if record[3] != record[4] and record[6] is None
        ]  # which can be learnt from
        for record in computed:
            step = record[0].step
            if type(step) is Launch:
                device = record[1]
                known = kernels.get(device)
                if known is None:
                    kernels[device] = [record]
                else:
                    known.append(record)
            elif type(step) is Copy:
                self._links.learn(step.source.memory, step.target.memory, step.nbytes, record.start, record.stop)
        self._links.update()
        for device, ran in kernels.items():
            before = self._before.get(device, LONG_AGO)
            if before[-1][1] <= ran[0][3] and _follow_each_other(ran):
                self._learn(ran, APART)
                self._before[device] = (ran[-1][3:5],)
                continue
            spans = sorted([record[3:5] for record in ran])
            self._learn(ran, Shared([*spans, *[span for span in before if span[1] > spans[0][0]]]))
            spans.sort(key=itemgetter(1))
            self._before[device] = spans

    def _learn(self, ran: Sequence[Ran], shared: Shared) -> None:
        """Take what the kernels of one device took; runs of one and the same launch, which loops make, are learnt together."""
        apart = shared.apart
        last: Any = ran[0].instruction.step
        runs: list[float] = []
        for instruction, _, _, start, stop, waited, _ in ran:
            step: Any = instruction.step  # a Launch
            model = step.model
            if model is None or instruction.redone or instruction.odd:
                continue
            if step is not last:
                if runs:
                    _teach(last, runs)
                    runs = []
                last = step
            seconds = stop - start - waited
            if not apart and (least := shared.seconds(start, stop)) < seconds:
                if runs:  # they count in what is known by now
                    _teach(last, runs)
                    runs = []
                known = model.estimate(step.work, together=step.together)
                seconds = least if known is None else min(max(known.seconds, least), seconds)
            runs.append(seconds)
            if seconds > LONG:
                model.learn_wait(waited, seconds, together=step.together)
        if runs:
            _teach(last, runs)


def _follow_each_other(ran: Sequence[Ran]) -> bool:
    """Tell whether each began after the one before it was over."""
    last = -inf
    for record in ran:
        if record[3] < last:
            return False
        last = record[4]
    return True


def _teach(step: Launch, runs: list[float]) -> None:
    """Let the model of a launch learn how long it took, each time."""
    step.model.learn_all(step.work, runs, together=step.together)


class Shared:
    """Divides the time of a device evenly among the kernels that run at the same moment."""

    def __init__(self, spans: Spans) -> None:
        """Know the spans of all kernels on one device."""
        self._times: list[float] = []
        self._shares: list[float] = []  # seconds that a kernel has had which has run from the first moment on
        spans = sorted(spans)
        self.apart = True  # one after the other
        last = -inf
        for begin, end in spans:
            if begin < last:
                self.apart = False
                break
            last = end
        if self.apart:
            return
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
        if self.apart:
            return stop - start
        return self._shares[bisect_left(self._times, stop)] - self._shares[bisect_left(self._times, start)]


APART = Shared([])
"""Nothing ran at the same moment as anything else."""
