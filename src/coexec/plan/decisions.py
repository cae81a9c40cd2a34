"""Decisions that were made before: a call that repeats what the program did is planned as it was then.

Before: plan/planned.py, plan/repeats.py.  After: schedule/plan.py.  Knows no memory: lowering looks where arrays are.

A whole task is given to some device because of what the others were doing then. So it is not the call alone that must come
again, but the calls before it, too: in a loop each call then stays where it was, and the work stays spread. A plan that depends
on the call alone is steady: the next calls of its shape are planned in the same way, whatever comes before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..graph.command import Command
from ..graph.shape import CallShape, answers
from ..graph.task import Task
from .lessons import NOTHING
from .planned import Planned
from .policies import Loads
from .repeats import LONGEST, Event, Repeats

LOOK_AGAIN = 8, 128  # turns of a loop, or calls of a steady plan, until one is planned again: at first, and in the end

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Version(Protocol):
    """Says whether plans that were made still hold."""

    mark: object  # another one when they do not


class Births:
    """Numbers arrays."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0  # the number of the last array that was made


class Decided:
    """How a call was planned: who computes what, and why. Knows no task: those come and go."""

    __slots__ = (
        "asked",
        "chunks",
        "left",
        "loads",
        "shape",
        "shapes",
        "shares",
        "stayed",
        "turns",
        "version",
        "visited",
        "why",
    )

    def __init__(self, planned: Planned, task: Task, version: object, loads: Loads) -> None:
        self.shape = task.shape
        self.chunks, self.why = planned.command.chunks, planned.command.why
        self.shares = planned.shares
        self.version = version
        self.stayed = loads.stayed
        self.visited = task.space is not None
        self.shapes = task.shapes
        self.asked = answers(task, self.chunks)
        self.left = self.turns = 0  # calls that are planned so, whatever else is going on: from now on, and in all
        self.loads = loads.parts(self.chunks, self.shares)

    def planned(self, task: Task) -> Planned:
        """Return a task as it is planned now."""
        command = _new(Command, (task.id, task, self.chunks, task.after, self.why))
        planned: Planned = _new(Planned, (command, self.shares, False, "", None, True, False, NOTHING))
        return planned

    def alike(self, task: Task, planned: Planned) -> bool:
        """Tell whether a plan gives the same parts to the same devices and variants."""
        if task.shape is not self.shape or self.chunks != planned.command.chunks:
            return False
        return all(a[0] is b[0] for a, b in zip(self.shares, planned.shares, strict=True))


class Decisions:
    """Remembers how calls were planned. `version` changes when plans that were made do not hold any more."""

    def __init__(self, loads: Loads, version: Version, births: Births, *, on: bool = True) -> None:
        self._loads = loads
        self._version = version
        self.births = births
        self.on = on
        self._repeats = Repeats()
        self._log: list[Decided | None] = []  # of the last calls
        self._left = 0  # calls that are not planned before a turn is
        self._turns = LOOK_AGAIN[0]

    @property
    def repeats(self) -> Repeats:
        """What was found of repetition."""
        return self._repeats

    @property
    def period(self) -> int:
        """After how many calls the program repeats itself; 0 if it does not."""
        return self._repeats.period

    def recall(self, task: Task, births: int, *, divided: bool = False) -> Planned | None:
        """Return how a task is planned if the program repeats itself; with `divided`, only if it is divided.

        There were so many `births` of arrays when it was called. If it is not planned so, whoever plans it notes it next.
        """
        known = self.known(task, births, divided=divided)
        return None if known is None else known.planned(task)

    def known(self, task: Task, births: int, *, divided: bool = False) -> Decided | None:
        """Return the same as `recall`, as it was decided then."""
        shape = task.shape
        if not self.on or shape is None:
            return None
        loads = self._loads
        loads.stayed = None
        fleeting = shape.fleeting
        known = None if fleeting else self._before(task, shape, births)
        if known is None:
            known = shape.steady
            if known is None or not known.left:
                return None
            known.left -= 1
        if known.version is not self._version.mark:
            return None
        chunks = known.chunks
        if divided and len(chunks) < 2:
            return None
        if known.asked and known.asked != answers(task, chunks):
            return None
        if known.stayed is not None and not loads.stays(known.stayed):
            self._left = 0  # its data moves: a whole turn is planned with the data there
            return None
        if known.visited and task.space is None:
            task.space, task.shapes = task.domain, known.shapes
        loads.again(known.loads, task.id)
        if not fleeting:
            self._log.append(known)
            if len(self._log) > 4 * LONGEST:
                del self._log[: 2 * LONGEST]
        return known

    def _before(self, task: Task, shape: CallShape, births: int) -> Decided | None:
        """Note a call; return how it was planned in the turn before, if this one need not be planned anew."""
        repeats = self._repeats
        same = task.same
        arrays = same.ids if same is not None else task.array_ids()
        repeats.add(_new(Event, (shape, arrays, births)))
        period, run = repeats.period, repeats.run
        if not period or run < period:
            self._left, self._turns = 0, LOOK_AGAIN[0]
            return None
        if self._left <= 0:
            if self._left <= -period or run == period:  # a whole turn was planned
                self._left = self._turns * period
                self._turns = min(2 * self._turns, LOOK_AGAIN[1])
            else:
                self._left -= 1
                return None
        self._left -= 1
        known = self._log[-period] if period <= len(self._log) else None
        return known if known is not None and known.shape is shape else None

    def note(self, task: Task, planned: Planned) -> Planned:
        """Remember how a task was planned; return the plan, which may be the one of the turn before."""
        if not self.on or task.shape is None:
            return planned
        lesson = planned.lesson
        passing = planned.here or planned.handout or lesson.guess or lesson.trial
        decided = None if passing else Decided(planned, task, self._version.mark, self._loads)
        before: Decided | None
        if task.shape.fleeting:  # its next calls go where this one does, whatever comes between them
            before = task.shape.steady
            self._go_on_so(task.shape, decided)
        else:
            period, log = self._repeats.period, self._log
            before = log[-period] if 0 < period <= len(log) else None
            self._keep(decided)
            if planned.steady:
                self._go_on_so(task.shape, decided)
        return planned._replace(again=True) if before is not None and before.alike(task, planned) else planned

    def _go_on_so(self, shape: CallShape, decided: Decided | None) -> None:
        """Plan the next calls of a shape in the same way, and twice as many as the last time if nothing has changed."""
        before: Decided | None = shape.steady
        if decided is not None:
            same = before is not None and before.chunks == decided.chunks and before.version is decided.version
            decided.turns = min(2 * before.turns, LOOK_AGAIN[1]) if same and before is not None else LOOK_AGAIN[0]
            decided.left = decided.turns
        shape.steady = decided

    def _keep(self, decided: Decided | None) -> None:
        self._log.append(decided)
        if len(self._log) > 4 * LONGEST:
            del self._log[: 2 * LONGEST]
