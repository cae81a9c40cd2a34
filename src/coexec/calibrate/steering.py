"""Give every kernel call of some code the same options, or ask what it would do: a session in front of a runtime.

Before: program/session.py, runtime.py.  After: calibrate/measuring.py, cli/plan.py.  Knows no operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import PlanError
from ..graph.call import make_returned
from ..plan.plan import Plan
from ..program import session
from ..program.array import Array, Storage
from ..program.call import Options
from ..program.kernel import Kernel
from ..runtime import Runtime


class Steered:
    """A runtime whose kernel calls all get `options`, also those that operations and NumPy functions make.

    A kernel that no named device can run goes wherever the runtime puts it: an operation may end with such a one.
    """

    def __init__(self, runtime: Runtime, options: Options) -> None:
        self.runtime = runtime
        self.options = options
        self.closed = False
        self.obeyed = 0  # calls that ran as the options say
        self.refused: dict[Kernel, str] = {}  # kernels that none of the named devices can run, and why

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array with the runtime."""
        storage.session = self.runtime
        self.runtime.adopt(storage, data, borrowed=borrowed)

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

    def fuse(self, operation: object) -> bool:
        """Hold nothing back: each operation is looked at by itself."""
        del operation
        return False

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return the Plan of a call with the options of this session."""
        del options
        return self.runtime.plan(kernel, args, kwargs, self.options)

    def begin_step(self) -> Any:
        """Begin a step that the program names."""
        return self.runtime.begin_step()

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a step that the program names."""
        return self.runtime.end_step(begun, left=left)

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""
        return self.runtime.read(array)

    def wait(self) -> None:
        """Wait for everything."""
        self.runtime.wait()

    def flush(self) -> None:
        """Begin with everything so far."""
        self.runtime.flush()

    def dropped(self, storage_id: int) -> None:
        """Note that an array is gone."""
        self.runtime.dropped(storage_id)


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
