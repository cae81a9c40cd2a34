"""The null backend: finishes everything at once and computes nothing. For graph tests and dry runs.

Before: backend/base.py.  After: execute/.  Knows no data: allocations stay empty.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..graph.instruction import Allocation, Fence, Instruction
from ..graph.task import Task
from ..machine.platform import Device
from .base import CallHelper, Finished, Ran


class NullBackend:
    """Any number of devices that do nothing, on the calling thread."""

    kind = "null"
    runs_python = True
    helps = True

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = tuple(devices)
        self._finished: Finished | None = None
        self._issued: deque[tuple[Instruction, int]] = deque()

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        """Begin to accept work."""
        del call_helper
        self._finished = finished

    def clock(self) -> float:
        """Return the time in seconds that records refer to."""
        return time.perf_counter()

    def supports(self, dtype: Any) -> bool:
        """Tell whether a device can hold `dtype`: nothing is held, so yes."""
        del dtype
        return True

    def allocate(self, allocation: Allocation) -> None:
        """Do nothing."""

    def release(self, allocation: Allocation) -> None:
        """Do nothing."""

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        """Queue an instruction; it is finished by whoever waits."""
        del waits
        self._issued.append((instruction, lane))

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that nobody has finished."""
        for entry in self._issued:
            if entry[0] is instruction:
                self._issued.remove(entry)
                return True
        return False

    def help(self, waiting_for: Task | None = None) -> bool:
        """Finish one instruction."""
        if not self._issued or self._finished is None:
            return False
        instruction, lane = self._issued.popleft()
        now = self.clock()
        step = instruction.step
        if isinstance(step, Fence) and instruction.failure is None:
            deliver_nothing(step)
        self._finished(Ran(instruction, step.device, lane, now, now, 0.0, instruction.failure))
        return True

    def left(self, *, idle: bool) -> None:
        """Do nothing: whoever waits next goes on."""

    def stop(self) -> None:
        """Finish what was issued."""
        while self.help():
            pass


def deliver_nothing(fence: Fence) -> None:
    """Give the host program zeros: null devices compute no values."""
    import numpy as np

    from ..program.view import view_shape

    fence.deliver(np.zeros(view_shape(fence.binding.box, fence.binding.cut), fence.binding.dtype))
