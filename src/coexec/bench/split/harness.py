"""Measure every case on every mix of devices: each alone, all at once, NumPy with all threads, and through coexec.

Before: cases.py, the ways, figures.py.  After: cli/ through bench.BENCHMARKS.

A mix is calibrated into a store of its own; all its cases are predicted from that before the first of them runs. Then
the ways take turns, round by round, so that a disturbance of the machine meets all of them; figures are medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ...calibrate import calibrate
from ...calibrate.designs import designs, numbers
from ...machine.cores import available_cores
from ..measure import Data, Others, Progress, bandwidth, in_turns, machine, named, one_library_thread
from .cases import CASES, QUICK, QUICK_UNSEEN, UNSEEN, Problem, SplitCase
from .figures import by_group, compared, error_of, summary
from .opencl import InOpenCL
from .single import AllThreads, Bare, DeviceThread, InTorch, NumPyCalls, rewrite, together, torch_threads_kept
from .through import SplitThroughCoexec, WatchedPlanner, code_of, predict, store_at, watched

MIXES = ("cpu:0,opencl:0@1", "cpu:0,cpu:1", "cpu:0,torch:cpu@1")
DESIGNED = {"matmul": "matmul", "conv2d": "conv2d", "chain": "elementwise", "sum": "reduce"}
"""What calibration calls the operations here."""


class SplitEffort(NamedTuple):
    """How long to measure."""

    calibration: float  # seconds per mix
    case: float  # seconds per case and mix, within the bounds below
    rounds: tuple[int, int]
    warm_up: tuple[int, int]  # calls through coexec that are dropped: it learns meanwhile


THOROUGH = SplitEffort(38.0, 2.5, (3, 11), (3, 6))
BRIEF = SplitEffort(0.5, 0.05, (2, 2), (2, 2))


class Foretold(NamedTuple):
    """What was predicted of a case from the calibration alone."""

    seconds: float | None
    never_run: bool  # not even by the calibration


def run(quick: bool, progress: Progress, only: Sequence[str] = (), devices: Sequence[str] = ()) -> Data:
    """Measure one task divided over unlike devices: matmul, conv2d, a fused chain and a sum, against each device alone."""
    operations = named("operation", DESIGNED, only)
    mixes, off = usable(named("set of devices", MIXES, devices))
    others = Others()
    cases: list[Data] = []
    unseen: list[Data] = []
    calibrations: list[Data] = []
    with one_library_thread():
        for mix in mixes:
            found = on_mix(
                mix,
                [case for case in (QUICK if quick else CASES) if case.op in operations],
                [case for case in (QUICK_UNSEEN if quick else UNSEEN) if case.op in operations],
                BRIEF if quick else THOROUGH,
                progress,
            )
            cases += found["cases"]
            unseen += found["unseen"]
            calibrations.append(found["calibration"])
        progress("memory bandwidth")
        physical = bandwidth(2_000_000 if quick else 20_000_000)
    return {
        **summary(cases, unseen),
        "opencl_matmul_gflops": opencl_gflops(cases),
        "by_devices": by_group(cases, unseen, "devices"),
        "by_op": by_group(cases, unseen, "op"),
        "cases": cases,
        "unseen": unseen,
        "calibrations": calibrations,
        "others_cores": others.cores(),
        "bandwidth": physical,
        "machine": machine(),
        "off": off,
    }


def usable(mixes: Sequence[str] = MIXES) -> tuple[list[str], dict[str, str]]:
    """Return the mixes that this machine has, and why not the others."""
    if len(available_cores()) < 2:
        return [], dict.fromkeys(mixes, "needs two cores")
    off = {mix: why for mix in mixes if (why := _missing(mix))}
    return [mix for mix in mixes if mix not in off], off


def _missing(mix: str) -> str:
    """Return what a mix lacks here, or nothing."""
    if "opencl" in mix:
        from ...backend.opencl.probe import probe

        found = probe()
        if not any(device.index == 0 and device.type == "cpu" for device in found.devices):
            return found.unavailable[0].reason if found.unavailable else "opencl:0 is no CPU driver"
    if "torch" in mix:
        from ...backend.torch.driver import REMEDY, installed

        if not installed():
            return f"PyTorch is not installed; {REMEDY}"
    return ""


# One mix of devices -------------------------------------------------------------------------------------------------------


def on_mix(
    mix: str, cases: Sequence[SplitCase], unseen: Sequence[SplitCase], effort: SplitEffort, progress: Progress
) -> Data:
    """Calibrate, predict everything, then measure everything on one mix of devices."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        stack.enter_context(store_at(str(Path(folder) / "store.sqlite")))
        if "torch" in mix:
            stack.enter_context(torch_threads_kept())
        start = perf_counter()
        calibrate(
            mix,
            seconds=effort.calibration,
            ops=sorted(set(DESIGNED.values())),
            progress=_in_tenths(mix, progress),
        )
        took = perf_counter() - start
        foretold = predictions(mix, [*unseen, *cases], progress)
        runtime = stack.enter_context(cx.Runtime(devices=mix))
        planner = stack.enter_context(watched(runtime))
        new, measured = [], []
        for case in unseen:
            progress(f"{mix}: {case.op} {case.shape}, predicted and run")
            new.append(_run_unseen(case.make(), foretold[case], mix, runtime, planner))
        for case in cases:
            progress(f"{mix}: {case.op} {case.shape}")
            measured.append(measure(case.make(), foretold[case], mix, runtime, planner, effort))
    return {"cases": measured, "unseen": new, "calibration": {"devices": mix, "seconds": took}}


