"""Small platforms with round figures, and kernels that take whole seconds on them: what tests of simulations share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import coexec as cx
from coexec.backend.simulated import NOTHING, SimulatedBackend, simulate
from coexec.machine.files.loading import parse
from coexec.machine.platform import Platform

MB = 1_000_000

STAR = """
[[memory]]
name = "host"
[[memory]]
name = "gpu"
count = 2
bandwidth = 4e6
[[device]]
name = "gpu"
kind = "gpu"
count = 2
memory = "gpu"
flops = 1e9
watts = 100.0
idle_watts = 10.0
"""

DIRECT = (
    STAR
    + """
[[link]]
from = "host"
to = "gpu"
bandwidth = 1e6
latency = 0.25
name = "pcie"
"""
)
"""Two devices of 1 Gflop/s, each with a link of 1 MB/s and 0.25 s to the host."""

SWITCHED = (
    STAR
    + """
[[switch]]
name = "hub"
[[link]]
from = "host"
to = "hub"
bandwidth = 1e6
latency = 0.0
name = "pcie"
[[link]]
from = "hub"
to = "gpu"
bandwidth = 1e6
latency = 0.0
name = "pcie"
"""
)
"""The same devices behind one switch, with one link of 1 MB/s to the host."""

CORES = """
[[memory]]
name = "host"
bandwidth = 3e6
[[device]]
name = "cpu"
kind = "cpu"
count = 2
cores = 1
memory = "host"
flops = 1e9
bandwidth = 2e6
[[device]]
name = "wide"
kind = "cpu"
wide = true
cores = [0, 1]
memory = "host"
flops = 2e9
"""
"""Two cores, alone and together, on one memory."""


def platform(text: str) -> Platform:
    """Return the platform of a text."""
    return Platform(*parse(text))


def opened(what: str | Platform, **options: Any) -> cx.Runtime:
    """Return a runtime on a simulated platform whose scheduling is free."""
    made = platform(what) if isinstance(what, str) else what
    options.setdefault("costs", NOTHING)
    return cx.Runtime(machine=simulate(made, **options), store="off", diagnostics="off")


def backend_of(runtime: cx.Runtime) -> SimulatedBackend:
    """Return what simulates a runtime's devices."""
    found: SimulatedBackend = runtime.machine.lanes["host"]
    return found


@cx.kernel(y=cx.write, flops=lambda y, s: s * 1e9)
def make(y, s):
    """Take s seconds on a device of 1 Gflop/s."""
    y[...] = s


@cx.kernel(x=cx.read, y=cx.update, flops=lambda x, y, s: s * 1e9)
def use(x, y, s):
    """Take s seconds after both."""
    y += x + s


@cx.kernel(xs=cx.read, y=cx.update, flops=lambda xs, y, s: s * 1e9)
def join(xs, y, s):
    """Take s seconds after all of xs."""
    y += xs.sum() + s


def arrays(number: int, nbytes: int = 8) -> Sequence[cx.Array]:
    """Return arrays that nobody has touched."""
    return [cx.empty(nbytes // 8, np.float64) for _ in range(number)]


def kernels_of(runtime: cx.Runtime) -> dict[str, list[tuple[float, float]]]:
    """Return, by device, when each kernel begins and ends; it fills as they do."""
    ran: dict[str, list[tuple[float, float]]] = {}
    before = runtime._driver.executor.on_finished

    def note(record: Any) -> None:
        before(record)
        if record.instruction.kind == "kernel" and record.lane >= 0:  # it began
            ran.setdefault(record.device, []).append((record.start, record.stop))

    runtime._driver.executor.on_finished = note
    return ran
