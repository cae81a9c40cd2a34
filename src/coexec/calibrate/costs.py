"""Measure what coexec itself costs on this machine, for simulations that are to include it.

Before: runtime.py, backend/simulated/.  After: bench/, cli/.  Runs a small program on devices that do nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from ..backend.simulated.costs import Costs
from ..machine.cores import available_cores, pin_thread
from ..program.access import read, update
from ..program.array import zeros
from ..program.kernel import kernel
from ..runtime import Runtime

CALLS = 200  # per round
ROUNDS = 5
WAKES = 300


@kernel(x=read, y=update)
def _step(x: object, y: object) -> None:
    """Do nothing."""


class Spent(NamedTuple):
    """Seconds per call, medians of rounds."""

    submitting: float
    finishing: float
    instructions: float  # per call


def measured_costs(calls: int = CALLS, rounds: int = ROUNDS) -> Costs:
    """Return the seconds per submission, instruction and completion, as a program in a loop sees them."""
    stay = _spent(("null:0",), calls, rounds)
    move = _spent(("null:0", "null:1"), calls, rounds)  # with copies, so of several instructions each
    more = move.instructions - stay.instructions
    instruction = max(0.0, (move.submitting - stay.submitting) / more) if more > 0.0 else 0.0
    submission = max(0.0, stay.submitting - instruction * stay.instructions)
    return Costs(submission, instruction, max(0.0, move.finishing / move.instructions), measured_wake())


def measured_wake(turns: int = WAKES) -> float:
    """Return the seconds from when a thread wakes another until that goes on: two of them wake each other in turns."""
    mine, other = threading.Lock(), threading.Lock()
    mine.acquire()
    other.acquire()

    def answer() -> None:
        pin_thread(*available_cores()[-1:])  # as a device's thread is
        for _ in range(turns):
            other.acquire()
            mine.release()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    took = []
    for _ in range(turns):
        begin = time.perf_counter()
        other.release()
        mine.acquire()
        took.append((time.perf_counter() - begin) / 2)
    thread.join()
    return median(took)


def _spent(devices: Sequence[str], calls: int, rounds: int) -> Spent:
    """Return what calls on these devices in turn cost the program's thread."""
    submitting, finishing = [], []
    steps = [_step.using(devices=name) for name in devices]
    with Runtime("null:2", store="off", diagnostics="off", horizon=1 << 20) as runtime:
        x, y = zeros(1 << 12), zeros(1 << 12)
        for _ in range(rounds + 1):  # the first one warms up
            first, begin = runtime.instructions, time.thread_time()
            for call in range(calls):
                steps[call % len(steps)](x, y)
            middle = time.thread_time()
            runtime.wait()
            submitting.append((middle - begin) / calls)
            finishing.append((time.thread_time() - middle) / calls)
            number = (runtime.instructions - first) / calls
    return Spent(median(submitting[1:]), median(finishing[1:]), number)
