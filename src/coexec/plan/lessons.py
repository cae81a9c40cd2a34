"""What is learnt from tasks that run as it was decided, and the table of those that are under way.

Before: plan/lags.py, plan/outcomes.py.  After: plan/planned.py, schedule/plan.py.  Told under the runtime's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from .outcomes import outcome_key

if TYPE_CHECKING:
    from ..graph.instruction import Launch
    from ..graph.task import Task
    from .divided import Divided
    from .lags import Lags
    from .outcomes import Outcomes
    from .place import Loads
    from .planned import Planned

MOST = 64  # tasks in a table: more than are under way while nothing else is, or than threads call at once
_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Lesson(NamedTuple):
    """What a decision is based on, and what the time of its task teaches."""

    guess: bool = False  # it is divided without knowing how fast each device is
    trial: bool = False  # it is undivided, or in pieces, to see how long that takes
    inputs: tuple[tuple[str, float], ...] = ()  # devices, and predicted seconds of copies if nothing else is going on
    outcome: tuple[Hashable, bool, float] | None = (
        None  # plan/outcomes.py's key and way; seconds until results are back
    )

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
    found: Lesson = _new(Lesson, (False, False, inputs, (outcome_key(task), True, after)))
    return found


class Lessons:
    """What is to be learnt from the tasks that are under way, by their numbers. Owned by the layer that plans."""

    def __init__(self, lags: Lags, outcomes: Outcomes) -> None:
        self._lags = lags
        self._outcomes = outcomes
        self.guesses: dict[int, None] = {}  # the last tasks that were divided by guess
        self.open: dict[int, tuple[dict[str, float], tuple[Hashable, bool, float]]] = {}  # inputs and outcomes

    def take(self, planned: Planned) -> None:
        """Note a decision."""
        guess, _, inputs, outcome = planned.lesson
        task = planned.command.id
        if guess:
            self.guesses[task] = None
            if len(self.guesses) > MOST:
                del self.guesses[next(iter(self.guesses))]
        if outcome is not None:
            self.open[task] = dict(inputs), outcome
            if len(self.open) > MOST:  # of tasks that were refused
                del self.open[next(iter(self.open))]

    def finished(self, task: Task, step: Launch, start: float, stop: float, *, odd: bool = False) -> None:
        """Learn from a kernel of an open task how late it began, and from the last one how long the task took.

        `odd` tells that this kernel took longer than its variant does, so that its task's time teaches nothing.
        """
        if step.more is not None:  # in rounds: its time says little about the division
            del self.open[task.id]
            return
        inputs, (key, divided, after) = self.open[task.id]
        if task.finished:
            del self.open[task.id]
            if task.failure is None and not odd:
                self._outcomes.learn(key, seconds=stop - task.submitted + after, divided=divided)
        if step.device in inputs:
            self._lags.learn(step.device, start - task.submitted - inputs.pop(step.device))
