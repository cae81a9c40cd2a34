"""Let go of what is held back, a moment after the program has stopped adding to it.

Before: nothing.  After: pump.py, which owns one for chains and one for what lookahead holds. Its thread only ends the waiting.

The thread starts with the first thing that is held and sleeps while nothing is. It looks less and less often while the
program keeps coming, because each look costs the program's thread the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

LetGo = Callable[[bool], bool]
"""Lets go, and tells whether it did; its argument tells that this is the last time it is asked. Locked."""


class IdleTimer:
    """A thread that calls `let_go` when nothing has come for a moment."""

    def __init__(self, lock: Any, let_go: LetGo, name: str, first: float, longest: float) -> None:
        self._lock = lock
        self._let_go = let_go
        self._name = name
        self._first, self._longest = first, longest  # seconds
        self._came = 0
        self._armed = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Wait from now on: something is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name=self._name, daemon=True)
            self._thread.start()
        self._armed.set()

    def more(self) -> None:
        """Note that something was added: wait for another moment."""
        self._came += 1

    def touch(self) -> None:
        """Wait for another moment, from now on."""
        self.more()
        self.begin()

    def _wait(self) -> None:
        pause = threading.Event()
        while True:
            self._armed.wait()
            if self._stopped:
                return
            self._armed.clear()
            moment, over = self._first, False
            while not over and not self._stopped:
                before = self._came
                pause.wait(moment)
                if before == self._came:
                    with self._lock:
                        over = self._let_go(moment >= self._longest)
                moment = min(2 * moment, self._longest)

    def stop(self) -> None:
        """End the thread. Nothing is held any more."""
        self._stopped = True
        self._armed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None
