"""A long program costs no more at its end than at its beginning: flat state and flat memory over many tasks.

What stays behind shows in the number of objects after thousands of tasks; 200,000 also show it in the memory.
"""

from __future__ import annotations

import gc
import json
import resource
from pathlib import Path

import numpy as np
import pytest

import coexec as cx
from tests.devices import TWO

ROUNDS = 10


@cx.kernel(split=0, x=cx.read, y=cx.update)
def add(x, y):
    y += x


@cx.kernel(x=cx.update)
def increment(x):
    x += 1


def state_of(runtime) -> tuple[int, ...]:
    """Return how much the runtime remembers once everything is over."""
    gc.collect()
    return (
        runtime._driver.scheduler.link.graph.live(),
        runtime._driver.scheduler.lowering.live(),
        len(runtime._driver.scheduler.lowering.states()),
        len(runtime._driver.executor.engine),
        len(runtime._driver.executor.engine.failed),
        len(runtime._driver.scheduler.lowering.states()),
        len(runtime._driver.pump.dropped),
        len(runtime._driver.executor.records),
        len(runtime._driver.executor.failures),
    )


def megabytes() -> float:
    """Return the most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def drive(runtime, tasks: int) -> list[tuple[tuple[int, ...], int, float]]:
    """Run a program of many small tasks; return state, objects and memory after each tenth of it."""
    x, y = cx.ones(64), cx.zeros(64)
    bands = [y[i : i + 16] for i in range(0, 64, 16)]
    seen = []
    for _ in range(ROUNDS):
        for number in range(tasks // ROUNDS // 10):
            for _ in range(8):
                add(x, y)
            increment(bands[number % 4])
            if number % 20 == 0:
                increment(y[::2])
            elif number % 20 == 1:
                scratch = cx.zeros(32)
                add(scratch, y[:32])
                del scratch
            elif number % 20 == 2:
                y[number % 64] = 0  # no task where the array is at home
                increment(y)
                np.asarray(y)
            else:
                increment(x)
        cx.wait()
        seen.append((state_of(runtime), len(gc.get_objects()), megabytes()))
    return seen


def check_flat(seen: list[tuple[tuple[int, ...], int, float]], largest: int) -> None:
    states, objects, memory = zip(*seen, strict=True)
    assert len(set(states[1:])) == 1, states
    assert all(count <= largest for count in states[-1])
    assert max(objects[2:]) - objects[1] < 6_000, objects  # recipes and the last 1,024 calls are remembered
    assert memory[-1] - memory[1] < 16, memory


@pytest.mark.parametrize("tasks", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_state_and_memory_stay_flat_over_many_tasks(tasks) -> None:
    with cx.Runtime(TWO) as runtime:
        check_flat(drive(runtime, tasks), largest=60)


@pytest.mark.parametrize("tasks", [4_000, pytest.param(25_000, marks=pytest.mark.slow)])
def test_records_stream_to_disk_and_not_into_memory(tasks, tmp_path: Path) -> None:
    trace = tmp_path / "run.json"
    with cx.Runtime("cpu:0", trace=trace) as runtime:
        check_flat(drive(runtime, tasks), largest=60)
        assert trace.stat().st_size > 10**6  # while the program runs
    kernels = 0
    with trace.open(encoding="utf-8") as file:
        for line in file:
            if '"row":"ran"' in line.replace(" ", "") and json.loads(line.rstrip(",\n"))["kind"] == "kernel":
                kernels += 1
    assert kernels >= tasks


def test_failures_do_not_pile_up_once_they_are_healed() -> None:
    @cx.kernel(x=cx.update)
    def fail(x):
        raise ValueError("again")

    with cx.Runtime("cpu:0", horizon=32) as runtime:
        x, y = cx.zeros(8), cx.zeros(8)
        counts = []
        for number in range(1000):
            assert fail(x).exception() is not None
            increment(x)  # cancelled
            x[...] = 0
            increment(y)
            if number % 100 == 99:
                cx.wait()
                counts.append(len(runtime._driver.executor.engine.failed))
        assert np.asarray(x).sum() == 0 and float(y[0]) == 1000
        assert max(counts) <= 4 * 32, counts
        assert len(runtime._driver.executor.failures) <= 4 * 32
