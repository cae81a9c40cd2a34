"""Host tasks: functions with effects outside of arrays, run on the host in program order.

Before: program/kernel.py.  After: graph/task.py.  Knows no device; a call goes to the session like any other kernel's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from .access import Access
from .array import Array
from .kernel import Kernel, check_accesses
from .mapper import all as map_all


class HostTask(Kernel):
    """A function with effects outside of arrays, run on the host in program order."""

    host = True

    def __init__(self, function: Callable[..., Any], accesses: dict[str, Access], *, order: Any = "host") -> None:
        if any(access.mode == "reduce" for access in accesses.values()):
            raise ArgumentError("a host task cannot reduce; use cx.update")
        super().__init__(function, {name: Access(access.mode, map_all) for name, access in accesses.items()}, over=())
        self.order = order

    def _check_scalar(self, name: str, value: Any) -> None:
        if isinstance(value, Array):
            super()._check_scalar(name, value)

    def body(self) -> Callable[..., Any]:
        return self.function


def host_task(
    *bare: Callable[..., Any], order: Any = "host", **accesses: Any
) -> Callable[[Callable[..., Any]], HostTask]:
    """Declare a host task: `@cx.host_task(frame=cx.read)`. Arrays arrive as NumPy arrays, effects stay in order.

    Host tasks with the same `order` run one after another as they were called; `order=None` leaves them free.
    """
    check_accesses(accesses)

    def make(function: Callable[..., Any]) -> HostTask:
        return HostTask(function, accesses, order=order)

    if bare:
        raise ArgumentError(
            "write @cx.host_task(...) with the access of each array, or @cx.host_task() if it takes none"
        )
    return make
