"""What is learnt from tasks that run: how late devices begin, how long whole tasks took, and the tasks that are under way.

Before: predict/window.py.  After: plan/policies.py, plan/planned.py, schedule/plan.py.  Told under the runtime's lock.

1. Start delays: from the call until a device computes, beside what its copies take. Planning, lowering, waking threads and a
   driver's queues cost each kind of device its own time, a fixed one, which decides what small shares are worth. What counts
   are calls that are made again: most are, and a first one pays for fits, allocations and kernels that are built.
2. Outcomes: predictions are made part by part. What they do not see (threads that fight for a core, memory that is shared)
   shows in the time from a call until its last part is done, if nothing else was going on meanwhile. Of the two ways to run
   a task, divided and undivided, the one that was measured to be better is taken.
3. Lessons: what the run of a task will teach, kept by the task's number until it is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..predict.window import centre

if TYPE_CHECKING:
    from ..graph.instruction import Launch
    from ..graph.task import Task
    from .division.divided import Divided
    from .planned import Planned
    from .policies import Loads

DELAYS = 15
USUAL = 300e-6  # seconds, where nothing was measured
LATEST = 5e-3  # seconds: what is later than this was kept from beginning by something else


class StartDelays:
    """The recent start delays of each device."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[float]] = {}
        self._again: set[str] = set()  # devices that were measured in calls like earlier ones
        self._known: dict[str, float] = {}

    def learn(self, device: str, seconds: float, *, again: bool = True) -> None:
        """Take one measurement, made while nothing else was going on; of first calls only until the like of one comes `again`."""
        if seconds > LATEST or (not again and device in self._again):
            return
        if again and device not in self._again:
            self._again.add(device)
            self._recent.pop(device, None)
        recent = self._recent.setdefault(device, deque(maxlen=DELAYS))
        recent.append(max(0.0, seconds))
        self._known[device] = centre(recent)

    def load(self, known: dict[str, float]) -> None:
        """Take what a store kept."""
        kept = {device: seconds for device, seconds in known.items() if 0.0 <= seconds <= LATEST}
        self._known |= kept
        self._again |= kept.keys()

    def of(self, device: str) -> float:
        """Return how late a device begins."""
        return self._known.get(device, USUAL)

    def measured(self) -> dict[str, float]:
        """Return what was measured here."""
        return {device: self._known[device] for device in self._recent}


WINDOW = 5
ENOUGH = 3  # outcomes of a way before it is judged; the first is cold
TRY_AT = 6  # divisions after which the other way is tried
PAUSE = 8  # undivided runs after which a division is tried again; twice as many each time that it was slower again
LONGEST = 256
NOT_FAR = 1.6  # times the predicted seconds of a division: beyond, undivided cannot win
WORTH = 0.97  # undivided must be faster by this to be preferred


class Ways:
    """The recent times of one task, undivided and divided."""

    __slots__ = ("divided", "left", "pause", "runs", "whole")

    def __init__(self) -> None:
        self.whole: deque[float] = deque(maxlen=WINDOW)
        self.divided: deque[float] = deque(maxlen=WINDOW)
        self.runs = [0, 0]  # undivided, divided
        self.pause = self.left = PAUSE

    def learn(self, seconds: float, *, divided: bool) -> None:
        """Take one time."""
        way = self.divided if divided else self.whole
        self.runs[divided] += 1
        if self.runs[divided] == 2:
            way.clear()  # the first run was cold
        way.append(seconds)

    def undivided(self, *, close: bool, seen: bool) -> bool:
        """Tell whether the next run should be undivided; tried it is only if what comes out will be `seen`."""
        if self.runs[0] < ENOUGH:
            return close and seen and self.runs[1] >= TRY_AT
        if len(self.divided) < ENOUGH:
            return False  # it is being tried
        if centre(self.whole) >= WORTH * centre(self.divided):
            self.pause = self.left = PAUSE
            return False
        self.left -= seen
        if self.left > 0:
            return True
        self.pause = self.left = min(LONGEST, 2 * self.pause)
        self.divided.clear()
        return False


