"""Ctrl-C and SIGTERM: they interrupt the program, never the middle of the runtimes' own bookkeeping.

Before: reminder.py.  After: process.py, pump.py.  The handlers stand while a runtime is open, and only where the program
has not installed its own. There is one of each in a process, whichever runtimes are open: an interrupt is for the
program, so it cancels what any of them has not begun.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..errors import TaskCancelled
from ..program.session import in_kernel
from .reminder import Reminder

WHY = "the program was interrupted"
INTERRUPTS = frozenset({signal.SIGINT, signal.SIGTERM})

_open: list[Signals] = []  # of the open runtimes, whichever thread opened them
_before: dict[int, Any] = {}  # what stood where our handlers stand
_reminder: list[Reminder] = []  # the one that stands while our handlers do
_forking = threading.local()  # what a thread that forks took before
arrived: list[int] = []  # numbers of what came when the program was over


class Signals:
    """Defers interrupts while the calling thread holds a program's lock."""

    def __init__(self, lock: Any, cancel: Callable[[str], None]) -> None:
        self._locked: Callable[[], bool] = lock._is_owned  # by the present thread: what threading.Condition itself asks
        self._deferral = Deferral(self)
        self.deferring = 0  # blocks of the main thread, to which interrupts come, that must end first
        self._cancel = cancel  # cancels what has not begun, for a reason
        self._waiting = False  # an interrupt wants the lock, which another thread holds
        self.pending: BaseException | None = None
        self._asked = False  # the main thread has seen to the handlers

    def install(self) -> None:
        """Take over SIGINT and SIGTERM if they still have their default handlers."""
        _open.append(self)
        self.see_to_handlers()

    def see_to_handlers(self) -> None:
        """Let the main thread install the handlers, which no other can, if it has not done so for this runtime."""
        if not self._asked and threading.current_thread() is threading.main_thread():
            self._asked = True
            if self in _open:
                stand()

    @property
    def busy(self) -> bool:
        """Whether the main thread, which asks, must not be interrupted now."""
        return self._locked() or self.deferring > 0

    def deferred(self) -> Deferral:
        """Let a block end before an interrupt is raised. Such blocks may be nested; in other threads they do nothing."""
        return self._deferral

    def restore(self) -> None:
        """Put back what was there if this was the last open runtime, unless the program has replaced it since."""
        if self in _open:
            _open.remove(self)
        if not _open:
            _stand_down()

    def check(self) -> None:
        """Raise an interrupt that arrived while the lock was held, in the thread that it is for."""
        if self.pending is not None and threading.current_thread() is threading.main_thread():
            error, self.pending = self.pending, None
            for reminder in _reminder:
                reminder.heard()  # one that came in a finalizer is raised now, and not once more
            _cancel_all()
            raise error

    def listen(self) -> None:
        """Raise TaskCancelled if an interrupt waits until the lock is free: what takes long is given up. Locked."""
        if self.pending is not None or self._waiting:
            raise TaskCancelled(WHY)

    def cancel(self) -> None:
        """Cancel what has not begun; whoever holds the lock for long lets go."""
        self._waiting = True
        try:
            self._cancel(WHY)
        finally:
            self._waiting = False


class Deferral:
    """A block that ends before an interrupt is raised in it. It is entered at every wait, so it is no generator."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._signals.deferring += 1

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._signals.deferring -= 1
            if kind is None and not self._signals.deferring:
                self._signals.check()


def stand() -> None:
    """Take over SIGINT and SIGTERM where their default handlers stand, if a runtime is open and this is the main thread."""
    if not _open or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _before[signal.SIGINT] = signal.signal(signal.SIGINT, _on_interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        _before[signal.SIGTERM] = signal.signal(signal.SIGTERM, _on_terminate)
    if _before and not _reminder:
        _reminder.append(Reminder(INTERRUPTS))
        _reminder[0].begin()


def before_fork() -> None:
    """Let the forking thread take no interrupt: its child would write it where the parent listens."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS) if _reminder else None


def after_fork(*, in_child: bool) -> None:
    """Take interrupts again. A child has Python's own handlers, and writes nothing where its parent listens."""
    if in_child:
        for reminder in _reminder:
            reminder.let_go()
        _reminder.clear()
        _stand_down()
    if (mask := getattr(_forking, "mask", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _stand_down() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    while _reminder:
        _reminder.pop().end()
    for number, ours in ((signal.SIGINT, _on_interrupt), (signal.SIGTERM, _on_terminate)):
        if number in _before and signal.getsignal(number) is ours:
            signal.signal(number, _before[number])
    _before.clear()


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    _raise(number, frame, KeyboardInterrupt())


def _on_terminate(number: int, frame: FrameType | None) -> None:
    _raise(number, frame, SystemExit(128 + number))


def _raise(number: int, frame: FrameType | None, error: BaseException) -> None:
    """Raise an interrupt, or have it raised as soon as this thread is not busy.

    When the program is over, the first one cancels what has not begun and is remembered: there is nobody to raise it to.
    In a finalizer it counts as not heard: it comes again when the finalizer is over, though the program calls nothing.
    """
    finalizing = _in_finalizer(frame)
    if not finalizing and _reminder:
        _reminder[0].heard()
    busy = next((signals for signals in _open if signals.busy or finalizing), None)
    over = not arrived and _is_over(frame)
    if over:
        arrived.append(number)
    if busy is not None and not in_kernel.name:  # a body that the caller runs itself can be interrupted
        busy.pending = error
        return
    for signals in _open:
        signals.pending = None  # this one stands for those that came before it
    _cancel_all()
    if not over:
        raise error


def _in_finalizer(frame: FrameType | None) -> bool:
    """Tell whether a finalizer runs: Python drops what it raises."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _is_over(frame: FrameType | None) -> bool:
    """Tell whether the program has ended, and Python is waiting for its threads or calling exit handlers."""
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    waits = frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) == (threading.__file__, "_shutdown")
    return waits or not threading.main_thread().is_alive()


def _cancel_all() -> None:
    for signals in tuple(_open):  # other threads may open and close some
        signals.cancel()
