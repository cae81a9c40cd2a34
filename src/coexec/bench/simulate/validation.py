"""Simulate the present machine, and compare with the real one: every program, run and simulated by the same calls.

Before: programs.py, backend/simulated/, calibrate/costs.py.  After: harness.py.

In each round the real runs come first, with a store of their own; it and what scheduling costs are all that the
simulation knows. Both run a few times before they count: plans settle. Medians are compared. The spread of the real
runs is beside the error: no simulation can be closer than that.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import coexec as cx

from ...backend.base import Ran
from ...backend.simulated import Costs, SimulatedBackend, simulate
from ...calibrate.costs import measured_costs
from ...graph.instruction import Launch
from ...machine.cores import available_cores
from ...machine.platform import HOST, Platform
from ..measure import Data, Others, Progress, bandwidth, one_library_thread
from .programs import SimulatedProgram, Turns, cases

TWO = "cpu:0,cpu:1"


class Repetitions(NamedTuple):
    """How often to run a program."""

    warm_up: int  # runs that do not count: coexec learns meanwhile
    runs: int
    simulated_warm_up: int
    simulated: int
    rounds: int = 1  # of all this


AGAIN = 3  # runs that do not count at the beginning of a further round
THOROUGH = Repetitions(8, 5, 4, 5, rounds=3)
BRIEF = Repetitions(4, 5, 2, 5)


class Rates(NamedTuple):
    """Bytes per second that memory gives one thread, and all of them together."""

    one: float
    all: float


class WatchedRuns(NamedTuple):
    """What some runs of a program took."""

    seconds: list[float]  # of each run
    kernels: float  # parts that ran, per run
    busy: float  # their seconds, per run
    waited: float  # of these, without the interpreter lock


def validate(quick: bool, progress: Progress) -> Data:
    """Return how far simulated times are from measured ones, for every program."""
    effort = BRIEF if quick else THOROUGH
    devices = TWO if len(available_cores()) > 1 else "cpu:0"
    others = Others()
    found: list[Data] = []
    with one_library_thread(), TemporaryDirectory() as folder:
        progress("what scheduling costs, memory bandwidth")
        costs, rates = measured_costs(), measured_rates(8_000_000 if quick else 20_000_000)
        for number, (name, make) in enumerate(cases().items()):
            progress(f"{name}: measured and simulated")
            found.append(compare(make(), devices, effort, costs, rates, Path(folder, f"{number}.sqlite")))
            gc.collect()
    return {
        **summary(found),
        "cases": found,
        "costs_us": {name: getattr(costs, name) * 1e6 for name in ("completion", "wake", "step", "part")},
        "cold_us": {f"{touched / 1e6:.0f} MB": seconds * 1e6 for touched, seconds in costs.cold},
        "bandwidth_gb_per_s": {name: rate / 1e9 for name, rate in rates._asdict().items()},
        "others_cores": others.cores(),
    }


def summary(found: Sequence[Data]) -> Data:
    """Return the middle and the worst of the errors, and of what the real runs differ among themselves."""
    errors = [abs(case["error"]) for case in found]
    return {
        "median_abs_error": median(errors),
        "worst_abs_error": max(errors),
        "worst_program": max(found, key=lambda case: abs(case["error"]))["program"],
        "median_spread": median(case["spread"] for case in found),
    }


def measured_rates(elements: int) -> Rates:
    """Return what memory gives one thread and all of them."""
    found = bandwidth(elements)
    return Rates(found["threads_1_GB_per_s"] * 1e9, max(found.values()) * 1e9)


def compare(case: SimulatedProgram, devices: str, effort: Repetitions, costs: Costs, rates: Rates, store: Path) -> Data:
    """Return one case: a program on the machine that is here, and on the same machine simulated.

    The store keeps the latest measurements of a kernel, which may be those of a slow moment: hence several rounds.
    """
    measured, simulated = [], []
    for number in range(effort.rounds):
        with cx.Runtime(devices=devices, store=str(store), diagnostics="off") as runtime:
            measured.append(observe(case, runtime, AGAIN if number else effort.warm_up, effort.runs))
            platform = described(runtime.platform, rates)
        machine = simulate(platform, execute=case.values, costs=costs._replace(live=True), store=store, vary=True)
        with cx.Runtime(machine=machine, store=str(store), diagnostics="off") as runtime:
            simulated.append(observe(case, runtime, effort.simulated_warm_up, effort.simulated))
    found = figures(case, devices, together(measured), together(simulated))
    return found | {"sources": shares(machine.lanes["host"])}


def together(rounds: Sequence[WatchedRuns]) -> WatchedRuns:
    """Return what all rounds took."""
    kernels, busy, waited = (median(column) for column in list(zip(*rounds, strict=True))[1:])
    return WatchedRuns([seconds for one in rounds for seconds in one.seconds], kernels, busy, waited)


def described(platform: Platform, rates: Rates) -> Platform:
    """Return the present machine with the bandwidth of its memory, which no device states."""
    devices = tuple(replace(device, bandwidth=rates.one) for device in platform.devices)
    memories = list(platform.memories)
    memories[HOST] = replace(memories[HOST], bandwidth=rates.all)
    return replace(platform, devices=devices, memories=tuple(memories))


def observe(case: SimulatedProgram, runtime: cx.Runtime, warm_up: int, runs: int) -> WatchedRuns:
    """Run a program again and again; return what the runs after the warm-up took, by the runtime's clock."""
    turns, count = Turns(case, runtime), KernelAdder(runtime._driver.executor.on_finished)
    runtime._driver.executor.on_finished = count
    try:
        for _ in range(warm_up):
            turns.seconds()
        seconds, parts = [], []
        for _ in range(runs):
            seconds.append(turns.seconds(count.begin))
            parts.append(count.ended())
        middle = [median(column) for column in zip(*parts, strict=True)]
        return WatchedRuns(seconds, *middle)
    finally:
        runtime._driver.executor.on_finished = count.then
        turns.close()


