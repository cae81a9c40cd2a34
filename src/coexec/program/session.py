"""The runtime as the program sees it: a protocol and the current one.

Before: nothing.  After: program/array.py, program/kernel.py.  Knows no stage; runtime.py fills it in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import NestedCallError, RuntimeClosed

if TYPE_CHECKING:
    from .array import Array, Storage
    from .call import Options
    from .fuse import Operation
    from .kernel import Kernel


class Session(Protocol):
    """What arrays and kernels ask of a runtime."""

    closed: bool

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call and return its task, or its new arrays."""

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back, to be computed with those that use its result; False if not possible."""

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Return the Plan of a call, without making the call."""

    def begin_step(self) -> Any:
        """Begin a step that the program names; return what `end_step` needs."""

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a step; tell whether it was replayed, and else why not."""

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""

    def wait(self) -> None:
        """Wait for everything; raise what the program has not seen, as a group."""

    def flush(self) -> None:
        """Begin with everything so far, whatever is still to come."""

    def dropped(self, storage_id: int) -> None:
        """Note that the last handle of an array is gone. Called by finalizers: only enqueues."""


class InKernel(threading.local):
    """Tells whether the present thread runs a body."""

    name: str = ""


in_kernel = InKernel()
stack: list[Session] = []  # the open runtimes; new calls belong to the last
_default: list[Callable[[], Session]] = []
_forked = False


def check_outside() -> None:
    """Raise if the present thread runs a body, or if this process is a forked child."""
    if in_kernel.name:
        raise NestedCallError(
            f"coexec was called from inside {in_kernel.name!r}; a body computes on the arrays it is given. "
            "Call the other kernel from the program instead"
        )
    if _forked:
        raise RuntimeClosed(
            "this process was forked from one that used coexec, and threads do not survive a fork; "
            "start workers with multiprocessing's 'spawn' method"
        )


def check_forked() -> None:
    """Raise if this process is a forked child."""
    if _forked:
        check_outside()


def current() -> Session:
    """Return the runtime that new calls belong to, starting the default one if none is open."""
    if in_kernel.name or _forked:
        check_outside()
    if stack:
        return stack[-1]
    runtime = _default[0]()
    stack.insert(0, runtime)
    return runtime


def push(runtime: Session) -> None:
    """Make `runtime` the current one."""
    stack.append(runtime)


def remove(runtime: Session) -> None:
    """Forget `runtime`, wherever it stands."""
    if runtime in stack:
        stack.remove(runtime)


def set_default(factory: Callable[[], Session]) -> None:
    """Say how the default runtime is made."""
    _default[:] = [factory]


def mark_forked() -> None:
    """Refuse every use from now on: this is a forked child."""
    global _forked
    _forked = True
    stack.clear()


def forked() -> bool:
    """Tell whether this process is a forked child."""
    return _forked
