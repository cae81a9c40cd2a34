"""The straight call: one function for the most common call of an analysed program, which is short and runs in the caller.

Before: pump.py, schedule/, execute/.  After: driver.py, which tries it first.  Decides nothing that the layers do not decide.

A call is straight if the same call on the same views was planned to run in the caller, if nothing that this plan depends on has
changed since, and if nothing is under way or held back. Then its way through the layers is known: it has no copy and no
allocation, and one launch. The function gives its task a number and edges in the task graph, its launch a number and edges in the
instruction graph, runs the body and records that it ran. Trackers are asked as ever.

Whatever is unusual falls through to the general way, with nothing changed. So a layer that learns something new need not know of
this file unless it changes what a short call that nothing disturbs becomes; tests/test_straight.py compares the two ways.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import perf_counter
from typing import Any

from .backend.base import Ran
from .backend.launch import check_nothing_returned
from .backend.library_threads import LibraryThreads
from .graph.instruction import Launch
from .graph.shape import SameCall
from .graph.task import Task
from .graph.task_graph import Touching
from .lower.state import ArrayState, Backing
from .machine.platform import HOST
from .origin import PASSED_FILES
from .plan import planned
from .program.array import Array
from .program.call import DEFAULT
from .program.capture import PLAIN
from .program.kernel import Kernel
from .program.session import in_kernel
from .program.small import SmallCalls
from .program.value import Lending
from .pump import EventPump

HOSTS = 1 << HOST
"""What is valid on the host, and nowhere else."""
_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor
StatesMet = tuple[list[ArrayState], list[Any]]
"""The states of the arrays of a call, and their trackers in the task graph, as they are met."""


class StraightCall:
    """How a call on certain views ran in the caller, and what that depends on."""

    __slots__ = ("arrays", "backings", "choices", "model", "scalars", "step", "touches", "why", "work")

    def __init__(
        self,
        name: str,
        step: Launch,
        choices: Any,
        arrays: tuple[Any, ...],
        touches: tuple[Touching, ...],
        backings: tuple[Backing, ...],
        scalars: Any,
    ) -> None:
        self.step = step
        self.choices = choices  # who could run it, as the kernel kept it then
        self.arrays = arrays  # per array: its position among the arguments, its number, box and cut, whether it is written, its backing
        self.touches, self.backings = touches, backings  # of each of them
        self.scalars = scalars  # positions and names of the other arguments
        self.model: Any = step.model
        self.work = step.work
        self.why = name, False  # the last call that was not replayed, as schedule/lower.py has it


class StraightCalls:
    """Runs straight calls, and gets to know them."""

    def __init__(self, pump: EventPump, lending: Lending) -> None:
        self._pump = pump
        self._lending = lending
        self._owner = pump.owner
        self._scheduler = scheduler = pump.scheduler
        self._executor, self._engine = pump.executor, pump.engine
        self._version, self._plan = scheduler.version, scheduler.plan
        self._lowering, self._lower = scheduler.lowering, scheduler.lower
        self._graph, self._launching = scheduler.link.graph, scheduler.lowering.launching
        self._threads: LibraryThreads = pump.parts.inline.threads

    def run(self, kernel: Kernel, args: tuple[Any, ...], small: SmallCalls | None) -> Task | None:
        """Run a call of a plain kernel without options; return its task, which is over. None: it is not straight, and nothing changed.

        Called by `Driver.submit`, and locked. What it costs teaches whoever makes small calls.
        """
        begin = perf_counter()
        params = kernel.array_params
        first = args[params[0][1]] if params and len(args) == len(kernel.passed) else None
        if type(first) is not Array:
            return None
        storage = first._storage
        calls = storage.calls
        if calls is None:
            return None
        same: SameCall | None = calls.get(kernel if first._box is storage.box else (kernel, first._box))
        if same is None or same.straight is None:
            return None
        known: StraightCall = same.straight
        pump, scheduler, plan, choices = self._pump, self._scheduler, self._plan, known.choices
        if (
            choices[0] is not self._version.mark
            or (
                kernel.choices is not choices and kernel.choices[0] is choices[0]
            )  # else another runtime has asked since
            or choices[1] != len(kernel.variants)
            or self._engine.open
            or self._engine.failed
            or pump.dropped
            or pump.closed
            or pump.late is not None
            or self._executor.broken is not None
            or self._lending.lent
            or scheduler.fuse.held is not None
            or plan._open is not None
            or plan._queue
            or plan._times
            or plan.loads.ends
            or scheduler.hold.held
            or self._lowering.emitter.out
        ):
            return None  # its plan does not hold any more, or something is in its way
        last = known.model.last  # what it answered last, which it most often answers again
        seconds = last[2] if last[0] is known.work and not last[1] else known.model.seconds(known.work)
        if seconds is None or seconds >= planned.CHEAP:
            return None
        task = Task(0, kernel.name, kernel, self._owner)
        seen: StatesMet = [], []
        values = self._values(known, args, task, seen)
        if values is None:
            return None
        task.same, task.submitted = same, begin
        self._go(task, known, seconds, values, seen)
        task.scheduling += perf_counter() - begin
        if small is not None and small.learns:
            small.learn(task.scheduling)
        return task

    def _values(self, known: StraightCall, args: tuple[Any, ...], task: Task, seen: StatesMet) -> list[Any] | None:
        """Return the arguments of the body, tell the states of the arrays, and give the task its scalars; None if one is not as it was."""
        owner = self._owner
        values: list[Any] = [None] * len(args)
        states, trackers = seen
        for position, id, box, cut, writes, backing in known.arrays:
            array = args[position]
            if type(array) is not Array:
                return None
            storage = array._storage
            if (
                storage.id != id
                or storage.session is not owner
                or storage.home is not None
                or (array._box is not box and array._box != box)
                or (array._cut is not cut and array._cut != cut)
            ):
                return None
            state = storage.state
            if state is None or state.complete.get(HOST) is not backing:
                return None
            valid = state.valid.uniform
            if valid != HOSTS and (writes or valid is None or not valid & HOSTS):
                return None
            allocation = backing.allocation
            value = allocation.data if writes else allocation.frozen
            if value is None:
                return None
            values[position] = value
            states.append(state)
            trackers.append(state.tasks)
        if known.scalars:
            scalars: dict[str, Any] = {}
            for position, name in known.scalars:
                value = values[position] = scalars[name] = args[position]
                if type(value) not in PLAIN:
                    return None
            task.scalars = scalars
        return values

    def _go(self, task: Task, known: StraightCall, seconds: float, values: list[Any], seen: StatesMet) -> None:
        """Describe a task as in graph/call.py, link it, plan it to run in the caller, run its body, and let it be over."""
        kernel, same = task.kernel, task.same
        assert kernel is not None and same is not None
        task.options = DEFAULT
        task.extents, task.domain, task.key, task.once = same.extents, same.domain, same.key, True
        task.accesses = kernel.array_params
        if same.shapes:
            task.shapes = same.shapes
        task.body = kernel.function if kernel.captures_nothing else kernel.body()
        frame = sys._getframe(3)
        file = frame.f_code.co_filename
        while PASSED_FILES[file] and (back := frame.f_back) is not None:
            frame, file = back, back.f_code.co_filename
        task.call, task.line = file, frame.f_lineno
        self._graph.add(task, known.touches, seen[1])
        task.starved = self._plan._sure = True
        task.why = planned.IN_CALLER
        self._lower.analysed += 1
        self._lower.why = known.why
        step = known.step
        if step.predicted != seconds:
            share = (step.body, step.model, step.work, seconds, step.together)
            step = known.step = Launch(step.device, step.chunk, share, step.bindings, step.priority)
        instruction = self._launching.one(task, step, known.touches, seen[0], known.backings)
        task.arrays = ()
        if not self._threads.limited:
            self._threads.limit()
        body = (step.body.function if step.body.kind == "cpu" else None) or task.body
        error: BaseException | None = None
        context = copy_context()
        in_kernel.name = task.name
        start = perf_counter()
        try:
            returned = context.run(body, *values)
            if returned is not None:
                check_nothing_returned(kernel, returned)
        except BaseException as caught:  # noqa: BLE001 - reported, never lost
            error = caught
        stop = perf_counter()
        in_kernel.name = ""
        task.scheduling = start - stop
        ran: Ran = _new(Ran, (instruction, step.device, 0, start, stop, 0.0, error))
        if error is None:
            self._executor.records.append(ran)
            task.finished = True
            return
        task.context = context
        self._executor.passed_by(ran)
        if isinstance(error, KeyboardInterrupt):
            raise error

    def learn(self, task: Task, arrays: Sequence[Array]) -> None:
        """Get to know a call that has just been recorded, and is over, if it ran in the caller. Locked."""
        same, kernel, records = task.same, task.kernel, self._executor.records
        if same is None or kernel is None or not records or records[-1].instruction.task is not task:
            return
        step = records[-1].instruction.step
        same.straight = None
        if (
            task.why != planned.IN_CALLER
            or type(step) is not Launch
            or step.chunk.pieces
            or step.chunk.alike
            or task.failure is not None
        ):
            return
        plain = kernel.plain and task.options is DEFAULT and task.space is None and task.once and 0 not in task.extents
        if not plain or kernel.host or kernel.reduces or kernel.scratches or len(step.bindings) != len(arrays):
            return
        mark, _, found = kernel.choices
        choice = found.get(None)
        if (
            mark is not self._version.mark
            or choice is None
            or not choice.only_cpu
            or choice.all[0].model is not step.model
        ):
            return
        views, touches, backings = [], [], []
        for param, array, binding in zip(kernel.array_params, arrays, step.bindings, strict=True):
            allocation, state = binding.allocation, array._storage.state
            backing = None if allocation is None or state is None else state.complete.get(HOST)
            if backing is None or backing.allocation is not allocation:
                return
            if binding.box is not allocation.box or binding.cut is not None or binding.pad is not None:
                return
            access = param.access
            views.append((param.position, array._storage.id, array._box, array._cut, access.writes, backing))
            touches.append((array._box, array._grid, access.reads, access.writes))
            backings.append(backing)
        same.straight = StraightCall(
            task.name, step, kernel.choices, tuple(views), tuple(touches), tuple(backings), kernel.scalar_params
        )
