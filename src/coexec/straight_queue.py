"""The straight way to a queue: one function for a call that becomes one kernel on a core, in a program that is analysed.

Before: pump.py, schedule/, execute/.  After: driver.py, which tries it where no call runs in its caller.

It is the same idea as straight.py, for calls that some device's thread runs. A call goes this way if the same call on the same
views became one launch before, if its kernel cannot be cut, if only cores of this machine can run it, and if nothing is held back.
Then planning is placing (`Planner.placed`, which the general way ends with, too), lowering is one launch (`Launching.one`), and the
batch is that launch. Edges come from the trackers, and which core computes is decided by the loads, as ever.

Whatever is unusual falls through to the general way, with nothing changed; tests/test_straight_queue.py compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import copy_context
from time import perf_counter
from typing import Any

from .graph.instruction import Binding, Launch
from .graph.shape import SameCall
from .graph.task import Task
from .graph.task_graph import Touching
from .lower.state import Backing
from .machine.platform import HOST
from .origin import PASSED_FILES
from .plan.candidate import Candidate
from .plan.planner import Planner
from .predict.work import Work
from .program.array import Array
from .program.call import DEFAULT
from .program.capture import PLAIN
from .program.kernel import Kernel
from .program.small import SmallCalls
from .program.value import Lending
from .pump import EventPump
from .straight import StatesMet

ON_HOST = 1 << HOST
"""The bit of what is valid on the host."""
PRIORITY = 4  # of the launches of calls without options


class QueuedCall:
    """How a call on certain views became one launch, and what that depends on."""

    __slots__ = ("arrays", "backings", "bindings", "candidates", "choices", "touches", "work")

    def __init__(
        self,
        choices: Any,
        candidates: Sequence[Candidate],
        work: Work,
        arrays: tuple[Any, ...],
        touches: tuple[Touching, ...],
        backings: tuple[Backing, ...],
        bindings: tuple[Binding, ...],
    ) -> None:
        self.choices = choices  # who could run it, as the kernel kept it then
        self.candidates = candidates
        self.work = work
        self.arrays = arrays  # per array: its position among the arguments, its number, box and cut, whether it is read, its backing
        self.touches, self.backings = touches, backings  # of each of them
        self.bindings = bindings  # of each of them


class StraightQueue:
    """Sends calls to the queues of cores, and gets to know them."""

    def __init__(self, pump: EventPump, lending: Lending) -> None:
        self._pump, self._lending = pump, lending
        self._owner = pump.owner
        self._scheduler = scheduler = pump.scheduler
        planner = scheduler.plan.planner
        assert isinstance(planner, Planner)
        self._planner = planner
        self._plan, self._graph, self._lower = scheduler.plan, scheduler.link.graph, scheduler.lower
        self._executor, self._engine = pump.executor, pump.engine
        self._version = scheduler.version
        self._emitter, self._launching = scheduler.lowering.emitter, scheduler.lowering.launching

    def run(self, kernel: Kernel, args: tuple[Any, ...], small: SmallCalls | None) -> Task | None:
        """Send a call of a plain kernel without options to a queue; return its task. None: it does not go so, and nothing changed.

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
        if same is None or same.queued is None or not self._may_go(kernel, same.queued):
            return None
        known: QueuedCall = same.queued
        seen: StatesMet = [], []
        arrays = self._arrays(known, args, seen)
        if arrays is None:
            return None
        scalars: dict[str, Any] = {}
        for position, name in kernel.scalar_params:
            value = scalars[name] = args[position]
            if type(value) not in PLAIN:
                return None
        task = Task(0, kernel.name, kernel, self._owner)
        task.options = DEFAULT
        if scalars:
            task.scalars = scalars
        task.extents, task.domain, task.key, task.once = same.extents, same.domain, same.key, True
        task.accesses, task.arrays, task.same = params, arrays, same
        if same.shapes:
            task.shapes = same.shapes
        task.body = kernel.function if kernel.captures_nothing else kernel.body()
        task.context = copy_context()
        frame = sys._getframe(2)
        file = frame.f_code.co_filename
        while PASSED_FILES[file] and (back := frame.f_back) is not None:
            frame, file = back, back.f_code.co_filename
        task.call, task.line = file, frame.f_lineno
        task.submitted = begin
        self._go(task, same, known, seen)
        task.scheduling = perf_counter() - begin
        if small is not None and small.learns:
            small.learn(task.scheduling)
        return task

    def _arrays(self, known: QueuedCall, args: tuple[Any, ...], seen: StatesMet) -> list[Array] | None:
        """Return the arrays of a call, and tell their states; None if one is not as it was, or not where it is needed."""
        owner = self._owner
        states, trackers = seen
        arrays: list[Array] = []
        for position, id, box, cut, reads, backing in known.arrays:
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
            if valid is None or (reads and not valid & ON_HOST):
                return None
            arrays.append(array)
            states.append(state)
            trackers.append(state.tasks)
        return arrays

    def _may_go(self, kernel: Kernel, known: QueuedCall) -> bool:
        """Tell whether what is known of a call still holds, and nothing is in its way."""
        pump, scheduler, engine, plan = self._pump, self._scheduler, self._engine, self._plan
        choices = known.choices
        return not (
            choices[0] is not self._version.mark
            or (
                kernel.choices is not choices and kernel.choices[0] is choices[0]
            )  # else another runtime has asked since
            or choices[1] != len(kernel.variants)
            or engine.failed
            or pump.dropped
            or pump.closed
            or pump.late is not None
            or self._executor.broken is not None
            or self._lending.lent
            or scheduler.fuse.held is not None
            or plan._open is not None
            or plan._queue
            or plan._times
            or scheduler.hold.held
            or self._emitter.out
            or (plan._runs_inline and not engine.open)
            or (plan._sure and plan.loads.ends and plan.far(self._graph.last + 1))
        )

    def _go(self, task: Task, same: SameCall, known: QueuedCall, seen: StatesMet) -> None:
        """Link, place, lower and issue a task, as the layers do."""
        executor = self._executor
        self._graph.add(task, known.touches, seen[1])
        task.starved = not self._engine.open
        (_, _, chunks, _, task.why), shares, *_ = self._planner.placed(task, task.domain, known.candidates, known.work)
        chunk, share, bindings = chunks[0], shares[0], known.bindings
        self._plan._sure = share[3] is not None
        made = same.launch
        if made is None or made[0] is not share or made[1] is not chunk or made[2] is not bindings:
            step = Launch(chunk[0], chunk, share, bindings, PRIORITY)
            made = same.launch = (share, chunk, bindings, PRIORITY, step)
        instruction = self._launching.one(task, made[4], known.touches, seen[0], known.backings)
        self._lower.analysed += 1
        self._lower.why = task.name, False
        task.arrays = ()
        executor.submit((instruction,))
        if not task.open or executor.kept_open:
            executor.submitted(task)

    def learn(self, task: Task, arrays: Sequence[Array]) -> None:
        """Get to know a call that has just been recorded and sent to a queue, if it is one launch wherever it runs. Locked."""
        same, kernel, planner = task.same, task.kernel, self._planner
        if same is None or kernel is None or same.launch is None:
            return
        step: Launch = same.launch[4]
        plain = kernel.plain and task.options is DEFAULT and task.space is None and task.once and 0 not in task.extents
        if not plain or kernel.split or kernel.host or kernel.reduces or kernel.scratches or kernel.order is not None:
            return
        if not planner.only_places or len(step.bindings) != len(arrays):
            return
        choices = kernel.choices
        choice = choices[2].get(None)
        if choices[0] is not self._version.mark or choice is None or not choice.only_cpu or choice.blocked:
            return
        if kernel.internal or any(candidate.memory != HOST or candidate.blocked for candidate in choice.all):
            return
        views, touches, backings = [], [], []
        for param, array, binding in zip(kernel.array_params, arrays, step.bindings, strict=True):
            allocation, state = binding.allocation, array._storage.state
            backing = None if allocation is None or state is None else state.complete.get(HOST)
            if backing is None or backing.allocation is not allocation or array._grid is not None:
                return
            access = param.access
            views.append((param.position, array._storage.id, array._box, array._cut, access.reads, backing))
            touches.append((array._box, None, access.reads, access.writes))
            backings.append(backing)
        work = step.work
        if work is None or same.key is None or same.key.work is not work:
            return
        same.queued = QueuedCall(
            choices, choice.all, work, tuple(views), tuple(touches), tuple(backings), step.bindings
        )
