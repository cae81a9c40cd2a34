"""Measure every application in plain NumPy, by hand-written threads, and through coexec on each set of devices.

Before: the applications, ways.py, cost.py.  After: cli/ through bench.BENCHMARKS.

All ways take turns, round by round, so that a disturbance of the machine meets all of them; figures are medians. Arrays
are made once and inputs restored before each run, not timed. Hand-written threads are the comparison for every set of
devices that uses the same cores; NumPy's libraries have all cores, for a set of one core one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...errors import CoexecError
from ...machine.cores import available_cores
from ..measure import Data, Others, Progress, bandwidth, in_turns, machine, named, one_library_thread
from ..split.harness import usable
from ..split.through import store_at
from .app import App
from .cost import observed
from .figures import compared, summary
from .ways import ByHand, InNumPy, Through, Way

APPS = ("wave_sim", "nbody", "rsim", "black_scholes", "kmeans", "cholesky", "cg")
"""Modules of this package, each with make(quick)."""
DEVICES = ("cpu:0", "cpu:0,cpu:1", "cpu:0,opencl:0@1")


class Effort(NamedTuple):
    """How long to measure."""

    seconds: float  # per application, within the bounds of rounds
    rounds: tuple[int, int]
    warm_up: int  # runs through coexec that are dropped: it learns meanwhile
    recorded: int  # runs with a trace


THOROUGH = Effort(20.0, (5, 11), 4, 3)
BRIEF = Effort(0.0, (2, 2), 1, 1)


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


def measure(app: App, devices: Sequence[str], effort: Effort, progress: Progress) -> tuple[list[Data], dict[str, str]]:
    """Return a case per set of devices, and which devices cannot run the application alone and why."""
    progress(f"{app.name}: {app.size}")
    off: dict[str, str] = {}
    with _ways(app, devices) as ways:
        for name in list(ways):
            try:
                for _ in range(effort.warm_up if isinstance(ways[name], Through) else 1):
                    ways[name].seconds()
            except CoexecError as error:  # a kernel without a variant for it, say
                if name in devices or not isinstance(ways[name], Through):
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
def _ways(app: App, devices: Sequence[str]) -> Iterator[dict[str, Way]]:
    """Give every way to run an application, by name: numpy, hand 1, hand 2, each set of devices, each device alone."""
    cores = available_cores()
    with ExitStack() as stack:
        ways: dict[str, Way] = {"numpy": InNumPy(app, len(cores))}
        if app.libraries and any(_cores(chosen) == 1 for chosen in devices):
            ways["numpy 1"] = InNumPy(app, 1)
        for count in sorted({_cores(chosen) for chosen in devices}):
            ways[f"hand {count}"] = ByHand(app, cores[:count])
            stack.callback(ways[f"hand {count}"].close)
        alone = [single for chosen in devices for single in _singles(chosen)]
        for chosen in dict.fromkeys([*devices, *alone]):
            ways[chosen] = Through(app, chosen)
            stack.callback(ways[chosen].close)
        yield ways


def _singles(devices: str) -> list[str]:
    """Return the devices of a set, each alone. Cores are alike: the first stands for all."""
    return ["cpu:0" if single.startswith("cpu:") else single for single in devices.split(",")]


def _check(app: App, ways: dict[str, Way]) -> None:
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
    seconds = {"numpy": median(plain), "coexec": median(coexec), "hand": median(hand), "alone": alone[best]}
    return {
        "app": app.name,
        "devices": devices,
        **compared(seconds),
        "gb_per_s": app.nbytes / seconds["coexec"] / 1e9,
        **seen,
        "size": app.size,
        "best_alone": best,
        "best_s": {"numpy": min(plain), "coexec": min(coexec), "handwritten": min(hand)},
        "rounds": len(hand),
    }
