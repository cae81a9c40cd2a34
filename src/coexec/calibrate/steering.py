"""Give every kernel call of some code the same options, or ask what it would do: a session in front of a runtime.

Before: program/session.py, in_front.py.  After: calibrate/measuring.py, cli/plan.py.  Knows no operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import PlanError
from ..graph.call import make_returned
from ..in_front import InFront
from ..plan.plan import Plan
from ..program import session
from ..program.call import Options, placed
from ..program.fuse import Operation
from ..program.kernel import Kernel
from ..program.placement import Placement
from ..runtime import Runtime


class Steered(InFront):
    """A runtime whose kernel calls all get `options`, also those that operations and NumPy functions make.

    A kernel that no named device can run goes wherever the runtime puts it: an operation may end with such a one.
    """

    def __init__(self, runtime: Runtime, options: Options) -> None:
        super().__init__(runtime)
        self.options = options
        self.chains = False  # whether operations are held back and become one kernel; else each is looked at by itself
        self.obeyed = 0  # calls that ran as the options say
        self.refused: dict[Kernel, str] = {}  # kernels that none of the named devices can run, and why

    def fuse(self, operation: Operation) -> bool:
        """Hold an operation back if chains are looked at."""
        held = self.chains and self.runtime.fuse(operation)
        self.obeyed += held
        return held

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call with the options of this session."""
        if kernel not in self.refused:
            try:
                result = self.runtime.submit(kernel, args, kwargs, self.options)
            except PlanError as error:
                self.refused[kernel] = str(error)
            else:
                self.obeyed += 1
                return result
        return self.runtime.submit(kernel, args, kwargs, options)

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return the Plan of a call with the options of this session."""
        del options
        return self.runtime.plan(kernel, args, kwargs, self.options)


class Asking(Steered):
    """A session in which nothing runs: `plans` collects what each call would do."""

    def __init__(self, runtime: Runtime, options: Options) -> None:
        super().__init__(runtime, options)
        self.plans: list[Plan] = []

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Plan one call instead of making it; results are arrays without values."""
        self.plans.append(self.plan(kernel, args, kwargs, options))
        if not kernel.returns.names:
            return None
        arrays, scalars = kernel.bind(args, kwargs)
        returned = make_returned(kernel, arrays, scalars, self.runtime)
        return returned[0] if kernel.returns.single else returned


@contextmanager
def steered_chains(runtime: Runtime, devices: str, policy: str = "") -> Iterator[Steered]:
    """Let operations inside the block become one kernel each chain, on these devices, divided evenly or as predicted."""
    with steered(runtime, devices=devices, policy=policy) as steering:
        steering.chains = True
        with placed(Placement(devices, 0 if policy == "even" else None)):
            yield steering


@contextmanager
def steered(runtime: Runtime, *, devices: str | None = None, split: bool = True, policy: str = "") -> Iterator[Steered]:
    """Give every call inside the block these options, whoever makes it."""
    steering = Steered(runtime, Options(devices, split=split, policy=policy))
    session.push(steering)
    try:
        yield steering
    finally:
        session.remove(steering)


@contextmanager
def asking(runtime: Runtime, *, devices: str | None = None, split: bool = True, policy: str = "") -> Iterator[Asking]:
    """Run nothing inside the block; collect the plans of its calls."""
    steering = Asking(runtime, Options(devices, split=split, policy=policy))
    session.push(steering)
    try:
        yield steering
    finally:
        session.remove(steering)
