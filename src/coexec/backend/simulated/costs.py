"""What the program's side costs: seconds of the interpreter for tasks, instructions and completions, as stated or as metered.

Before: graph/instruction.py.  After: backend.py.  The costs are plain data, which calibrate/ measures.
The meter is the one place of a simulation that looks at real time, and only if it is asked to.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from time import thread_time
from typing import NamedTuple

from ...graph.instruction import Copy, Fence, Fill, Instruction, Reduce


class Costs(NamedTuple):
    """Seconds of scheduling. Python has one interpreter lock: submissions and completions take turns.

    The defaults are round figures of a server's core, for a loop that is replayed: a simulation is to give the same
    answer everywhere. `calibrate/costs.py` measures those of this machine.
    """

    submission: float = 20e-6  # per batch of instructions that is submitted: a task, a read, a mark
    instruction: float = 3e-6  # per instruction, on the thread that submits
    completion: float = 8e-6  # per instruction that is over, before what waits for it is issued
    wake: float = 30e-6  # until a thread that sleeps goes on: a core's without work, or the program's that waits
    step: float = 15e-6  # to carry out an instruction on the host or on a core that is no kernel, beside what it moves
    part: float = 0.1e-6  # to combine one partial result of a reduction
    cold: tuple[tuple[float, float], ...] = ()  # instead of `completion`: by the bytes that kernels touched before
    live: bool = False  # instead of the first two: the processor time that the program's thread takes right now

    def completing(self, touched: float) -> float:
        """Return the seconds from the end of an instruction until what waits for it is issued.

        Kernels that have touched so many bytes have driven all that this needs out of the caches.
        """
        if not self.cold:
            return self.completion
        if touched <= self.cold[0][0]:
            return self.cold[0][1]
        for (less, quick), (more, slow) in pairwise(self.cold):
            if touched <= more:
                return quick + (slow - quick) * (touched - less) / (more - less)
        return self.cold[-1][1]

    def carrying_out(self, instruction: Instruction) -> float:
        """Return the seconds that an instruction takes a thread of ours, whatever it moves or computes."""
        step = instruction.step
        if isinstance(step, Reduce):
            return self.step + self.part * step.partials.box.shape[0]
        return self.step if isinstance(step, Fill | Copy | Fence) else 0.0


NOTHING = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Scheduling for free: what remains is the hardware."""


class HostMeter:
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
