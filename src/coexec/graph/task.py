"""The task graph's nodes, which are also the handles that calls return.

Before: program/.  After: graph/task_graph.py, plan/, lower/.  Names no device. Waiting is the owner's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import TaskFailed

if TYPE_CHECKING:
    from ..geometry import Box
    from ..program.array import Array
    from ..program.kernel import ArrayParam, Kernel, Options


class Owner(Protocol):
    """Whoever runs a task."""

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Block until `task` is over; return False on time-out."""

    def cancel(self, task: Task) -> bool:
        """Cancel `task` unless it has begun."""


def mark_reported(failure: BaseException | None) -> None:
    """Note that the program has seen a failure."""
    if isinstance(failure, TaskFailed):
        failure.reported = True


class Task:
    """What must happen: a kernel, the arrays it touches, and the tasks it comes after."""

    __slots__ = (
        "_owner",
        "accesses",
        "after",
        "arrays",
        "body",
        "call",
        "context",
        "failure",
        "finished",
        "id",
        "kernel",
        "line",
        "name",
        "open",
        "options",
        "scalars",
        "scheduling",
        "shapes",
        "space",
        "submitted",
        "visited",
        "waiters",
        "why",
    )

    def __init__(self, id: int, name: str, kernel: Kernel | None, owner: Owner | None) -> None:
        self.id = id
        self.name = name
        self.kernel = kernel  # None for horizons, epochs and host reads
        self._owner = owner
        self.accesses: Sequence[ArrayParam] = ()
        self.arrays: Sequence[Array] = ()
        self.scalars: dict[str, Any] = {}
        self.after: tuple[int, ...] = ()
        self.open = 0  # instructions that are not over
        self.finished = False
        self.failure: BaseException | None = None
        self.waiters: list[Callable[[], None]] | None = None
        self.call = ""  # the calling file
        self.line = 0
        self.why = ""
        self.submitted = 0.0
        self.scheduling = 0.0
        self.space: tuple[int, ...] = ()
        self.shapes: Sequence[tuple[int, ...]] = ()  # of the arrays, for bodies that ask for their chunk
        self.visited: Box | None = None  # None: everything, and every array whole
        self.options: Options | None = None
        self.body: Callable[..., Any] | None = None
        self.context: Context | None = None

    @property
    def params(self) -> tuple[str, ...]:
        """The body's parameters, in order, without those that coexec fills in."""
        return self.kernel.passed if self.kernel is not None else ()

    def done(self) -> bool:
        """Tell whether the task is over: finished, failed or cancelled."""
        return self.finished

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for this task alone; return False on time-out. Does not raise its error."""
        return self.finished or self._owner is None or self._owner.wait_for(self, timeout)

    def result(self, timeout: float | None = None) -> None:
        """Wait for this task alone and raise its error, if any."""
        if not self.wait(timeout):
            raise TimeoutError(f"T{self.id} {self.name} is not over after {timeout} s")
        if self.failure is not None:
            mark_reported(self.failure)
            raise self.failure.with_traceback(None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for this task alone and return its error, or None."""
        if not self.wait(timeout):
            raise TimeoutError(f"T{self.id} {self.name} is not over after {timeout} s")
        mark_reported(self.failure)
        return self.failure

    def cancel(self) -> bool:
        """Cancel the task unless it has begun. What it would have written raises when read."""
        return not self.finished and self._owner is not None and self._owner.cancel(self)

    def __repr__(self) -> str:
        state = "failed" if self.failure is not None else "done" if self.finished else "pending"
        return f"<T{self.id} {self.name} {state}>"
