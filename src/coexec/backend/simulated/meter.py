"""Processor time that the program's threads spend outside of the simulation: their own work, and that of the runtime.

Before: nothing.  After: backend.py.  The one place of a simulation that looks at real time, and only if it is asked to.
"""

from __future__ import annotations

import threading
from time import thread_time


class Meter:
    """Runs while a thread is not in the simulator."""

    def __init__(self) -> None:
        self._local = threading.local()

    def stop(self) -> float:
        """Return the seconds since this thread left the simulator, which it enters now."""
        since: float | None = getattr(self._local, "since", None)
        self._local.since = None
        return 0.0 if since is None else thread_time() - since

    def go(self) -> None:
        """Note that this thread leaves the simulator."""
        self._local.since = thread_time()


class NoMeter:
    """Counts nothing: a simulation repeats exactly."""

    def stop(self) -> float:
        """Return nothing."""
        return 0.0

    def go(self) -> None:
        """Do nothing."""