def _in_tenths(mix: str, progress: Progress) -> Callable[[float, str], None]:
    """Return what tells how far a calibration is, each tenth once."""
    seen: set[int] = set()

    def tell(fraction: float, _: str) -> None:
        if (tenth := int(fraction * 10)) not in seen:
            seen.add(tenth)
            progress(f"{mix}: calibrating, {tenth}0 %")

    return tell


def predictions(mix: str, cases: Sequence[SplitCase], progress: Progress) -> dict[SplitCase, Foretold]:
    """Predict every case before any of them runs."""
    calibrated = {
        (design.name, tuple(np.shape(value) for value in known.inputs))
        for design in designs(sorted(set(DESIGNED.values())))
        for known in design.cases()
    }
    numbers.cache_clear()
    found = {}
    with cx.Runtime(devices=mix) as runtime:
        for case in cases:
            progress(f"{mix}: predicting {case.op} {case.shape}")
            problem = case.make()
            never = (DESIGNED[problem.op], problem.shapes) not in calibrated
            found[case] = Foretold(predict(problem, runtime), never)
    return found


def _run_unseen(problem: Problem, foretold: Foretold, mix: str, runtime: cx.Runtime, planner: WatchedPlanner) -> Data:
    """Run a predicted case through coexec: once cold, then a few times."""
    through = SplitThroughCoexec(problem, runtime, planner)
    try:
        times = [through.seconds() for _ in range(4)][1:]
    finally:
        through.close()
    return {
        "op": problem.op,
        "shape": problem.shape,
        "devices": mix,
        "coexec_s": median(times),
        **_prediction(foretold, median(times)),
    }


def _prediction(foretold: Foretold, measured: float) -> Data:
    return {
        "predicted_s": foretold.seconds,
        "prediction_error": error_of(foretold.seconds, measured),
        "never_run": foretold.never_run,
    }


# One case -----------------------------------------------------------------------------------------------------------------


def measure(
    problem: Problem, foretold: Foretold, mix: str, runtime: cx.Runtime, planner: WatchedPlanner, effort: SplitEffort
) -> Data:
    """Return one case: a problem on a mix of devices."""
    with _workers(problem, runtime) as workers:
        everything = AllThreads(problem, len(available_cores()))
        through = SplitThroughCoexec(problem, runtime, planner)
        try:
            alone = {worker.device: worker.seconds() for worker in workers}
            everything.seconds()
            _warm_up(through, effort)
            times = _rounds(problem, workers, everything, through, alone, effort)
            _check(problem, mix, workers, everything, through)
            kernels = {w.device: median(s) for w in workers if (s := getattr(w.bare, "kernel_seconds", None))}
            return _figures(problem, foretold, mix, times, through, kernels)
        finally:
            through.close()


