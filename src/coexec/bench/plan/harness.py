"""Compare all devices with the best choice among them: steady turns and whole runs, simulated, everything paid.

Before: exact.py, changing.py, backend/simulated/.  After: bench/__init__.py.

A run has TURNS turns, from arrays in the host's memory until everything is over; then come STEADY more turns, whose mean is
the period. Each case runs with all devices and with every set of them that is looked at (one of each class, each class, every
union of classes: devices of a class are alike, so one of them stands for each), by the same planner on the same virtual clock,
which is charged for planning. A ratio is the best set's time over that of all devices: 1 and more is what is promised.
The best set is another one than all devices, so that more than 1 tells what these bring.
A run is told how often its turn comes if the turn is a `cx.record(times=TURNS)`; it is compared with the best of all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import coexec as cx

from ...backend.simulated.collecting import rarely_collecting
from ...errors import CoexecError, ConfigError
from ...machine.platform import Device, Platform
from ..measure import Data, Progress
from . import changing, exact
from .program import ArrayMaker, SizedProgram


def classes(platform: Platform) -> list[list[str]]:
    """Return the names of devices that are alike, class by class."""
    found: dict[object, list[str]] = {}
    for device in platform.devices:
        found.setdefault(_alike(device), []).append(device.name)
    return list(found.values())


def _alike(device: Device) -> object:
    return (device.kind, device.speed, device.wide, device.flops, device.rates, device.bandwidth, device.ops)


def sets(platform: Platform) -> list[tuple[str, ...]]:
    """Return the sets, each once; all devices are the last of them."""
    groups = classes(platform)
    found: list[tuple[str, ...]] = [(group[0],) for group in groups]
    for count in range(1, len(groups) + 1):
        found += [tuple(name for group in chosen for name in group) for chosen in combinations(groups, count)]
    return list(dict.fromkeys(found))


TURNS = 30  # of a run, everything paid
AGAIN = 2  # turns that do not count: what the run has left is freed
STEADY = 20  # turns, whose mean is the period
PLATFORMS = ("workstation", "a100x4", "mi210x8", "laptop", "edge-soc")
QUICK = ("workstation", "a100x4")
QUICK_PROGRAMS = frozenset({"chain", "wave_sim", "matmul", "unlike", "reads", "branch"})


class VirtualRun(NamedTuple):
    """What a run of a program took, in virtual seconds."""

    whole: float  # TURNS turns, from arrays in the host's memory
    period: float  # of one turn afterwards
    planning: Data  # what planning took, and looked at


def run(quick: bool, progress: Progress, only: Sequence[str] = ()) -> Data:
    """Adding a device never costs: all devices of simulated machines against the best choice among them.

    With `only`, of cases whose platform, program and size have all of its words.
    """
    found: list[Data] = []
    with rarely_collecting():
        for name in QUICK if quick else PLATFORMS:
            platform = Platform.load(name)
            for program in chain(exact.programs(quick=quick), changing.programs(quick=quick)):
                if quick and program.name not in QUICK_PROGRAMS:
                    continue
                if not is_named(only, name, program):
                    continue
                progress(f"{program.name} {program.size} on {name}")
                case = compare(platform, program)
                if case is not None:
                    found.append(case)
    if only and not found:
        raise ConfigError(f"no case has all words of {' '.join(only)!r}; cases are called as `workstation matmul 4096`")
    return summary(found)


def is_named(only: Sequence[str], platform: str, program: SizedProgram) -> bool:
    """Tell whether all words are in what a case is called."""
    called = f"{platform} {program.name} {program.size}".split()
    return all(word in called for word in only)


def compare(platform: Platform, program: SizedProgram) -> Data | None:
    """Return the figures of one case; None if no device of the platform can run the program."""
    choices = sets(platform)
    everything = tuple(device.name for device in platform.devices)
    ran: dict[tuple[str, ...], VirtualRun] = {}
    for chosen in [*choices, everything]:
        if frozenset(chosen) not in {frozenset(done) for done in ran}:
            try:
                ran[chosen] = simulated(platform, chosen, program)
            except CoexecError:
                continue  # a set that cannot run it is no choice
    ours = next((r for chosen, r in ran.items() if set(chosen) == set(everything)), None)
    if ours is None:
        return None
    others = [chosen for chosen in ran if set(chosen) != set(everything)] or list(
        ran
    )  # all devices say nothing of themselves
    best = min(others, key=lambda chosen: ran[chosen].period)
    whole = min(r.whole for r in ran.values())
    told = {chosen: told_run(platform, chosen, program) for chosen in ran}
    ours_told = next(seconds for chosen, seconds in told.items() if set(chosen) == set(everything))
    return {
        "platform": platform.name,
        "program": program.name,
        "size": program.size,
        "exact": program.exact,
        "period_s": ours.period,
        "best_set": named(best, platform),
        "best_set_s": ran[best].period,
        "ratio": ran[best].period / ours.period,
        "whole_run_s": ours.whole,
        "whole_run_ratio": whole / ours.whole,
        "told_s": ours_told,
        "told_ratio": min(whole, *told.values()) / ours_told,
        **ours.planning,
        "of_bound": _of(ours.planning.get("bound_s"), ours.period),
    }


def _of(bound: float | None, period: float) -> float | None:
    return None if bound is None else bound / period


def opened(platform: Platform, devices: Sequence[str]) -> cx.Runtime:
    """Return a runtime on some devices of a platform."""
    return cx.Runtime(",".join(devices), platform=platform, store="off", diagnostics="off")


def told_run(platform: Platform, devices: Sequence[str], program: SizedProgram) -> float:
    """Return the seconds of a run on some devices of a program that says how often its turn comes."""
    with opened(platform, devices) as runtime:
        clock: Callable[[], float] = runtime.machine.lanes["host"].clock
        turn, step = program.make(ArrayMaker(runtime._driver)), cx.record(times=TURNS)
        begin = clock()
        for number in range(TURNS):
            with step:
                turn(number)
        _end(runtime)
        return clock() - begin


def _end(runtime: cx.Runtime) -> None:
    """Wait until everything is over, and until what that held is freed: calls that are held back keep it until then."""
    runtime.wait()
    runtime.wait()


def simulated(platform: Platform, devices: Sequence[str], program: SizedProgram) -> VirtualRun:
    """Run a program on some devices of a platform."""
    with opened(platform, devices) as runtime:
        driver = runtime._driver
        clock: Callable[[], float] = runtime.machine.lanes["host"].clock
        turn = program.make(ArrayMaker(driver))
        begin = clock()
        for number in range(TURNS):
            turn(number)
        _end(runtime)
        whole = clock() - begin
        for number in range(TURNS, TURNS + AGAIN):
            turn(number)
        _end(runtime)
        begin = clock()
        for number in range(TURNS + AGAIN, TURNS + AGAIN + STEADY):
            turn(number)
        _end(runtime)
        steps = driver.scheduler.plan.steps
        spent = None if steps is None else steps.spent()
        turns = TURNS + AGAIN + STEADY
        planning = {
            "bound_s": None if spent is None or spent.limit is None else spent.limit * spent.calls / turns,
            "plan_s": 0.0 if spent is None else spent.seconds,
            "candidates": 0 if spent is None else spent.candidates,
        }
        return VirtualRun(whole, (clock() - begin) / STEADY, planning)


def named(chosen: Iterable[str], platform: Platform) -> str:
    """Return the names of a set, or how many devices of each kind it has if there are many."""
    chosen = list(chosen)
    if len(chosen) <= 2:
        return ",".join(chosen)
    kinds = {device.name: "cpu:all" if device.wide else device.kind for device in platform.devices}
    counts: dict[str, int] = {}
    for name in chosen:
        counts[kinds[name]] = counts.get(kinds[name], 0) + 1
    return ",".join(kind if count == 1 else f"{count} {kind}" for kind, count in counts.items())


def summary(found: Sequence[Data]) -> Data:
    """Return the cases and what they come to."""
    alike = [case for case in found if case["exact"]]
    others = [case for case in found if not case["exact"]]
    return {
        "worst_ratio": _least(case["ratio"] for case in alike),
        "mean_ratio": _mean(case["ratio"] for case in alike),
        "worst_changing": _least(case["ratio"] for case in others),
        "worst_whole_run": _least(case["whole_run_ratio"] for case in found),
        "mean_whole_run": _mean(case["whole_run_ratio"] for case in found),
        "worst_whole_run_told": _least(case["told_ratio"] for case in found),
        "turns": TURNS,
        "cases": list(found),
    }


def _least(values: Iterable[float]) -> float | None:
    return min(values, default=None)


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
