"""The account of the plans of a step: what each was estimated to take, what was measured, and why it was left.

Before: estimate.py.  After: planner.py.  Knows seconds; no device.

What runs decides: a plan that was measured counts as measured. A plan is left for one that promises less, and never goes
back and forth: one that was measured to be slower is not tried again until what models say of it has changed by more than
it was off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from .cuts import StepParts
from .estimate import PeriodEstimate

MEASURED = 8  # turns whose mean counts
LONG = 3, 20e-3  # fewer turns do if they took so many seconds
SOON = 1, 10e-3  # of a real machine: what is decided too early there is tried again
TOGETHER = 4  # times as many turns as kernels that a device runs at once: those of several turns end together
SETTLING = 2  # turns after a plan was adopted that pay for the way there; on a real machine one less
REST = 2  # turns until a plan that was left may be adopted again; twice as many each time: noise moves nothing back and forth
STEPS = 64  # of which measurements are remembered
WORTH = 0.98  # of what the present plan takes: a plan that promises more than this is no reason to change


class Measured:
    """What plans of steps were measured to take, by what a step does: a program leaves it, and comes back.

    Small calls do not count. Whether one of them becomes a task at all depends on where its array is, so the same step is found
    with them and without.
    """

    def __init__(self) -> None:
        self._known: dict[object, dict[tuple[str, ...], float]] = {}
        self._step: dict[tuple[str, ...], float] = {}  # seconds of a turn, by kind of plan

    def begin(self, step: object) -> None:
        """Go on with a step."""
        if len(self._known) >= STEPS:
            self._known.clear()
        self._step = self._known.setdefault(step, {})

    def note(self, account: PlanAccount) -> None:
        """Remember what a plan was measured to take."""
        if account.measured is not None:
            self._step[account.kind] = account.measured

    def drop(self, kinds: Sequence[tuple[str, ...]]) -> None:
        """Forget what such plans were measured to take: something has changed for them."""
        for kind in kinds:
            self._step.pop(kind, None)

    def recall(self, account: PlanAccount, turn: int) -> None:
        """Let a plan have been measured that was when the step came before."""
        if account.measured is None and account.kind in self._step:
            account.measured, account.left_at = self._step[account.kind], turn

    def forget(self) -> None:
        """Forget everything: devices have come or gone."""
        self._known.clear()
        self._step = {}


class PlanAccount:
    """What is known of one plan of a step."""

    __slots__ = ("devices", "estimated", "left", "left_at", "measured", "off", "plan", "shares", "since", "times")

    def __init__(
        self,
        devices: tuple[str, ...],
        plan: Sequence[StepParts],
        estimated: PeriodEstimate | None,
        shares: Mapping[str, float] | None = None,
        off: float = 1.0,
    ) -> None:
        self.devices = devices
        self.plan = list(plan)
        self.estimated = estimated
        self.shares = dict(shares or {})  # of divisible calls; none if it was planned call by call
        self.off = off  # times as long as estimated that plans on these devices took
        self.measured: float | None = None  # seconds, the mean of a few turns
        self.since: PlanAccount | None = None  # the plan from which the way to this one was estimated
        self.left = ""  # why it was
        self.left_at = 0  # turns of the step that there had been
        self.times = 0  # that it was left

    @property
    def kind(self) -> tuple[str, ...]:
        """What plans have in common that take about as long: their devices, and whether they were made call by call."""
        return ("", *self.devices) if self.one_by_one else self.devices

    @property
    def one_by_one(self) -> bool:
        """Whether each call was planned by itself, over several devices."""
        return not self.shares and len(self.devices) > 1

    def rests(self, turn: int) -> bool:
        """Tell whether it was left so recently, or so often, that it is not adopted again yet."""
        return bool(self.times) and turn < self.left_at + REST * 2**self.times

    @property
    def period(self) -> float:
        """The seconds of a turn: as measured, else as estimated."""
        if self.measured is not None:
            return self.measured
        return self.estimated.period * self.off if self.estimated is not None else float("inf")

    def late(self, present: PlanAccount) -> float:
        """Return the seconds of a turn by which this plan, too, will take longer than estimated, if the `present` one was seen to.

        What estimates leave out of coexec's own cost they leave out of all plans, as far as coexec has as much to do. One that was
        measured, or whose like was, needs no such correction; and devices among which calls went one by one may have waited for
        each other, which says nothing of a plan.
        """
        mine, theirs = self.estimated, present.estimated
        if present.one_by_one:
            return 0.0
        if self.measured is not None or self.off != 1.0 or present.measured is None or mine is None or theirs is None:
            return 0.0
        share = min(1.0, mine.own / theirs.own) if theirs.own > 0.0 else 0.0
        return share * min(max(0.0, present.measured - theirs.period), theirs.own)

    def costs(self, repetitions: float, *, present: bool) -> float:
        """Return the seconds that so many turns will take, with the way there unless it is the `present` plan."""
        if present or self.estimated is None:
            return repetitions * self.period
        way = self.estimated.transition - repetitions * self.estimated.slack
        return max(0.0, way) + repetitions * self.period


class TurnClock:
    """Takes the ends of turns, and tells how long the last of them took.

    Where the machine does other things as well, the middle of them counts: one turn may have taken any time.
    """

    __slots__ = ("_at_once", "_before", "_ends", "_idle", "_long", "_middle", "_settling", "_skip")

    def __init__(self, *, middle: bool = False) -> None:
        self._ends: deque[float] = deque()
        self._at_once, self._middle = 1, middle
        self._settling, self._long = (SETTLING - 1, SOON) if middle else (SETTLING, LONG)
        self._skip = self._settling
        self._idle = 0.0  # seconds for which the program had nothing under way: no plan can shorten them
        self._before = 0.0  # when the turn before the first that counts was over

    def begin(self, at_once: int = 1, *, settled: bool = False, new: bool = False) -> None:
        """Begin anew: another plan is in force, under which so many turns may end at once.

        `settled`: no data is on its way. `new`: in the first turn kernels are built, which comes once.
        """
        self._ends = deque(maxlen=max(MEASURED, TOGETHER * at_once) + 1)
        self._skip, self._at_once = (0 if settled else self._settling) + new, at_once

    @property
    def idled(self) -> float:
        """The seconds that were left out so far."""
        return self._idle

    def idle(self, seconds: float) -> None:
        """Leave out seconds for which nothing was under way."""
        self._idle += max(0.0, seconds)

    def ended(self, at: float) -> None:
        """Take the end of a turn."""
        at -= self._idle
        if self._skip > 0:
            self._skip -= 1
            self._before = at
        else:
            self._ends.append(at)

    @property
    def first(self) -> float | None:
        """The seconds of the first turn that counts, or None before it is over."""
        return self._ends[0] - self._before if self._ends else None

    @property
    def seconds(self) -> float | None:
        """The seconds of a turn, by the last of them, or None before there are enough."""
        turns = len(self._ends) - 1
        if turns < self._long[0] or (self._at_once > 1 and turns < TOGETHER * self._at_once):
            return None
        took = max(self._ends) - min(self._ends)
        if turns < MEASURED and took < self._long[1]:
            return None
        if self._middle and self._at_once == 1:
            ends = sorted(self._ends)
            return median([b - a for a, b in pairwise(ends)])
        return took / turns