@contextmanager
def _workers(problem: Problem, runtime: cx.Runtime) -> Iterator[list[DeviceThread]]:
    """Give each device of the runtime a thread with the problem in its own library."""
    with ExitStack() as stack:
        found = []
        for device in runtime.platform.devices:
            core = device.cores[0]
            found.append(worker := DeviceThread(device.name, core, _bare(device.kind, problem, core, runtime)))
            stack.callback(worker.close)
        yield found


def _bare(kind: str, problem: Problem, core: int, runtime: cx.Runtime) -> Bare:
    if kind == "opencl":
        return InOpenCL(problem, code_of(problem, runtime), core)
    return InTorch(problem) if kind == "torch" else NumPyCalls(problem)


def _warm_up(through: SplitThroughCoexec, effort: SplitEffort) -> None:
    """Let coexec learn, as long as that is cheap."""
    least, most = effort.warm_up
    start = perf_counter()
    for call in range(most):
        if call >= least and perf_counter() - start > effort.case / 3:
            break
        through.seconds()


def _rounds(
    problem: Problem,
    workers: Sequence[DeviceThread],
    everything: AllThreads,
    through: SplitThroughCoexec,
    alone: dict[str, float],
    effort: SplitEffort,
) -> dict[str, list[Any]]:
    """Run all ways in turns until the time is over; return the seconds of each."""

    def rewritten(run: Callable[[], Any]) -> Callable[[], Any]:
        def seconds() -> Any:
            rewrite(problem)
            return run()

        return seconds

    ways: dict[str, Callable[[], Any]] = {worker.device: rewritten(worker.seconds) for worker in workers}
    ways |= {
        "together": rewritten(lambda: together(workers, alone)),
        "all threads": rewritten(everything.seconds),
        "coexec": through.seconds,  # writes its own inputs
        "asarray": lambda: through.seconds(snapshot=True),
    }
    return in_turns(ways, effort.rounds, effort.case)


def _check(
    problem: Problem, mix: str, workers: Sequence[DeviceThread], everything: AllThreads, through: SplitThroughCoexec
) -> None:
    """Raise unless all ways gave the same numbers, up to rounding."""
    wanted = everything.result()
    found = {worker.device: worker.bare.result() for worker in workers} | {"coexec": through.result()}
    wrong = [way for way, values in found.items() if not np.allclose(values, wanted, rtol=1e-3, atol=1e-4)]
    if wrong:
        raise AssertionError(f"{problem.name} on {mix}: wrong results by {', '.join(wrong)}")


def _figures(
    problem: Problem,
    foretold: Foretold,
    mix: str,
    times: dict[str, list[Any]],
    through: SplitThroughCoexec,
    kernels: dict[str, float],
) -> Data:
    beside = times.pop("together")
    seconds = {name: median(found) for name, found in times.items()}
    coexec, snapshot, everything = (seconds.pop(name) for name in ("coexec", "asarray", "all threads"))
    together_s = {device: median(round[device] for round in beside) for device in seconds}
    ratios = compared(seconds, together_s, coexec)
    return {
        "op": problem.op,
        "shape": problem.shape,
        "devices": mix,
        "size": problem.size,
        "single_s": seconds,
        "together_s": together_s,
        "numpy_all_threads_s": everything,
        "coexec_s": coexec,
        "coexec_asarray_s": snapshot,
        **ratios,
        **_prediction(foretold, coexec),
        "shares": dict(through.planner.shares),
        "plan_ms": {"new": _ms(through.new_plan), "cached": _ms(median(through.plans) if through.plans else None)},
        "gflops": problem.operations / coexec / 1e9,
        "single_gflops": {device: problem.operations / s / 1e9 for device, s in seconds.items()},
        "kernel_gflops": {device: problem.operations / s / 1e9 for device, s in kernels.items()},
        "rounds": len(beside),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def opencl_gflops(cases: Sequence[Data]) -> Data | None:
    """Return the best rate of the OpenCL matmul alone on one core: the kernel, and with copies in and out."""
    found = [c for c in cases if c["op"] == "matmul" and "opencl:0" in c["kernel_gflops"]]
    if not found:
        return None
    best = max(found, key=lambda c: float(c["kernel_gflops"]["opencl:0"]))
    return {
        "shape": best["shape"],
        "kernel": best["kernel_gflops"]["opencl:0"],
        "with_copies": best["single_gflops"]["opencl:0"],
    }
