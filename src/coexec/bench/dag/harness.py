"""Measure the six programs on each mix of devices, in all three ways, and compare with the limit of each graph.

Before: the programs, schedule.py, the ways, observe/.  After: cli/ through bench.BENCHMARKS.

As in GrCUDA's harness: arrays are allocated once; the host rewrites inputs before each iteration, not timed; time runs
from the first launch until the host has read a result; the first iterations are dropped; medians. The ways take turns,
so that a disturbance of the machine meets all of them. What ran beside what (the four overlap figures and the lanes) is
found in one more iteration, apart from the timed ones, because it writes a trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from ...machine.cores import available_cores
from ...observe.analysis.intervals import Interval
from ...observe.analysis.overlap import overlap
from ...observe.trace import KERNELS, Trace
from ..measure import (
    Data,
    Others,
    Progress,
    bandwidth,
    geometric_mean,
    in_turns,
    machine,
    middle,
    named,
    one_library_thread,
)
from . import black_scholes, dl, hits, img, ml, vec
from .hand import TwoThreads
from .program import Arrays, DagProgram
from .schedule import MeasuredCosts, best_schedule, shortest
from .ways import DagThroughCoexec, DagWay, OneDevice, Plain


def observed(program: DagProgram, devices: str, memory: Mapping[str, str], warm_up: int) -> Data:
    """Return overlap (CT, TC, CC, TOT) and the number of lanes of an iteration after the warm-up."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "trace.json"))
        way = DagThroughCoexec(program, devices, memory, trace=path)
        try:
            for _ in range(warm_up + 1):
                way.prepare()
                way.run()
            way.runtime.wait()
        finally:
            way.close()
        return figures(Trace.load(path), program)


