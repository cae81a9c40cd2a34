"""Measure every application in plain NumPy, by hand-written threads, and through coexec on each set of devices.

Before: the applications, ways.py, observe/.  After: cli/ through bench.BENCHMARKS.

1. All ways take turns, round by round, so that a disturbance of the machine meets all of them; figures are medians. Arrays
   are made once and inputs restored before each run, not timed. Hand-written threads are the comparison for every set of
   devices that uses the same cores; NumPy's libraries have all cores, for a set of one core one.
2. What the runtime added to a run is its makespan over that of the same kernels and copies with nothing in between. This
   runs apart from the timed rounds, because it writes a trace.
3. Seconds become figures: ratios of a case, and the cases against the bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...errors import CoexecError
from ...machine.cores import available_cores
from ...observe.cut import cut
from ...observe.trace import COMPUTE, Row, Trace
from ..measure import Data, Others, Progress, bandwidth, geometric_mean, in_turns, machine, named, one_library_thread
from ..split.harness import usable
from ..split.through import store_at
from .app import App
from .ways import AppThroughCoexec, AppWay, ByHand, InNumPy

SPEEDUP, OF_HANDWRITTEN, COST, OF_NUMPY = 1.85, 0.95, 1.05, 1.0
"""The bars: two cores over one, coexec over hand-written, runtime cost of kernels of LONG ms and more, coexec over NumPy."""
LONG = 1.0  # ms
CORES = "cpu:0,cpu:1"


def compared(seconds: Mapping[str, float]) -> Data:
    """Return the seconds of numpy, coexec, hand, hand compiled and alone (coexec on one device) and their ratios; above 1, coexec wins."""
    coexec = seconds["coexec"]
    return {
        "numpy_s": seconds["numpy"],
        "coexec_s": coexec,
        "handwritten_s": seconds["hand"],
        "handwritten_compiled_s": seconds["hand compiled"],
        "speedup": seconds["alone"] / coexec,
        "vs_numpy": seconds["numpy"] / coexec,
        "vs_handwritten": seconds["hand"] / coexec,
        "vs_handwritten_compiled": seconds["hand compiled"] / coexec,
    }


def summary(cases: Sequence[Data]) -> Data:
    """Return the means and worst cases that the bars are about, and the cases that miss one."""
    pairs = [case for case in cases if case["devices"] == CORES]
    long = [case for case in cases if case["kernel_ms"] >= LONG]
    return {
        "geomean_speedup": geometric_mean(case["speedup"] for case in pairs),
        "geomean_vs_handwritten": geometric_mean(case["vs_handwritten"] for case in pairs),
        "geomean_vs_handwritten_compiled": geometric_mean(case["vs_handwritten_compiled"] for case in pairs),
        "geomean_vs_numpy": geometric_mean(case["vs_numpy"] for case in cases),
        "worst_speedup": min((case["speedup"] for case in pairs), default=0.0),
        "worst_vs_handwritten": min((case["vs_handwritten"] for case in pairs), default=0.0),
        "worst_vs_handwritten_compiled": min((case["vs_handwritten_compiled"] for case in pairs), default=0.0),
        "worst_vs_numpy": min((case["vs_numpy"] for case in cases), default=0.0),
        "worst_runtime_cost": max((case["runtime_cost"] for case in long), default=0.0),
        "missed": [
            *_below(pairs, "speedup", SPEEDUP),
            *_below(pairs, "vs_handwritten", OF_HANDWRITTEN),
            *_below(pairs, "vs_handwritten_compiled", OF_HANDWRITTEN),
            *_below(cases, "vs_numpy", OF_NUMPY),
            *_below(long, "runtime_cost", COST, sign=-1),
        ],
    }


def _below(cases: Iterable[Data], key: str, bar: float, sign: int = 1) -> list[Data]:
    """Return who misses a bar; with sign=-1, who is above it."""
    return [
        {"app": case["app"], "devices": case["devices"], "figure": key, "is": case[key], "bar": bar}
        for case in cases
        if sign * case[key] < sign * bar
    ]


WORK = COMPUTE | {"copy"}


def observed(app: App, devices: str, warm_up: int, runs: int) -> Data:
    """Return the runtime's cost in recorded runs after the warm-up, and how long a kernel took; medians over the runs."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "trace.json"))
        way = AppThroughCoexec(app, devices, path)
        try:
            begins = []
            for _ in range(warm_up + runs):
                begins.append(_last_moment(way))
                way.seconds()
            begins.append(_last_moment(way))
        finally:
            way.close()
        trace = Trace.load(path)
    found = [figures(cut(trace, *span)) for span in zip(begins[warm_up:-1], begins[warm_up + 1 :], strict=True)]
    return {key: median(one[key] for one in found) for key in found[0]}


