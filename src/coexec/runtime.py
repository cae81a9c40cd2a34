"""The runtime: the one file where all stages meet. A call becomes a task, a command, instructions, and runs.

Before: every stage.  After: coexec/__init__.py.  Reads like the picture in docs/architecture.md.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextvars import Context
from dataclasses import asdict
from functools import partial
from typing import Any, Self, Unpack

import numpy as np

from . import process
from .backend.base import Ran
from .backend.machine import Machine, open_machine
from .config import Config, RuntimeOptions, merged, parse, parse_memory
from .errors import RuntimeClosed
from .execute.closed import read_closed
from .execute.engine import Engine
from .execute.executor import Executor
from .execute.fusing import Fusing
from .execute.holding import Holding
from .execute.issuing import Issuing
from .execute.lanes import LanePolicy, open_lanes
from .execute.on_demand import OnDemand
from .execute.redo import Redo
from .execute.signals import Signals
from .execute.upkeep import Upkeep
from .graph.call import describe, describe_read, make_returned
from .graph.instruction import Kernel as KernelInstruction
from .graph.task import Task, mark_reported
from .graph.task_graph import TaskGraph
from .lower.lowering import Lowering
from .machine.cores import cache_bytes
from .machine.power import parse_watts, powered
from .observe.diagnostics import Diagnostics
from .observe.recorder import Recorder
from .plan.assemble import make_candidates, make_planner
from .plan.place import Loads
from .plan.plan import Plan
from .predict.learned import Learned
from .predict.links import Links
from .predict.store import Store, default_path
from .program import session
from .program.array import Array, Storage
from .program.call import DEFAULT, Options
from .program.fuse import Operation
from .program.kernel import Kernel

UNREAD = 64  # records that may wait before the predictors see them


class Runtime:
    """Runs a program on devices. The default one starts with the first array; `with cx.Runtime(...)` opens another."""

    def __init__(
        self,
        devices: str | None = None,
        *,
        memory: Mapping[str, str] | str | None = None,
        trace: str | os.PathLike[str] | None = None,
        machine: Machine | None = None,
        **options: Unpack[RuntimeOptions],
    ) -> None:
        """Open the named devices. Every option also has a COEXEC_ variable, see `coexec devices --options`."""
        session.check_forked()
        file = None if trace is None else os.fspath(trace)
        config = merged(parse(os.environ), devices=devices, trace=file, **options)
        if config.trace and trace is None:
            config = merged(config, trace=process.free_trace_name(config.trace))
        self.config = config
        limits = parse_memory(config.memory) if memory is None else memory
        limits = parse_memory(limits) if isinstance(limits, str) else dict(limits)
        self.machine = machine or open_machine(config.devices or None, limits, debug=config.debug, sync=config.sync)
        self.platform = powered(self.machine.platform, parse_watts(config.watts))
        self._lock = threading.RLock()
        self.closed, self.checks = False, config.debug
        self._build(config)
        process.opened(self)

    def _build(self, config: Config) -> None:
        """Put the stages together."""
        machine, platform, cache = self.machine, self.platform, cache_bytes() // 2
        self.learned = Learned(Store(default_path(config.store)))
        self._links = Links(platform, self.learned.store.links())
        clock = machine.lanes["host"].clock
        self._recorder = Recorder(config.trace, platform, clock, asdict(config), self._links.learn)
        timed = machine.lanes["host"].kind == "cpu" and not config.sync
        watch = self._diagnostics = Diagnostics(config.diagnostics, platform, self._recorder.note, timed=timed)
        self.loads = Loads(platform)
        self.loads.lags.load(self.learned.lags())
        self._graph = TaskGraph(self)
        candidates = make_candidates(platform, self.learned, machine.lanes)
        note = self._recorder.note if self._recorder.tracing else None
        self._planner = make_planner(config, platform, candidates, self.loads, cache, note, watch.conflict)
        self._lowering = Lowering(platform, watch if watch.on else None)
        candidates.roomy = self._lowering.fitting.roomy
        self._engine = Engine(open_lanes(platform.devices, LanePolicy.parse(config.lanes)))
        self._executor = Executor(self._engine, machine.lanes, machine.memories, self._lock)
        at_once = config.sync or watch.strict
        self._holding = Holding(self._lowering, self._executor, "none" if at_once else config.lookahead)
        self._lookahead = self._holding.queue
        cpu = machine.lanes["host"] if machine.lanes["host"].kind == "cpu" else None
        self._issuing = Issuing(self._lowering, self._executor, self.loads, self._recorder, cpu)
        self._on_demand = OnDemand(
            self._lowering.lower, self._issuing.part, self.loads, self._executor.release, self._lookahead, cache=cache
        )
        self._fusing = Fusing(self._lock, self._enter_chain, self._planner.runs, on=config.fuse and not at_once)
        self._upkeep = Upkeep(self._graph, self._lowering, self._executor, self._lookahead, self._recorder)
        self._executor.on_finished = self._finished
        redo = Redo(platform, candidates, self._lowering, self.loads, self._recorder.note)
        self._executor.stand_in = redo.instructions
        self._signals = Signals(self._lock, self.cancel_pending)
        self._signals.install()
        self._executor.check_signals = self._signals.check
        self._executor.look_up = watch.progress(self._lock, self._engine.issued, time.monotonic)
        self._inline = config.inline and not config.sync and cpu is not None
        self._sync, self._horizon_step = config.sync, config.horizon
        with self._lock:
            _, epoch = self._upkeep.epoch("start")
            self._lowering.passed(epoch[-1].id, ())

    # What the program asks ----------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""
        with self._lock:
            self._check_open()
            target = self._upkeep.adopt(storage, data, borrowed=borrowed)
        if target is not None:
            np.copyto(target, data)

    def dropped(self, storage_id: int) -> None:
        """Note that an array is gone. Called by finalizers: only enqueues."""
        self._upkeep.dropped.append(storage_id)

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call: task graph, plan, lowering and issue, all before this returns. Runs nothing that is long."""
        begin = time.perf_counter()
        arrays, scalars = kernel.bind(args, kwargs)
        returned: tuple[Array, ...] = make_returned(kernel, arrays, scalars, self) if kernel.returns.names else ()
        task = describe(kernel, [*arrays, *returned] if returned else arrays, scalars, options, self)
        task.submitted = begin
        with self._lock:
            if self.closed or self._executor.broken is not None:
                self._check_open()
            if self._fusing.held is not None:
                self._fusing.flush()
            self._enter(task)
        if self._signals.pending is not None:
            self._signals.check()
        if self._diagnostics.pending:
            self._diagnostics.speak()
        if self._graph.since_horizon >= self._horizon_step:
            self._pass_horizon()
        elif len(self._executor.records) > UNREAD:
            self._drain()
        if self._sync:
            task.result()
        if not returned:
            return task
        return returned[0] if kernel.returns.single else returned

    def _enter(self, task: Task) -> None:
        """Put a task into the graph and carry it out, or have it carried out when its turn comes. Locked."""
        if self._upkeep.dropped:
            self._upkeep.collect()
        if self._on_demand.open:
            self._planner.check(task)  # later there is nobody to tell
            self._graph.add(task)
            self._lookahead.then(lambda: self._run(task), task)
        else:
            self._graph.add(task)
            self._run(task)
        task.scheduling += time.perf_counter() - task.submitted
        if self._recorder.tracing:
            self._recorder.task(task)

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back for a moment: what uses its result may come, and be one kernel with it."""
        held = not self.closed and self._fusing.hold(operation)
        if held and self._graph.since_horizon >= self._horizon_step:
            self._pass_horizon()
        return held

    def _enter_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, where: tuple[str, int]) -> None:
        """Record a chain of elementwise operations. Locked."""
        task = describe(kernel, *kernel.bind(args, {}), DEFAULT, self)
        task.submitted, task.context = time.perf_counter(), context
        task.call, task.line = where
        self._enter(task)

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how a call would be divided and placed, and how long it is predicted to take. Nothing runs."""
        self.learned.take_time()
        arrays, scalars = kernel.bind(args, kwargs)
        if kernel.returns.names:
            arrays += make_returned(kernel, arrays, scalars, self)
        with self._lock:
            self._catch_up()
            return self._planner.preview(describe(kernel, arrays, scalars, options, self))

    def _run(self, task: Task) -> None:
        """Plan, lower and issue a task. Locked."""
        look = self._lookahead
        task.starved = idle = self._engine.idle and not look.holding
        planned = self._planner.plan(task, idle=self._inline and idle)
        task.why = planned.command.why
        if planned.handout and planned.site is not None and not self._diagnostics.strict:
            look.flush()
            self._on_demand.begin(planned, planned.site, planned.handout)
        elif look.passes(planned.command):
            self._issuing.task(planned)
        else:
            look.command(planned.command, partial(self._issuing.task, planned))

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""
        box: list[Any] = []
        if self.closed:
            return read_closed(array, self._engine.failed)
        session.check_outside()
        with self._lock:
            self._catch_up()
            task = describe_read(array, self)
            self._upkeep.read(task, array, box.append)
        self._wait_for(task, "read")
        if task.failure is not None:
            mark_reported(task.failure)
            raise task.failure.with_traceback(None)
        return box[0]

    def wait(self) -> None:
        """Wait for everything; raise all failures that the program has not seen yet, as a group."""
        with self._lock:
            self._catch_up()
            task, epoch = self._upkeep.epoch("wait")
        self._wait_for(task, "wait")
        with self._lock:
            self._lowering.passed(epoch[-1].id, self._engine.failed)
        self._executor.raise_unseen()

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

    # Horizons and waits -------------------------------------------------------------------------------------------

    def _wait_for(self, task: Task, what: str, timeout: float | None = None) -> bool:
        start = time.perf_counter()
        self._holding.release(task)
        try:
            return self._executor.wait_for(task, timeout)
        except (KeyboardInterrupt, SystemExit):
            self.cancel_pending("the program was interrupted")
            raise
        finally:
            stop = time.perf_counter()
            self._recorder.wait(start, stop, what)
            if self._executor.records and not task.failure:
                self._drain()
            if what != "run-ahead":
                self._diagnostics.waited(stop - start, self._graph.last, own=task.kernel is None)

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun. What runs is let run."""
        with self._lock, self._executor.standing_still():
            self._lower_all()
            self._executor.cancel([*self._engine.waiting(), *self._engine.issued()], reason)

    def _pass_horizon(self) -> None:
        """Bound what is remembered, and how far the program runs ahead: by two horizons."""
        before = self._upkeep.last
        if before is not None and not before.finished:
            self._wait_for(before, "run-ahead")
        with self._lock:
            if self._graph.since_horizon < self._horizon_step or self._upkeep.last is not before:
                return  # another thread was faster
            self._upkeep.horizon()
        self._drain()

    def _drain(self) -> None:
        """Give the records to the trace and to the predictors."""
        with self._lock:
            records, self._executor.records = self._executor.records, []
        self._recorder.ran(records)
        self._diagnostics.ran(records)
        self._links.update()

    def _finished(self, ran: Ran) -> None:
        """Account for a finished kernel. Locked."""
        instruction = ran.instruction
        if type(instruction) is KernelInstruction:
            self.loads.finished(instruction, ran.start, ran.stop)
            self._on_demand.finished(ran)

    def unseen(self) -> list[Any]:
        """Return the failures that the program has not looked at yet."""
        return self._executor.unseen()

    # Beginning and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        session.push(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        session.remove(self)
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
            self.closed = True
            self._fusing.stop()
            self._holding.stop()
            self._executor.stop()
            self._drain()
            self.learned.save(self._links.measured(), self.loads.lags.measured())
            self._diagnostics.close()
            self._recorder.close()
            self._signals.restore()
            session.remove(self)
            process.closed(self)
            self._diagnostics.speak()

    def _settle(self) -> None:
        if self._executor.broken is not None:
            return
        with self._lock:
            self._lower_all()
            self._upkeep.gather()
        self._executor.wait_idle()

    def _lower_all(self) -> None:
        """Lower everything so far, to whoever has it: the program is about to end or to cancel. Locked."""
        self._fusing.flush()
        self._on_demand.flush()
        self._lookahead.flush()

    def _catch_up(self) -> None:
        """Record what was held back, and free what is gone: somebody wants to see everything so far. Locked."""
        self._check_open()
        self._fusing.flush()
        self._upkeep.collect()

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeClosed("this runtime is closed; open another with cx.Runtime(...)")
        self._executor.check_broken()

    def __repr__(self) -> str:
        return f"<cx.Runtime on {', '.join(d.name for d in self.platform.devices)}{', closed' if self.closed else ''}>"
