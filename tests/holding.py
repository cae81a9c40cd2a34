"""Hold a body in the middle: it calls `pass_gate(name)`, and goes on when the test opens that gate.

A kernel may use functions from outside, but no mutable objects: the gates stand in a table of this module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 60.0  # seconds after which a test that would hang fails instead


class Gate:
    """One place to stop at."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._arrivals = threading.Semaphore(0)
        self.passed: list[str] = []  # threads that went through

    def wait_for_arrival(self) -> None:
        """Block until one more body stands at the gate."""
        if not self._arrivals.acquire(timeout=PATIENCE):
            raise TimeoutError("no body came to the gate")

    def arrive(self) -> None:
        """Stop here until the gate is open."""
        self._arrivals.release()
        if not self.open.wait(PATIENCE):
            raise TimeoutError("nobody opened the gate")
        self.passed.append(threading.current_thread().name)


_gates: dict[str, Gate] = {}


@contextmanager
def closed_gate(name: str) -> Iterator[Gate]:
    """Close the gate `name`; it opens, at the latest, when the block is left."""
    gate = _gates[name] = Gate()
    try:
        yield gate
    finally:
        gate.open.set()
        del _gates[name]


def pass_gate(name: str) -> None:
    """Stop at a gate, if it is closed."""
    gate = _gates.get(name)
    if gate is not None:
        gate.arrive()


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that another thread brings about."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        pause.wait(1e-3)
