"""The same applications on the same ranks, simulated: with what kernels, messages and scheduling took in this run.

Before: apps.py, backend/simulated/.  After: harness.py.  Virtual seconds, beside those that real ranks measured.

Ranks are nodes of a platform with one core each. Each kernel takes what the same one took on the same real rank, messages
what bare ones took over the same transport: what is compared is how calls, messages and kernels follow each other. Values
are computed, since conjugate gradients ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import cast

import numpy as np

import coexec as cx

from ...backend.simulated import Costs
from ...backend.simulated.durations import Law, Timed
from ...graph.instruction import Instruction, Launch
from ...machine.platform import Device, Platform
from ...ranked import Ranks
from ..measure import Data
from .apps import APPS, RankApp
from .on_rank import RankEffort, kernel_name

PLATFORM = """
nodes = {ranks}

[[memory]]
name = "host"
bandwidth = {memory}

[[device]]
name = "cpu"
kind = "cpu"
cores = 1
memory = "host"
bandwidth = {memory}
eager = false

[[nic]]
name = "nic"

[[link]]
from = "host"
to = "nic"
bandwidth = {bandwidth}
latency = 0.0

[network]
bandwidth = {bandwidth}
latency = {latency}
"""
"""Ranks of one machine: each has a core, and messages take what they took. Rates are in bytes per second."""


class Replayed:
    """Kernels of one rank take what they took on the real one, in their order; all else what a platform says."""

    shares = True

    def __init__(self, law: Law, seconds: Mapping[str, Sequence[float]], missing: set[str]) -> None:
        """`seconds` are by kernel and shape; those that did not run on the real rank become `missing`."""
        self._law, self._missing = law, missing
        self._seconds = {name: iter(taken) for name, taken in seconds.items()}

    def timed(self, instruction: Instruction) -> Timed:
        """Return how long an instruction takes, and how that is known."""
        if not isinstance(instruction.step, Launch):
            return self._law.timed(instruction)
        name = kernel_name(instruction)
        seconds = next(self._seconds.get(name, iter(())), None)
        if seconds is None:
            self._missing.add(name)
            return Timed(0.0, "default")
        return Timed(seconds, "measured", 0.0, 0.0)

    def configure(self, device: Device) -> None:
        """Take what a device reaches from now on, with another design."""
        self._law.configure(device)


def compare(found: Data, effort: RankEffort, folder: Path, costs: Costs, memory: float) -> None:
    """Add simulated seconds, and their error relative to the measured ones, to each case that real ranks `found`.

    Takes from each case what its kernels took. `memory` is what a core gets, in bytes per second.
    """
    file = folder / "ranks.toml"
    file.write_text(
        PLATFORM.format(
            ranks=found["ranks"],
            memory=memory,
            bandwidth=found["bandwidth"]["coexec_GB_per_s"] * 1e9,
            latency=found["latency_us"]["coexec"] * 1e-6,
        )
    )
    platform = Platform.load(file)
    for case in found["cases"]:
        app = APPS[case["app"]](*effort.sizes[case["app"]], found["ranks"])
        case["simulated_s"] = simulated(app, effort.rounds, case.pop("kernels"), platform, costs)
        case["simulation_error"] = case["simulated_s"] / case["coexec_s"] - 1.0


def simulated(
    app: RankApp, rounds: int, kernels: Sequence[Mapping[str, Sequence[float]]], platform: Platform, costs: Costs
) -> float:
    """Return the virtual seconds of an application on all nodes of a platform; by rank, `kernels` are what those took."""
    took: list[float] = []
    missing: set[str] = set()
    with cx.Runtime(platform=platform, ranks=0, execute=True, store="off", policy="even", diagnostics="off") as runtime:
        for member, seconds in zip(cast("Ranks", runtime._way).members, kernels, strict=True):
            backend = member.machine.lanes["host"]
            backend.costs, backend.law = costs, Replayed(backend.law, seconds, missing)
        clock = runtime.machine.lanes["host"].clock
        for _ in range(rounds + 1):  # as on real ranks: the first one is for plans
            arrays = [cx.array(given) for given in app.inputs]
            cx.wait()
            begin = clock()
            result = app.coexec(*arrays)
            cx.wait()
            took.append(clock() - begin)
            np.asarray(result)
    if missing:
        raise AssertionError(f"{app.name}: simulated ranks run what real ones did not: {', '.join(sorted(missing))}")
    return float(median(took[1:]))
