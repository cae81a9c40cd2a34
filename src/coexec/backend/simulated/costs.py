"""What coexec itself costs: seconds of the interpreter for tasks, instructions and completions.

Before: nothing.  After: backend.py.  Plain data; calibrate/ measures it.
"""

from __future__ import annotations

from typing import NamedTuple


class Costs(NamedTuple):
    """Seconds of scheduling. Python has one interpreter lock: submissions and completions take turns.

    The defaults are round figures of a server's core, for a loop that is replayed: a simulation is to give the same
    answer everywhere. `calibrate/costs.py` measures those of this machine.
    """

    submission: float = 20e-6  # per batch of instructions that is submitted: a task, a read, a mark
    instruction: float = 3e-6  # per instruction, on the thread that submits
    completion: float = 8e-6  # per instruction that is over, before what waits for it is issued
    wake: float = 30e-6  # until a thread that sleeps goes on: a core's without work, or the program's that waits


NOTHING = Costs(0.0, 0.0, 0.0, 0.0)
"""Scheduling for free: what remains is the hardware."""
