"""How far ranks carry, simulated: strong and weak scaling of four applications on up to 1,024 nodes with a GPU each.

Before: backend/simulated/, apps/programs.py.  After: harness.py.  Virtual seconds of a step, after a few that do not count.

Strong scaling divides one problem among ranks; weak scaling gives each rank as much to do as one has alone. Where work grows
with the square of a size (n-body, RSim) the size grows with the square root of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ...backend.simulated.collecting import rarely_collecting
from ...machine.platform import Platform
from ...machine.what_if import what_if
from ...observe.pictures.scaling import scaling_svg
from ..apps.programs import load
from ..measure import Data, Progress

PLATFORM = "a100x128"
RANKS = (1, 4, 16, 64, 256, 1024)
QUICK, USUAL = 3, 4  # how many of them are simulated with --quick, and without --full: 1,024 ranks take many minutes
WARM, STEPS = 4, 6
"""Steps before time counts, for plans and first copies, and steps that count."""


class Scaled(NamedTuple):
    """One application: how to make its state for a number of ranks' worth of work, and how to go some steps."""

    about: str
    start: Callable[[int], Any]  # (how much more work than one rank has): arrays
    go: Callable[[Any, int], Any]  # (arrays, steps): the arrays for the next ones


def _wave(more: int) -> Any:
    shape = (16_384 * more, 16_384)
    return cx.zeros(shape, np.float32), cx.zeros(shape, np.float32)


def _bodies(more: int) -> Any:
    count = 32_768 * isqrt(more)
    return cx.zeros((count, 3)), cx.zeros((count, 3)), cx.zeros((count, 3)), cx.zeros(count)


def _walls(more: int) -> Any:
    count = 8_192 * isqrt(more)
    return cx.zeros((count, count)), cx.zeros((count, count), np.intp), cx.zeros((1 + WARM + STEPS, count)), [1]


def _membrane(more: int) -> Any:
    shape = (8_192 * more, 8_192)
    return [cx.zeros(shape) for _ in range(4)], [cx.zeros(()) for _ in range(3)]


def _go_wave(arrays: Any, steps: int) -> Any:
    return load("wave_sim").compute(*arrays, steps)


def _go_bodies(arrays: Any, steps: int) -> Any:
    place, next, speed, mass = arrays
    load("nbody").compute(place, next, speed, mass, steps)
    return (place, next, speed, mass) if steps % 2 == 0 else (next, place, speed, mass)


def _go_walls(arrays: Any, steps: int) -> Any:
    form, when, history, row = arrays
    for t in range(row[0], row[0] + steps):
        load("rsim").bounce(form, when, history[:t], history[t])
    return form, when, history, [row[0] + steps]


def _go_membrane(arrays: Any, steps: int) -> Any:
    (x, r, p, q), (pq, rr, new) = arrays
    example: Any = load("cg")
    for _ in range(steps):
        example.apply(p, q, pq)
        length = example.advance(p, q, pq, rr, x, r, new)
        example.turn(r, p, new, rr)
        length.result()  # the test for convergence: the program waits for this number, and `turn` runs on
        rr, new = new, rr
    return (x, r, p, q), (pq, rr, new)


APPS: dict[str, Scaled] = {
    "wave_sim": Scaled("16,384 x 16,384 points in float32", _wave, _go_wave),
    "nbody": Scaled("32,768 bodies", _bodies, _go_bodies),
    "rsim": Scaled("8,192 patches of wall", _walls, _go_walls),
    "cg": Scaled("8,192 x 8,192 points", _membrane, _go_membrane),
}
"""By name; sizes are those of one rank in weak scaling. Strong scaling divides SIZE times as much."""
SIZE = 4
"""How much more work strong scaling has than one rank of weak scaling: arrays that fill a good part of one GPU."""


def measure(progress: Progress, *, quick: bool, full: bool) -> Data:
    """Return strong and weak scaling of every application."""
    numbers = RANKS[:QUICK] if quick else RANKS if full else RANKS[:USUAL]
    begin = perf_counter()
    cases = []
    with rarely_collecting():
        for name in APPS:
            for kind in ("strong", "weak"):
                progress(f"{name} on up to {numbers[-1]} simulated ranks, {kind} scaling")
                cases.append({"app": name, "kind": kind, "points": points(name, kind, numbers)})
    return {"platform": f"{PLATFORM}, one GPU of each node", "cases": cases, "wall_s": perf_counter() - begin}


def points(name: str, kind: str, numbers: Sequence[int]) -> list[Data]:
    """Return the virtual seconds of a step for each number of ranks, and what that is beside the first of them."""
    found: list[Data] = []
    for ranks in numbers:
        step = seconds(name, SIZE if kind == "strong" else ranks, ranks)
        first = found[0]["step_s"] * found[0]["ranks"] if found else step * ranks
        share = first / (step * ranks) if kind == "strong" else first / numbers[0] / step
        found.append({"ranks": ranks, "step_s": step, "speed_up": share * ranks, "efficiency": share})
    return found


def seconds(name: str, more: int, ranks: int) -> float:
    """Return the virtual seconds of one step of an application, with so much more work than one rank has."""
    app = APPS[name]
    platform = what_if(Platform.load(PLATFORM), f"nodes {ranks}")
    devices = [device.name for device in platform.devices if device.kind == "gpu" and device.name.endswith("gpu:0")]
    together = 0 if ranks > 1 else 1
    with cx.Runtime(",".join(devices), platform=platform, ranks=together, store="off", diagnostics="off") as runtime:
        arrays = app.go(app.start(more), WARM)
        cx.wait()
        clock = runtime.machine.lanes["host"].clock
        begin = clock()
        app.go(arrays, STEPS)
        cx.wait()
        took = clock() - begin
    return float(took) / STEPS


def picture(result: Data) -> str:
    """Return all sweeps as SVG: speed-up over the number of ranks, beside the ideal."""
    scaling = result["scaling"]
    sweeps = [
        {
            "what": "nodes",
            "name": f"{case['app']}, {case['kind']} scaling",
            "points": [
                {
                    "devices": point["ranks"],
                    "value": f"{point['ranks']} ranks",
                    "seconds": point["step_s"],
                    "speed_up": point["speed_up"],
                    "efficiency": point["efficiency"],
                    "joules": None,
                    "longest": "one step",
                }
                for point in case["points"]
            ],
        }
        for case in scaling["cases"]
    ]
    return scaling_svg(sweeps, f"Simulated ranks ({scaling['platform']})")