def _last_moment(way: AppThroughCoexec) -> float:
    """Return the present in the trace's time."""
    recorder = way.runtime._driver.recorder
    return recorder._since(recorder.clock())


def figures(trace: Trace) -> Data:
    """Return the cost of one recorded run, with a kernel's wait for the interpreter lock as part of it and without."""
    rows = [row for row in trace.work if row["kind"] in WORK]
    kernels = [row["stop"] - row["start"] for row in rows if row["kind"] == "kernel"]
    inside = {row.get("task") for row in rows}
    begin = min((task["submitted"] for task in trace.tasks if task["id"] in inside), default=0.0)
    makespan = max((row["stop"] for row in rows), default=begin) - begin
    return {
        "runtime_cost": makespan / (shortest(trace) or makespan or 1.0),
        "runtime_cost_with_gil": makespan / (shortest(trace, gil=False) or makespan or 1.0),
        "kernel_ms": median(kernels or [0.0]) * 1e3,
    }


def shortest(trace: Trace, *, gil: bool = True) -> float:
    """Return the makespan of a run's kernels and copies alone: same places, same order, nothing between them.

    Each begins when what it needs is over, when its lane is free and, for kernels, when every earlier kernel of its device
    is over that it did not overlap with. `gil=False` takes the time out that kernels waited for the interpreter lock.
    """
    ends: dict[int, float] = {}
    lanes: dict[tuple[str, int], float] = {}
    devices: dict[str, list[tuple[float, float]]] = {}  # (recorded stop, end here) of each kernel
    for row in trace.work:
        if row["kind"] not in WORK:
            continue
        lane = (row["device"], row.get("lane") or 0)
        start = max(lanes.get(lane, 0.0), _ready(trace, row["id"], ends))
        if row["kind"] in COMPUTE:
            before = devices.setdefault(row["device"], [])
            start = max(start, max((end for stop, end in before if stop <= row["start"]), default=0.0))
        end = start + _duration(row, gil)
        if row["kind"] in COMPUTE:
            before.append((row["stop"], end))
        ends[row["id"]] = lanes[lane] = end
    return max(ends.values(), default=0.0)


def _duration(row: Row, gil: bool) -> float:
    lost = 0.0 if gil else row.get("waited") or 0.0
    return float(max(0.0, row["stop"] - row["start"] - lost))


def _ready(trace: Trace, id: int, ends: dict[int, float]) -> float:
    """Return when all that an instruction needs is over; what takes no time here (an allocation) passes on what it needs."""
    seen: set[int] = set()
    open = list(trace.dependencies(id))
    latest = 0.0
    while open:
        other = open.pop()
        if other in ends:
            latest = max(latest, ends[other])
        elif other not in seen:
            seen.add(other)
            open.extend(trace.dependencies(other))
    return latest


APPS = ("wave_sim", "nbody", "rsim", "black_scholes", "kmeans", "cholesky", "cg")
"""Modules of this package, each with make(quick)."""
DEVICES = ("cpu:0", "cpu:0,cpu:1", "cpu:0,opencl:0@1")


class AppEffort(NamedTuple):
    """How long to measure."""

    seconds: float  # per application, within the bounds of rounds
    rounds: tuple[int, int]
    warm_up: int  # runs through coexec that are dropped: it learns meanwhile
    recorded: int  # runs with a trace


THOROUGH = AppEffort(20.0, (5, 11), 4, 3)
BRIEF = AppEffort(0.0, (2, 2), 1, 1)


def run(quick: bool, progress: Progress, only: Sequence[str] = (), devices: Sequence[str] = ()) -> Data:
    """Measure the applications of examples/: plain NumPy, hand-written threads, and coexec on one and two devices."""
    names = named("application", APPS, only)
    sets, off = usable(named("set of devices", DEVICES, devices))
    others = Others()
    cases: list[Data] = []
    with one_library_thread(), TemporaryDirectory() as folder, store_at(str(Path(folder) / "store.sqlite")):
        for name in names:
            progress(f"{name}: preparing")
            app = import_module(f".{name}", __package__).make(quick)
            found, without = measure(app, sets, BRIEF if quick else THOROUGH, progress)
            cases += found
            off |= without
            del app
        progress("memory bandwidth")
        physical = bandwidth(2_000_000 if quick else 20_000_000)
    for case in cases:
        case["triad_gb_per_s"] = physical.get(f"threads_{_cores(case['devices'])}_GB_per_s")
    return {
        **summary(cases),
        "cases": cases,
        "others_cores": others.cores(),
        "bandwidth": physical,
        "machine": machine(),
        "off": off,
    }