class KernelAdder:
    """Stands in front of a runtime's own account of what is over, and adds up kernels."""

    def __init__(self, then: Callable[[Ran], object]) -> None:
        self.then = then
        self.begin()

    def begin(self) -> None:
        """Begin with nothing."""
        self._kernels, self._busy, self._waited = 0, 0.0, 0.0

    def ended(self) -> tuple[float, float, float]:
        """Return the number of kernels since then, their seconds, and how many of these they waited."""
        return self._kernels, self._busy, self._waited

    def __call__(self, ran: Ran) -> None:
        if type(ran.instruction.step) is Launch:
            self._kernels += 1
            self._busy += ran.stop - ran.start
            self._waited += ran.waited
        self.then(ran)


def figures(case: SimulatedProgram, devices: str, measured: WatchedRuns, simulated: WatchedRuns) -> Data:
    """Return a case's figures; the error is relative to what was measured."""
    real, virtual = median(measured.seconds), median(simulated.seconds)
    return {
        "program": case.name,
        "devices": devices,
        "measured_s": real,
        "simulated_s": virtual,
        "error": virtual / real - 1.0,
        "spread": spread(measured.seconds),
        "best_s": min(measured.seconds),
        "same_parts": measured.kernels == simulated.kernels,  # else the planner has divided something differently
        "kernels": measured.kernels,
        "simulated_kernels": simulated.kernels,
        "kernels_s": measured.busy,
        "simulated_kernels_s": simulated.busy,
        "waited": measured.waited / measured.busy if measured.busy else 0.0,
        "size": case.size,
        "runs": len(measured.seconds),
    }


def spread(seconds: Sequence[float]) -> float:
    """Return by how much runs differ: half of them lie within this part of their median."""
    middle = median(seconds)
    return median(abs(one - middle) for one in seconds) / middle


def shares(simulation: SimulatedBackend) -> dict[str, float]:
    """Return how durations were known: the part of all kernel seconds by source."""
    by: dict[str, float] = {}
    for sources in simulation.sources().values():
        for source, (_, seconds) in sources.items():
            by[source] = by.get(source, 0.0) + seconds
    whole = sum(by.values())
    with suppress(ZeroDivisionError):
        return {source: seconds / whole for source, seconds in by.items()}
    return {}
