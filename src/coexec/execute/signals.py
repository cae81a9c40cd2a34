"""Ctrl-C and SIGTERM: they interrupt the program, never the middle of the runtime's own bookkeeping.

Before: nothing.  After: runtime.py.  The handlers stand only while a runtime is open, and only where the program has
not installed its own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..errors import TaskCancelled
from ..program.session import in_kernel


class Signals:
    """Defers interrupts while the calling thread holds the program's lock."""

    def __init__(self, lock: Any, cancel: Callable[[str], None]) -> None:
        self._locked: Callable[[], bool] = lock._is_owned  # by the present thread: what threading.Condition itself asks
        self._cancel = cancel  # cancels what has not begun, for a reason
        self._before: dict[int, Any] = {}
        self.pending: BaseException | None = None
        self._waiting = False  # an interrupt wants the lock, which another thread holds

    def install(self) -> None:
        """Take over SIGINT and SIGTERM if they still have their default handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_interrupt)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._on_terminate)

    def restore(self) -> None:
        """Put back what was there, unless the program has replaced it since."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, ours in ((signal.SIGINT, self._on_interrupt), (signal.SIGTERM, self._on_terminate)):
            if number in self._before and signal.getsignal(number) == ours:
                signal.signal(number, self._before[number])
        self._before.clear()

    def check(self) -> None:
        """Raise an interrupt that arrived while the lock was held."""
        if self.pending is not None:
            error, self.pending = self.pending, None
            self._cancel("the program was interrupted")
            raise error

    def listen(self) -> None:
        """Raise TaskCancelled if an interrupt waits until the lock is free: what takes long is given up. Locked."""
        if self.pending is not None or self._waiting:
            raise TaskCancelled("the program was interrupted")

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._raise(KeyboardInterrupt())

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._raise(SystemExit(128 + number))

    def _raise(self, error: BaseException) -> None:
        if self._locked() and not in_kernel.name:  # a body that the caller runs itself can be interrupted
            self.pending = error
        else:
            self._waiting = True
            try:
                self._cancel("the program was interrupted")
            finally:
                self._waiting = False
            raise error
