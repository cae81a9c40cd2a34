"""The same problems through coexec: prediction before anything ran, then calls as a program makes them.

Before: cases.py, calibrate/.  After: harness.py.  Sees the planner's time and shares by standing in front of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

import coexec as cx

from ...calibrate.steering import Asking
from ...program import session
from ...program.call import DEFAULT, Options
from ...program.fuse import Chain, Operation
from ...program.kernel import Kernel
from ..measure import current
from .cases import FLOAT, Problem, Values
from .opencl import Code


@contextmanager
def store_at(path: str) -> Iterator[None]:
    """Let runtimes inside the block keep measurements in this file."""
    before = os.environ.get("COEXEC_STORE")
    os.environ["COEXEC_STORE"] = path
    try:
        yield
    finally:
        if before is None:
            del os.environ["COEXEC_STORE"]
        else:
            os.environ["COEXEC_STORE"] = before


class Foretelling(Asking):
    """A session in which nothing runs, and chains of elementwise operations are one kernel, as in a runtime."""

    def __init__(self, runtime: cx.Runtime) -> None:
        super().__init__(runtime, DEFAULT)
        self._held = Chain()
        self.calls: list[tuple[Kernel, tuple[Any, ...]]] = []

    def fuse(self, operation: object) -> bool:
        """Hold an operation back, as a runtime does."""
        assert isinstance(operation, Operation)
        if not self._held.accepts(operation):
            self.flush()
        self._held.add(operation)
        return True

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Plan one call, after what was held back."""
        self.flush()
        self.calls.append((kernel, args))
        return super().submit(kernel, args, kwargs, options)

    def flush(self) -> None:
        """Plan what was held back."""
        held, self._held = self._held, Chain()
        if held.operations:
            kernel, args = held.call()
            self.submit(kernel, args, {}, DEFAULT)


def foretell(problem: Problem, runtime: cx.Runtime) -> tuple[Foretelling, list[cx.Array]]:
    """Ask what a problem's call would do; return that and the inputs."""
    asked = Foretelling(runtime)
    session.push(asked)
    try:
        arrays = [cx.asarray(array) for array in problem.inputs]
        result = problem.in_coexec(*arrays, cx.empty(problem.out, FLOAT))
        asked.flush()
        del result  # until here it is wanted, and so are its elements
    finally:
        session.remove(asked)
    return asked, arrays


def predict(problem: Problem, runtime: cx.Runtime) -> float | None:
    """Return the predicted seconds of a call, without making it; None if nothing is known of some part of it."""
    seconds = [plan.seconds for plan in foretell(problem, runtime)[0].plans]
    known = [s for s in seconds if s is not None]
    return sum(known) if known and len(known) == len(seconds) else None


def code_of(problem: Problem, runtime: cx.Runtime) -> Code:
    """Return the kernel that a problem's call begins with, with the problem's own arrays as its arguments."""
    asked, arrays = foretell(problem, runtime)
    kernel, args = asked.calls[0]
    named: dict[str, Any] = {}
    outputs: dict[str, tuple[int, ...]] = {}
    for name, value in zip(kernel.passed, args, strict=True):
        given = [
            i for i, array in enumerate(arrays) if isinstance(value, cx.Array) and value._storage is array._storage
        ]
        if given:
            named[name] = problem.inputs[given[0]]
        elif isinstance(value, cx.Array):
            outputs[name] = value.shape
        else:
            named[name] = value
    return Code(kernel, named, outputs)


class WatchedPlanner:
    """A planner that notes how long each plan took, and who got how much of the last task."""

    def __init__(self, planner: Any) -> None:
        self._planner = planner
        self.seconds: list[float] = []
        self.shares: dict[str, float] = {}

    def plan(self, task: Any, *, idle: bool = False) -> Any:
        """Plan a task."""
        start = perf_counter()
        planned = self._planner.plan(task, idle=idle)
        if task.kernel.host:
            return planned
        self.seconds.append(perf_counter() - start)
        volume = task.domain.volume
        if volume > 1:
            self.shares = {}
            for chunk in planned.command.chunks:
                share = chunk.box.volume / volume
                self.shares[chunk.device] = self.shares.get(chunk.device, 0.0) + share
        return planned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._planner, name)


@contextmanager
def watched(runtime: cx.Runtime) -> Iterator[WatchedPlanner]:
    """Stand in front of a runtime's planner."""
    planner = runtime._driver.scheduler.plan.planner
    runtime._driver.scheduler.plan.planner = found = WatchedPlanner(planner)
    try:
        yield found
    finally:
        runtime._driver.scheduler.plan.planner = planner


@cx.host_task(array=cx.write)
def written(array: Any, values: Any) -> None:
    """Write an input on the host: whatever copies devices have are out of date."""
    np.copyto(array, values)


@cx.host_task(array=cx.read)
def arrived(array: Any) -> None:
    """Let the host look at a result, in place: all parts of it are here when this runs."""


class SplitThroughCoexec:
    """A problem through coexec. Arrays are made once; the host writes the inputs before each repetition, not timed."""

    def __init__(self, problem: Problem, runtime: cx.Runtime, planner: WatchedPlanner) -> None:
        self._problem = problem
        self._runtime = runtime
        self.planner = planner
        self.new_plan: float | None = None  # seconds: the slowest plan of the first call
        self.plans: list[float] = []  # the slowest of each later call
        with current(runtime):
            self._inputs = [cx.array(array) for array in problem.inputs]
            self._out = cx.empty(problem.out, FLOAT)
            self._result: Any = None
            runtime.wait()

    def seconds(self, *, snapshot: bool = False) -> float:
        """Compute once; return the seconds from the call until the result is on the host, or until np.asarray has copied it."""
        self._result = None
        with current(self._runtime):
            for array, values in zip(self._inputs, self._problem.inputs, strict=True):
                written(array, values)
            self._runtime.wait()
            self.planner.seconds.clear()
            start = perf_counter()
            self._result = self._problem.in_coexec(*self._inputs, self._out)
            if snapshot:
                np.asarray(self._result)
            else:
                arrived(self._result).result()
            took = perf_counter() - start
        slowest = max(self.planner.seconds, default=0.0)
        if self.new_plan is None:
            self.new_plan = slowest
        else:
            self.plans.append(slowest)
        return took

    def result(self) -> Values:
        """Return what was computed."""
        with current(self._runtime):
            return np.asarray(self._result)

    def close(self) -> None:
        """Drop the arrays."""
        self._inputs.clear()
        del self._out, self._result
        with current(self._runtime):
            self._runtime.wait()
