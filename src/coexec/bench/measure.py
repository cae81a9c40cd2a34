"""What benchmarks share: what the machine is, its memory bandwidth, runs in turns, and means.

Before: machine/.  After: overhead.py, dag/.  Knows no benchmark.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

import coexec as cx

from ..errors import unknown_name
from ..machine.cores import available_cores, cpu_model
from ..program import session

Progress = Callable[[str], None]
Data = dict[str, Any]
T = TypeVar("T")


def machine() -> Data:
    """Return where the figures come from."""
    return {
        "cpu": cpu_model(),
        "cores": len(available_cores()),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def named(what: str, known: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Return the names that are wanted, in the order of those that are known; all if none is named."""
    names, asked = list(dict.fromkeys(known)), list(wanted)  # a body and an application may have one name
    for name in asked:
        if name not in names:
            raise unknown_name(what, name, names)
    return [name for name in names if name in asked] if asked else names


COMPILED = ("coexec.geometry.", "coexec.graph.", "coexec.lower.", "coexec.execute.")
"""Where modules are that may be compiled."""


def core() -> str:
    """Return whether the modules that every task goes through are "interpreted" or "compiled" extensions."""
    files = [
        getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name.startswith(COMPILED)
    ]
    return "compiled" if any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files) else "interpreted"


def python_calls(act: Callable[[], object], times: int = 31) -> int:
    """Return how many Python functions `act` calls on this thread, itself not counted: the fewest of so many times.

    What happens only now and then (horizons, records that are looked at together) is not in the fewest, so the number
    repeats exactly. Builtins are not counted, nor is anything that is compiled.
    """
    gc.collect()
    gc.disable()  # or finalizers would be counted wherever the collector happens to run
    try:
        return min(_count_calls(act) for _ in range(times))
    finally:
        gc.enable()


def _count_calls(act: Callable[[], object]) -> int:
    count = 0

    def see(frame: object, event: str, argument: object) -> None:
        nonlocal count
        del frame, argument
        if event == "call":
            count += 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count - 1


class Others:
    """How many cores other processes kept busy since this was made: above a tenth or so, times mean little."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        import psutil  # type: ignore[import-untyped]

        times = psutil.cpu_times()
        mine = time.process_time()
        return perf_counter(), sum(times) - times.idle - getattr(times, "iowait", 0.0), mine

    def cores(self) -> float:
        """Return the average number of cores that others used."""
        wall, busy, mine = (now - before for now, before in zip(self._now(), self._start, strict=True))
        return max(0.0, (busy - mine) / wall) if wall > 0 else 0.0


def in_turns(ways: Mapping[str, Callable[[], T]], rounds: tuple[int, int], seconds: float = 0.0) -> dict[str, list[T]]:
    """Run all ways in turns, another one first each time, until the time is over; return what each run gave.

    `rounds` are the least and the most, whatever the time.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    names, (least, most) = list(ways), rounds
    gc.collect()
    start = perf_counter()
    for number in range(most):
        if number >= least and perf_counter() - start > seconds:
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(ways[name]())
    return found


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean; 0 of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def middle(times: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each list."""
    return {name: median(found) for name, found in times.items() if found}


@contextmanager
def current(runtime: cx.Runtime) -> Iterator[None]:
    """Give calls inside the block to a runtime that is open, and leave it open."""
    session.push(runtime)
    try:
        yield
    finally:
        session.remove(runtime)


@contextmanager
def one_library_thread() -> Iterator[None]:
    """Let BLAS and OpenMP use one thread inside the block."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def bandwidth(elements: int = 20_000_000, tries: int = 5) -> Data:
    """Return what memory gives one thread and one thread per core at once: a + s * b in GB/s, best of several."""
    cores = available_cores()[:2]
    return {f"threads_{count}_GB_per_s": _triad(cores[:count], elements, tries) for count in range(1, len(cores) + 1)}


def _triad(cores: tuple[int, ...], elements: int, tries: int) -> float:
    """Return the sum of the threads' best rates while all of them run."""
    rates: list[float] = []
    start = threading.Barrier(len(cores))

    def work(core: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})
        a, b, c = (np.ones(elements) for _ in range(3))
        best = math.inf
        for _ in range(tries):
            start.wait()
            begin = perf_counter()
            np.add(a, b, out=c)  # three streams, as in STREAM's triad: NumPy has no fused a + s * b
            best = min(best, perf_counter() - begin)
        rates.append(3 * a.nbytes / best / 1e9)

    threads = [threading.Thread(target=work, args=(core,)) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)
