"""One rank of a program: everything that a program asks for, as events for its scheduler; and the waits.

Before: pump.py, schedule/, execute/.  After: runtime.py, ranked.py.  Decides nothing about a task.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from .backend.library_threads import LibraryThreads
from .backend.machine import Machine
from .config import Config
from .execute.closed_reads import read_closed
from .execute.signals import WHY
from .execute.wait_any import wait_any
from .graph.call import describe, describe_read, make_returned
from .graph.instruction import IfComputed
from .graph.task import Task, seen
from .homes import Homes
from .origin import program_line
from .plan.plan import Plan, check_ranks
from .program import session
from .program.array import Array
from .program.assign import element
from .program.call import DEFAULT, Options
from .program.fuse import Line, Operation
from .program.kernel import Kernel
from .program.storage import Storage
from .program.value import Lending, Value
from .pump import EventPump
from .schedule.events import CHAIN, HELD, PLANNED, Adopted, Operated, Over, Read, Settle, StepTold
from .schedule.lower import ReplayCounts
from .straight import StraightCalls
from .straight_known import KnownCalls
from .straight_queue import StraightQueue

GUESSES = 4  # tasks divided by guess that may be under way
UNREAD = 64  # records that may wait before the predictors see them


class Driver:
    """Drives one scheduler and one executor for a program."""

    before_wait: Callable[[Task], None] | None = None  # lets other ranks of this process send what they hold back

    def __init__(self, owner: Any, config: Config, machine: Machine, *, alone: bool = True) -> None:
        """Begin. `owner` is whose arrays and handles it serves; `alone`: this process has no other rank."""
        self.owner, self.config, self.checks = (self if owner is None else owner), config, config.debug
        self.one_thread = LibraryThreads()  # held while bits must not depend on how many threads a library uses
        if config.reproducible:
            self.one_thread.hold()
        self.lending = Lending(self.owner, self._copy_element, alone=machine.seat is None)
        self.pump = pump = EventPump(self.owner, config, machine, self.cancel_pending, alone=alone)
        self.machine, self.parts, self.platform, self.lock = machine, pump.parts, pump.parts.platform, pump.lock
        self.signals, self.scheduler, self._send = pump.signals, pump.scheduler, pump.send
        self.executor, self._engine, self.recorder = pump.executor, pump.engine, pump.recorder
        self.learned, self.loads, self.diagnostics = pump.parts.learned, pump.parts.loads, pump.parts.diagnostics
        self._graph, self.check_open = pump.scheduler.link.graph, pump.check_open
        self.wait_idle, self.speak = pump.executor.wait_idle, self.diagnostics.speak
        self.unseen: Callable[[], list[Any]] = pump.executor.unseen
        self._by_guess = self.scheduler.plan.lessons.guesses
        self._guesses: deque[Task] = deque()  # tasks divided by guess, of which none was waited for
        self._homes = Homes(pump, config, self.wait)
        self.adopt_shared = self._homes.adopt_shared  # a new array whose contents another rank has
        self.adopt_at_home = self._homes.adopt_at_home
        self.small, self.stop_small_calls = self._homes.small, self._homes.stop_small_calls
        self._straight = StraightCalls(pump, self.lending) if pump.may_be_straight else None
        self._queue = StraightQueue(pump, self.lending) if pump.may_queue_straight else None
        self._known = KnownCalls(pump, self.lending) if pump.may_be_known else None

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked of it any more."""
        return self.pump.closed

    # Arrays -----------------------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Take a new array, with its first contents if `data` is not None."""
        self._homes.adopt(storage, data, borrowed=borrowed)

    def dropped(self, storage_id: int) -> None:
        """Note that an array is gone. Called by finalizers: only enqueues."""
        self.pump.dropped.append(storage_id)

    # Calls ------------------------------------------------------------------------------------------------------------

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call: task graph, plan, lowering and issue, all before this returns. Runs nothing that is long."""
        if self.pump.inline_calls is not None and kernel.plain and not kwargs and options is DEFAULT:
            ran = self.pump.run_inline(self.pump.inline_calls, kernel, args)
            if ran is not None:
                if len(self.executor.records) > UNREAD:
                    self.pump.drain()
                return ran
        way, queue = self._known or self._straight, self._queue
        if (way or queue) and kernel.plain and not kwargs and options is DEFAULT:
            with self.lock:
                straight = None if way is None else way.run(kernel, args, self.small)
                if straight is None and queue is not None and not kernel.split:
                    straight = queue.run(kernel, args, self.small)
            if straight is not None:
                self.keep_pace(straight)
                return straight
        task, returned = self.record(kernel, *kernel.bind(args, kwargs), options)
        self.keep_pace(task)
        return task if not returned else returned[0] if kernel.returns.single else returned

    def record(
        self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], options: Options
    ) -> tuple[Task, tuple[Array, ...]]:
        """Record a call whose arguments are bound; return its task and its new arrays. Waits for nothing."""
        begin = time.perf_counter()
        if Value in map(type, arrays) or Value in map(type, scalars.values()):
            with self.lock:  # until it is recorded: other threads may change what the values look at
                return self.record(kernel, *self.lending.settled(kernel, arrays, scalars), options)
        returned: tuple[Array, ...] = make_returned(kernel, arrays, scalars, self.owner) if kernel.returns.names else ()
        task = describe(kernel, [*arrays, *returned] if returned else arrays, scalars, options, self.owner)
        task.submitted = begin
        with self.lock:
            if self.pump.closed or self.executor.broken is not None or self.pump.late is not None or self.pump.dropped:
                self.pump.catch_up()
            if self.lending.lent:
                self.lending.keep(kernel, arrays)
            small = self.small
            if self._homes.used:
                for array in task.arrays:
                    if array._storage.home is not None or array._storage.state is None:
                        self._homes.leave(task.arrays)
                        break
            self.pump.call(task, begin)
            if self._straight is not None and task.finished:
                self._straight.learn(task, arrays)
            elif self._queue is not None and not kernel.split:
                self._queue.learn(task, arrays)
            if small is not None and small.learns:
                small.learn(task.scheduling)
        return task, returned

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back for a moment: what uses its result may come, and be one kernel with it."""
        errors = np.geterr()
        if self.closed or not self.scheduler.takes(operation, errors):
            return False
        line = program_line(sys._getframe(1))
        with self.lock:
            self._homes.leave([value for value in operation.arguments if type(value) is Array])
            self._send(Operated(operation, copy_context(), errors, line), time.perf_counter())
            self.pump.held_chain()
        if self.scheduler.since_mark >= self.config.horizon:
            self._pass_horizon()
        elif len(self.executor.records) > UNREAD:
            self.pump.drain()
        return True

    def begin_step(self, times: int = 0) -> ReplayCounts:
        """Begin a step that the program names: `with cx.record()`; told that it comes so many `times`, it waits to be planned."""
        with self.lock:
            self.pump.catch_up()
            self._send(Settle(PLANNED))  # what came before is not part of it
            if times:
                self._send(StepTold(times))
            return self.scheduler.counts

    def end_step(self, begun: ReplayCounts, *, left: bool) -> tuple[bool, str]:
        """End a named step, which an exception may have left; tell whether it was replayed, and else why not."""
        with self.lock:
            if not left:
                self.pump.catch_up()
                self._send(Settle(CHAIN))
            self._send(StepTold(0))
            if not left:
                self._send(Settle(PLANNED))
            return self.scheduler.lower.since(begun, left=left)

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how a call would be divided and placed, and how long it is predicted to take. Nothing runs."""
        found = self.preview(kernel, *self.lending.settled(kernel, *kernel.bind(args, kwargs), read=True), options)
        assert found is not None  # there is one rank
        return found

    def record_chain(
        self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], context: Context, line: Line
    ) -> None:
        """Record a chain of elementwise operations whose arguments are bound."""
        with self.lock:
            self._send(self.pump.chain_call(kernel, arrays, scalars, context, line))

    def preview(self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], options: Options) -> Plan | None:
        """Return how this rank would divide and place its part of a call; None if it has none."""
        self.learned.take_time()
        if kernel.returns.names:
            arrays += make_returned(kernel, arrays, scalars, self.owner)
        with self.lock:
            self.pump.catch_up()
            self._send(Settle(CHAIN))
            task = describe(kernel, arrays, scalars, options, self.owner)
            self._homes.leave(task.arrays)
            return self.scheduler.preview(task)

    def step_plan(self) -> Plan | None:
        """Return the plan of the step that the program repeats, with what it was compared with; None if there is none."""
        steps = self.scheduler.plan.steps
        with self.lock:
            return None if steps is None else steps.plan()

    def follow(self, plans: Sequence[Plan]) -> None:
        """Follow plans from now on, with every call that is not planned yet."""
        check_ranks(plans, 1 if (seat := self.machine.seat) is None else seat.ranks)
        with self.lock:
            self.pump.catch_up()
            self._send(Adopted(plans if seat is None else seat.follow(plans)))

    # Marks and reads --------------------------------------------------------------------------------------------------

    def begin_read(
        self, array: Array, readers: Sequence[int] | None = None, box: IfComputed | None = None
    ) -> tuple[Task, list[Any]]:
        """Record a host read; return its task and where the elements will be, `box` if it is given. `readers` are ranks; None = all."""
        found: list[Any] = [] if box is None else box.found
        with self.lock:
            self.pump.catch_up()
            self._send(Settle(CHAIN))
            array = array.at() if type(array) is Value else array
            self._homes.leave((array,))
            task = describe_read(array, self.owner, located=self.recorder.tracing or self.machine.seat is not None)
            task.submitted = begin = time.perf_counter()
            self._send(Read(task, array, found.append if box is None else box, readers), begin)
        return task, found

    def finish_read(self, task: Task, box: list[Any]) -> Any:
        """Wait for a host read and return its elements."""
        self.wait_because(task, "read")
        if task.failure is not None:
            raise seen(task.failure)
        return box.pop()  # whoever keeps the instruction does not keep the elements

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""
        if self.closed:
            return read_closed(array, self._engine.failed)
        session.check_outside()
        if (data := self._homes.snapshot(array)) is not None:
            return data
        return self.finish_read(*self.begin_read(array))

    def begin_epoch(self, name: str) -> Task:
        """Record an epoch."""
        with self.lock:
            self.pump.catch_up()
            self._send(Settle(CHAIN))
            self.pump.collect()
            return self.pump.mark(name)

    def finish_epoch(self, task: Task) -> None:
        """Wait for an epoch, which then stands for everything before it."""
        self.wait_because(task, task.name)
        with self.lock:
            self._send(Over(task, self._engine.failed))

    def flush(self) -> None:
        """Lower and issue everything so far, whatever is still to come. Waits for nothing."""
        with self.lock:
            self.pump.catch_up()
            self._send(Settle(HELD))

    def _copy_element(self, source: Array, target: Array) -> None:
        self.record(element, [source, target], {}, DEFAULT)

    # Pace and waits ---------------------------------------------------------------------------------------------------

    def keep_pace(self, task: Task) -> None:
        """After a call: say what is odd, bound what is remembered, and wait where running ahead is of no use."""
        if self.signals.pending is not None:
            self.signals.check()
        if self.diagnostics.pending:
            self.diagnostics.speak()
        if self.lending.lenders:
            with self.lock:
                self.lending.let_go()
        if self._graph.since_horizon >= self.config.horizon:
            self._pass_horizon()
        elif len(self.executor.records) > UNREAD:
            self.pump.drain()
        if self.config.sync:
            task.result()
        elif task.id in self._by_guess:
            self._let_measure(task)

    def _let_measure(self, task: Task) -> None:
        """Do not run far ahead with guesses: what is measured now makes better plans."""
        if self.parts.timed or self.parts.simulation is not None:
            self._guesses.append(task)
            if len(self._guesses) > GUESSES:
                self.wait_because(self._guesses.popleft(), "first measurements")

    def _pass_horizon(self) -> None:
        """Bound what is remembered, and how far the program runs ahead: by two horizons."""
        before = self.pump.last_mark
        if before is not None and not before.finished:
            self.wait_because(before, "run-ahead")
        with self.lock:
            if self.scheduler.since_mark < self.config.horizon or self.pump.last_mark is not before:
                return  # another thread was faster
            self.pump.mark("horizon", horizon=True)
            self.executor.forget_failures(self.scheduler.lowering.ids)
        self.pump.drain()

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task; return False on time-out."""
        return self.wait_because(task, task.name, timeout)

    def wait_because(self, task: Task, what: str, timeout: float | None = None, others: Sequence[Task] = ()) -> bool:
        """Wait for one task or for one of `others`, because of `what`; return False on time-out."""
        if timeout is None:
            session.give_way(task, what)
        self.signals.see_to_handlers()
        start = self.recorder.clock()
        for held in (task, *others) if self.scheduler.holding and not task.finished else ():
            with self.lock:
                self._send(Settle(HELD, held))
        if self.before_wait is not None and not task.finished:
            self.before_wait(task)
        try:
            return wait_any(self.executor, (task, *others), timeout)
        except (KeyboardInterrupt, SystemExit):
            self.cancel_pending(WHY)
            raise
        finally:
            stop = self.recorder.clock()
            self.recorder.wait(start, stop, what, task.id)
            if self.executor.records and not task.failure:
                self.pump.drain()
            if what != "run-ahead":
                self.diagnostics.waited(stop - start, self.scheduler.link.graph.last, own=task.kernel is None)

    def let_send(self, task: Task) -> None:
        """Lower what is held back of what came before `task`, for which another rank waits."""
        if self.scheduler.holding:
            with self.lock:
                self._send(Settle(HELD) if task.deal is None else Settle(HELD, round=task.round))

    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun."""
        with self.lock, self.executor.standing_still():
            self._send(Settle())
            mine = [i for i in [*self._engine.waiting(), *self._engine.issued()] if i.task is task]
            stopped = self.executor.cancel(mine, "cancel() was called")
        return bool(stopped) and len(stopped) == len([i for i in mine if i.step.completes])

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun. What runs is let run."""
        with self.lock, self.executor.standing_still():
            self._send(Settle())
            self.executor.cancel([*self._engine.waiting(), *self._engine.issued()], reason)

    @property
    def instructions(self) -> int:
        """How many instructions were made so far."""
        return self.scheduler.lowering.emitter.last

    @property
    def about(self) -> str:
        """What it runs on."""
        return f"on {', '.join(device.name for device in self.platform.devices)}"

    def wait(self, name: str = "wait") -> None:
        """Wait for everything so far."""
        self.finish_epoch(self.begin_epoch(name))

    # The end ----------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait for everything, and bring live arrays to the host."""
        if self.executor.broken is not None:
            return
        with self.lock:
            self.pump.collect()
            self._send(Settle())
            if self.parts.simulation is None or self.parts.simulation.executes:  # else there is nothing to bring
                self.pump.hand_over.take(self.scheduler.gather(Task(0, "close", None, self.owner)))
        self.executor.wait_idle()

    def close(self) -> None:
        """End every thread, and complete the trace. Nothing may be under way."""
        self.stop_small_calls()
        self.pump.stop()
        self.one_thread.let_go()
        self.pump.drain()
        self.learned.save(self.parts.links.measured(), self.loads.start_delays.measured())
        self.diagnostics.close()
        self.recorder.close()
        self.signals.restore()
