"""Every program that is run for real and simulated: all of examples/, and the six of the dag benchmark.

Before: bench/apps/, bench/dag/, examples/.  After: validation.py.  Knows sizes; neither devices nor time.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ..apps.app import Array
from ..apps.harness import APPS
from ..apps.programs import load
from ..dag.harness import PROGRAMS
from ..dag.program import KernelCall
from ..measure import current

Arrays = tuple[Array, ...]


class SimulatedProgram(NamedTuple):
    """A program: its arrays, and what to call."""

    name: str
    size: str  # for the reader
    inputs: Arrays  # first contents of all arrays
    rewritten: tuple[int, ...]  # those that a run changes and needs again as they were
    compute: Callable[..., Any]  # (*coexec arrays): returns results, or what the program has read
    values: bool = False  # its control flow needs values, or it reads some


class Turns:
    """A program on a runtime, again and again on the same arrays: what it changed is restored before each run, not timed."""

    def __init__(self, case: SimulatedProgram, runtime: cx.Runtime) -> None:
        self._case, self._runtime = case, runtime
        with current(runtime):
            self._arrays = tuple(cx.array(given) for given in case.inputs)
            runtime.wait()

    def seconds(self, prepared: Callable[[], None] | None = None) -> float:
        """Run once; return how long that took by the runtime's clock, be it real or virtual. `prepared` is called before."""
        case, runtime = self._case, self._runtime
        clock = runtime.machine.lanes["host"].clock
        with current(runtime):
            for number in case.rewritten:
                self._arrays[number][...] = case.inputs[number]
            runtime.wait()
            if prepared is not None:
                prepared()
            start = clock()
            results = case.compute(*self._arrays)
            runtime.wait()
            took = clock() - start
            del results
        return float(took)

    def close(self) -> None:
        """Drop the arrays."""
        self._arrays = ()


def cases(*, small: bool = False) -> dict[str, Callable[[], SimulatedProgram]]:
    """Return how to make each program, by name; small ones are for tests, and take no time that could be compared."""
    found: dict[str, Callable[[], SimulatedProgram]] = {name: lambda name=name: _app(name, small) for name in APPS}  # type: ignore[misc]
    found |= {name: lambda make=make: make(small) for name, make in OTHERS.items()}  # type: ignore[misc]
    return found | {f"dag {name}": lambda name=name: _dag(name, small) for name in PROGRAMS}


def _app(name: str, small: bool) -> SimulatedProgram:
    app = import_module(f"coexec.bench.apps.{name}").make(small)
    return SimulatedProgram(name, app.size, app.inputs, app.rewritten, app.coexec, values=name == "cg")


def _dag(name: str, small: bool) -> SimulatedProgram:
    benchmark = PROGRAMS[name]
    size = benchmark.quick // 10 if small else benchmark.quick
    program = benchmark.make(size)
    names = list(program.arrays)

    def compute(*given: Any) -> list[float]:
        arrays = dict(zip(names, given, strict=True))
        for step in program.steps:
            if isinstance(step, KernelCall):
                step.kernel(*step.bind(arrays))
            else:
                arrays[step.array][...] = step.value
        return [float(arrays[name][index]) for name, index in program.reads]

    rewritten = tuple(names.index(changed) for changed in program.rewritten)
    return SimulatedProgram(f"dag {name}", f"{size:,}", tuple(program.arrays.values()), rewritten, compute, values=True)


# Examples that are no application of the benchmark `apps` -----------------------------------------------------------------


def _heat(small: bool) -> SimulatedProgram:
    side, steps = (120, 4) if small else (1600, 20)
    example: Any = load("heat")
    size = f"{side} x {side}, {steps} steps"
    return SimulatedProgram("heat", size, example.start(side), (0, 1), lambda u, v: example.compute(u, v, steps))


def _image(small: bool) -> SimulatedProgram:
    side = 150 if small else 1600
    example: Any = load("image")
    return SimulatedProgram("image", f"{side} x {side}", example.start(side), (), example.compute)


def _monte_carlo(small: bool) -> SimulatedProgram:
    paths, dates = (20_000, 4) if small else (400_000, 16)
    example: Any = load("monte_carlo")
    size = f"{paths:,} paths, {dates} dates"
    return SimulatedProgram(
        "monte_carlo", size, example.start(paths), (0, 2), lambda *arrays: example.compute(*arrays, dates=dates)
    )


def _matmul(small: bool) -> SimulatedProgram:
    side = 200 if small else 1536
    left, right = np.random.default_rng(1).random((2, side, side), dtype=np.float32)
    inputs = left, right, np.empty_like(left)
    return SimulatedProgram("matmul_everywhere", f"{side} x {side}", inputs, (), cx.matmul)


OTHERS: dict[str, Callable[[bool], SimulatedProgram]] = {
    "heat": _heat,
    "image": _image,
    "monte_carlo": _monte_carlo,
    "matmul_everywhere": _matmul,
}
