"""A signal is heard although the main thread waits in C: it is sent once more until its handler has run.

Before: nothing.  After: signals.py.  Knows sockets and threads, and nothing of what handlers do.

Python runs handlers in the main thread, between two bytecodes. A signal that another thread takes, or that comes in the
moment before the main thread begins to wait for a semaphore, is heard when that wait is over, which may be never.
"""

from __future__ import annotations

import select
import signal
import socket
import threading

PATIENCE_S = 0.05  # what a handler may take to run before its signal is sent again; the program is late by it once
END = b"\0"  # no signal has this number


class Reminder:
    """A thread that sends signals to the main thread again. Made, told and ended by the main thread.

    Python writes the number of each signal to a socket when it arrives, and whoever handles one calls `heard`, which
    empties the socket. So a number that stays there is a signal that nobody has heard.
    """

    def __init__(self, numbers: frozenset[int]) -> None:
        self._numbers = numbers
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._main = threading.main_thread().ident or 0
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Listen, unless the program has signals written to a socket of its own: then nothing is sent again."""
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            return
        self._thread = threading.Thread(target=self._remind, name="coexec-signals", daemon=True)
        self._thread.start()

    def heard(self) -> None:
        """Note that the handlers of all signals so far run now."""
        self._take(1024)

    def end(self) -> None:
        """End the thread. What the program listens with meanwhile stays as it is."""
        self.let_go()
        if self._thread is not None:
            self._writer.send(END)
            self._thread.join()
        self._reader.close()
        self._writer.close()

    def let_go(self) -> None:
        """Have no more signals written to the socket; a forked child must, whose signals are not its parent's."""
        mine = self._writer.fileno()
        now = signal.set_wakeup_fd(-1)
        if now not in {-1, mine}:
            signal.set_wakeup_fd(now)

    def _remind(self) -> None:
        """Wait for numbers. What is there and was there a while ago is sent again."""
        while (numbers := self._look()) is not None:
            if self._numbers.isdisjoint(numbers):
                self._take(len(numbers))
                continue
            select.select([], [], [], PATIENCE_S)
            for number in self._numbers.intersection(numbers).intersection(self._look(wait=False) or ()):
                signal.pthread_kill(self._main, number)

    def _look(self, *, wait: bool = True) -> bytes | None:
        """Return the numbers in the socket and leave them there; None at the end."""
        if wait:
            select.select([self._reader], [], [])
        try:
            numbers = self._reader.recv(1024, socket.MSG_PEEK)
        except BlockingIOError:
            return b""
        return None if END in numbers else numbers

    def _take(self, most: int) -> None:
        try:
            self._reader.recv(most)
        except BlockingIOError:
            return
