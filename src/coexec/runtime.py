"""The runtime: the one file where all stages meet. A call becomes a task, a command, instructions, and runs.

Before: every stage.  After: coexec/__init__.py.  Reads like the picture in docs/architecture.md.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextvars import copy_context
from types import FrameType
from typing import Any

import numpy as np

from .backend.base import Ran
from .backend.machine import Machine, open_machine
from .config import Config, parse, parse_memory
from .errors import ConfigError, ProgramError, RuntimeClosed, TaskFailed
from .execute.engine import Engine
from .execute.executor import Executor
from .execute.lanes import DeviceLanes, LanePolicy
from .execute.signals import Signals
from .graph.instruction import Instruction, Kernel as KernelInstruction
from .graph.task import Task, mark_reported
from .graph.task_graph import TaskGraph
from .lower.lowering import Lowering
from .lower.state import FILL
from .machine.platform import HOST, USER
from .observe.recorder import Recorder
from .plan.candidate import Candidates
from .plan.place import Loads, load_placement
from .plan.planner import Planner
from .predict.history import History
from .program import session
from .program.access import read as read_access
from .program.array import Array, Storage
from .program.kernel import ArrayParam, Kernel, Options
from .program.mapper import all as map_all

CHEAP = 20e-6  # seconds: a kernel predicted below this costs less than handing it to another thread
WHOLE = ArrayParam("", -1, read_access(map_all))


class Runtime:
    """Runs a program on devices. The default one starts with the first array; `with cx.Runtime(...)` opens another."""

    def __init__(
        self,
        devices: str | None = None,
        *,
        memory: Mapping[str, str] | str | None = None,
        trace: str | os.PathLike[str] | None = None,
        sync: bool | None = None,
        debug: bool | None = None,
        placement: str | None = None,
        data_threshold: float | None = None,
        lanes: str | None = None,
        horizon: int | None = None,
        inline: bool | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Open the named devices. Every option also has a COEXEC_ variable, see `coexec devices --options`."""
        config = parse(os.environ)
        self.config = config = _merged(
            config,
            devices=devices,
            trace=None if trace is None else os.fspath(trace),
            sync=sync,
            debug=debug,
            placement=placement,
            data_threshold=data_threshold,
            lanes=lanes,
            horizon=horizon,
            inline=inline,
        )
        limits = parse_memory(config.memory) if memory is None else memory
        limits = parse_memory(limits) if isinstance(limits, str) else dict(limits)
        self.machine = machine or open_machine(config.devices or None, limits, debug=config.debug, sync=config.sync)
        self.platform = self.machine.platform
        self._lock = threading.RLock()
        self._closed = False
        self._dropped: deque[int] = deque()
        self._next_array = 0
        self._live: weakref.WeakValueDictionary[int, Storage] = weakref.WeakValueDictionary()
        self._last_mark: Task | None = None  # the last horizon or epoch
        self._build(config)
        _open_runtimes.add(self)
        _register_exit()

    def _build(self, config: Config) -> None:
        """Put the stages together."""
        machine, platform = self.machine, self.platform
        self.history = History()
        self.loads = Loads(platform)
        self._graph = TaskGraph(self)
        placement = load_placement(config.placement, self.loads, config.data_threshold)
        candidates = Candidates(
            platform,
            self.history,
            {d.name: machine.lanes[d.name].runs_python for d in platform.devices},
            {d.name: machine.lanes[d.name].supports for d in platform.devices},
        )
        self._lowering = Lowering(platform)
        policy = LanePolicy.parse(config.lanes)
        lanes = {
            d.name: DeviceLanes(d.name, d.lanes, policy, across=d.waits_across_lanes) for d in platform.devices
        }
        lanes["host"] = DeviceLanes("host", 64, policy, across=False)
        self._engine = Engine(lanes)
        self._executor = Executor(self._engine, machine.lanes, machine.memories, self._lock)
        self._executor.on_finished = self._finished
        self._recorder = Recorder(config.trace, platform, machine.lanes["host"].clock)
        self._planner = Planner(
            candidates, placement, self.loads, _valid_memories, explain=self._recorder.tracing
        )
        owned = self._lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition itself asks
        self._signals = Signals(owned, lambda: self._cancel_pending("the program was interrupted"))
        self._signals.install()
        self._cpu = machine.lanes["host"] if machine.lanes["host"].kind == "cpu" else None
        self._inline = config.inline and not config.sync
        self._sync = config.sync
        self._horizon_step = config.horizon
        with self._lock:
            _, epoch = self._emit_epoch("start")
            self._lowering.passed(epoch, ())

    # What the program asks ----------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""
        with self._lock:
            self._check_open()
            self._next_array += 1
            storage.id = self._next_array
            self._graph.register(storage)
            memory = None if data is None else USER if borrowed else HOST
            backing = self._lowering.register(storage, memory)
            self._live[storage.id] = storage
            if backing is None or data is None:
                return
            allocation = backing.allocation
            if borrowed:
                allocation.data = allocation.frozen = data
            else:
                self.machine.memories[HOST].allocate(allocation)
        if not borrowed and allocation.data is not None:
            np.copyto(allocation.data, data)

    def dropped(self, storage_id: int) -> None:
        """Note that an array is gone. Called by finalizers: only enqueues."""
        self._dropped.append(storage_id)

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call: task graph, plan, lowering and issue, all before this returns. Runs nothing that is long."""
        begin = time.perf_counter()
        arrays, scalars = kernel.bind(args, kwargs)
        returned = self._returned(kernel, arrays, scalars) if kernel.returns.names else ()
        task = Task(0, kernel.name, kernel, self)
        self._describe(task, kernel, [*arrays, *returned] if returned else arrays, scalars)
        task.submitted = begin
        task.options = options
        task.body = kernel.body()
        task.context = copy_context()
        frame = sys._getframe(2)
        if kernel.internal:
            frame = _program_frame(frame)
        task.call, task.line = frame.f_code.co_filename, frame.f_lineno
        with self._lock:
            if self._closed:
                self._check_open()
            if self._dropped:
                self._collect()
            here = self._run(task)
            task.scheduling = time.perf_counter() - begin
            if self._recorder.tracing:
                self._recorder.task(task)
        if here is not None:
            self._cpu.run_here(here)
        if self._signals.pending is not None:
            self._signals.check()
        if self._graph.since_horizon >= self._horizon_step:
            self._pass_horizon()
        if self._sync:
            task.result()
        if not returned:
            return task
        return returned[0] if kernel.returns.single else returned

    def _describe(self, task: Task, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any]) -> None:
        """Fill in what the call says: arrays, scalars and the index space."""
        task.space, task.box = kernel.space(arrays, scalars)
        if not kernel.simple:
            task.visited = task.box
        task.accesses = kernel.array_params
        if scalars:
            task.scalars = scalars
            extra = [(name, value) for name, value in scalars.items() if type(value) is Array]
            if extra:  # a 0-d array passed as a scalar is a read dependency and stays on its device
                task.accesses = (*task.accesses, *(ArrayParam(name, -1, WHOLE.access) for name, _ in extra))
                arrays = [*arrays, *(value for _, value in extra)]
        task.arrays = arrays
        storages = set()
        for array in arrays:
            storage = array._storage
            if storage.session is not self:
                raise ProgramError(
                    f"kernel {kernel.name!r} was given {array!r}, which belongs to another runtime; "
                    "make it inside this one, or pass cx.array(np.asarray(x))"
                )
            storages.add(storage)
        task.once = len(storages) == len(arrays)
        if kernel.takes_chunk:
            task.shapes = [array.shape for array in arrays]

    def _returned(self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any]) -> tuple[Array, ...]:
        """Make the new arrays of the functional form."""
        named = {param.name: array for param, array in zip(kernel.array_params, arrays, strict=False)} | scalars
        made = []
        for shape, dtype in kernel.returns.describe(named):
            storage = Storage(self, shape, dtype)
            self.adopt(storage, None, borrowed=False)
            made.append(Array(storage, storage.box, None))
        return tuple(made)

    def _run(self, task: Task) -> Instruction | None:
        """Link, plan, lower and issue a task. Locked. Returns what the caller should run itself, once unlocked."""
        idle = self._engine.idle
        self._graph.add(task)
        command, shares = self._planner.plan(task)
        instructions = self._lowering.lower(command, shares)
        task.why = command.why
        task.arrays = ()  # the arrays may be dropped from now on
        if self._recorder.tracing:
            self._recorder.command(command, instructions)
        if not idle or not self._cheap(instructions):
            self._executor.submit(instructions)
            return None
        cpu, last = self._cpu, instructions[-1]
        assert cpu is not None  # noqa: S101 - checked by _cheap
        cpu.holding = True
        try:
            self._executor.submit(instructions)
        finally:
            cpu.holding = False
        return last

    def _cheap(self, instructions: list[Instruction]) -> bool:
        """Tell whether the caller should run the kernel itself: it is predicted to cost less than handing it over."""
        last = instructions[-1]
        if len(instructions) > 1 or type(last) is not KernelInstruction or not self._inline:
            return False
        predicted = last.predicted
        return predicted is not None and predicted < CHEAP and self.machine.lanes[last.device] is self._cpu

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""
        box: list[Any] = []
        if self._closed:
            return self._read_closed(array)
        if session.in_kernel.name:
            session.current()  # raises: a body must not wait for arrays
        with self._lock:
            if self._dropped:
                self._collect()
            task = Task(0, "read", None, self)
            task.submitted = time.perf_counter()
            task.accesses, task.arrays, task.once = (WHOLE,), (array,), True
            self._graph.add(task)
            instructions = self._lowering.fence(task, array, box.append)
            task.arrays = ()
            self._recorder.task(task)
            self._recorder.fence(task, instructions)
            self._executor.submit(instructions)
        self._wait_for(task, "read")
        if task.failure is not None:
            mark_reported(task.failure)
            raise task.failure.with_traceback(None)
        return box[0]

    def wait(self) -> None:
        """Wait for everything; raise all failures that the program has not seen yet, as a group."""
        with self._lock:
            self._check_open()
            task, epoch = self._emit_epoch("wait")
        self._wait_for(task, "wait")
        with self._lock:
            self._lowering.passed(epoch, self._engine.failed)
        unseen = self._unseen()
        for failure in unseen:
            mark_reported(failure)
        if unseen:
            raise ExceptionGroup(f"{len(unseen)} task{'s' * (len(unseen) > 1)} failed", unseen)

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task; return False on time-out."""
        return self._wait_for(task, task.name, timeout)

    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun."""
        with self._lock:
            mine = [i for i in [*self._engine.waiting(), *self._engine.issued()] if i.task is task]
            stopped = self._executor.cancel(mine, "cancel() was called")
        return bool(stopped) and len(stopped) == len([i for i in mine if i.completes])

    # Horizons and waits -------------------------------------------------------------------------------------------

    def _wait_for(self, task: Task, what: str, timeout: float | None = None) -> bool:
        start = time.perf_counter()
        try:
            return self._executor.wait_for(task, timeout)
        except (KeyboardInterrupt, SystemExit):
            self._cancel_pending("the program was interrupted")
            raise
        finally:
            self._recorder.wait(start, time.perf_counter(), what)
            if self._executor.records and not task.failure:
                self._drain()

    def _cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun. What runs is let run."""
        with self._lock:
            self._executor.cancel([*self._engine.waiting(), *self._engine.issued()], reason)

    def _pass_horizon(self) -> None:
        """Bound what is remembered, and how far the program runs ahead: by two horizons."""
        before = self._last_mark
        if before is not None and not before.finished:
            self._wait_for(before, "run-ahead")
        with self._lock:
            if self._graph.since_horizon < self._horizon_step or self._last_mark is not before:
                return  # another thread was faster
            failed = self._engine.failed
            task = self._graph.mark("horizon")
            task.submitted = time.perf_counter()
            if before is not None:
                self._graph.passed(before.id)
            self._last_mark = task
            instructions = self._lowering.horizon(task, failed)
            self._recorder.task(task)
            self._recorder.fence(task, instructions)
            self._executor.submit(instructions)
        self._drain()

    def _emit_epoch(self, name: str) -> tuple[Task, int]:
        """Emit an epoch, which comes after everything so far; return its task and instruction id. Locked."""
        if self._dropped:
            self._collect()
        task = self._graph.mark(name)
        task.submitted = time.perf_counter()
        self._graph.passed(task.id)
        self._last_mark = task
        instructions = self._lowering.epoch(task, at_once=False)
        self._recorder.task(task)
        self._recorder.fence(task, instructions)
        self._executor.submit(instructions)
        return task, instructions[-1].id

    def _collect(self) -> None:
        """Free arrays whose last handle is gone. Locked."""
        while self._dropped:
            id = self._dropped.popleft()
            self._graph.forget(id)
            instructions = self._lowering.drop(id)
            if instructions:
                self._recorder.instructions(instructions)
                self._executor.submit(instructions)

    def _drain(self) -> None:
        """Give the records to the trace and to the predictors."""
        with self._lock:
            records, self._executor.records = self._executor.records, []
        self._recorder.ran(records)

    def _finished(self, ran: Ran) -> None:
        """Account for a finished kernel. Locked."""
        instruction = ran.instruction
        if type(instruction) is KernelInstruction:
            self.loads.remove(instruction.device, instruction.predicted or 0.0)

    def _unseen(self) -> list[Any]:
        with self._lock:
            unseen = [f for f in self._executor.failures if isinstance(f, TaskFailed) and not f.reported]
            self._executor.failures.clear()
        return unseen

    # Beginning and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> Runtime:
        session.push(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        session.remove(self)
        if kind is not None:
            self._cancel_pending(f"the program left with {kind.__name__}")
            self.close()
            return
        try:
            self.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Wait for everything, bring live arrays to the host, end every thread, complete the trace. Idempotent."""
        if self._closed:
            return
        try:
            self._settle()
        except (KeyboardInterrupt, SystemExit):
            self._cancel_pending("the program was interrupted")
            self._executor.wait_idle()
            raise
        finally:
            self._closed = True
            self._executor.stop()
            self._drain()
            self._recorder.close()
            self._signals.restore()
            session.remove(self)
            _open_runtimes.discard(self)

    def _settle(self) -> None:
        if self._executor.broken is not None:
            return
        with self._lock:
            task = self._graph.mark("close")
            instructions = self._lowering.gather(list(self._live.keys()), task)
            self._recorder.instructions(instructions)
            self._executor.submit(instructions)
        self._executor.wait_idle()

    def _read_closed(self, array: Array) -> Any:
        """Read an array of a closed runtime, from the host memory it was brought to."""
        from .graph.instruction import Binding
        from .backend.launch import resolve

        state = array._storage.state
        memory = HOST if state.holds(HOST, array._box) else USER
        backing = None if array._box.empty else state.find(memory, array._box)
        if backing is None and not array._box.empty:
            raise RuntimeClosed(f"{array!r} was never computed before its runtime was closed; read it earlier")
        if backing is not None and (error := self._poison(backing, array)) is not None:
            raise error
        allocation = backing.allocation if backing is not None else None
        data = np.array(resolve(Binding("", allocation, array._box, array._cut, writes=False, dtype=array.dtype)))
        data.flags.writeable = False
        return data

    def _poison(self, backing: Any, array: Array) -> BaseException | None:
        found: set[int] = set()
        backing.tracker.before_read(array._box, array._grid, found)
        return next((self._engine.failed[id] for id in found if id in self._engine.failed), None)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("this runtime is closed; open another with cx.Runtime(...)")
        if session.forked():
            session.current()

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.platform.devices)
        return f"<cx.Runtime on {names}{', closed' if self._closed else ''}>"


def _valid_memories(array: Array) -> int:
    """Return the memories (as bits) that hold all of an array."""
    state = array._storage.state
    mask: int | None = state.valid.uniform
    if mask is None:
        mask = -1
        for _, bits in state.valid.get(array._box):
            mask &= bits
    return mask & ~FILL  # an initial value is made where it is needed


def _program_frame(frame: FrameType) -> FrameType:
    """Return the nearest caller outside coexec: assignments and ufuncs are called through coexec's own code."""
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("coexec."):
        frame = frame.f_back
    return frame


def _merged(config: Config, **given: Any) -> Config:
    from dataclasses import replace

    for name, value in given.items():
        if value is not None and not isinstance(value, type(getattr(config, name))):
            if isinstance(getattr(config, name), float) and isinstance(value, int):
                continue
            raise ConfigError(f"Runtime({name}={value!r}): expected a {type(getattr(config, name)).__name__}")
    config = replace(config, **{name: value for name, value in given.items() if value is not None})
    if config.horizon < 1:
        raise ConfigError(f"Runtime(horizon={config.horizon}): must be at least 1")
    return config


# The end of the process -------------------------------------------------------------------------------------------------

_open_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_exit_registered: list[bool] = []


def _register_exit() -> None:
    if not _exit_registered:
        _exit_registered.append(True)
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=session.mark_forked)


def _at_exit() -> None:
    """Finish what is in flight, end all threads, and say which failures nobody saw."""
    if session.forked() or not _exit_registered:
        return
    _exit_registered.clear()
    unseen: list[BaseException] = []
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt | SystemExit)
    for runtime in list(_open_runtimes):
        if interrupted:
            runtime._cancel_pending("the program was interrupted")
        runtime.close()
        unseen += runtime._unseen()
    if unseen:
        _report_unseen(unseen)


def _report_unseen(unseen: list[BaseException]) -> None:
    """Print failures and end with exit code 1, which an exit handler can only do by ending the process itself."""
    import traceback

    sys.stderr.write(f"coexec: {len(unseen)} task(s) failed and the program never looked at the results:\n")
    for error in unseen:
        traceback.print_exception(error)
    atexit._run_exitfuncs()  # the handlers registered before ours
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def default_runtime() -> Runtime:
    """Return a new runtime with the options of the environment."""
    return Runtime()


__all__ = ["Runtime", "default_runtime"]
