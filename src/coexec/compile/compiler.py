"""A thread that compiles while the program goes on.

Before: machine/switching.py, machine/collecting.py.  After: compile/forms.py, compile/serving.py.  Knows jobs, nothing of what they do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

from ..machine.collecting import collect_as_before, collect_young
from ..machine.switching import restore_turns, shorten_turns

TURN = 0.2e-3  # seconds that a thread waits for the interpreter lock while something is compiled: five are usual


class Compilation(NamedTuple):
    """What is to be done, and what if it is not done any more."""

    run: Callable[[], None]
    drop: Callable[[], None]


class Compiler:
    """Does jobs in a thread of its own, which starts with the first one and ends with `close`."""

    def __init__(self) -> None:
        self._jobs: deque[Compilation] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy = False

    def submit(self, job: Compilation) -> bool:
        """Do a job later; False if this was closed."""
        with self._changed:
            if self._closed:
                return False
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="coexec-compile", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                job = self._jobs.popleft()
                self._busy = True
            shorten_turns(self, TURN)
            collect_young(self)
            try:
                job.run()
            finally:
                collect_as_before(self)
                restore_turns(self)
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def wait(self) -> None:
        """Wait until every job so far is done."""
        with self._changed:
            while (self._jobs or self._busy) and not self._closed:
                self._changed.wait()

    def close(self) -> None:
        """Drop what was not begun, finish what was, and end the thread."""
        with self._changed:
            self._closed = True
            dropped = list(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
            thread = self._thread
        for job in dropped:
            job.drop()
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
