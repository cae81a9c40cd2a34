"""The straight way of a call whose shape is known: one function from its arguments to its instructions.

Before: pump.py, schedule/, execute/.  After: driver.py, which tries it where calls are replayed.  Decides nothing that the layers do
not decide.

A call on the same views as one before has the same shape, index space and accesses. Most often it comes after what calls of its shape
came after, is computed by whom they were, and becomes the instructions of a recipe. Then every layer that it would go through passes
it on, and this function does in one go what they do for such a call, with the functions that they use: `TaskGraph.add` links it,
`Decisions.recall` plans it, `Recipes.recall` makes its instructions.

1. Whatever is unusual before the call is numbered falls through to the general way, with nothing changed.
2. From there on, what one of the three does not know goes on in the layer that works it out (`PlanLayer.decide`, `PlanLayer.pass_on`).

tests/test_straight_known.py compares the two ways.
"""

from __future__ import annotations

import sys
from contextvars import copy_context
from time import perf_counter
from typing import Any

from .graph.shape import CallShape, SameCall
from .graph.task import Task
from .origin import PASSED_FILES
from .program.array import Array
from .program.call import DEFAULT
from .program.capture import PLAIN
from .program.kernel import NO_SCALARS, Kernel
from .program.small import SmallCalls
from .program.value import Lending
from .pump import EventPump


class KnownCalls:
    """Takes calls of known shapes."""

    def __init__(self, pump: EventPump, lending: Lending) -> None:
        self._pump, self._lending = pump, lending
        self._owner = pump.owner
        self._scheduler = scheduler = pump.scheduler
        self._moment = scheduler.moment
        self._fuse, self._plan, self._hold, self._lower = (
            scheduler.fuse, scheduler.plan, scheduler.hold, scheduler.lower
        )  # fmt: skip
        self._graph, self._decisions = scheduler.link.graph, scheduler.plan.decisions
        self._births = scheduler.arrays
        self._recipes, self._emitter = scheduler.lower.recipes, scheduler.lowering.emitter
        self._executor, self._engine = pump.executor, pump.engine
        self._watched = pump.watched

    def run(self, kernel: Kernel, args: tuple[Any, ...], small: SmallCalls | None) -> Task | None:
        """Record a call of a plain kernel without options; return its task. None: it does not go so, and nothing changed.

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
        if same is None:
            return None
        shape = same.shape
        if shape is None or same.options is not DEFAULT or not self._may_go(shape):
            return None
        task = self._task(kernel, args, same)
        if task is None:
            return None
        task.submitted, task.shape = begin, shape
        self._go(task)
        if self._watched:
            self._pump.account(task, begin)
        else:
            task.scheduling += perf_counter() - begin
        if small is not None and small.learns:
            small.learn(task.scheduling)
        return task

    def _task(self, kernel: Kernel, args: tuple[Any, ...], same: SameCall) -> Task | None:
        """Return the task of a call, as graph/call.py makes it; None if one of its arguments is not as it was."""
        owner, params = self._owner, kernel.array_params
        arrays: list[Array] = []
        for param, (id, box, cut) in zip(params, same.views):  # noqa: B905 - as long as each other, and this is hot
            array = args[param[1]]
            if type(array) is not Array:
                return None
            storage = array._storage
            if (
                storage.id != id
                or storage.session is not owner
                or storage.home is not None
                or storage.state is None
                or (array._box is not box and array._box != box)
                or (array._cut is not cut and array._cut != cut)
            ):
                return None
            arrays.append(array)
        scalars = NO_SCALARS
        if kernel.scalar_params:
            scalars = {}
            for position, name in kernel.scalar_params:
                value = scalars[name] = args[position]
                if type(value) not in PLAIN:
                    return None
        task = Task(0, kernel.name, kernel, owner)
        task.options = DEFAULT
        if scalars:
            task.scalars = scalars
        task.extents, task.domain, task.key, task.once = same.extents, same.domain, same.key, same.once
        task.accesses, task.arrays, task.same = params, arrays, same
        if same.shapes:
            task.shapes = same.shapes
        if not kernel.simple:
            task.space = same.domain
        task.body = kernel.function if kernel.captures_nothing else kernel.body()
        task.context = copy_context()
        frame = sys._getframe(3)
        file = frame.f_code.co_filename
        while PASSED_FILES[file] and (back := frame.f_back) is not None:
            frame, file = back, back.f_code.co_filename
        task.call, task.line = file, frame.f_lineno
        return task

    def _may_go(self, shape: CallShape) -> bool:
        """Tell whether nothing is in the way of a call of a known shape."""
        pump, plan = self._pump, self._plan
        return not (
            shape.asks_user
            or pump.dropped
            or pump.closed
            or pump.late is not None
            or self._executor.broken is not None
            or self._lending.lent
            or self._fuse.held is not None
            or plan._open is not None
            or plan._queue
            or plan._times
            or self._hold.held
            or self._emitter.out
            or (plan._runs_inline and not self._engine.open)
            or (plan._sure and plan.loads.ends and plan.far(self._graph.last + 1))
        )

    def _go(self, task: Task) -> None:
        """Link, plan, lower and hand over a task, as the layers do."""
        moment, plan, executor = self._moment, self._plan, self._executor
        moment.now, moment.idle = task.submitted, not self._engine.open
        try:
            self._graph.add(task)
            births = self._births.last
            task.starved = moment.idle
            decided = self._decisions.known(task, births)
            if decided is None:
                plan.decide(task, births)
            else:
                chunks, shares = decided.chunks, decided.shares
                plan.went(task, chunks, shares, decided.why, births)
                instructions = self._recipes.found(task, chunks, shares)
                if instructions is None:
                    planned = decided.planned(task)
                    instructions = self._recipes.recall(planned.command, shares)
                    if instructions is None:
                        plan.pass_on(task, planned)
                    else:
                        self._lower.emit_again(planned, instructions)
                elif self._watched:
                    self._lower.emit_again(decided.planned(task), instructions)
                else:
                    self._lower.replayed += 1
                    task.arrays = ()
                    executor.submit(instructions)
                    if not task.open or executor.kept_open:
                        executor.submitted(task)
                    return
            batches = self._scheduler.take()
        except BaseException:
            self._pump.interrupted()
            raise
        self._pump.hand_on(batches)
