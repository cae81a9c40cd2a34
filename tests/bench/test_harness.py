"""The benchmarks give every figure they promise. How large the figures are is the benchmarks' business."""

from __future__ import annotations

import json

import pytest

from coexec import bench
from coexec.bench import measure, overhead
from coexec.bench.dag import harness
from tests.bench.small import MIX_NAMES, PROGRAMS

CASE = {
    "name", "devices", "serial_s", "coexec_s", "handwritten_s", "speedup", "vs_handwritten", "bound", "of_bound",
    "overlap", "lanes",
}  # fmt: skip
MEANS = {"geomean_speedup", "geomean_vs_handwritten", "geomean_of_bound"}
OVERHEAD = {
    "independent_us", "chain_us", "submit_us", "latency_us", "boxes_us", "threadpool_us", "independent_queued_us",
    "chain_queued_us", "independent_replayed_us", "chain_replayed_us", "busy_user", "growth", "peers", "machine",
    "others_cores",
}  # fmt: skip


def test_every_benchmark_of_the_table_can_be_loaded():
    from importlib import import_module

    for target in bench.BENCHMARKS.values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("mix", MIX_NAMES)
@pytest.mark.parametrize("name", ["VEC", "HITS"])
def test_a_case_has_every_key_and_its_figures_agree(name, mix):
    program = PROGRAMS[name]
    case = harness.measure(program, program.expected(program.arrays), MIX_NAMES[mix], 2)
    assert case.keys() >= CASE
    assert case["speedup"] == pytest.approx(case["serial_s"] / case["coexec_s"])
    assert case["vs_handwritten"] == pytest.approx(case["handwritten_s"] / case["coexec_s"])
    assert case["of_bound"] == pytest.approx(case["speedup"] / case["bound"])
    assert case["overlap"].keys() == {"CT", "TC", "CC", "TOT"}
    assert all(0 <= share <= 1 for share in case["overlap"].values())
    assert case["lanes"] >= 1
    json.dumps(case)


def test_a_wrong_result_ends_the_benchmark():
    program = PROGRAMS["VEC"]
    wanted = {"res": program.expected(program.arrays)["res"] + 1}
    with pytest.raises(AssertionError, match="VEC on cpu:0,cpu:1: wrong results"):
        harness.measure(program, wanted, MIX_NAMES["cpu:0,cpu:1"], 1)


def test_dag_reports_every_program_on_every_mix_with_means(monkeypatch):
    small = {"VEC": harness.Benchmark(lambda n: PROGRAMS["VEC"], 0, 0)}
    monkeypatch.setattr(harness, "PROGRAMS", small)
    monkeypatch.setattr(harness, "QUICK_REPETITIONS", 1)
    said: list[str] = []
    found = harness.run(True, said.append)
    assert found.keys() >= MEANS | {"cases", "mixes", "bandwidth", "machine", "others_cores"}
    assert [case["mix"] for case in found["cases"]] == list(MIX_NAMES)
    assert all(means.keys() == MEANS for means in found["mixes"].values())
    assert said[0] == "VEC on cpu:0,cpu:1"
    json.dumps(found)


def test_overhead_has_every_key():
    said: list[str] = []
    found = overhead.collect(40, 1, 400, said.append)
    assert found.keys() >= OVERHEAD
    assert all(found[key] > 0 for key in OVERHEAD - {"peers", "machine", "others_cores"})
    assert found["growth_tasks"] == 400 and said
    json.dumps(found)


def test_the_geometric_mean_weighs_ratios_alike():
    assert measure.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert measure.geometric_mean([]) == 0.0


def test_the_machine_and_its_bandwidth_are_reported():
    assert measure.machine().keys() == {"cpu", "cores", "python", "numpy"}
    assert all(rate > 0 for rate in measure.bandwidth(10_000, 1).values())
    assert measure.Others().cores() >= 0.0
