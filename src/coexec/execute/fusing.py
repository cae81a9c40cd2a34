"""Hold elementwise operations back for a moment, so that a chain of them becomes one kernel.

Before: program/fuse.py.  After: runtime.py.  Owned by a runtime. Its thread only ends the waiting, and ends with it.

A chain is let go when anything else happens that could see the difference: another kernel, a read, a wait. If nothing
does, a thread lets it go a moment later, so that work never stands still while the program is busy elsewhere.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from ..program.fuse import Chain, Operation
from ..program.kernel import Kernel

MOMENT = 300e-6  # seconds: longer than the next operation of an expression takes to come, shorter than one to compute

Enter = Callable[[Kernel, tuple[Any, ...], Context, tuple[str, int]], None]


class Fusing:
    """The chain that is held back, if any."""

    def __init__(self, lock: Any, enter: Enter, *, on: bool) -> None:
        self._lock = lock
        self._enter = enter  # records a call, under the lock
        self.on = on
        self.held: Chain | None = None
        self._context: Context | None = None
        self._errors: Any = {}  # what NumPy does about errors
        self._where = ("", 0)
        self._armed = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def hold(self, operation: Operation) -> bool:
        """Hold an operation back; False if it must be recorded at once."""
        if not self.on:
            return False
        errors = np.geterr()
        with self._lock:
            if self.held is not None and (errors != self._errors or not self.held.accepts(operation)):
                self.flush()
            if self.held is None:
                self.held, self._context, self._errors = Chain(), copy_context(), errors
                self._where = _caller()
                self._arm()
            self.held.add(operation)
        return True

    def flush(self) -> None:
        """Record what is held back. Locked."""
        chain, context = self.held, self._context
        if chain is not None and context is not None:
            self.held = self._context = None
            kernel, arguments = chain.call()
            del chain  # or its handles would keep what nobody wants
            self._enter(kernel, arguments, context, self._where)

    def _arm(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="coexec-fusing", daemon=True)
            self._thread.start()
        self._armed.set()

    def _wait(self) -> None:
        """Let go what was held for a moment, until told to stop."""
        pause = threading.Event()
        while True:
            self._armed.wait()
            if self._stopped:
                return
            self._armed.clear()
            pause.wait(MOMENT)
            with self._lock:
                self.flush()

    def stop(self) -> None:
        """End the thread. Nothing is held any more."""
        self.on, self._stopped = False, True
        self._armed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None


def _caller() -> tuple[str, int]:
    """Return the program's line that made the first operation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("coexec.", "numpy")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
