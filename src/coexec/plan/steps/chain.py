"""What waits for what within a turn: the program for values that it wants to see, and calls for what others have made.

Before: profile.py, estimate.py.  After: bounds.py.  Knows seconds of calls; no memory and no copy.

Two things are gone through together. All devices as one, which does one call after the other: work that is done at all. And as many
devices as one could wish, where a call waits for nothing but what it reads, and takes as long as where it is done soonest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .estimate import Overheads, looked_through
from .profile import StepProfile
from .slices import Work

FIGURES = 10  # calls of a kind on a set of devices, whose bounds take as long as one visit of an estimate


class Launches(NamedTuple):
    """What a call takes of coexec."""

    instructions: int
    kernels: int  # of these
    copies: int  # of what parts have that others read
    combined: float  # seconds from the end of its kernels until its partial results are combined
    waiting: float  # of the devices, by speed, that a delay of what they exchange keeps waiting


class ChainLink(NamedTuple):
    """A kind of call, as a turn on some devices goes through it."""

    seconds: float  # that the devices need for it, all of them together
    quickest: float  # seconds that nobody does it in less than
    near: float  # the same of those who have the host's memory
    fresh: int  # arrays that it makes
    at_once: int  # kernels that a device runs at a time
    takes: Launches


class TurnChain:
    """Goes through turns of one step on one set of devices."""

    def __init__(self, step: StepProfile, costs: Overheads, latency: float, *, launch: float, alone: bool) -> None:
        """Begin; `alone` on one device, whose `launch` takes so many seconds."""
        self._step, self._costs, self._latency = step, costs, latency
        self._launch, self._alone = launch, alone
        self._made: dict[int, float] = {}  # by array: when who wrote it is done, if all devices are one
        self._soonest: dict[int, float] = {}  # the same, if there are as many as one could wish
        self._near: dict[int, float] = {}  # the same, if only those made it who have the host's memory
        self._read: dict[int, float] = {}  # by array: when all kernels that read it are known to be over
        self._combined: set[int] = set()  # arrays that partial results went into
        self._program = self._free = self._end = 0.0
        self._since = self._went_on = (
            0.0  # seconds of the interpreter since the program last waited, and when that was over
        )

    def turn(self, kinds: Sequence[int], links: Sequence[ChainLink], *, away: bool) -> Work[float]:
        """Return the seconds of a turn of calls of these `kinds`; devices that are all `away` have no value in the host's memory."""
        before = 0.0
        for number in range(2):  # the second finds devices and program as a turn leaves them
            before, reads = self._end, list(self._step.reads)
            for position, kind in enumerate(kinds):
                while reads and reads[0].after <= position:
                    array = reads[0].array + number * reads.pop(0).renewed
                    self._wait(array, away=away)
                self._call(position, number, links[kind])
                yield 0.5 / FIGURES
            for awaited in reads:
                self._wait(awaited.array + number * awaited.renewed, away=away)
            self._end = max(self._program, self._free, self._end)
            for one, other in self._step.swapped:
                for known in (self._made, self._soonest, self._near, self._read):
                    known[one], known[other] = known.get(other, 0.0), known.get(one, 0.0)
        return self._end - before

    def _call(self, position: int, number: int, link: ChainLink) -> None:
        """Go through one call."""
        costs, made, soonest, count = self._costs, self._made, self._soonest, link.takes
        call = self._step.calls[position]
        arguments = [
            (argument, id + number * new)
            for argument, id, new in zip(call.profile.arguments, call.arrays, call.renewed, strict=True)
        ]
        others = self._program + costs.submission
        earliest = others + self._launch
        passed = count.waiting * (self._latency + 2 * costs.completion) if count.copies else 0.0
        own = 0.0  # when it is told that what it made itself is over, which it need not be if it has a queue
        for argument, array in arguments:
            if argument.reads:
                earliest = max(earliest, soonest.get(array, 0.0))
                if array in made and array in self._combined:
                    others = max(others, made[array] if self._alone else 0.0)
                elif array in made and (self._alone or passed):
                    own = max(own, made[array] + (passed or (0.0 if self._launch else costs.completion)))
            if argument.writes and self._alone:
                own = max(own, self._read.get(array, 0.0))
        if self._alone and not self._launch and others > max(own, self._free):
            others += costs.wake
        ready = max(own, others + self._launch)
        begin = max(ready, self._free)
        self._free = begin + link.seconds
        over = looked_through(begin, self._free, count.kernels, link.at_once, costs) if self._alone else self._free
        done = earliest + link.quickest
        for argument, array in arguments:
            if argument.reduces:
                made[array] = over + count.combined
                soonest[array] = self._near[array] = done + count.combined
                self._combined.add(array)
            elif argument.writes:
                made[array], soonest[array] = self._free, done
                self._near[array] = earliest + link.near
            if argument.reads and count.kernels > 1:
                self._read[array] = over
        self._end = max(self._end, done)
        submitting = (1 + link.fresh) * costs.submission + count.instructions * costs.instruction
        self._program += submitting
        self._since += submitting + count.instructions * costs.completion

    def _wait(self, array: int, *, away: bool) -> None:
        """Let the program wait for a value, which may be `away`: in no memory of the host. Then it is copied once it is asked for."""
        costs = self._costs
        away = away and array in self._made and array not in self._combined  # what was there before stays there, too
        self._program = max(self._program, self._went_on + self._since)  # what is over was looked at meanwhile
        asked = self._program + costs.submission + (2 if away else 1) * costs.instruction
        made, soonest = self._made.get(array, 0.0), self._soonest.get(array, 0.0)
        copied = max(made if away else 0.0, soonest) + costs.completion
        copied = max(copied, asked) + self._latency + costs.completion
        ready = copied if away else max(made, min(self._near.get(array, 0.0), copied))
        asleep = ready + costs.completion > asked
        seen = max(asked, ready + costs.completion + costs.wake) if asleep else asked
        self._program = seen + costs.step + costs.completion
        self._went_on, self._since = self._program, 0.0
