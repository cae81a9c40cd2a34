"""The benchmarks give every figure they promise. How large the figures are is the benchmarks' business."""

from __future__ import annotations

import gc
import json
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

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
    assert found["core"] == measure.core()
    assert found["cpu"].keys() == {"chain_us", "independent_us", "queued_chain_us"}
    assert found["calls"].keys() == {"chain", "divided"}
    assert found["small"].keys() == {"added_us", "geomean", "worst", "cases"} and len(found["small"]["cases"]) == 27
    assert all(value > 0 for key in ("cpu", "calls") for value in found[key].values())
    json.dumps(found)


def test_python_calls_of_this_thread_are_counted_and_builtins_are_not():
    def inner() -> int:
        return len([1, 2])

    turns = iter((3, 1, 2))  # the first time something more happens

    def outer() -> None:
        for _ in range(next(turns)):
            inner()

    assert measure.python_calls(outer, 3) == 1


def test_counting_calls_leaves_profiler_and_collector_as_they_were():
    def failing() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        measure.python_calls(failing)
    assert sys.getprofile() is None
    assert gc.isenabled()


def test_the_core_is_compiled_if_a_module_of_it_is_an_extension(monkeypatch):
    assert measure.core() == "interpreted"
    extension = ModuleType("coexec.lower.extension")
    extension.__file__ = f"extension{EXTENSION_SUFFIXES[0]}"
    monkeypatch.setitem(sys.modules, "coexec.lower.extension", extension)
    assert measure.core() == "compiled"


def test_the_geometric_mean_weighs_ratios_alike():
    assert measure.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert measure.geometric_mean([]) == 0.0


def test_the_machine_and_its_bandwidth_are_reported():
    assert measure.machine().keys() == {"cpu", "cores", "python", "numpy"}
    assert all(rate > 0 for rate in measure.bandwidth(10_000, 1).values())
    assert measure.Others().cores() >= 0.0
