"""A session in front of a runtime: what passes calls on, and may change their options or look at them.

Before: runtime.py.  After: calibrate/steering.py, stream/.  Decides nothing by itself.
"""

from __future__ import annotations

from typing import Any

from .plan.plan import Plan
from .program.array import Array
from .program.call import Options
from .program.fuse import Operation
from .program.kernel import Kernel
from .program.storage import Storage
from .runtime import Runtime


class InFront:
    """Passes everything on to a runtime. Arrays made through it are the runtime's own."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.closed = False

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array with the runtime."""
        storage.session = self.runtime
        self.runtime.adopt(storage, data, borrowed=borrowed)

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call."""
        return self.runtime.submit(kernel, args, kwargs, options)

    def fuse(self, operation: Operation) -> bool:
        """Hold nothing back: each operation is looked at by itself."""
        del operation
        return False

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return the Plan of a call."""
        return self.runtime.plan(kernel, args, kwargs, options)

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names."""
        return self.runtime.begin_step(times)

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

    def quiet(self) -> bool:
        """Deny it: what is passed on is looked at call by call."""
        return False

    def dropped(self, storage_id: int) -> None:
        """Note that an array is gone."""
        self.runtime.dropped(storage_id)
