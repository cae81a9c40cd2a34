"""How large a machine may be: strong scaling of wave_sim on 1 to 128 simulated GPUs, and how fast that is simulated.

Before: backend/simulated/, apps/programs.py.  After: harness.py.

Wall seconds are those of the whole simulation: platform, program, graphs, plans, lowering or replay, engine and simulated
devices. Instructions are all that were lowered: kernels, copies, fills, sends and receives, allocations, horizons. Virtual
seconds are those of the program from its first array to its last wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ...backend.simulated import Costs
from ...backend.simulated.collecting import rarely_collecting
from ...calibrate.costs import measured_costs
from ...machine.platform import Platform
from ...machine.what_if import what_if
from ...observe.pictures.scaling import scaling_svg
from ...ranked import Ranks
from ..apps.programs import load
from ..measure import Data, Others, Progress, one_library_thread

PLATFORM = "a100x128"
SIDE = 65_536  # two arrays of 17 GB, which just fit into one GPU
GPUS = (1, 2, 4, 8, 16, 32, 64, 128)
STEPS = 300
QUICK_GPUS, QUICK_STEPS = (1, 4, 16, 128), 100
MILLION = 1_000_000
PER_NODE = 4
SETTLE, COUNTED_STEPS = 30, 30  # steps before plans have settled, and steps that count, with costs as measured
COUNTED = """instructions_per_s: all instructions over all wall seconds of the longest simulation in one process: the million, \
or the largest case if quick. seconds_128: of the slower one of the two simulations of the largest case."""


class SimulationRun(NamedTuple):
    """What one simulation gave."""

    virtual: float
    instructions: int
    wall: float

    def data(self, alone: float) -> Data:
        """Return the figures as JSON-ready data, without the number of devices."""
        return {
            "virtual_s": self.virtual,
            "speedup": alone / self.virtual,
            "instructions": self.instructions,
            "wall_s": self.wall,
            "instructions_per_s": self.instructions / self.wall,
        }


def measure(quick: bool, progress: Progress) -> Data:
    """Return strong scaling, with one process for each node and with one for all of them, and the simulator's speed."""
    numbers, steps = (QUICK_GPUS, QUICK_STEPS) if quick else (GPUS, STEPS)
    cases: list[Data] = []
    others = Others()
    with rarely_collecting():
        for gpus in numbers:
            progress(f"wave_sim on {gpus} simulated GPUs")
            nodes, one = simulated(gpus, steps, ranks=0), simulated(gpus, steps, ranks=1)
            cases.append({"gpus": gpus, **_figures(gpus, nodes, cases), "one_process": _figures(gpus, one, cases)})
        largest = cases[-1]
        with one_library_thread():
            costs = measured_costs()
        measured = as_measured(largest["gpus"], costs)
        longest = largest["one_process"]
        if not quick:
            progress("a million instructions")
            longest = million()
    return {
        "program": f"wave_sim, {SIDE} x {SIDE} points in float32, {steps} steps",
        "platform": PLATFORM,
        "cases": cases,
        "instructions_per_s": longest["instructions_per_s"],
        "counted": COUNTED,
        "measured": {**costs._asdict(), **measured},
        "seconds_128": max(largest["wall_s"], largest["one_process"]["wall_s"]),
        **({} if quick else {"million": longest}),
        "others_cores": others.cores(),
    }


def as_measured(gpus: int, costs: Costs) -> Data:
    """Return the efficiency of a step on so many GPUs, a process per node, where scheduling has these costs.

    `whole` has one part per GPU, as the program says; `in_two` cuts each part again (`oversubscribe=2`), so that edges travel
    while the other half computes.
    """
    alone = step_seconds(1, costs)
    found: Data = {"gpus": gpus}
    for name, pieces in (("whole", 1), ("in_two", 2)):
        step = step_seconds(gpus, costs, pieces)
        found[name] = {"step_s": step, "efficiency": alone / (gpus * step)}
    return found


