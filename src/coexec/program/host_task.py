"""Host tasks: functions with effects outside of arrays, run on the host in program order.

Before: program/kernel.py.  After: graph/task.py.  Knows no device; a call goes to the session like any other kernel's.
"""

from __future__ import annotations

import inspect
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

    def __init__(
        self,
        function: Callable[..., Any],
        accesses: dict[str, Access],
        *,
        order: Any = "host",
        split: int | None = None,
        granule: int = 1,
    ) -> None:
        """`granule` is the number of rows of which ranks get multiples."""
        if any(access.mode == "reduce" for access in accesses.values()):
            raise ArgumentError("a host task cannot reduce; use cx.update")
        if split is None:
            whole = {name: Access(access.mode, map_all) for name, access in accesses.items()}
            super().__init__(function, whole, over=())
        else:
            super().__init__(function, accesses, over=_first(function, accesses), split=split, granule=granule)
        self.order = order

    def _check_scalar(self, name: str, value: Any) -> None:
        if isinstance(value, Array):
            super()._check_scalar(name, value)

    def body(self) -> Callable[..., Any]:
        return self.function


def _first(function: Callable[..., Any], accesses: dict[str, Access]) -> str:
    """Return the parameter whose parts the ranks get."""
    names = list(inspect.signature(function).parameters)
    found = next((name for name in names if name in accesses), None)
    if found is None:
        raise ArgumentError("a host task with split= takes an array, whose parts the ranks get")
    return found


def host_task(
    *bare: Callable[..., Any], order: Any = "host", split: int | None = None, **accesses: Any
) -> Callable[[Callable[..., Any]], HostTask]:
    """Declare a host task: `@cx.host_task(frame=cx.read)`. Arrays arrive as NumPy arrays, effects stay in order.

    Host tasks with the same `order` run one after another as they were called; `order=None` leaves them free.
    On several ranks a host task runs once, on rank 0. With `split=0` it runs on every rank, with the rank's part of the
    first array along that axis; a parameter called `chunk` tells which part that is. One rank has all of it.
    """
    check_accesses(accesses)

    def make(function: Callable[..., Any]) -> HostTask:
        return HostTask(function, accesses, order=order, split=split)

    if bare:
        raise ArgumentError(
            "write @cx.host_task(...) with the access of each array, or @cx.host_task() if it takes none"
        )
    return make
