"""Notebooks: what a program's beginning and end are to a script, the beginning and end of a cell are to IPython.

Before: execute/signals.py.  After: process.py, which calls it.  Imports nothing of IPython: a program that runs under it
has done so. IPython owns the hooks, and calls them on the thread that runs the cell.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from .execute import signals
from .graph.task import mark_reported

_attended: weakref.WeakSet[Any] = weakref.WeakSet()  # shells that call us


class Running(Protocol):
    """A runtime, as the cells see it."""

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun."""

    def wait(self) -> None:
        """Wait for everything; raise what the program has not seen, as a group."""

    def unseen(self) -> list[Any]:
        """Return the failures that the program never looked at, once."""


def attend(runtimes: Callable[[], Iterable[Running]]) -> None:
    """Have IPython say when a cell begins and ends, if the program runs under it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or shell in _attended:
        return
    _attended.add(shell)
    cells = Cells(shell, runtimes)
    shell.events.register("pre_execute", cells.begin)
    shell.events.register("post_run_cell", cells.end)


class Cells:
    """What coexec does at the beginning and at the end of each cell."""

    def __init__(self, shell: Any, runtimes: Callable[[], Iterable[Running]]) -> None:
        self._shell = shell
        self._runtimes = runtimes  # those that are open

    def begin(self) -> None:
        """Take the signals again: a kernel puts the default handler in place before each cell."""
        signals.stand()

    def end(self, result: Any) -> None:
        """Let a cell fail whose calls failed and that looked at none of it; cancel what an interrupted cell began."""
        error = None if result is None else result.error_before_exec or result.error_in_exec
        if result is None or (error is not None and not isinstance(error, Exception | SystemExit)):
            for runtime in list(self._runtimes()):
                runtime.cancel_pending(signals.WHY)  # an await is interrupted without a signal to us
            return
        if error is not None:
            return  # told at the end of the next cell, if there is one
        failures = [failure for runtime in list(self._runtimes()) for failure in self._failures(runtime)]
        if failures:
            result.error_in_exec = self._show(failures)

    @property
    def _attended_by_a_person(self) -> bool:
        """Whether somebody might answer a question; nobody does where a notebook is executed as a program."""
        parent: dict[str, Any] = getattr(self._shell, "get_parent", dict)() or {}
        return bool(parent.get("content", {}).get("allow_stdin", True))

    def _failures(self, runtime: Running) -> list[BaseException]:
        """Return the failures that no cell has looked at: those known by now, or all where nobody comes back to them."""
        try:
            if not self._attended_by_a_person:
                runtime.wait()
        except BaseExceptionGroup as group:
            return list(group.exceptions)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - shown as the cell's
            return [error]
        unseen = runtime.unseen()
        for failure in unseen:
            mark_reported(failure)
        return unseen

    def _show(self, failures: list[BaseException]) -> BaseException:
        """Show failures as if the cell had raised them, and return them as one."""
        try:
            if len(failures) == 1:
                raise failures[0]
            raise BaseExceptionGroup(f"{len(failures)} tasks failed", failures)
        except BaseException as error:  # noqa: BLE001 - raised to have a traceback, which the shell shows
            self._shell.showtraceback()
            return error
