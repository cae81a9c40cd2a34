"""How long a kernel waits for the one that it depends on: from the end of one body to the beginning of the next.

Before: coexec's public names.  After: bench/overhead.py.

Kernels take about 0.4 ms. `same_core` are on one core, `other_core` on two in turns, as their calls say; `chosen` is a chain whose
places coexec chooses. `fork` is the later of two kernels on two cores that wait for the same one. `bare` are two threads on the two
cores that do the same with one lock each, without coexec, in turns with the others. Figures are medians of all gaps in µs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import coexec as cx

from ..machine.cores import available_cores, pin_thread
from .measure import Data, current

ELEMENTS = 40_000  # whose cosine takes about 0.4 ms
CHAIN = 48  # kernels, one after the other
FIRST, SECOND = "cpu:0", "cpu:1"
WARM = 4  # chains that do not count: kernels are measured, and steps recognised
Spans = list[tuple[float, float]]
"""When bodies began and ended, in the order of their ends."""

_spans: Spans = []


def _cosine(x: Any, y: Any) -> None:
    begin = perf_counter()
    np.cos(x, out=y)
    _spans.append((begin, perf_counter()))


@cx.kernel(x=cx.update)
def link(x: Any) -> None:
    """Compute for 0.4 ms, and note when."""
    _cosine(x, x)


@cx.kernel(x=cx.read, y=cx.write)
def branch(x: Any, y: Any) -> None:
    """Compute for 0.4 ms from what another kernel has written, and note when."""
    _cosine(x, y)


@cx.kernel(x=cx.read, y=cx.read, z=cx.write)
def join(x: Any, y: Any, z: Any) -> None:
    """Compute for 0.4 ms from what two others have written, and note when."""
    del y
    _cosine(x, z)


def gaps(rounds: int) -> Data:
    """Return how long kernels waited for those before them, in µs, and the bare limit."""
    cores = available_cores()
    if len(cores) < 2:
        return {}
    with closing(Dependent()) as dependent:
        contestants: dict[str, Callable[[], list[float]]] = {
            "same_core_us": lambda: dependent.chain(FIRST),
            "other_core_us": lambda: dependent.chain(FIRST, SECOND),
            "chosen_us": dependent.chain,
            "fork_us": dependent.fork,
            "bare_us": lambda: bare(cores[:2]),
        }
        found: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(WARM + rounds):
            for name, contestant in contestants.items():
                seconds = contestant()
                if turn >= WARM:
                    found[name] += seconds
    return {name: median(seconds) * 1e6 for name, seconds in found.items()}


class Dependent:
    """Kernels that depend on each other, in a runtime on two cores."""

    def __init__(self) -> None:
        self._runtime = cx.Runtime(f"{FIRST},{SECOND}")
        with current(self._runtime):
            self._arrays = [cx.array(np.linspace(0.0, 1.0, ELEMENTS)) for _ in range(3)]

    def chain(self, *devices: str) -> list[float]:
        """Return the gaps of a chain on these devices in turns, or on those that coexec chooses."""
        calls: list[Callable[[Any], Any]] = [link.using(devices=device) for device in devices] or [link]
        _spans.clear()
        with current(self._runtime):
            for number in range(CHAIN):
                calls[number % len(calls)](self._arrays[0])
            self._runtime.wait()
        return _between(_spans)

    def fork(self) -> list[float]:
        """Return the gaps before the later of two kernels that wait for the same one."""
        x, y, z = self._arrays
        _spans.clear()
        with current(self._runtime):
            for _ in range(CHAIN // 3):
                branch.using(devices=FIRST)(x, y)
                branch.using(devices=SECOND)(x, z)
                join.using(devices=FIRST)(y, z, x)
            self._runtime.wait()
        spans = sorted(_spans)
        return [spans[at + 2][0] - spans[at][1] for at in range(2, len(spans) - 2, 3)]

    def close(self) -> None:
        """Let go of the arrays and end the runtime."""
        self._arrays.clear()
        self._runtime.close()


def _between(spans: Spans) -> list[float]:
    return [after[0] - before[1] for before, after in pairwise(spans)]


def bare(cores: Sequence[int]) -> list[float]:
    """Return how long it takes from the end of a kernel on one thread to the beginning of the next on another, with one lock each."""
    data = np.linspace(0.0, 1.0, ELEMENTS)
    locks = [threading.Lock(), threading.Lock()]
    for lock in locks:
        lock.acquire()
    _spans.clear()

    def run(own: int) -> None:
        pin_thread(cores[own])
        for _ in range(CHAIN // 2):
            locks[own].acquire()
            _cosine(data, data)
            locks[1 - own].release()

    threads = [threading.Thread(target=run, args=(own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    locks[0].release()
    for thread in threads:
        thread.join()
    return _between(_spans)
