"""The layer that decides who computes what, and hands tasks out in parts where the program asks for that.

Before: plan/, schedule/link.py.  After: schedule/hold.py.  Pure: loads pass when work is reported as finished.

1. A call that repeats what the program did is planned as it was then (plan/decisions.py).
2. Otherwise the planner decides.
3. A task whose parts are handed out on demand is open until its last part is. What the program does meanwhile waits here:
   only then is it known which memory holds what.
4. While every device has work for 20 ms, three tasks, and two steps of a program that repeats itself, further calls wait here as
   well: what is measured meanwhile, and plans that are adopted, count for them. Whoever reads or waits lets them go.
5. A step of which the program says how often it will come waits here until it is over, and is planned before any of it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import DoesNotFit
from ..graph.command import Command
from ..graph.instruction import Launch
from ..graph.shape import is_fleeting
from ..graph.task import Task
from ..plan.decisions import Decisions
from ..plan.lessons import NOTHING, Lessons
from ..plan.plan import Plan
from ..plan.planned import Planned
from ..plan.policies import Loads
from ..plan.repeats import LONGEST
from .dynamic_shares import Given, OpenTask
from .events import ALL, GROWING, PLANNED, Called, Dropped, Mark, Read, Settle
from .layer import Item, Moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backend.base import Ran
    from ..graph.command import Chunk
    from ..plan.candidate import Share
    from ..plan.steps.telling import ToldPlanner
    from ..program.array import Array
    from ..program.kernel import Kernel

ELSEWHERE = "other ranks compute it"
LONG_LOOK = 1e-3  # seconds of planning during which nothing that could run is held back
RECENT = 64  # tasks: a device that was given none of the last ones does not wait for the next
LEAST = 3  # tasks that a device has: one runs, the inputs of the next are being copied, and one is ready to be
STEPS = 2  # of a program that repeats itself, which are planned before they can begin


class Planning(Protocol):
    """Decides who computes a task."""

    def plan(self, task: Task, *, idle: bool = False) -> Planned:
        """Return who computes what; `idle` tells that the caller is ready to run a short kernel itself."""

    def preview(self, task: Task) -> Plan:
        """Return what would be planned, as data. Changes nothing that later plans depend on."""

    def check(self, task: Task) -> None:
        """Raise what planning `task` would raise."""

    def follow(self, plans: Sequence[Plan]) -> None:
        """Plan as these plans say, from now on."""

    def runs(self, kernel: Kernel, arrays: Sequence[Array]) -> bool:
        """Tell whether some device can run a kernel that has a Python body on arrays of these types."""


class HandOut(NamedTuple):
    """How tasks are handed out in parts."""

    cache: int = 1 << 62  # bytes of arrays that a piece of a part may touch
    allowed: bool = True


class Lowers(Protocol):
    """What comes after planning."""

    @property
    def holding(self) -> bool:
        """Whether something is held back."""

    def command(self, planned: Planned) -> None:
        """Take a command."""

    def on(self, item: Read | Mark | Dropped) -> None:
        """Take anything else."""

    def settle(self, event: Settle) -> None:
        """Let go of what is held back."""

    def part(self, planned: Planned, *, more: bool) -> None:
        """Take a part of a task that is handed out; `more` of them follow."""

    def refuse(self, task: Task, error: Exception, *, told: bool = False) -> None:
        """Let a task fail that cannot be lowered; the program was `told`, if its call raises."""

    def has_begun(self, task: Task) -> bool:
        """Tell whether some of a task was lowered that could not be lowered as a whole."""


class PlanLayer:
    """Plans one task after the other."""

    def __init__(
        self,
        successor: Lowers,
        planner: Planning,
        decisions: Decisions,
        loads: Loads,
        moment: Moment,
        *,
        inline: bool,
        handout: HandOut,
        ahead: float,
        steps: ToldPlanner | None = None,
    ) -> None:
        self._successor = successor
        self.steps = steps  # plans what repeats itself; None: every call is planned by itself
        self.planner = planner
        self.decisions = decisions
        self._repeats = decisions.repeats
        self._births = decisions.births
        self.loads = loads
        self.lessons = Lessons(loads.start_delays, loads.outcomes)
        self._moment = moment
        self._runs_inline = inline  # callers may run short kernels themselves
        self._handout = handout
        self._ahead = ahead  # seconds of work that devices have before calls wait
        self._sure = False  # how long the last call takes is known
        self._open: OpenTask | None = None  # being handed out
        self._queue: deque[Item | Settle] = deque()  # what came since
        self._busy = False  # going on with it
        self._times = 0  # that a step will come whose calls wait to be planned together; 0: none does

    @property
    def open(self) -> bool:
        """Whether a task is being handed out."""
        return self._open is not None

    @property
    def holding(self) -> bool:
        """Whether something is held back, here or behind."""
        return self._open is not None or bool(self._queue) or self._successor.holding

    @property
    def waiting(self) -> int:
        """How many items wait here: for a task that is handed out, or for devices that have enough to do."""
        return len(self._queue)

    def call(self, task: Task) -> None:
        """Plan a call."""
        births = self._births.last  # it may be planned later, when there are more arrays
        if (
            self._open is not None
            or self._queue
            or self._times
            or (self._sure and self.loads.ends and self.far(task.id))
        ):
            self.planner.check(task)  # later there is nobody to tell
            self._queue.append(Called(task, births))
            if self._times and len(self._queue) >= LONGEST:
                self._go_on(1)
        elif task.deal is not None:
            self._decide_late(task, births)
        else:
            try:
                self._decide(task, births)
            except Exception as error:
                self._failed(task, error)
                raise

    def on(self, item: Item) -> None:
        """Plan a call; anything else passes."""
        if isinstance(item, Called):
            self.call(item.task)
            return
        if self.steps is not None and isinstance(item, Read):
            if self._times:  # the calls before it are planned first
                self._queue.append(item)
                self._go_on(len(self._queue))
                self.steps.read(item.array._storage.id, item.array.nbytes)
                return
            self.steps.read(item.array._storage.id, item.array.nbytes)
        if self._open is None and not self._queue:
            self._successor.on(item)
            return
        self._queue.append(item)
        if isinstance(item, Read):  # for what it reads alone, whatever comes before it
            self._go_on(len(self._queue))

    def told(self, times: int) -> None:
        """Let what follows wait, which will come so often, until somebody wants to see it or the step is over: then it is planned."""
        if self.steps is None:
            return
        if times > 1 and self._open is None and not self._queue:
            self._times = times
            self.steps.told()
        elif self._times:
            self._go_on(max(1, len(self._queue)))
            self.steps.passed(whole=True)
        elif not times:
            self.steps.passed(whole=False)

    def _plan_step(self) -> None:
        """Plan the calls that wait as a step, before any of them runs."""
        times, self._times = self._times, 0
        tasks: list[Task] = []
        births = 0  # arrays that had been made before the first of them
        reads: list[tuple[int, int, int]] = []
        for item in self._queue:
            if isinstance(item, Called):
                births = births if tasks else item.births
                tasks.append(item.task)
            elif isinstance(item, Read):
                reads.append((len(tasks), item.array._storage.id, item.array.nbytes))
        if self.steps is not None and tasks:
            self.steps.ahead(tasks, births, reads, times)

    def far(self, task: int) -> bool:
        """Tell whether the devices have so much to do that a call, whose task has this number, need not be planned yet."""
        loads = self.loads
        recent, free, ahead = task - RECENT, loads.seconds, self._ahead
        for device, last in loads.latest.items():
            if last > recent and (free[device] <= ahead or loads.tasks[device] < LEAST):
                return False
        return bool(loads.latest) and len(loads.ends) > STEPS * self.decisions.period

    def _failed(self, task: Task, error: Exception) -> None:
        """Let a task have failed that has begun though its call raises."""
        if self._successor.has_begun(task):
            with suppress(DoesNotFit):  # of what is in no memory; the program is told anyway
                self._successor.refuse(task, error, told=True)

    def _decide_late(self, task: Task, births: int) -> None:
        """Plan a task of which others know, or whose call has returned: errors are its results."""
        try:
            self._decide(task, births)
        except Exception as error:  # noqa: BLE001 - whoever wants its results is told
            self._successor.refuse(task, error)

    def _decide(self, task: Task, births: int) -> None:
        moment = self._moment
        task.starved = idle = moment.idle and not moment.out and not self._successor.holding
        deal = task.deal
        if deal is not None and deal.box is None:
            planned = Planned(Command(task.id, task, (), task.after, ELSEWHERE), ())
        else:
            here = self._runs_inline and idle and deal is None
            decisions = self.decisions
            if decisions.on:
                planned = decisions.recall(task, births, divided=here) or decisions.note(
                    task, self.planner.plan(task, idle=here)
                )
            else:
                planned = self.planner.plan(task, idle=here)
        self._carry_out(task, planned, births)

    def decide(self, task: Task, births: int) -> None:
        """Plan a call that `decisions` do not recall, which nobody but a device may run."""
        try:
            self._carry_out(task, self.decisions.note(task, self.planner.plan(task)), births)
        except Exception as error:
            self._failed(task, error)
            raise

    def pass_on(self, task: Task, planned: Planned) -> None:
        """Pass on a call that was planned and noted."""
        try:
            self._successor.command(planned)
        except Exception as error:
            self._failed(task, error)
            raise

    def note(self, task: Task, planned: Planned, births: int) -> None:
        """Note how a call is planned, before it is lowered."""
        if planned.lesson is not NOTHING:
            self.lessons.take(planned)
        command, shares, here, *_ = planned
        self.went(task, command.chunks, shares, command.why, births, here=here, alone=task.deal is None)

    def went(
        self,
        task: Task,
        chunks: Sequence[Chunk],
        shares: Sequence[Share],
        why: str,
        births: int,
        *,
        here: bool = False,
        alone: bool = True,
    ) -> None:
        """Note who computes what of a call, before it is lowered; `alone` tells that all of it is this rank's."""
        loads, steps, shape = self.loads, self.steps, task.shape
        if loads.designs.some:
            loads.designs.note(loads, task, chunks)
        task.why = why
        if alone and steps is not None and not (is_fleeting(task) if shape is None else shape.fleeting):
            before = steps.planning
            steps.called(task, chunks, births, self._repeats, here=here)
            if steps.planning - before >= LONG_LOOK and self._successor.holding:
                self._successor.settle(Settle())  # devices have something to do meanwhile
        self._sure = bool(shares) and shares[0].seconds is not None

    def _carry_out(self, task: Task, planned: Planned, births: int) -> None:
        self.note(task, planned, births)
        if planned.handout and planned.site is not None and self._handout.allowed and task.deal is None:
            self._begin(planned)
        else:
            self._successor.command(planned)

    # Parts on demand --------------------------------------------------------------------------------------------------

    def _begin(self, planned: Planned) -> None:
        """Open a task and give each device its first parts, when everything before it is lowered."""
        self._successor.settle(Settle())
        opened = self._open = OpenTask(planned, self._handout.cache, self.loads.platform)
        self._give(opened, opened.first())

    def _give(self, opened: OpenTask, given: Iterator[Given]) -> None:
        """Send parts on; go on with what came since, once everything is handed out."""
        following = next(given, None)
        while following is not None:
            (device, rows), following = following, next(given, None)
            part = opened.part(device, rows)
            self.loads.add(device, part.shares[0].seconds, 0.0, opened.task.id)
            self._successor.part(part, more=following is not None or bool(opened.left))
        if not opened.left:
            self._open = None
            opened.task.let_go()
            self._go_on()

    def _go_on(self, due: int = 0) -> None:
        """Go on with what waits: with so many items that are `due`, and with what devices need.

        Not within itself, however many tasks are handed out meanwhile.
        """
        if self._busy or (self._times and not due):
            return
        if self._times:
            self._plan_step()
        self._busy = True
        moment = self._moment
        try:
            while self._queue and self._open is None:
                item = self._queue[0]
                stands_still = moment.idle and not moment.out
                if due <= 0 and not stands_still and isinstance(item, Called) and self.far(item.task.id):
                    return
                due -= 1
                self._queue.popleft()
                if isinstance(item, Settle):
                    if item.depth > PLANNED:
                        self._successor.settle(item)
                elif isinstance(item, Called):
                    self._decide_late(item.task, item.births)
                else:
                    self._successor.on(item)
        finally:
            self._busy = False

    def finished(self, ran: Ran) -> None:
        """Account for a finished kernel; a device that has finished a part of the open task gets another one."""
        instruction = ran.instruction
        step = instruction.step
        if type(step) is Launch:
            task = instruction.task
            self.loads.finished(task, step)
            if self.lessons.open and task.id in self.lessons.open:
                self.lessons.finished(task, step, ran.start, ran.stop, odd=instruction.odd)
            if self.steps is not None and not step.more:
                self.steps.finished(task, ran.start, ran.stop)
            opened = self._open
            if opened is not None and task is opened.task:
                self._give(opened, opened.finished(instruction, step, ran.stop - ran.start))
        if self._queue:
            self._go_on()

    def settle(self, event: Settle) -> None:
        """Hand out what is left, if everything is to be let go, and let the successor let go."""
        while self._open is not None and event.depth == ALL and event.task is None:
            self._give(self._open, self._open.rest())
        if event.depth != GROWING and self._queue:
            self._go_on(self._due(event))
        if self._open is not None and self._queue:
            self._queue.append(event)
        elif event.depth > PLANNED:
            self._successor.settle(event)

    def _due(self, event: Settle) -> int:
        """Return how many of those that wait somebody wants to see."""
        if event.task is None and not event.round:
            return len(self._queue)
        tasks = [item.task if isinstance(item, Called | Read | Mark) else None for item in self._queue]
        wanted = [t is not None and (t is event.task or 0 < t.round <= event.round) for t in tasks]
        return len(wanted) - wanted[::-1].index(True) if True in wanted else 0
