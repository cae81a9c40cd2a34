"""The live executor: drives the engine with real backends, on the threads of whoever submits, finishes or waits.

Before: execute/engine.py, backend/.  After: execute/hand_over.py, pump.py.  Works under the lock of the pump; has no thread itself.

Every method that says "locked" is called with the lock held. Backends call `finished` without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from ..backend.base import Backend, Postponed, Ran
from ..errors import Reported, RuntimeClosed, TaskFailed
from ..graph.failure import cancelled, task_failed
from ..graph.instruction import Alloc, Allocation, Free, Instruction, Join, Launch, Reduce
from ..graph.task import Task
from ..machine.collecting import CollectorPace
from .engine import Engine, followed
from .memories import Memories
from .signals import Signals

LOOK_UP = 0.5  # seconds: a signal that comes just before a thread blocks does not wake it, so it looks up now and then


class Executor:
    """Issues what the engine releases, and completes tasks when their instructions are over."""

    def __init__(
        self, engine: Engine, lanes: Mapping[str, Backend], memories: Mapping[int, Backend], lock: Any
    ) -> None:
        self.engine, self.lock = engine, lock
        self._lanes = lanes  # by device name
        self._memories = Memories(memories, engine)  # by memory id
        self._backends = list(dict.fromkeys([*lanes.values(), *memories.values()]))
        self._helpers = [backend for backend in self._backends if backend.helps]
        self.records: list[Ran] = []
        self.failures: list[BaseException] = []  # raised by kernels, perhaps not seen by the program yet
        self._sleepers: list[Callable[[], None]] = []  # waiting threads that would help
        self.broken: BaseException | None = None  # an error of our own: every wait raises it
        self._waiting_for_idle: list[Callable[[], None]] = []
        self.check_signals: Callable[[], object] = list  # nothing, until somebody attends
        self._deferred: Callable[[], AbstractContextManager[object]] = nullcontext  # no interrupt is raised within
        self.look_up: Callable[[], object] = list  # called by a thread that has waited for a while
        self.on_finished: Callable[[Ran], object] = _nobody  # locked; for load accounting
        self._redo: Callable[[Ran], list[Instruction]] = _nobody  # locked; what redoes a failed instruction
        self._still = False  # nothing is issued for now
        self.kept_open: set[Task] = set()  # tasks of which further parts will be submitted
        self._standing: dict[int, Ran] = {}  # join of a stand-in -> what it stands for
        self.collector = CollectorPace(0)
        for backend in self._backends:
            backend.start(self.finished, self._call_helper)

    def attend(
        self,
        *,
        finished: Callable[[Ran], object],
        redo: Callable[[Ran], list[Instruction]],
        signals: Signals,
        look_up: Callable[[], None],
    ) -> None:
        """Say who is told of completions, who redoes what failed, and what a thread looks at while it waits."""
        self.on_finished, self._redo, self.look_up = finished, redo, look_up
        self.check_signals, self._deferred = signals.check, signals.deferred

    # Work in ------------------------------------------------------------------------------------------------------

    def submit(self, batch: Sequence[Instruction]) -> None:
        """Take instructions and start what can start. Locked."""
        for instruction in batch:
            if instruction.step.completes and instruction.task is not None:
                instruction.task.open += 1
        self.engine.submit(batch)
        if len(self.engine.open) > self.collector.many:
            self.collector.begin()
        self._issue()

    def _issue(self) -> None:
        """Issue everything that is ready. Locked."""
        engine = self.engine
        while engine.ready and not self._still:
            issue = engine.next()
            if issue is not None:
                instruction, lane, waits = issue
                if lane.number < 0:
                    self._immediate(instruction)
                else:
                    ran = self._lanes[instruction.step.device].issue(instruction, lane.number, waits)
                    if ran is not None and (ran.error is None or not self._redone(ran)):
                        self._complete(ran)
            elif engine.doomed:
                self._complete_doomed()

    def _immediate(self, instruction: Instruction) -> None:
        """Do what needs no lane: allocate, free, pass a horizon or an epoch. Locked."""
        start = time.perf_counter()
        error, step = instruction.failure, instruction.step
        if isinstance(step, Alloc):
            over, error = self._memories.alloc(instruction, step.allocation)
            if not over:
                return
        elif isinstance(step, Free):
            self._memories.free(step.allocation)
            error = None
        self._complete(Ran(instruction, "", -1, start, time.perf_counter(), 0.0, error))
        if isinstance(step, Free):
            for alloc in self._memories.again():
                self._immediate(alloc)

    def allocate(self, allocation: Allocation) -> None:
        """Back an allocation at once, for contents that the program brings."""
        self._memories.allocate(allocation)

    def _complete_doomed(self) -> None:
        doomed, self.engine.doomed = self.engine.doomed, []
        now = time.perf_counter()
        for instruction, failure in doomed:
            self._complete(Ran(instruction, instruction.device, -1, now, now, 0.0, failure))

    # Work out -----------------------------------------------------------------------------------------------------

    def finished(self, ran: Ran) -> None:
        """Take a completion from a backend's thread, and start what it made ready."""
        try:
            with self.lock:
                if ran.instruction.id < 0:  # a backend's own, such as a design that it loads
                    self.records.append(ran)
                elif isinstance(ran.error, Postponed):
                    self.engine.put_back(ran.instruction)
                elif ran.error is None or not self._redone(ran):
                    self._complete(ran)
                if self.engine.ready:
                    self._issue()
        except BaseException as error:  # noqa: BLE001 - ours: it must fail every wait, not vanish with this thread
            self.break_down(error)

    def passed_by(self, ran: Ran) -> None:
        """Take a completion of an instruction that never entered the engine, because nothing else was open. Locked."""
        failure = None
        if ran.error is not None:
            failure = self.engine.failed[ran.instruction.id] = task_failed(ran)
        self.records.append(ran)
        task = ran.instruction.task
        if task is not None:
            if failure is not None:
                task.failure = failure
                self.failures.append(failure)
            self._finish(task)

    def _redone(self, ran: Ran) -> bool:
        """Let others do what a device could not; True if the failed instruction is not over, but taken care of."""
        if getattr(ran.error, "begun", False) and followed(ran.instruction):
            return False  # what was queued behind it has perhaps run, on wrong data
        redo = self._redo(ran)
        if not redo:
            return False
        self.engine.take_over(ran.instruction)
        join = next(i for i in redo if isinstance(i.step, Join))
        self._standing[join.id] = ran
        self.submit(redo)
        return True

    def _complete(self, ran: Ran) -> None:
        failure = None if ran.error is None else task_failed(ran)
        self.engine.finish(ran.instruction, failure)
        if len(self.engine.open) < self.collector.few:
            self.collector.end()
        self._account(ran, failure)
        stood_for = self._standing.pop(ran.instruction.id, None) if self._standing else None
        if stood_for is not None:
            # Others have done it, so it took its device no time.
            self._complete(stood_for._replace(start=ran.stop, stop=ran.stop, error=failure))

    def _account(self, ran: Ran, failure: BaseException | None) -> None:
        """Record a completion, and tell whoever waits for its task."""
        self.records.append(ran)
        task, step = ran.instruction.task, ran.instruction.step
        if task is not None:
            if failure is not None and task.failure is None:
                if failure is not ran.error and not isinstance(step, Alloc):  # else it comes from an earlier one
                    self.failures.append(failure)
                if step.completes:
                    task.failure = failure
            if step.completes:
                task.open -= 1
                if not task.open:
                    self._finish(task)
        self.on_finished(ran)
        if self._waiting_for_idle and self.engine.idle:
            for wake in self._waiting_for_idle:
                wake()
            self._waiting_for_idle.clear()

    def _finish(self, task: Task) -> None:
        task.finished = True
        task.context = None
        waiters, task.waiters = task.waiters, None
        for wake in waiters or ():
            wake()

    def keep_open(self, task: Task) -> None:
        """Let a task not be over before its last part was submitted. Locked."""
        if task not in self.kept_open:
            self.kept_open.add(task)
            task.open += 1

    def submitted(self, task: Task) -> None:
        """Note that a task's last part was submitted; it is over if nothing is left to do here. Locked."""
        if task in self.kept_open:
            self.kept_open.remove(task)
            task.open -= 1
        if not task.open and not task.finished:
            self._finish(task)

    def refuse(self, task: Task, id: int, failure: BaseException) -> None:
        """Let a task be over that could not be lowered; `id` stands for what it would have written. Locked."""
        self.engine.failed[id] = task.failure = failure
        self.failures.append(failure)
        self._finish(task)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Take instructions and issue none of them before the end of the block. Locked."""
        self._still = True
        try:
            yield
        finally:
            self._still = False
            self._issue()

    def break_down(self, error: BaseException) -> None:
        """Fail every present and future wait: coexec itself is wrong."""
        self.broken = error
        with self.lock:
            for instruction in [*self.engine.issued(), *self.engine.waiting()]:
                task = instruction.task
                if task is not None and task.waiters:
                    for wake in task.waiters:
                        wake()
                    task.waiters = None
            for wake in [*self._waiting_for_idle, *self._sleepers]:
                wake()
            self._waiting_for_idle.clear()

    def forget_failures(self, alive: Callable[[], set[int]]) -> None:
        """Drop failures of instructions that nothing can depend on, and those that the program has seen. Locked."""
        if self.engine.failed:
            self.engine.forget_failures(alive())
            self.failures = [f for f in self.failures if not (isinstance(f, TaskFailed) and f.reported)]

    def unseen(self, told: Reported | None = None) -> list[TaskFailed]:
        """Return the failures that the program has not looked at yet, once.

        Of those that a stream may still tell of only the ones of the item that `told` belongs to, if it is given.
        """
        with self.lock:
            unseen = [f for f in self.failures if isinstance(f, TaskFailed) and not f.reported]
            found = [f for f in unseen if (f.told is told if told is not None else f.told is None or not f.told.held)]
            self.failures[:] = [f for f in unseen if f not in found]
        return found

    # Waits --------------------------------------------------------------------------------------------------------

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Block until `task` is over, doing host work meanwhile; return False on time-out."""

        def register(wake: Callable[[], None]) -> bool:
            if task.finished:
                return False
            task.waiters = [*(task.waiters or ()), wake]
            return True

        only = None if task.marks else task
        return self.wait_until(register, lambda: task.finished, timeout, only)

    def wait_idle(self) -> None:
        """Block until everything is over."""

        def register(wake: Callable[[], None]) -> bool:
            if self.engine.idle:
                return False
            self._waiting_for_idle.append(wake)
            return True

        self.wait_until(register, lambda: self.engine.idle, None, None)

    def wait_until(
        self,
        register: Callable[[Callable[[], None]], bool],
        over: Callable[[], bool],
        timeout: float | None,
        only: Task | None,
    ) -> bool:
        """Block until something is `over`, which `register` lets wake this thread (False: it is already)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        gate = threading.Lock()
        gate.acquire()

        def wake() -> None:
            with suppress(RuntimeError):  # woken twice before it could look
                gate.release()

        with self.lock:
            waits = register(wake)
        try:
            return not waits or self._help_until(over, gate, wake, deadline, only)
        finally:
            if waits or only is None:  # who waited before may have left while the last instruction was being reported
                with self.lock:  # else what woke this thread might still count as open
                    for backend in self._helpers:
                        backend.left(idle=self.engine.idle)

    def _help_until(
        self,
        over: Callable[[], bool],
        gate: threading.Lock,
        wake: Callable[[], None],
        deadline: float | None,
        only: Task | None,
    ) -> bool:
        while True:
            self.check_broken()
            self.check_signals()  # one may have come while this thread held the lock
            while not over() and self.help(only):
                pass
            if over():
                return True
            self._sleepers.append(wake)  # from here on, host work wakes this thread
            if self.help(only):
                self._awake(wake)
                continue
            # Blocking on one lock that the last dependency releases: no polling, and Ctrl-C gets through.
            left = LOOK_UP if deadline is None else max(0.0, min(LOOK_UP, deadline - time.monotonic()))
            try:
                self.check_signals()
                woken = gate.acquire(timeout=left)
            finally:
                self._awake(wake)
            if deadline is not None and time.monotonic() >= deadline:
                return over()
            if not woken:
                self.look_up()

    def _awake(self, wake: Callable[[], None]) -> None:
        with suppress(ValueError):  # it was called for help
            self._sleepers.remove(wake)

    def _call_helper(self) -> bool:
        """Wake a thread that waits, to do host work; False if there is none."""
        try:
            wake = self._sleepers.pop()
        except IndexError:
            return False
        wake()
        return True

    def help(self, waiting_for: Task | None = None) -> bool:
        """Run one piece of work on the calling thread, if a backend has any; what was taken is reported before Ctrl-C is raised."""
        with self._deferred():
            return any(backend.help(waiting_for) for backend in self._helpers)

    def check_broken(self) -> None:
        """Raise if coexec itself has failed."""
        if self.broken is not None:
            raise RuntimeClosed("coexec failed internally; please report this with its cause") from self.broken

    # Cancellation -------------------------------------------------------------------------------------------------

    def cancel(self, instructions: Iterable[Instruction], reason: str) -> list[Instruction]:
        """Cancel those instructions that have not begun; return them. Locked."""
        stopped: list[Instruction] = []
        for instruction in instructions:
            if not isinstance(instruction.step, Launch | Reduce):
                continue
            error = cancelled(instruction.task, reason)
            if self.engine.doom(instruction, error):
                stopped.append(instruction)
            elif self._lanes[instruction.device].withdraw(instruction):
                stopped.append(instruction)
                if not self.engine.unissue(instruction, error):
                    now = time.perf_counter()
                    self._complete(Ran(instruction, instruction.device, -1, now, now, 0.0, error))
        self._issue()
        return stopped

    def stop(self) -> None:
        """End every backend. Nothing may be open."""
        self.collector.end()
        for backend in self._backends:
            backend.stop()


def _nobody(ran: Ran) -> list[Instruction]:
    """Do nothing: nobody has asked to be told."""
    del ran
    return []
