"""Functions that wait in the middle: each call has a thread of its own, but only one of all threads runs at a time.

Before: program/session.py.  After: stream/item.py.  Knows no array and no stage.

Whoever starts or resumes a call waits until it ends or waits for a task. So the program's own order of events depends on no
thread's speed, and a function needs no locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import copy_context
from typing import Any

from ..program import session


class Abandoned(BaseException):
    """Raised inside a function that nobody waits for any more, where it waits. Not to be caught."""


class StreamTurn:
    """One call of a function on a thread of its own."""

    def __init__(
        self, function: Callable[[], Any], name: str, uninterrupted: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Take a function; what happens within `uninterrupted()` is over before Ctrl-C is raised."""
        self.waiting_for: Any = None  # a task, while the function waits
        self.over = False
        self._function, self._uninterrupted = function, uninterrupted
        self._error: BaseException | None = None
        self._result: Any = None
        self._abandoned = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._begun = False  # the thread is started by whoever resumes first: who has made this can end it by then

    def resume(self) -> None:
        """Let the function go on, and return when it ends or waits."""
        if self.over:
            return
        try:
            if not self._begun:
                with self._uninterrupted():  # else nobody knows whether there is a thread to wait for
                    self._thread.start()
                    self._begun = True
            self._go.release()
            self._back.acquire()
        except BaseException:  # Ctrl-C: nothing of it may be left behind
            self.abandon()
            raise

    def abandon(self) -> None:
        """End the function where it waits, and its thread."""
        self._abandoned = True
        if not self._begun:
            self.over = True
            self._go.release()  # a handler of the program's own may have raised just when the thread had started
            return
        while not self.over:
            self._go.release()
            self._back.acquire()
        self._thread.join()

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised. It is over."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    # On its own thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._go.acquire()
        session.giving_way.until = self._until
        try:
            if not self._abandoned:
                self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result is told
            self._error = error
        finally:
            session.giving_way.until = None
            self.over = True
            self._function = _nothing
            self._back.release()

    def _until(self, task: Any) -> None:
        """Give way until a task is over. The task may not be, if whoever resumes wants this thread to wait."""
        if task.finished:
            return
        self.waiting_for = task
        self._back.release()
        self._go.acquire()
        self.waiting_for = None
        if self._abandoned:
            raise Abandoned


def _nothing() -> None:
    """Do nothing."""
