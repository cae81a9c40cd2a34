"""What all ways to run a program share, and the first two: one kernel after another in NumPy, and through coexec.

Before: program.py.  After: hand.py, opencl.py, harness.py.  Measures nothing but the kernels of the plain way.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, Protocol

import numpy as np

import coexec as cx

from ...backend.launch import aligned_empty
from ..measure import current
from .program import Arrays, DagProgram, KernelCall

Values = list[float]


class DagWay(Protocol):
    """One way to run a program again and again on the same arrays."""

    def prepare(self) -> None:
        """Write again what the host writes before each iteration. Not timed."""

    def run(self) -> Values:
        """Run one iteration, from the first launch until the host has the elements it reads. Timed."""

    def results(self) -> Arrays:
        """Return the arrays that the program computes."""

    def close(self) -> None:
        """Give back threads and memory."""


class OneDevice(DagWay, Protocol):
    """A way that uses one device, one kernel after another, and times each."""

    seconds: dict[str, list[float]]  # by label

    def time_moves(self) -> dict[str, float]:
        """Return the seconds to move each array to or from the device's memory; nothing if it is the host's."""


def copies(program: DagProgram) -> Arrays:
    """Return arrays of a program's own, which any device can use in place."""
    made = {}
    for name, array in program.arrays.items():
        made[name] = aligned_empty(array.shape, array.dtype)
        np.copyto(made[name], array)
    return made


class Plain:
    """Plain calls of the NumPy bodies, one after another, on the calling thread."""

    def __init__(self, program: DagProgram) -> None:
        self.program = program
        self.arrays = copies(program)
        self.seconds: dict[str, list[float]] = {label: [] for label in program.labels()}

    def prepare(self) -> None:
        for name in self.program.rewritten:
            np.copyto(self.arrays[name], self.program.arrays[name])

    def run(self) -> Values:
        for step in self.program.steps:
            start = perf_counter()
            if isinstance(step, KernelCall):
                step.kernel.function(*step.bind(self.arrays))
                self.seconds[step.label].append(perf_counter() - start)
            else:
                self.arrays[step.array][...] = step.value
        return [float(self.arrays[name][index]) for name, index in self.program.reads]

    def results(self) -> Arrays:
        return {name: self.arrays[name] for name in self.program.results}

    def time_moves(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.arrays.clear()


class DagThroughCoexec:
    """The same calls through coexec."""

    def __init__(
        self, program: DagProgram, devices: str, memory: Mapping[str, str], trace: str | None = None, **options: Any
    ) -> None:
        self.program = program
        self.runtime = cx.Runtime(devices=devices, memory=memory, trace=trace, **options)
        with current(self.runtime):
            self.arrays = {name: cx.array(array) for name, array in program.arrays.items()}
            self.runtime.wait()

    def prepare(self) -> None:
        with current(self.runtime):
            for name in self.program.rewritten:
                self.arrays[name][...] = self.program.arrays[name]
            self.runtime.wait()

    def run(self) -> Values:
        with current(self.runtime):
            for step in self.program.steps:
                if isinstance(step, KernelCall):
                    step.kernel(*step.bind(self.arrays))
                else:
                    self.arrays[step.array][...] = step.value
            return [float(self.arrays[name][index]) for name, index in self.program.reads]

    def results(self) -> Arrays:
        return {name: np.asarray(self.arrays[name]) for name in self.program.results}

    def close(self) -> None:
        self.arrays.clear()
        self.runtime.close()
