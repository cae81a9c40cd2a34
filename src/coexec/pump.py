"""Between a program, its scheduler and its executor: events go one way, batches of instructions the other.

Before: assembly.py, schedule/, execute/.  After: driver.py, which says what the program asks for.  Owns lock and timers.

Every event is handled under the lock, and what comes of it is handed over before the lock is let go. Timers and devices
send events in the same way, from threads of their own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Protocol

from .assembly import assemble
from .backend.base import Ran
from .backend.machine import Machine
from .config import Config
from .errors import RuntimeClosed
from .execute.hand_over import HandOver
from .execute.idle_timer import IdleTimer
from .execute.inline_calls import FailedInline, InlineCalls, finished
from .execute.signals import Signals
from .graph.call import describe
from .graph.instruction import Instruction, Launch
from .graph.task import Task
from .machine.collecting import CollectorPace
from .observe.exchanges import Exchanges, exchanging
from .observe.learning import Learning
from .plan.steps.telling import ToldPlanner
from .program.array import Array
from .program.call import DEFAULT, placed_in
from .program.fuse import Line
from .program.kernel import Kernel
from .program.value import Value
from .schedule.events import CHAIN, GROWING, Batch, Called, Dropped, Event, Failed, Mark, Over, Queued, Settle

CHAIN_PAUSE = (
    300e-6  # seconds: longer than the next operation of an expression takes to come, shorter than to compute one
)
HOLD_PAUSE = 1e-3  # seconds without a call until what is held is lowered, if the devices have nothing to do
LONGER = 8, 32  # times that a chain, and that what lookahead holds, waits while the program keeps coming


class Observer(Protocol):
    """Whoever is given what ran."""

    def ran(self, records: Sequence[Ran]) -> None:
        """Take what ran since the last time."""


class EventPump:
    """Sends events to one scheduler, and its batches to one executor."""

    def __init__(
        self, owner: Any, config: Config, machine: Machine, cancel: Callable[[str], None], *, alone: bool
    ) -> None:
        """Begin. `owner` is whose tasks they are; `cancel` cancels what has not begun; `alone`: there is no other rank."""
        self.owner = owner
        self.closed = False
        self.lock = threading.RLock()
        self.parts = parts = assemble(config, machine, self.lock, self._describe_chain)
        self.scheduler, self.executor = parts.scheduler, parts.executor
        self.engine, self.recorder = parts.executor.engine, parts.recorder
        self._simulation = parts.simulation
        self._steps = parts.scheduler.plan.steps
        self._observers: tuple[Observer, ...] = (
            Learning(parts.links),
            *([Exchanges(parts.links)] if parts.simulation is None and exchanging(parts.platform) else []),
            parts.recorder,
            parts.diagnostics,
        )  # are given what ran, in this order
        known = parts.inline is not None and config.replay and not config.debug and not self.recorder.tracing
        coherence = self.scheduler.lowering.coherence
        self.inline_calls = InlineCalls(self.executor, coherence, parts.inline.limit_threads) if known else None
        self.may_be_straight = parts.inline is not None and not (
            parts.scheduler.replays or config.debug or self.recorder.tracing
        )  # what is replayed is noted by more layers than a straight call goes through
        self.may_queue_straight = (
            parts.simulation is None
            and machine.seat is None
            and parts.scheduler.plan.steps is None
            and not (parts.scheduler.replays or config.debug or config.sync or self.recorder.tracing)
        )  # as above, and what is planned is not planned as steps
        self.may_be_known = machine.seat is None and parts.scheduler.replays and not config.debug
        self.watched = parts.simulation is not None or self.recorder.tracing  # calls are recorded, or take virtual time
        self.hand_over = HandOver(self.executor, self.recorder, parts.inline, self.inline_calls, self._queued)
        self.dropped: deque[int] = deque()  # arrays whose last handles are gone; finalizers append
        self.last_mark: Task | None = None  # the last horizon or epoch
        self._chain: list[Task] = []  # tasks that chains became since they were last accounted for
        self.check_team: Callable[[], None] | None = None  # among ranks: raises if they cannot go on together
        self.late: BaseException | None = None  # what went wrong on a timer: the program is told as soon as it asks
        timed = parts.simulation is None and machine.seat is None  # ranks must end chains alike, so no clock ends one
        self._chain_timer = self._timer(self._end_chain, "coexec-chain", CHAIN_PAUSE, LONGER[0], on=timed)
        on = parts.simulation is None and config.lookahead == "auto"
        self._hold_timer = self._timer(self.let_go, "coexec-lookahead", HOLD_PAUSE, LONGER[1], on=on)
        self.signals = Signals(self.lock, cancel)
        if alone:
            self.signals.install()
        self.executor.attend(
            finished=self._finished,
            redo=self._redo,
            signals=self.signals,
            look_up=parts.diagnostics.progress(self.lock, self.engine.issued, time.monotonic),
        )
        self.executor.collector = CollectorPace(config.gc_threshold)
        self.scheduler.lowering.capacity.listen = self.signals.listen
        with self.lock:
            self.send(Over(self.mark("start")))

    def _timer(
        self, let_go: Callable[[bool], bool], name: str, pause: float, longer: int, *, on: bool
    ) -> IdleTimer | None:
        return IdleTimer(self.lock, let_go, name, pause, longer * pause) if on else None

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way, held back or poisoned, here and now; never in a simulation or where memory is limited."""
        scheduler, engine = self.scheduler, self.engine
        held = scheduler.fuse.held is not None or scheduler.hold.held or scheduler.limits_host
        return not (held or engine.open or engine.failed or self._simulation is not None or self.closed)

    # Events -----------------------------------------------------------------------------------------------------------

    def send(self, event: Event, now: float = 0.0) -> None:
        """Let the scheduler handle an event, and hand over what comes of it. Locked."""
        scheduler = self.scheduler
        try:
            batches = scheduler.handle(event, now, idle=not self.engine.open)
        except BaseException:
            self.interrupted()
            raise
        if self._steps is not None and self._simulation is not None and self._steps.first:
            self._charge(self._steps, self._simulation)  # nothing of the step began before it was planned
            self._steps.first = False
        if batches:
            self.hand_over.take(batches)
        if self._chain:
            self._account_chain()
        if self._steps is not None and self._simulation is not None:
            self._charge(self._steps, self._simulation)

    def _charge(self, steps: ToldPlanner, simulation: Any) -> None:
        """Let planning take time in a simulation."""
        seconds = steps.unpaid()
        if seconds:
            simulation.spend(seconds)

    def call(self, task: Task, begin: float) -> None:
        """Let the scheduler handle a call, as `send(Called(task), begin)` does, and account for it. Locked."""
        scheduler = self.scheduler
        try:
            batches = scheduler.called(task, begin, idle=not self.engine.open)
        except BaseException:
            self.interrupted()
            raise
        self.hand_on(batches)
        self.account(task, begin)

    def account(self, task: Task, begin: float) -> None:
        """Account for a call that was made at `begin`. Locked."""
        if not self.watched:
            task.scheduling += time.perf_counter() - begin
            return
        if self._steps is not None and self._simulation is not None:
            self._charge(self._steps, self._simulation)
        self.entered(task)

    def hand_on(self, batches: Sequence[Batch]) -> None:
        """Hand over what a call has led to. Locked."""
        if len(batches) == 1:
            self.hand_over.one(batches[0])
        else:
            self.hand_over.take(batches)
        if self._chain:
            self._account_chain()
        if self.scheduler.hold.held and self._hold_timer is not None:
            self._hold_timer.touch()  # it ends lookahead if the program goes on no further

    def interrupted(self) -> None:
        """Hand over what an event has led to before an error. Locked."""
        self.hand_over.take(self.scheduler.take())
        self.signals.check()

    def _account_chain(self) -> None:
        chain, self._chain = self._chain, []
        for task in chain:
            self.entered(task)

    def catch_up(self) -> None:
        """Free what is gone, and say what went wrong meanwhile: the program asks for something. Locked."""
        self.check_open()
        if self.late is not None:
            error, self.late = self.late, None
            raise error
        self.collect()

    def collect(self) -> None:
        dropped = self.dropped
        while dropped:
            gone = dropped.popleft()
            if self.inline_calls is not None:
                self.inline_calls.dropped(gone)
            self.send(Dropped(gone))

    def _finished(self, ran: Ran) -> None:
        """Tell the scheduler of a completion, as `send(Finished(ran))` does. Locked."""
        batches = self.scheduler.finished(ran, idle=not self.engine.open)
        if batches:
            self.hand_over.take(batches)
            if self._steps is not None and self._simulation is not None:
                self._charge(self._steps, self._simulation)

    def _redo(self, ran: Ran) -> list[Instruction]:
        """Return what does elsewhere what a device could not. Locked."""
        return [i for batch in self.scheduler.handle(Failed(ran)) for i in batch.instructions]

    def _queued(self, planned: Any) -> None:
        self.scheduler.handle(Queued(planned))

    def _describe_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, line: Line) -> Called:
        """Return the call of a chain of elementwise operations. Locked."""
        return self.chain_call(kernel, *kernel.bind(args, {}), context, line)

    def chain_call(
        self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], context: Context, line: Line
    ) -> Called:
        """Return the call of a chain whose arguments are bound. Locked."""
        task = describe(kernel, arrays, scalars, placed_in(context), self.owner, (context, line))
        task.submitted = time.perf_counter()
        self._chain.append(task)
        return Called(task)

    # Calls that the caller runs ---------------------------------------------------------------------------------------

    def run_inline(self, inline: InlineCalls, kernel: Kernel, args: tuple[Any, ...]) -> Task | None:
        """Run a call that is known to be short, if nothing is pending; return its task, or None if it was not run."""
        with self.lock:
            args = tuple([value.plain() if type(value) is Value else value for value in args])
            pending = not self.engine.idle or self.engine.failed or self.scheduler.holding or self.dropped
            if pending or self.closed or self.late is not None or self.signals.pending is not None:
                return None
            try:
                if self.executor.broken is not None or not inline.run(kernel, args):
                    return None
            except FailedInline as failed:
                return self._enter_failed(kernel, args, failed)
        return finished(kernel, self.owner)

    def _enter_failed(self, kernel: Kernel, args: tuple[Any, ...], failed: FailedInline) -> Task:
        """Record a call that was run in the caller, and raised. Locked since before it ran."""
        task = describe(kernel, *kernel.bind(args, {}), DEFAULT, self.owner)
        task.submitted = failed.start
        for array in task.arrays:
            array._storage.home = None  # what it wrote is poisoned
        known = failed.known.step
        assert isinstance(known, Launch)
        self.hand_over.failed(self.scheduler.ran_inline(task, known), failed)
        return task

    # Timers -----------------------------------------------------------------------------------------------------------

    def _end_chain(self, last: bool) -> bool:
        """Let a chain go that has waited for a moment. Locked, on the timer's thread."""
        del last
        try:
            self.send(Settle(CHAIN), time.perf_counter())
        except BaseException as error:  # noqa: BLE001 - the program is told as soon as it asks
            self.late = error
        return True

    def let_go(self, last: bool) -> bool:
        """Lower what is held, if the devices have nothing to do or have been busy for long. Locked, on the timer's thread."""
        if not last and not self.engine.idle:
            return not self.scheduler.hold.holding
        try:
            self.send(Settle(GROWING))
        except BaseException as error:  # noqa: BLE001 - ours: it must fail every wait, not vanish with this thread
            self.executor.break_down(error)
        return True

    def held_chain(self) -> None:
        """Let a timer end the chain if the program adds nothing to it."""
        if self._chain_timer is not None:
            self._chain_timer.touch()

    # What was recorded, and what ran ----------------------------------------------------------------------------------

    def mark(self, name: str, *, horizon: bool = False) -> Task:
        """Record a horizon or an epoch, which comes after everything so far. Locked."""
        task = self.last_mark = Task(0, name, None, self.owner)
        task.submitted = begin = time.perf_counter()
        self.send(Mark(task, self.engine.failed, horizon), begin)
        return task

    def entered(self, task: Task) -> None:
        """Account for a task that was recorded. Locked."""
        task.scheduling += time.perf_counter() - task.submitted
        if self._simulation is not None:
            task.submitted = self._simulation.clock()
        if self.recorder.tracing:
            if self.scheduler.plan.waiting:  # it is recorded with its plan
                self.hand_over.unrecorded.add(task)
            else:
                self.recorder.task(task)
        if self._simulation is not None:
            self._simulation.keep_up()

    def observe(self, observer: Observer) -> None:
        """Give what ran to one more observer from now on, after the others."""
        self._observers = (*self._observers, observer)

    def ignore(self, observer: Observer) -> None:
        """Give nothing to an observer any more."""
        self._observers = tuple([other for other in self._observers if other is not observer])

    def drain(self) -> None:
        """Give the records to the trace and to the predictors."""
        with self.lock:
            records, self.executor.records = self.executor.records, []
        for observer in self._observers:
            observer.ran(records)

    def check_open(self) -> None:
        """Raise if nothing can be asked for any more."""
        if self.closed:
            raise RuntimeClosed("this runtime is closed; open another with cx.Runtime(...)")
        if self.check_team is not None:
            self.check_team()
        self.executor.check_broken()

    def stop(self) -> None:
        """End every thread. Nothing may be under way."""
        self.closed = True
        for timer in (self._chain_timer, self._hold_timer):
            if timer is not None:
                timer.stop()
        self.executor.stop()
        self.parts.bodies.close()
