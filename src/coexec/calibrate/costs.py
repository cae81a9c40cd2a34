"""Measure what coexec itself costs on this machine, for simulations that are to include it.

Before: runtime.py, backend/simulated/.  After: bench/, cli/.  Runs small programs: on devices that do nothing, for what
the program's thread does; on the cores for what is between kernels, which is longer the more data drives all else out of
the caches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..backend.base import Ran
from ..backend.simulated.costs import Costs
from ..graph.instruction import Fence, Launch
from ..machine.cores import available_cores
from ..program.access import read, reduce, update
from ..program.array import zeros
from ..program.kernel import kernel
from ..runtime import Runtime

CALLS = 200  # per round
ROUNDS = 5
STREAMED = tuple(1 << power for power in (16, 18, 19, 20, 21, 22))  # numbers that a kernel reads, and as many it writes
USUAL = 1 << 18
CHAIN = 12  # kernels in a row, each after the one before
ITEM = 8  # bytes of a number
PARTS = 32  # partial results of a reduction


@kernel(x=read, y=update)
def _step(x: object, y: object) -> None:
    """Do nothing."""


@kernel(x=read, y=update)
def _stream(x: Any, y: Any) -> None:
    y += x


class Spent(NamedTuple):
    """Seconds per call, medians of rounds."""

    submitting: float
    finishing: float
    instructions: float  # per call


class Between(NamedTuple):
    """Seconds from the end of a kernel to the beginning of the next, and of a small read; medians."""

    kernels: float
    reading: float


def measured_costs(calls: int = CALLS, rounds: int = ROUNDS) -> Costs:
    """Return what scheduling takes: the program's thread in a loop, the cores' threads between dependent kernels."""
    stay = _spent(("null:0",), calls, rounds)
    move = _spent(("null:0", "null:1"), calls, rounds)  # with copies, so of several instructions each
    more = move.instructions - stay.instructions
    instruction = max(0.0, (move.submitting - stay.submitting) / more) if more > 0.0 else 0.0
    submission = max(0.0, stay.submitting - instruction * stay.instructions)
    own = {numbers: _between(("cpu:0",), rounds, numbers) for numbers in STREAMED}
    usual = own[USUAL]
    other = _between(("cpu:0", "cpu:1"), rounds, USUAL) if len(available_cores()) > 1 else usual
    cold = tuple((2.0 * numbers * ITEM, found.kernels) for numbers, found in own.items())
    wake = max(0.0, other.kernels - usual.kernels)
    return Costs(submission, instruction, usual.kernels, wake, usual.reading, _combining(), cold)


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


def _between(devices: Sequence[str], rounds: int, numbers: int) -> Between:
    """Return what is between kernels that follow each other on these devices in turn, and use so many numbers twice."""
    steps = [_stream.using(devices=name) for name in devices]
    gaps, reads = [], []
    with Runtime(",".join(devices), store="off", diagnostics="off", inline=False) as runtime:
        ran: list[Ran] = []
        then = runtime._driver.executor.on_finished

        def finished(record: Ran) -> None:
            ran.append(record)
            then(record)

        runtime._driver.executor.on_finished = finished
        x, y = zeros(numbers), zeros(numbers)
        for _ in range(rounds + 1):  # the first one warms up
            ran.clear()
            for call in range(CHAIN):
                steps[call % len(steps)](x, y)
            y[0].item()
            kernels = [record for record in ran if type(record.instruction.step) is Launch]
            gaps.append(median(after.start - before.stop for before, after in pairwise(kernels)))
            reads += [record.stop - record.start for record in ran if type(record.instruction.step) is Fence]
    return Between(median(gaps[1:]), median(reads[1:]))


def _combining(tries: int = 20) -> float:
    """Return how long it takes to combine one small partial result with the others, between streams of data."""
    x, y = np.zeros(USUAL), np.zeros(USUAL)
    total, parts = np.zeros(()), np.ones(PARTS)
    adding = reduce("sum").operator
    assert adding is not None
    took = []
    for _ in range(tries):
        y += x
        begin = time.thread_time()
        adding.fold(parts, total)
        took.append((time.thread_time() - begin) / PARTS)
    return median(took)