def figures(trace: Trace, program: DagProgram) -> Data:
    """Return the figures of the last iteration in a trace."""
    count = len(program.steps)
    names = {call.kernel.name for call in program.calls()} | {"fill", "set"}
    last = sorted(task["id"] for task in trace.tasks if task["name"] in names)[-count:]
    begin = next(task["submitted"] for task in trace.tasks if task["id"] == last[0])
    rows = [row for row in trace.work if row["start"] >= begin and row["kind"] in {*KERNELS, "copy"}]
    kernels: list[Interval] = [(row["start"], row["stop"]) for row in rows if row["kind"] in KERNELS]
    copies: dict[str, list[Interval]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "copy":
            copies[trace.link(row)].append((row["start"], row["stop"]))
    found = overlap(kernels, copies)
    lanes = {(row["device"], row.get("lane")) for row in rows if row["device"] != "host"}
    return {"overlap": {"CT": found.ct, "TC": found.tc, "CC": found.cc, "TOT": found.tot}, "lanes": len(lanes)}


class Benchmark(NamedTuple):
    """How to make a program, and how large."""

    make: Callable[[int], DagProgram]
    size: int
    quick: int


PROGRAMS: dict[str, Benchmark] = {
    "VEC": Benchmark(vec.make, 60_000_000, 20_000_000),
    "B&S": Benchmark(black_scholes.make, 1_000_000, 400_000),
    "IMG": Benchmark(img.make, 3200, 1600),
    "ML": Benchmark(ml.make, 200_000, 60_000),
    "HITS": Benchmark(hits.make, 1_000_000, 300_000),
    "DL": Benchmark(dl.make, 4000, 2000),
}


@dataclass(frozen=True)
class Mix:
    """Two devices: two cores, or a core and the OpenCL device on the other."""

    devices: str
    memory: str = ""  # of the OpenCL device: own or shared

    @property
    def name(self) -> str:
        """How results call it."""
        return f"{self.devices} {self.memory}".strip()

    @property
    def limits(self) -> Mapping[str, str]:
        """What Runtime(memory=...) is told."""
        return {"opencl:0": self.memory} if self.memory else {}


MIXES = (Mix("cpu:0,cpu:1"), Mix("cpu:0,opencl:0@1", "own"), Mix("cpu:0,opencl:0@1", "shared"))
WARM_UP = 6  # iterations dropped; coexec tries each kernel on each device meanwhile, twice because the first is cold
REPETITIONS, QUICK_REPETITIONS = 11, 5


def run(quick: bool, progress: Progress, only: Sequence[str] = (), devices: Sequence[str] = ()) -> Data:
    """Measure the six GrCUDA programs: one kernel after another, through coexec, and by hand-written host code."""
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    names = named("program", PROGRAMS, only)
    wanted_mixes = named("set of devices", [mix.name for mix in MIXES], devices)
    mixes, off = _usable(tuple(mix for mix in MIXES if mix.name in wanted_mixes))
    others = Others()
    cases: list[Data] = []
    kernels: list[Data] = []
    with one_library_thread():
        for name in names:
            benchmark = PROGRAMS[name]
            program = benchmark.make(benchmark.quick if quick else benchmark.size)
            wanted = program.expected(program.arrays)
            for mix in mixes:
                progress(f"{name} on {mix.name}")
                case = measure(program, wanted, mix, repetitions)
                kernels += case.pop("kernels")
                cases.append(case)
            del program, wanted
        progress("memory bandwidth")
        physical = bandwidth(2_000_000 if quick else 20_000_000)
    per_mix = {mix.name: means([c for c in cases if c["mix"] == mix.name]) for mix in mixes}
    found = {**means(cases), "mixes": per_mix, "cases": cases, "kernels": kernels}
    about = {"others_cores": others.cores(), "bandwidth": physical, "machine": machine()}
    return {**found, **about, "off": off}


def means(cases: list[Data]) -> Data:
    """Return the geometric means over cases."""
    keys = ("speedup", "vs_handwritten", "of_bound")
    return {f"geomean_{key}": geometric_mean(case[key] for case in cases) for key in keys}


def _usable(mixes: tuple[Mix, ...]) -> tuple[list[Mix], dict[str, str]]:
    """Return the mixes that this machine has, and why not the others."""
    off: dict[str, str] = {}
    if len(available_cores()) < 2:
        return [], {mix.name: "needs two cores" for mix in mixes}
    from ...backend.opencl.probe import probe

    found = probe()
    if not any(device.index == 0 and device.type == "cpu" for device in found.devices):
        why = found.unavailable[0].reason if found.unavailable else "opencl:0 is no CPU driver"
        off = {mix.name: why for mix in mixes if mix.memory}
    return [mix for mix in mixes if mix.name not in off], off


def measure(program: DagProgram, wanted: Arrays, mix: Mix, repetitions: int) -> Data:
    """Return one case: a program on a mix of devices."""
    with _one_at_a_time(program, mix) as singles:
        for way in singles.values():
            _iterate({"": way}, 3)
        costs = _costs(program, mix, singles)
        ways: dict[str, DagWay] = {**singles, "hand": _by_hand(program, mix, costs)}
        ways["coexec"] = DagThroughCoexec(program, mix.devices, mix.limits)
        try:
            _iterate(ways, WARM_UP)
            for plain in singles.values():
                for found in plain.seconds.values():
                    found.clear()
            times = _iterate(ways, repetitions)
            wrong = {name: bad for name, way in ways.items() if (bad := program.wrong(way.results(), wanted))}
            if wrong:
                raise AssertionError(f"{program.name} on {mix.name}: wrong results: {wrong}")
            costs = _costs(program, mix, singles)
        finally:
            ways["hand"].close()
            ways["coexec"].close()
    seen = observed(program, mix.devices, mix.limits, WARM_UP)
    return {**_compared(program, mix, times, costs), **seen, "kernels": _kernels(program, mix, costs)}


@contextmanager
def _one_at_a_time(program: DagProgram, mix: Mix) -> Iterator[dict[str, OneDevice]]:
    """Give the synchronous way for each kind of device."""
    found: dict[str, OneDevice] = {"cpu": Plain(program)}
    if mix.memory:
        from .opencl import PlainOpenCL

        found["opencl"] = PlainOpenCL(program, available_cores()[1:2], shared=mix.memory == "shared")
    try:
        yield found
    finally:
        for way in found.values():
            way.close()


def _by_hand(program: DagProgram, mix: Mix, costs: MeasuredCosts) -> DagWay:
    schedule = best_schedule(program, costs)
    cores = available_cores()
    if not mix.memory:
        return TwoThreads(program, schedule, cores[:2])
    from .opencl import ByHandOpenCL

    return ByHandOpenCL(program, schedule, cores[0], cores[1:2], shared=mix.memory == "shared")


def _costs(program: DagProgram, mix: Mix, singles: Mapping[str, OneDevice]) -> MeasuredCosts:
    """Return what the synchronous runs measured of each kernel on each device."""
    seconds = {kind: middle(way.seconds) for kind, way in singles.items()}
    devices = ("cpu", "opencl") if mix.memory else ("cpu:0", "cpu:1")
    moves = singles["opencl"].time_moves() if mix.memory else {}
    kernels = {
        (label, device): seconds[device.partition(":")[0]][label] for label in program.labels() for device in devices
    }
    return MeasuredCosts(kernels, moves, devices)


def _iterate(ways: Mapping[str, DagWay], repetitions: int) -> dict[str, list[float]]:
    """Run every way so many times, in turns; return the seconds of each."""

    def timed(way: DagWay) -> Callable[[], float]:
        def seconds() -> float:
            way.prepare()
            start = perf_counter()
            way.run()
            return perf_counter() - start

        return seconds

    return in_turns({name: timed(way) for name, way in ways.items()}, (repetitions, repetitions))


def _compared(program: DagProgram, mix: Mix, times: Mapping[str, list[float]], costs: MeasuredCosts) -> Data:
    """Return a case's figures. The synchronous time is that of the best single device."""
    medians = middle(times)
    alone = {name: seconds for name, seconds in medians.items() if name in ("cpu", "opencl")}
    best = min(alone, key=alone.__getitem__)
    serial, through, by_hand = alone[best], medians["coexec"], medians["hand"]
    bound = serial / shortest(program, costs)
    return {
        "name": program.name,
        "devices": mix.devices,
        "memory": mix.memory,
        "mix": mix.name,
        "serial_s": serial,
        "serial_device": best,
        "coexec_s": through,
        "handwritten_s": by_hand,
        "speedup": serial / through,
        "vs_handwritten": by_hand / through,
        "bound": bound,
        "of_bound": serial / through / bound,
        "serial_best_s": min(min(times[name]) for name in alone),
        "coexec_best_s": min(times["coexec"]),
        "handwritten_best_s": min(times["hand"]),
    }


def _kernels(program: DagProgram, mix: Mix, costs: MeasuredCosts) -> list[Data]:
    """Return the seconds of each kernel on each device, one at a time: what the bound is made of."""
    return [
        {"name": program.name, "mix": mix.name, "kernel": label}
        | {f"{device}_s": costs.kernels[label, device] for device in costs.devices}
        for label in program.labels()
    ]
