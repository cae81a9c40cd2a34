"""The same applications on the same ranks, simulated: with what kernels, messages and scheduling took in this run.

Before: apps.py, backend/simulated/.  After: harness.py.  Virtual seconds, beside those that real ranks measured.

Ranks are nodes of a platform with one core each. Kernels take what the real ranks' store has of them, messages what bare
ones took over the same transport. Values are computed, since conjugate gradients ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import cast

import coexec as cx

from ...backend.simulated import Costs
from ...machine.platform import Platform
from ...ranked import Ranks
from ..measure import Data
from ..simulate.validation import shares
from .apps import APPS, RankApp

SEVERAL = 3  # runs that count, after one for plans
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
speed = "{speed}"
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


def compare(
    found: Data, sizes: Mapping[str, tuple[int, int]], store: Path, folder: Path, costs: Costs, memory: float
) -> None:
    """Add simulated seconds, and their error relative to the measured ones, to each case that real ranks `found`.

    `sizes` are those of the applications, `store` is the real ranks' file, `memory` what a core gets in bytes per second.
    """
    file = folder / "ranks.toml"
    file.write_text(
        PLATFORM.format(
            ranks=found["ranks"],
            memory=memory,
            speed=found["speed"],
            bandwidth=found["bandwidth"]["coexec_GB_per_s"] * 1e9,
            latency=found["latency_us"]["coexec"] * 1e-6,
        )
    )
    platform = Platform.load(file)
    for case in found["cases"]:
        app = APPS[case["app"]](*sizes[case["app"]], found["ranks"])
        case["simulated_s"], case["simulated_from"] = simulated(app, platform, store, costs)
        case["simulation_error"] = case["simulated_s"] / case["coexec_s"] - 1.0


def simulated(app: RankApp, platform: Platform, store: Path, costs: Costs) -> tuple[float, Data]:
    """Return the virtual seconds of an application on all nodes of a platform, and from what those of kernels are known."""
    took = []
    with cx.Runtime(
        platform=platform, ranks=0, execute=True, store=str(store), policy="even", diagnostics="off"
    ) as runtime:
        for member in cast("Ranks", runtime._way).members:
            member.machine.lanes["host"].costs = costs
        clock = runtime.machine.lanes["host"].clock
        for _ in range(SEVERAL + 1):
            arrays = [cx.array(given) for given in app.inputs]
            cx.wait()
            begin = clock()
            app.coexec(*arrays)
            cx.wait()
            took.append(clock() - begin)
        known = shares(runtime.machine.lanes["host"])
    return float(median(took[1:])), known