def step_seconds(gpus: int, costs: Costs, pieces: int = 1) -> float:
    """Return the virtual seconds of a step when plans have settled; each GPU's part is cut into `pieces`."""
    with opened(gpus, ranks=0) as runtime:
        way = runtime._way
        for member in way.members if isinstance(way, Ranks) else (way,):
            member.machine.lanes["host"].costs = costs
        example: Any = load("wave_sim")
        step = example.step.using(oversubscribe=pieces)
        before, now = _start()
        begin = 0.0
        for number in range(SETTLE + COUNTED_STEPS):
            if number == SETTLE:
                cx.wait()
                begin = _virtual(runtime)
            step(now, before, example.SPEED)
            before, now = now, before
        cx.wait()
        return (_virtual(runtime) - begin) / COUNTED_STEPS


def _figures(gpus: int, ran: SimulationRun, cases: list[Data]) -> Data:
    data = ran.data(cases[0]["virtual_s"] if cases else ran.virtual)
    return {**data, "efficiency": data["speedup"] / gpus}


def million(gpus: int = GPUS[-1], instructions: int = MILLION) -> Data:
    """Return how long a simulation of at least so many instructions takes, in one process."""
    begin = perf_counter()
    with opened(gpus, ranks=1) as runtime:
        example = load("wave_sim")
        before, now = _start()
        steps = 0
        while runtime.instructions < instructions:
            before, now = example.compute(before, now, 2)
            steps += 2
            cx.flush()  # or calls wait until devices need them, and their instructions are not counted yet
        cx.wait()
        virtual, count = _virtual(runtime), runtime.instructions
    wall = perf_counter() - begin
    return {"gpus": gpus, "steps": steps, **SimulationRun(virtual, count, wall).data(virtual)}


def simulated(gpus: int, steps: int, *, ranks: int) -> SimulationRun:
    """Simulate wave_sim on some of the GPUs; `ranks` is 0 for one process on each node, and 1 for one in all."""
    begin = perf_counter()
    with opened(gpus, ranks=ranks) as runtime:
        load("wave_sim").compute(*_start(), steps)
        cx.wait()
        virtual, instructions = _virtual(runtime), runtime.instructions
    return SimulationRun(virtual, instructions, perf_counter() - begin)


@contextmanager
def opened(gpus: int, *, ranks: int) -> Iterator[cx.Runtime]:
    """Open a runtime on the first GPUs of the cluster, on as few nodes as have them."""
    nodes = -(-gpus // PER_NODE)
    platform = what_if(Platform.load(PLATFORM), f"nodes {nodes}")
    names = [device.name for device in platform.devices if device.kind == "gpu"][:gpus]
    ranks = ranks if nodes > 1 else 1
    with cx.Runtime(",".join(names), platform=platform, ranks=ranks, store="off", diagnostics="off") as runtime:
        yield runtime


def _start() -> tuple[cx.Array, cx.Array]:
    return cx.zeros((SIDE, SIDE), np.float32), cx.zeros((SIDE, SIDE), np.float32)


def _virtual(runtime: cx.Runtime) -> float:
    seconds: float = runtime.machine.lanes["host"].clock()
    return seconds


def picture(result: Data) -> str:
    """Return strong scaling as SVG: with one process for each node, and with one for all of them."""
    scale = result["scale"]
    cases = scale["cases"]
    most = cases[-1]["gpus"]
    ways = {
        "one process for each node of four GPUs": cases,
        "one process for all GPUs": [{"gpus": case["gpus"], **case["one_process"]} for case in cases],
    }
    sweeps = [
        {"what": "devices", "name": f"Strong scaling, {name}", "points": _points(of)} for name, of in ways.items()
    ]
    return scaling_svg(sweeps, f"wave_sim on up to {most} simulated GPUs ({scale['platform']})")


def _points(cases: list[Data]) -> list[Data]:
    return [
        {
            "devices": case["gpus"],
            "value": f"{case['gpus']} GPUs",
            "seconds": case["virtual_s"],
            "speed_up": case["speedup"],
            "efficiency": case["efficiency"],
            "joules": None,
            "longest": f"{case['instructions']:,} instructions",
        }
        for case in cases
    ]
