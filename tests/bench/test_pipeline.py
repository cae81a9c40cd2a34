"""The benchmark of pipelines: its cases, its truth, and the figures that must hold exactly."""

from __future__ import annotations

import numpy as np
import pytest

from coexec.bench.pipeline import drift, harness, planner, real, real as peers
from coexec.bench.pipeline.workloads import GRAPHS, block, cards_of, gcn, gin, planned_for
from coexec.errors import ConfigError
from coexec.plan.pipeline import judged, plan_pipeline
from tests.stream.test_results import opened


def quiet(text: str) -> None:
    del text


def test_there_are_ninety_cases_and_estimates_have_a_basis() -> None:
    assert len(list(planner.cases(quick=False))) == 90
    speeds = cards_of("dype-pcie4").speeds
    assert all(speed.basis.startswith(("estimate", "data sheet")) for speed in speeds.values())
    assert ("spmm", "fpga as graph") in speeds and ("matmul", "fpga as spmm") not in speeds
    assert speeds["spmm", "fpga as spmm"].rate == pytest.approx(150e9)  # what simulations use, too


def test_networks_decompose_into_their_products() -> None:
    graph = GRAPHS["pubmed"]
    assert [call.op for call in gcn(graph)[0]] == ["matmul", "spmm"] * 2
    assert [call.op for call in gin(graph)[0]] == ["spmm", "matmul", "matmul"] * 2
    assert gcn(graph)[0][0].flops == 2 * 19_717 * 500 * 16
    assert gcn(graph)[0][1].flops == 2 * (88_648 + 19_717) * 16
    calls, cuts = block(4096, 512)
    assert len(cuts) == len(calls) + 1 and calls[1].flops == 4 * 4096 * 512 * 64 * 12


@pytest.mark.parametrize("kind", ["gcn", "attention"])
def test_the_planner_finds_what_trying_all_schedules_finds(kind: str) -> None:
    case = next(case for case in planner.cases(quick=True) if case.kind == kind)
    cards = cards_of(case.preset)
    work, system = planned_for(case.work, cards, planner.truth(case, cards))
    for objective in ("throughput", "energy"):
        assert planner.exact(work, system, objective)
    first = plan_pipeline(work, system).points[0]
    assert judged(work, system, first.stages).period == pytest.approx(first.period)


def test_workers_are_shared_as_their_times_ask_for() -> None:
    found = planner.workers()
    assert abs(found["split"][0] - 56) <= 1 and sum(found["split"]) <= 126
    assert found["items_per_s"] >= 0.98 * 329


def test_density_that_changes_ten_fold_changes_the_plan_once() -> None:
    found = drift.run(True, quiet)
    assert found["changes"] == 1 and 0 < found["items_until_new_plan"] < 32
    assert found["of_best_static"] >= 0.9


def test_every_static_assignment_to_two_devices_is_tried() -> None:
    assert list(real.assignments(2, alike=False)) == [(0, 1), (1, 0)]
    assert list(real.assignments(3, alike=True)) == [(0, 0, 1), (0, 1, 0), (0, 1, 1)]
    assert len(list(real.assignments(5, alike=False))) == 2**5 - 2
    assert len(list(real.assignments(20, alike=False))) == 2 * 19
    stages = real.placed(["a", "b", "c", "d"], (0, 1, 1, 0), ("x", "y"))
    assert [(stage.kernels, stage.group, stage.slot) for stage in stages] == [
        (("a",), (("x", 1),), 0),
        (("b", "c"), (("y", 1),), 1),
        (("d",), (("x", 1),), 0),
    ]


def test_a_real_stream_is_compared_with_each_of_them() -> None:
    workload = next(w for w in real.workloads(quick=True) if w.name == "window attention")
    with opened(devices="cpu:0,cpu:1"):
        found = real.compare(workload._replace(items=workload.items[:3]), quick=True)
    ways = found["ways"]
    assert {found["same_as"], "alone on cpu", "in turn on 2 cpu"} <= set(ways) and len(ways) >= 3
    assert all(rate > 0.0 for rate in ways.values())
    assert found["peers"]["concurrent_futures"] > 0.0
    assert set(found["cpu_s_per_item"]) == {"planned", "best_single"}
    assert found["of_best_static"] > 0.0 and found["of_best_single"] > 0.0 and found["prediction_error"] >= 0.0


def test_estimates_are_halved_and_doubled_and_conclusions_that_flip_are_named() -> None:
    case = next(case for case in planner.cases(quick=True) if (case.kind, case.objective) == ("gcn", "energy"))
    cards = cards_of(case.preset)
    usual = planner._conclusions([case], cards)
    assert usual.general[planner.GAINS["energy"]]
    slow = {
        at: speed._replace(rate=speed.rate / 100) if "fpga" in at[1] else speed for at, speed in cards.speeds.items()
    }
    changed = planner._conclusions([case], cards._replace(speeds=slow))
    assert changed.used == [("gpu",)] != usual.used
    assert not changed.general[planner.GAINS["energy"]]


def test_what_peers_compute_is_attention_within_the_window() -> None:
    x = np.random.default_rng(0).standard_normal((37, 8)).astype(np.float32)
    found = real._attention(x, 8)
    for row in range(len(x)):
        near = x[max(0, row - 4) : row + 5]
        weights = np.exp(near @ x[row] / np.sqrt(8))
        np.testing.assert_allclose(found[row], weights @ near / weights.sum(), rtol=1e-4, atol=1e-5)


def test_peers_compute_every_item() -> None:
    found = peers.compared(lambda x: x + 1, list(range(5)), 1)
    assert "concurrent_futures" in found and all(rate > 0.0 for rate in found.values())
    assert peers.threads(lambda x: x + 1, [1, 2]) == [2, 3]


def test_parts_are_chosen_by_their_names() -> None:
    assert len(real.named(False)) == 9 and real.named(True, ["image"]) == ["real image on cpu:0,cpu:1"]
    assert [workload.name for workload in real.workloads(quick=True)] == list(real.NAMES)
    assert list(harness.run(True, quiet, ["drift"])) == ["drift"]
    with pytest.raises(
        ConfigError, match="no part's name contains 'drifd'; parts are planner, real gcn on cpu:0,cpu:1"
    ):
        harness.run(True, quiet, ["drifd"])
