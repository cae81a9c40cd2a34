"""The benchmark of divided tasks gives every figure that it promises, and its arithmetic is right."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import coexec as cx
from coexec.bench.split import cases, figures, harness, through
from coexec.bench.split.cases import ConvolutionLayer
from coexec.bench.split.single import AllThreads, DeviceThread, NumPyCalls, rewrite, together
from coexec.machine.cores import available_cores

CASE = {
    "op", "shape", "devices", "single_s", "numpy_all_threads_s", "coexec_s", "speedup", "limit_speedup", "gain_captured",
    "predicted_s", "prediction_error", "shares", "plan_ms", "gflops",
}  # fmt: skip
SUMMARY = {"median_gain_captured", "worst_vs_best_single", "worst_vs_numpy_all_threads", "median_abs_error"}
SMALL = (
    cases.product(70, 50, 30),
    cases.convolution(ConvolutionLayer("tiny", 2, 3, 9, 5, 3)),
    cases.chain(70_001),
    cases.summation(70_001),
)
EFFORT = harness.SplitEffort(0.05, 0.0, (1, 1), (1, 1))
MIXES, _ = harness.usable()


def expected(problem):
    """Return a problem's result in float64, in another way."""
    values = [array.astype(np.float64) for array in problem.inputs]
    if problem.op == "matmul":
        return values[0] @ values[1]
    if problem.op == "sum":
        return values[0].sum()
    if problem.op == "chain":
        return np.sqrt(values[0] * values[1] + 1) / 2 + values[0]
    x, w = values
    reach = w.shape[-1] // 2
    seen = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach))), w.shape[2:], (2, 3)
    )
    return np.einsum("nchwij,ocij->nohw", seen, w)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.op)
def test_every_problem_in_numpy_is_what_its_formula_says(case):
    problem = case.make()
    bare = NumPyCalls(problem)
    bare.run()
    np.testing.assert_allclose(bare.result(), expected(problem), rtol=1e-4)
    assert (problem.op, problem.shape) == (case.op, case.shape)
    everything = AllThreads(problem, 2)
    assert everything.seconds() > 0
    np.testing.assert_allclose(everything.result(), bare.result(), rtol=1e-4)


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")  # a variant that a device refuses is the figures' business
@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_gives_cases_with_every_key_whose_results_were_compared(mix):
    said: list[str] = []
    found = harness.on_mix(mix, SMALL, (cases.product(40, 60, 50),), EFFORT, said.append)
    assert [case["op"] for case in found["cases"]] == [case.op for case in SMALL]
    for case in found["cases"]:
        assert case.keys() >= CASE
        assert case["devices"] == mix
        assert case["single_s"].keys() == case["together_s"].keys() == {n.partition("@")[0] for n in mix.split(",")}
        assert sum(case["shares"].values()) == pytest.approx(1.0)
        assert case["never_run"]
        assert case["plan_ms"]["new"] > 0 and case["plan_ms"]["cached"] > 0
        assert case["gflops"] > 0
    assert found["unseen"][0]["shape"] == "40x60x50" and found["unseen"][0]["never_run"]
    assert any("predicting" in text for text in said)
    json.dumps(found)


def test_the_benchmark_sums_up_all_mixes(monkeypatch):
    monkeypatch.setattr(harness, "MIXES", MIXES[:1])
    monkeypatch.setattr(harness, "usable", lambda _: (MIXES[:1], {"x": "not here"}))
    monkeypatch.setattr(harness, "QUICK", SMALL[:1])
    monkeypatch.setattr(harness, "QUICK_UNSEEN", ())
    monkeypatch.setattr(harness, "BRIEF", EFFORT)
    found = harness.run(True, lambda _: None)
    assert found.keys() >= SUMMARY | {"cases", "unseen", "by_devices", "by_op", "bandwidth", "machine", "others_cores"}
    assert found["off"] == {"x": "not here"}
    assert [part["devices"] for part in found["by_devices"]] == MIXES[:1]
    json.dumps(found)


