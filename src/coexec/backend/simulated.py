"""Simulated devices: every instruction takes a given time on a virtual clock, and nothing is computed.

Before: backend/base.py.  After: execute/.  Lanes are in order; a device runs as many lanes at once as it is told.
Ties are broken by the order of issue, so a simulation is exact and repeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

from ..graph.instruction import Copy, Fence, Instruction, Kernel
from ..graph.task import Task
from ..machine.platform import Device
from .base import Ran
from .null import NullBackend, deliver_nothing

Seconds = Callable[[Instruction], float]


def fixed_durations(kernel: float = 1.0, copy: float = 0.5) -> Seconds:
    """Return a clock law: kernels and copies take fixed seconds, everything else none."""

    def seconds(instruction: Instruction) -> float:
        if isinstance(instruction, Kernel):
            return instruction.predicted if instruction.predicted is not None else kernel
        return copy if isinstance(instruction, Copy) else 0.0

    return seconds


class SimulatedBackend(NullBackend):
    """Devices on a clock of their own. Time moves when somebody helps, that is, when the program waits."""

    kind = "simulated"

    def __init__(self, devices: Sequence[Device], seconds: Seconds | None = None, concurrent: int = 1) -> None:
        super().__init__(devices)
        self.now = 0.0
        self._seconds = seconds or fixed_durations()
        self._concurrent = concurrent  # kernels that one device runs at once; copies overlap kernels
        self._order = count()
        self._lanes: dict[tuple[str, int], deque[Instruction]] = {}
        self._due: list[tuple[float, int, Instruction, int, float]] = []
        self._busy: dict[tuple[str, bool], int] = {}
        self._active: set[tuple[str, int]] = set()

    def clock(self) -> float:
        """Return the virtual time."""
        return self.now

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        """Queue an instruction on its lane."""
        del waits
        self._lanes.setdefault((instruction.device, lane), deque()).append(instruction)

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that has not begun on the virtual clock."""
        for queue in self._lanes.values():
            if instruction in queue:
                queue.remove(instruction)
                return True
        return False

    def _begin_what_can(self) -> None:
        for (device, lane), queue in self._lanes.items():
            if not queue or (device, lane) in self._active:
                continue
            moves = isinstance(queue[0], Copy)
            if self._busy.get((device, moves), 0) >= self._concurrent:
                continue
            instruction = queue.popleft()
            seconds = 0.0 if instruction.failure is not None else self._seconds(instruction)
            self._busy[device, moves] = self._busy.get((device, moves), 0) + 1
            self._active.add((device, lane))
            heappush(self._due, (self.now + seconds, next(self._order), instruction, lane, self.now))

    def help(self, waiting_for: Task | None = None) -> bool:
        """Advance the clock to the next completion, or return False if nothing is under way."""
        self._begin_what_can()
        if not self._due or self._finished is None:
            return False
        self.now, _, instruction, lane, start = heappop(self._due)
        self._busy[instruction.device, isinstance(instruction, Copy)] -= 1
        self._active.discard((instruction.device, lane))
        if isinstance(instruction, Fence) and instruction.failure is None:
            deliver_nothing(instruction)
        self._finished(Ran(instruction, instruction.device, lane, start, self.now, 0.0, instruction.failure))
        return True
