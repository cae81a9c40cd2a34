"""Strong scaling in simulation: the benchmark's figures, and virtual times against what can be worked out by hand."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import NOTHING, Costs, simulate
from coexec.backend.simulated.collecting import rarely_collecting
from coexec.bench.apps.programs import load
from coexec.bench.simulate import scale
from coexec.bench.simulate.scale import picture
from coexec.machine.platform import Platform
from coexec.machine.what_if import what_if

SIDE = scale.SIDE
BANDWIDTH, LAUNCH, NVLINK = 1555e9, 5e-6, (2e-6, 100e9)
NETWORK = (2 * 0.5e-6 + 1.5e-6 + 2 * 0.5e-6, 25e9)


def per_step(nodes: int, steps: int, costs: Costs = NOTHING) -> float:
    """Return the virtual seconds of one step on all GPUs of some nodes, when plans have settled."""
    platform = what_if(Platform.load("a100x128"), f"nodes {nodes}")
    example = load("wave_sim")
    machine = simulate(platform, devices="gpu", costs=costs)
    with cx.Runtime(machine=machine, store="off", diagnostics="off"):
        before, now = cx.zeros((SIDE, SIDE), np.float32), cx.zeros((SIDE, SIDE), np.float32)
        before, now = example.compute(before, now, 6)
        cx.wait()
        clock: Callable[[], float] = machine.lanes["host"].clock
        begin = clock()
        example.compute(before, now, steps)
        cx.wait()
        return (clock() - begin) / steps


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_without_costs_a_step_is_its_kernels_and_the_exchange_of_halos(nodes: int) -> None:
    """A GPU reads its rows and two more, and writes them; its neighbours' rows came over the slowest link between them."""
    found = per_step(nodes, 20)
    latency, bandwidth = NETWORK if nodes > 1 else NVLINK
    row = 4 * SIDE
    rows = (SIDE - 2) / (4 * nodes)
    kernel = LAUNCH + (2 * rows + 2) * row / BANDWIDTH
    halo = latency + row / bandwidth
    assert kernel < found < (kernel + halo) * 1.02


def test_one_interpreter_limits_what_it_can_drive() -> None:
    """It spends time on each instruction: a kernel for each GPU, and a copy for each edge between two, both ways."""
    costs = Costs(submission=20e-6, instruction=3e-6, completion=8e-6)
    found = per_step(8, 20, costs)
    spent = 20e-6 + (32 + 2 * 31) * 11e-6
    assert spent * 0.98 < found < spent * 1.1


def test_parts_cut_in_two_hide_edges_that_travel_behind_what_computes() -> None:
    """On many GPUs a step is short: halves save the wait for neighbours, and cost one more instruction per GPU."""
    costs = Costs(submission=25e-6, instruction=0.5e-6, completion=7e-6, wake=50e-6, step=11e-6, part=0.1e-6)
    found = scale.as_measured(32, costs)
    alone = scale.step_seconds(1, costs)
    for case in (found["whole"], found["in_two"]):
        assert case["efficiency"] == pytest.approx(alone / (32 * case["step_s"]))
    assert found["in_two"]["efficiency"] > 0.95 > found["whole"]["efficiency"] > 0.8


def test_a_gpu_leaves_the_caches_of_its_host_alone() -> None:
    """Costs of completions after kernels that touch much are those of cores."""
    cold = NOTHING._replace(completion=1e-6, cold=((1e6, 1e-6), (2e6, 1.0)))
    assert scale.step_seconds(1, cold) < 0.03


def test_the_figures_of_the_benchmark_are_those_of_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "QUICK_GPUS", (1, 8))
    monkeypatch.setattr(
        scale, "QUICK_STEPS", 40
    )  # of 3 ms: the first look at a step, 4.6 ms with eight devices, is paid once
    said: list[str] = []
    found = scale.measure(True, said.append)
    first, last = found["cases"]
    assert (first["gpus"], last["gpus"]) == (1, 8) and len(said) == 2
    assert first["speedup"] == first["efficiency"] == 1.0
    for figures in (last, last["one_process"]):
        assert figures["speedup"] == pytest.approx(first["virtual_s"] / figures["virtual_s"])
        assert figures["efficiency"] == pytest.approx(figures["speedup"] / 8)
        assert 0.9 < figures["efficiency"] <= 1.0
        assert figures["instructions_per_s"] == pytest.approx(figures["instructions"] / figures["wall_s"])
        assert figures["instructions"] > 40 * (8 + 2 * 7)
    assert found["seconds_128"] == max(last["wall_s"], last["one_process"]["wall_s"])
    assert found["instructions_per_s"] == last["one_process"]["instructions_per_s"]
    drawn = picture({"scale": found})
    assert drawn.count("<circle") == 4 and "8 simulated GPUs (a100x128)" in drawn
    assert "one process for each node" in drawn and "one process for all" in drawn


def test_a_million_is_counted_in_instructions() -> None:
    found = scale.million(gpus=4, instructions=300)
    assert 300 <= found["instructions"] < 400 and found["steps"] < 40 and found["gpus"] == 4


def test_the_collector_is_as_it_was_afterwards() -> None:
    before = gc.get_threshold()
    with rarely_collecting(12_345):
        assert gc.get_threshold()[0] == 12_345
    assert gc.get_threshold() == before and gc.isenabled()


def test_what_is_over_leaves_no_garbage_behind() -> None:
    """Instructions are freed when they are over, not when the collector comes by."""
    with scale.opened(8, ranks=1):
        example = load("wave_sim")
        before, now = example.compute(*[cx.zeros((SIDE, SIDE), np.float32) for _ in range(2)], 10)
        cx.wait()
        gc.collect()
        example.compute(before, now, 10)
        cx.wait()
        assert gc.collect() < 200  # of more than 200 instructions, with some ten objects each
