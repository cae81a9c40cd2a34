"""One CPU device's queue and thread.

Before: graph/instruction.py.  After: backend/cpu.py, which starts and wakes the thread.  Knows no core and no body.
"""

from __future__ import annotations

import threading
from collections import deque

from ..graph.instruction import Instruction
from ..machine.platform import Device


class Worker:
    """One device's queue and thread. The deque is shared; whoever pops an instruction runs it."""

    __slots__ = ("device", "idle", "queue", "siblings", "thread", "wake")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.queue: deque[tuple[Instruction, int]] = deque()
        self.wake = threading.Lock()  # held while there is nothing to do; released to wake the thread
        self.idle = False
        self.thread: threading.Thread | None = None
        self.siblings: list[Worker] = []

    def put(self, instruction: Instruction, lane: int) -> None:
        """Queue an instruction before those of lower priority: whatever is issued may run, in any order."""
        queue, priority = self.queue, instruction.step.priority
        if not queue or queue[-1][0].step.priority >= priority:
            queue.append((instruction, lane))
            return
        for position, entry in enumerate(list(queue)):
            if entry[0].step.priority < priority:
                queue.insert(position, (instruction, lane))
                return
        queue.append((instruction, lane))

    def remove(self, entry: tuple[Instruction, int]) -> bool:
        """Take an instruction that no thread has begun; exactly this one, or none."""
        try:
            self.queue.remove(entry)
        except (IndexError, ValueError):  # its thread was faster
            return False
        return True
