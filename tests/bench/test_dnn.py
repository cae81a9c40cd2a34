"""`coexec bench dnn`: cases have their keys, are never worse than what they are compared with, and never below their bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.bench import BENCHMARKS
from coexec.bench.dnn.harness import run
from coexec.bench.dnn.real import NETWORKS, networks, real_case, threads_of, torch_network
from coexec.bench.dnn.search import multimodal_case, typical_case
from coexec.machine.cores import available_cores
from coexec.machine.platform import Platform
from coexec.models.catalogue import layers
from coexec.models.fabric import fabric
from coexec.models.genetic import GeneticEffort
from coexec.models.loops import CONV

SEARCHED = {"network", "platform", "bandwidth", "latency_s", "baseline_s", "reduction", "bound_s", "gap", "seconds"}
RAN = {"others_cores", "model", "devices", "coexec_s", "best_single_s", "onnxruntime_s", "predicted_s", "error"}


def test_the_benchmark_is_in_the_table() -> None:
    assert "dnn" in BENCHMARKS


def test_a_typical_network_is_at_its_bound_and_below_the_baselines() -> None:
    case = typical_case(layers("alexnet").only(CONV), fabric(Platform.load("f1.16xlarge")))
    assert case.keys() >= SEARCHED
    assert abs(case["gap"]) < 1e-9
    assert case["latency_s"] <= case["all8_s"] <= case["baseline_s"]


def test_the_genetic_search_looks_at_mappings_of_the_same_class_and_does_not_beat_the_exact_one() -> None:
    machine, effort = fabric(Platform.load("f1.16xlarge")), GeneticEffort(4, 3, 8, 6)
    cases = [typical_case(layers("alexnet").only(CONV), machine, effort)["genetic"] for _ in range(2)]
    assert cases[0]["gap"] >= -1e-9
    assert cases[0]["evaluations"] > 100
    assert [case["latency_s"] for case in cases] == [cases[0]["latency_s"]] * 2, "it repeats itself exactly"


def test_a_multimodal_model_is_not_worse_than_h2h_and_not_below_its_bound() -> None:
    case = multimodal_case(layers("casia_surf"), 0.125e9, trials=60)
    assert case.keys() >= SEARCHED
    assert case["latency_s"] <= case["baseline_s"]
    assert -1e-9 <= case["gap"] <= 0.01


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2 (depthwise)", "small_cnn", "encoder_block"])
def test_torch_as_a_peer_computes_the_same(name: str) -> None:
    pytest.importorskip("torch", reason="torch is a peer where it is installed")
    model = networks(quick=True)[name]
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {n: rng.standard_normal(t.shape).astype(t.dtype) for n, t in model.inputs.items()}
    (expected,) = torch_network(model.graph, inputs)()
    with cx.Runtime(devices="cpu:0"):
        np.testing.assert_allclose(model(**inputs), expected, rtol=1e-3, atol=1e-4 * float(np.abs(expected).max()))


def test_only_the_networks_and_devices_that_are_asked_for_are_measured() -> None:
    told: list[str] = []
    found = run(True, told.append, only=["casia_surf"])
    assert {case["network"] for case in found["search"]["cases"]} == {"casia_surf"} and not found["real"]["cases"]
    assert found["search"]["mean_reduction"] is None and found["search"]["mean_reduction_h2h"] > 0
    with pytest.raises(cx.errors.UnknownName, match="small_cnn"):
        run(True, told.append, only=["small_cn"])
    with pytest.raises(cx.errors.UnknownName, match="set of devices"):
        run(True, told.append, only=["small_cnn"], devices=["cpu:7"])
    assert {name.partition(" ")[0] for name in networks(quick=True)} == set(NETWORKS)


def test_peers_have_as_many_threads_as_devices_have_cores() -> None:
    assert threads_of("cpu:0,opencl:0@1") == threads_of("cpu:0,torch:cpu@1") == 2
    assert threads_of("torch:cpu") == len(available_cores())


def test_a_network_runs_on_two_cores_beside_its_peers() -> None:
    model = networks(quick=True)["small_cnn"]
    inputs = {n: np.zeros(t.shape, t.dtype) for n, t in model.inputs.items()}
    case = real_case("small_cnn", model, inputs, "cpu:0,cpu:1", 1)
    assert case.keys() >= RAN
    assert case["coexec_s"] > 0 and case["onnxruntime_s"] > 0