def _cores(devices: str) -> int:
    return len(devices.split(","))


def measure(
    app: App, devices: Sequence[str], effort: AppEffort, progress: Progress
) -> tuple[list[Data], dict[str, str]]:
    """Return a case per set of devices, and which devices cannot run the application alone and why."""
    progress(f"{app.name}: {app.size}")
    off: dict[str, str] = {}
    with _ways(app, devices) as ways:
        for name in list(ways):
            try:
                for _ in range(1 if isinstance(ways[name], InNumPy) else effort.warm_up):
                    ways[name].seconds()
            except CoexecError as error:  # a kernel without a variant for it, say
                if name in devices or not isinstance(ways[name], AppThroughCoexec):
                    raise
                off[f"{app.name} on {name} alone"] = str(error)
                del ways[name]  # closed with the others
        times = in_turns({name: way.seconds for name, way in ways.items()}, effort.rounds, effort.seconds)
        _check(app, ways)
    cases = []
    for chosen in devices:
        progress(f"{app.name}: what the runtime costs on {chosen}")
        seen = observed(app, chosen, effort.warm_up, effort.recorded)
        cases.append(case(app, chosen, times, seen))
    return cases, off


@contextmanager
def _ways(app: App, devices: Sequence[str]) -> Iterator[dict[str, AppWay]]:
    """Give every way to run an application, by name: numpy, hand 1, hand 1 compiled, each set of devices, each device alone."""
    cores = available_cores()
    with ExitStack() as stack:
        ways: dict[str, AppWay] = {"numpy": InNumPy(app, len(cores))}
        if app.libraries and any(_cores(chosen) == 1 for chosen in devices):
            ways["numpy 1"] = InNumPy(app, 1)
        for count in sorted({_cores(chosen) for chosen in devices}):
            for name, compiled in ((f"hand {count}", False), (f"hand {count} compiled", True)):
                ways[name] = ByHand(app, cores[:count], compiled=compiled)
                stack.callback(ways[name].close)
        alone = [single for chosen in devices for single in _singles(chosen)]
        for chosen in dict.fromkeys([*devices, *alone]):
            ways[chosen] = AppThroughCoexec(app, chosen)
            stack.callback(ways[chosen].close)
        yield ways


def _singles(devices: str) -> list[str]:
    """Return the devices of a set, each alone. Cores are alike: the first stands for all."""
    return ["cpu:0" if single.startswith("cpu:") else single for single in devices.split(",")]


def _check(app: App, ways: dict[str, AppWay]) -> None:
    """Raise unless all ways gave the results of plain NumPy, up to rounding."""
    wanted = ways["numpy"].results
    wrong = {name: bad for name, way in ways.items() if (bad := app.wrong(way.results, wanted))}
    if wrong:
        raise AssertionError(f"{app.name}: wrong results (by number): {wrong}")


def case(app: App, devices: str, times: dict[str, list[float]], seen: Data) -> Data:
    """Return the figures of an application on some devices. The speedup is against the best of them alone."""
    count, coexec = _cores(devices), times[devices]
    hand, plain = times[f"hand {count}"], times.get(f"numpy {count}", times["numpy"])
    alone = {single: median(times[single]) for single in _singles(devices) if single in times}
    best = min(alone, key=alone.__getitem__)
    by_forms = times[f"hand {count} compiled"]
    seconds = {"numpy": median(plain), "coexec": median(coexec), "hand": median(hand), "alone": alone[best]}
    seconds["hand compiled"] = median(by_forms)
    return {
        "app": app.name,
        "devices": devices,
        **compared(seconds),
        "gb_per_s": app.nbytes / seconds["coexec"] / 1e9,
        **seen,
        "size": app.size,
        "best_alone": best,
        "best_s": {
            "numpy": min(plain),
            "coexec": min(coexec),
            "handwritten": min(hand),
            "handwritten_compiled": min(by_forms),
        },
        "rounds": len(hand),
    }