class Outcomes:
    """What came out of tasks, by (kernel, shapes)."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._ways: dict[Hashable, Ways] = {}

    def learn(self, key: Hashable, *, seconds: float, divided: bool) -> None:
        """Take the time of one task."""
        ways = self._ways.get(key)
        if ways is None:
            if len(self._ways) >= self._most:
                self._ways.clear()
            ways = self._ways[key] = Ways()
        ways.learn(seconds, divided=divided)

    def undivided(self, key: Hashable, *, close: bool, seen: bool = True) -> bool:
        """Tell whether a task that would be divided should not be: that was faster, or was not tried and may be close.

        `seen` tells that nothing else is going on, so that its time will be learnt.
        """
        ways = self._ways.get(key)
        return ways is not None and ways.undivided(close=close, seen=seen)

    def better(self, task: Task, alone: float, divided: float, *, seen: bool) -> bool:
        """Tell whether a task was measured to be faster undivided, or should be seen so because it is predicted not far off."""
        return self.undivided(outcome_key(task), close=alone < NOT_FAR * divided, seen=seen)

    def judged(self, key: Hashable) -> bool:
        """Tell whether both ways were seen often enough: until then one of them may be but a try."""
        ways = self._ways.get(key)
        return ways is None or (ways.runs[0] >= ENOUGH and len(ways.divided) >= ENOUGH) or ways.runs[1] < TRY_AT


def outcome_key(task: Task) -> Hashable:
    """Return under which key a task's times are remembered: a variant that appears or goes changes all of them."""
    kernel = task.kernel
    return kernel, task.key, sum(not variant.off for variant in kernel.variants) if kernel is not None else 0


MOST = 64  # tasks in a table: more than are under way while nothing else is, or than threads call at once
_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Lesson(NamedTuple):
    """What a decision is based on, and what the time of its task teaches."""

    guess: bool = False  # it is divided without knowing how fast each device is
    trial: bool = False  # it is undivided, or in pieces, to see how long that takes
    inputs: tuple[tuple[str, float], ...] = ()  # devices, and predicted seconds of copies if nothing else is going on
    outcome: tuple[Hashable, bool, float] | None = None  # plan/lessons.py's key and way; seconds until results are back
    again: bool = False  # it is planned as a call like it was

    def without_times(self) -> Lesson:
        """Return what is left if it is computed in another way than was predicted, so that its time teaches nothing."""
        return NOTHING if self is NOTHING else Lesson(self.guess, self.trial)


NOTHING = Lesson()
GUESS = Lesson(guess=True)


def of_whole(task: Task, loads: Loads, *, trial: bool) -> Lesson:
    """Return the lesson of a task that is undivided because that is faster, or on `trial`: its time, if it runs alone."""
    seen = loads.idle and task.key is not None
    return Lesson(trial=trial, outcome=(outcome_key(task), False, 0.0) if seen else None)


def of_division(task: Task, divided: Divided, loads: Loads) -> Lesson:
    """Return the lesson of a division that is no guess: when devices begin and how long it takes, if it runs alone."""
    if not loads.idle or task.key is None:
        return NOTHING
    times = list(zip(divided.offers, divided.division.times, strict=True))
    inputs = tuple([(offer.device, t.input_end) for offer, t in times if t.finish])
    after = max([t.finish - t.compute_end for _, t in times])
    found: Lesson = _new(Lesson, (False, False, inputs, (outcome_key(task), True, after), False))
    return found


class Lessons:
    """What is to be learnt from the tasks that are under way, by their numbers. Owned by the layer that plans."""

    def __init__(self, start_delays: StartDelays, outcomes: Outcomes) -> None:
        self._start_delays = start_delays
        self._outcomes = outcomes
        self.guesses: dict[int, None] = {}  # the last tasks that were divided by guess
        self.open: dict[int, tuple[dict[str, float], Lesson]] = {}  # inputs, of devices that have not begun

    def take(self, planned: Planned) -> None:
        """Note a decision."""
        lesson = planned.lesson
        guess, _, inputs, outcome, _ = lesson
        task = planned.command.id
        if guess:
            self.guesses[task] = None
            if len(self.guesses) > MOST:
                del self.guesses[next(iter(self.guesses))]
        if outcome is not None or inputs:
            self._open(task, lesson)

    def watch(self, task: int, inputs: tuple[tuple[str, float], ...]) -> None:
        """Learn how late devices begin with a task that is planned as one like it was; so much was predicted of its copies then."""
        self._open(task, _new(Lesson, (False, False, inputs, None, True)))

    def _open(self, task: int, lesson: Lesson) -> None:
        self.open[task] = dict(lesson.inputs), lesson
        if len(self.open) > MOST:  # of tasks that were refused
            del self.open[next(iter(self.open))]

    def finished(self, task: Task, step: Launch, start: float, stop: float, *, odd: bool = False) -> None:
        """Learn from a kernel of an open task how late it began, and from the last one how long the task took.

        `odd` tells that this kernel took longer than its variant does, so that its task's time teaches nothing.
        """
        if step.more is not None:  # in rounds: its time says little about the division
            del self.open[task.id]
            return
        inputs, lesson = self.open[task.id]
        if task.finished:
            del self.open[task.id]
            if task.failure is None and not odd and lesson.outcome is not None:
                key, divided, after = lesson.outcome
                self._outcomes.learn(key, seconds=stop - task.submitted + after, divided=divided)
        if step.device in inputs:
            begins = start - task.submitted - inputs.pop(step.device)
            self._start_delays.learn(step.device, begins, again=lesson.again)