def test_a_mix_without_its_device_says_why(monkeypatch):
    monkeypatch.setattr("coexec.backend.torch.driver.installed", lambda: "")
    usable, off = harness.usable(("cpu:0,torch:cpu@1",))
    assert usable == [] and "pip install" in off["cpu:0,torch:cpu@1"]


def test_a_wrong_result_ends_the_benchmark():
    problem = SMALL[0].make()
    wrong = cases.Problem(
        problem.op, problem.shape, problem.size, problem.operations, problem.inputs, problem.out, problem.in_numpy,
        problem.in_torch, lambda a, b, _: (a @ b) * np.float32(1.01),
    )  # fmt: skip
    with (
        cx.Runtime(devices=MIXES[0], store="off") as runtime,
        through.watched(runtime) as planner,
        pytest.raises(AssertionError, match=f"matmul 70x50x30 on {MIXES[0]}: wrong results by coexec"),
    ):
        harness.measure(wrong, harness.Foretold(None, True), MIXES[0], runtime, planner, EFFORT)


# Through coexec -----------------------------------------------------------------------------------------------------------


def test_nothing_is_known_of_a_call_before_anything_ran_and_a_number_afterwards():
    problem = cases.product(300, 300, 300).make()
    with cx.Runtime(devices="cpu:0", store="off") as runtime, through.watched(runtime) as planner:
        before = through.predict(problem, runtime)
        calls = through.SplitThroughCoexec(problem, runtime, planner)
        for _ in range(3):
            calls.seconds()
        calls.seconds(snapshot=True)
        after = through.predict(problem, runtime)
        assert planner.shares == {"cpu:0": 1.0}
        calls.close()
    assert before is None or before > 0
    assert after is not None and after > 0


def test_a_chain_is_foretold_as_one_kernel():
    problem = cases.chain(70_001).make()
    with cx.Runtime(devices="cpu:0,cpu:1", store="off") as runtime:
        asked, arrays = through.foretell(problem, runtime)
        code = through.code_of(problem, runtime)
    assert len(asked.calls) == len(asked.plans) == 1
    assert len(arrays) == 2
    assert list(code.outputs.values())[-1] == (70_001,)
    assert [value for value in code.named.values() if isinstance(value, float)] == [1.0, 0.5]


@pytest.mark.parametrize("mix", [mix for mix in MIXES if "opencl" in mix])
def test_inputs_are_copied_to_the_device_again_before_each_repetition(mix, tmp_path):
    problem = cases.product(512, 512, 512).make()
    options = {"store": "off", "policy": "even", "trace": tmp_path / "trace.json"}
    with cx.Runtime(devices=mix, **options) as runtime, through.watched(runtime) as planner:
        calls = through.SplitThroughCoexec(problem, runtime, planner)
        calls.planner.shares.clear()
        for _ in range(3):
            calls.seconds()
        divided = len(calls.planner.shares) == 2
        calls.close()
    there = [row for row in cx.Trace.load(tmp_path / "trace.json").instructions if row["kind"] == "copy"]
    assert divided and len(there) >= 3 * 3  # a and b to the device, its part of the result back


def test_the_store_of_a_block_is_forgotten_after_it(monkeypatch):
    monkeypatch.setenv("COEXEC_STORE", "off")
    with through.store_at("elsewhere"):
        import os

        assert os.environ["COEXEC_STORE"] == "elsewhere"
    assert os.environ["COEXEC_STORE"] == "off"


# Together -----------------------------------------------------------------------------------------------------------------


class Counting:
    """A problem that takes no time; the slow one waits until the quick one has run a few times."""

    def __init__(self, wait_for: threading.Event | None, tell: threading.Event | None, after: int = 1) -> None:
        self.runs = 0
        self._wait_for, self._tell, self._after = wait_for, tell, after

    def begin(self):
        pass

    def run(self):
        self.runs += 1
        if self._tell is not None and self.runs >= self._after:
            self._tell.set()
        if self._wait_for is not None:
            assert self._wait_for.wait(60)

    def result(self):
        return np.zeros(0)

    def close(self):
        pass


