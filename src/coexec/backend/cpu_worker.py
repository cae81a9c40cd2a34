"""A device's queue and its thread, of the CPU backend.

Before: backend/core_policy.py.  After: backend/cpu.py.  Knows no kernel and no lock but its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from ..graph.instruction import Instruction
from ..machine.platform import Device
from .core_policy import insert_by_priority

_instruction: Callable[[tuple[Instruction, int]], Instruction] = itemgetter(0)


class Worker:
    """One device's queue and thread. The deque is shared; whoever pops an instruction runs it."""

    __slots__ = ("device", "idle", "left", "queue", "siblings", "thread", "wake")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.queue: deque[tuple[Instruction, int]] = deque()
        self.wake = threading.Lock()  # held while there is nothing to do; released to wake the thread
        self.idle = False
        self.left: Worker | None = None  # whose thread was not woken, because this one takes over its work
        self.thread: threading.Thread | None = None
        self.siblings: list[Worker] = []

    def put(self, instruction: Instruction, lane: int) -> None:
        """Queue an instruction by priority: whatever is issued may run, in any order."""
        insert_by_priority(self.queue, (instruction, lane), _instruction)

    def remove(self, entry: tuple[Instruction, int]) -> bool:
        """Take an instruction that no thread has begun; exactly this one, or none."""
        try:
            self.queue.remove(entry)
        except (IndexError, ValueError):  # its thread was faster
            return False
        return True
