"""Waiting for one of several tasks.

Before: execute/executor.py.  After: stream/item.py.  Adds nothing but who wakes the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph.task import Task
from .executor import Executor


def wait_any(executor: Executor, tasks: Sequence[Task], timeout: float | None = None) -> bool:
    """Block until one of `tasks` is over, doing host work meanwhile; return False on time-out."""
    if len(tasks) == 1:
        return executor.wait_for(tasks[0], timeout)
    registered: list[Callable[[], None]] = []

    def over() -> bool:
        return any(task.finished for task in tasks)

    def register(wake: Callable[[], None]) -> bool:
        if over():
            return False
        for task in tasks:
            task.waiters = [*(task.waiters or ()), wake]
        registered.append(wake)
        return True

    try:
        return executor.wait_until(register, over, timeout, None)
    finally:
        with executor.lock:
            for task in tasks if registered else ():
                if task.waiters is not None:
                    task.waiters = [wake for wake in task.waiters if wake is not registered[0]] or None