def test_quick_devices_go_on_until_the_slowest_is_through():
    told = threading.Event()
    quick, slow = Counting(None, told, after=5), Counting(told, None)
    core = available_cores()[0]
    workers = [DeviceThread("quick", core, quick), DeviceThread("slow", core, slow)]
    try:
        found = together(workers, {"quick": 1.0, "slow": 1.0})
    finally:
        for worker in workers:
            worker.close()
    assert found.keys() == {"quick", "slow"}
    assert quick.runs >= 5 and slow.runs == 1
    assert found["quick"] < found["slow"]


def test_rewriting_inputs_keeps_their_values():
    problem = SMALL[0].make()
    before = [array.copy() for array in problem.inputs]
    rewrite(problem)
    assert all(np.array_equal(a, b) for a, b in zip(problem.inputs, before, strict=True))


# Figures ------------------------------------------------------------------------------------------------------------------


def test_the_limit_is_the_sum_of_the_rates_beside_each_other_over_the_best_rate_alone():
    found = figures.compared({"a": 1.0, "b": 4.0}, {"a": 1.25, "b": 5.0}, 1.0)
    assert found["limit_speedup"] == pytest.approx(1.0)
    assert found["gain_captured"] is None
    found = figures.compared({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0}, 0.8)
    assert found["best_single"] == "a"
    assert found["speedup"] == pytest.approx(1.25)
    assert found["limit_speedup"] == pytest.approx(1.5)
    assert found["limit_s"] == pytest.approx(1 / 1.5)
    assert found["gain_captured"] == pytest.approx(0.5)


def entry(**changes):
    """Return a case's figures."""
    return {
        "op": "matmul", "devices": "a,b", "single_s": {"a": 0.01}, "numpy_all_threads_s": 0.012, "coexec_s": 0.008,
        "limit_speedup": 1.5, "size": 2000, "gain_captured": 0.5, "prediction_error": 0.1, "never_run": True, **changes,
    }  # fmt: skip


def test_the_summary_takes_large_cases_for_gains_long_ones_for_the_worst_and_unseen_ones_for_errors():
    found = figures.summary(
        [
            entry(),
            entry(gain_captured=0.9),
            entry(gain_captured=0.1, size=512, single_s={"a": 0.001, "b": 0.1}),
            entry(gain_captured=0.2, limit_speedup=1.05, coexec_s=0.02, prediction_error=-0.5, never_run=False),
        ],
        [entry(prediction_error=-0.3), entry(prediction_error=None)],
    )
    assert found["median_gain_captured"] == pytest.approx(0.7)
    assert found["worst_vs_best_single"] == pytest.approx(0.5)
    assert found["worst_vs_numpy_all_threads"] == pytest.approx(0.6)
    assert found["median_abs_error"] == pytest.approx(0.1)
    assert (found["gain_cases"], found["long_cases"]) == (2, 3)
    assert (found["predicted_cases"], found["unpredicted_cases"]) == (4, 1)


def test_a_summary_of_nothing_has_no_figures():
    found = figures.summary([], [])
    assert [found[key] for key in sorted(SUMMARY)] == [None] * 4


def test_an_error_is_positive_when_it_took_longer_and_absent_without_a_prediction():
    assert figures.error_of(2.0, 3.0) == pytest.approx(0.5)
    assert figures.error_of(None, 3.0) is None


def test_the_best_opencl_product_is_named():
    some = entry(shape="1", kernel_gflops={"opencl:0": 60.0}, single_gflops={"opencl:0": 50.0})
    better = entry(shape="2", kernel_gflops={"opencl:0": 70.0}, single_gflops={"opencl:0": 40.0})
    none = entry(kernel_gflops={})
    assert harness.opencl_gflops([some, better, none]) == {"shape": "2", "kernel": 70.0, "with_copies": 40.0}
    assert harness.opencl_gflops([none]) is None
