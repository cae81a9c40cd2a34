"""The runtime: what the program asks of it goes through all stages. A call becomes a task, a command, instructions, and runs.

Before: stages.py, which puts them together.  After: coexec/__init__.py.  Reads like the picture in docs/architecture.md.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from . import process
from .backend.machine import Machine
from .config import RuntimeOptions
from .errors import ProgramError
from .execute.at_once import AtOnce, Failed, finished
from .execute.closed import read_closed
from .execute.issuing import Counts
from .graph.call import describe, describe_read, make_returned
from .graph.command import Command
from .graph.instruction import Instruction
from .graph.task import Task, seen
from .machine.platform import Platform
from .pace import UNREAD, Pace
from .plan.plan import Plan
from .plan.planned import Planned
from .program import session
from .program.array import Array, Storage
from .program.assign import element
from .program.call import DEFAULT, Options
from .program.fuse import Operation
from .program.kernel import Kernel
from .program.value import Lending, Value, any_values
from .stages import configured

if TYPE_CHECKING:
    from .backend.simulated import Scenario


class Runtime(Pace):
    """Runs a program on devices. The default one starts with the first array; `with cx.Runtime(...)` opens another."""

    def __init__(
        self,
        devices: str | None = None,
        *,
        memory: Mapping[str, str] | str | None = None,
        trace: str | os.PathLike[str] | None = None,
        platform: Platform | str | os.PathLike[str] | None = None,
        scenario: Scenario | str | os.PathLike[str] | None = None,
        machine: Machine | None = None,
        **options: Unpack[RuntimeOptions],
    ) -> None:
        """Open devices of this machine, or of a `platform` that is simulated. Options: `coexec devices --options`."""
        session.check_forked()
        config = self.config = configured(devices, trace, platform, scenario, options)
        self._lock = threading.RLock()
        self.closed, self.checks = False, config.debug
        self.lending = Lending(self, lambda source, own: self.record(element, [source, own], {}, DEFAULT))
        self._open(config, memory, platform, scenario, machine)
        if self.alone:
            process.opened(self)

    # What the program asks ----------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""
        with self._lock:
            self._check_open()
            late = data is not None and not borrowed and self._upkeep.crowded(storage)
        if late:
            self._pass_epoch("memory")
        with self._lock:
            target = self._upkeep.adopt(storage, data, borrowed=borrowed)
        if target is not None:
            np.copyto(target, data)

    def dropped(self, storage_id: int) -> None:
        """Note that an array is gone. Called by finalizers: only enqueues."""
        self._upkeep.dropped.append(storage_id)

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call: task graph, plan, lowering and issue, all before this returns. Runs nothing that is long."""
        if self._at_once is not None and kernel.plain and not kwargs and options is DEFAULT:
            ran = self._run_at_once(self._at_once, kernel, args)
            if ran is not None:
                return ran
        task, returned = self.record(kernel, *kernel.bind(args, kwargs), options)
        self.keep_pace(task)
        if not returned:
            return task
        return returned[0] if kernel.returns.single else returned

    def record(
        self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], options: Options
    ) -> tuple[Task, tuple[Array, ...]]:
        """Record a call whose arguments are bound; return its task and its new arrays. Waits for nothing."""
        begin = time.perf_counter()
        if any_values(arrays, scalars):
            with self._lock:  # until it is recorded: other threads may change what the values look at
                return self.record(kernel, *self.lending.settled(kernel, arrays, scalars), options)
        returned: tuple[Array, ...] = make_returned(kernel, arrays, scalars, self) if kernel.returns.names else ()
        task = describe(kernel, [*arrays, *returned] if returned else arrays, scalars, options, self)
        task.submitted = begin
        with self._lock:
            if self.closed or self._executor.broken is not None:
                self._check_open()
            if self._fusing.held is not None:
                self._fusing.flush()
            self.lending.keep(kernel, arrays)
            self._enter(task)
        return task, returned

    def _run_at_once(self, at_once: AtOnce, kernel: Kernel, args: tuple[Any, ...]) -> Task | None:
        """Run a call that is known to be short, if nothing is pending; return its task, or None if it was not run."""
        with self._lock:
            args = tuple([value.plain() if type(value) is Value else value for value in args])
            pending = not self._engine.idle or self._engine.failed or self._lookahead.holding or self._upkeep.dropped
            if pending or self.closed or self._fusing.held is not None or self._signals.pending is not None:
                return None
            try:
                if self._executor.broken is not None or not at_once.run(kernel, args):
                    return None
            except Failed as failed:
                return self._enter_failed(kernel, args, failed)
        if len(self._executor.records) > UNREAD:
            self._drain()
        return finished(kernel, self)

    def _enter_failed(self, kernel: Kernel, args: tuple[Any, ...], failed: Failed) -> Task:
        """Record a call that was run at once, and raised. Locked since before it ran."""
        task = describe(kernel, *kernel.bind(args, {}), DEFAULT, self)
        task.submitted = failed.start
        self._graph.add(task)
        self._issuing.failed(task, failed)
        return task

    def _enter(self, task: Task) -> None:
        """Put a task into the graph and carry it out, or have it carried out when its turn comes. Locked."""
        if self._upkeep.dropped:
            self._upkeep.collect()
        if self._seat is not None:
            self._seat.task(task, self._planner.check)
        if self._recipes.on:
            task.shape = self._graph.shapes.of(task)
        if self._on_demand.open:
            self._planner.check(task)  # later there is nobody to tell
            self._graph.add(task)
            self._lookahead.then(lambda: self._run(task), task)
        else:
            self._graph.add(task)
            self._carry_out(task)
        self._entered(task)

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back for a moment: what uses its result may come, and be one kernel with it."""
        held = not self.closed and self._fusing.hold(operation)
        if held and self._graph.since_horizon >= self._horizon_step:
            self._pass_horizon()
        elif len(self._executor.records) > UNREAD:
            self._drain()
        return held

    def _enter_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, where: tuple[str, int]) -> None:
        """Record a chain of elementwise operations. Locked."""
        self.record_chain(kernel, *kernel.bind(args, {}), context, where)

    def record_chain(
        self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], context: Context, where: tuple[str, int]
    ) -> None:
        """Record a chain of elementwise operations whose arguments are bound. Locked."""
        task = describe(kernel, arrays, scalars, DEFAULT, self)
        task.submitted, task.context = time.perf_counter(), context
        task.call, task.line = where
        self._enter(task)
        if self._graph.since_horizon >= self._horizon_step and self._upkeep.over:
            self._upkeep.horizon()  # now: the program may never be here between two steps

    def begin_step(self) -> Counts:
        """Begin a step that the program names: `with cx.record()`."""
        with self._lock:
            self._catch_up()
            return self._issuing.counts

    def end_step(self, begun: Counts, *, left: bool) -> tuple[bool, str]:
        """End a named step, which an exception may have left; tell whether it was replayed, and else why not."""
        with self._lock:
            if not left:
                self._catch_up()
            return self._issuing.since(begun, left=left)

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how a call would be divided and placed, and how long it is predicted to take. Nothing runs."""
        self.learned.take_time()
        arrays, scalars = self.lending.settled(kernel, *kernel.bind(args, kwargs), read=True)
        if kernel.returns.names:
            arrays += make_returned(kernel, arrays, scalars, self)
        with self._lock:
            self._catch_up()
            return self._planner.preview(describe(kernel, arrays, scalars, options, self))

    def _run(self, task: Task) -> None:
        """Plan, lower and issue a task. Locked."""
        look = self._lookahead
        task.starved = idle = self._engine.idle and not look.holding
        deal = task.deal
        if deal is not None and deal.box is None:
            planned = Planned(Command(task.id, task, (), task.after, "other ranks compute it"), ())
        else:
            here = self._inline and idle and deal is None
            planned = self._decisions.recall(task, divided=here) or self._decisions.note(
                task, self._planner.plan(task, idle=here)
            )
        task.why = planned.command.why
        if planned.handout and planned.site is not None and not self._diagnostics.strict and deal is None:
            look.flush()
            self._on_demand.begin(planned, planned.site, planned.handout)
        else:
            self._issuing.task(planned)

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""
        if self.closed:
            return read_closed(array, self._engine.failed)
        session.check_outside()
        return self.finish_read(*self.begin_read(array))

    def begin_read(self, array: Array, readers: Sequence[int] | None = None) -> tuple[Task, list[Any]]:
        """Record a host read; return its task and where the elements will be. `readers` are ranks; None = all."""
        box: list[Any] = []
        with self._lock:
            self._catch_up()
            array = array.at() if type(array) is Value else array
            task = describe_read(array, self, located=self._recorder.tracing)
            if self._seat is not None:
                self._seat.read(task, range(self._seat.ranks) if readers is None else readers)
            self._upkeep.read(task, array, box.append)
        return task, box

    def finish_read(self, task: Task, box: list[Any]) -> Any:
        """Wait for a host read and return its elements."""
        self._wait_for(task, "read")
        if task.failure is not None:
            raise seen(task.failure)
        return box.pop()  # whoever keeps the instruction does not keep the elements

    def wait(self) -> None:
        """Wait for everything; raise all failures that the program has not seen yet, as a group."""
        self._pass_epoch("wait")
        self._executor.raise_unseen()

    def _pass_epoch(self, name: str) -> None:
        self.finish_epoch(*self.begin_epoch(name))

    def begin_epoch(self, name: str) -> tuple[Task, list[Instruction]]:
        """Record an epoch, which comes after everything so far."""
        with self._lock:
            self._catch_up()
            return self._upkeep.epoch(name)

    def finish_epoch(self, task: Task, epoch: list[Instruction]) -> None:
        """Wait for an epoch, which then stands for everything before it."""
        self._wait_for(task, task.name)
        with self._lock:
            self._lowering.passed(epoch[-1].id, self._engine.failed)

    def flush(self) -> None:
        """Lower and issue everything so far, whatever is still to come. Waits for nothing."""
        with self._lock:
            self._catch_up()
            self._lookahead.flush()

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task; return False on time-out."""
        session.check_forked()
        return self._wait_for(task, task.name, timeout)

    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun."""
        with self._lock, self._executor.standing_still():
            self._lower_all()
            mine = [i for i in [*self._engine.waiting(), *self._engine.issued()] if i.task is task]
            stopped = self._executor.cancel(mine, "cancel() was called")
        return bool(stopped) and len(stopped) == len([i for i in mine if i.completes])

    # Waits --------------------------------------------------------------------------------------------------------

    def _wait_for(self, task: Task, what: str, timeout: float | None = None) -> bool:
        self._signals.see_to_handlers()
        start = self._recorder.clock()
        self._holding.release(task)
        if self.before_wait is not None and not task.finished:
            self.before_wait(task)
        try:
            return self._executor.wait_for(task, timeout)
        except (KeyboardInterrupt, SystemExit):
            self.cancel_pending("the program was interrupted")
            raise
        finally:
            stop = self._recorder.clock()
            self._recorder.wait(start, stop, what, task.id)
            if self._executor.records and not task.failure:
                self._drain()
            if what != "run-ahead":
                self._diagnostics.waited(stop - start, self._graph.last, own=task.kernel is None)

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun. What runs is let run."""
        with self._lock, self._executor.standing_still():
            self._lower_all()
            self._executor.cancel([*self._engine.waiting(), *self._engine.issued()], reason)

    def unseen(self) -> list[Any]:
        """Return the failures that the program has not looked at yet."""
        return self._executor.unseen()

    # Beginning and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with self._lock:
            self._check_open()
            if self._in_block:
                raise ProgramError(
                    f"{self!r} has a `with` block already, whose end closes it; inside that block just call kernels, "
                    "also from other threads"
                )
            self._in_block = True
        session.push(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        session.remove(self)
        if self.closed:
            return
        if kind is not None:
            self.cancel_pending(f"the program left with {kind.__name__}")
            self.close()
            return
        try:
            self.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Wait for everything, bring live arrays to the host, end every thread, complete the trace. Idempotent."""
        if self.closed:
            return
        try:
            self._settle()
        except (KeyboardInterrupt, SystemExit):
            self.cancel_pending("the program was interrupted")
            self._executor.wait_idle()
            raise
        finally:
            with self._signals.deferred():
                self.closed = True
                self._fusing.stop()
                self._holding.stop()
                self._executor.stop()
                self.one_thread.let_go()
                self._drain()
                self.learned.save(self._links.measured(), self.loads.lags.measured())
                self._diagnostics.close()
                self._recorder.close()
                self._signals.restore()
                session.remove(self)
                process.closed(self)
            self._diagnostics.speak()

    def __repr__(self) -> str:
        return f"<cx.Runtime on {', '.join(d.name for d in self.platform.devices)}{', closed' if self.closed else ''}>"
