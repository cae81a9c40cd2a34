"""A stream changes its plan when the data changes character, if that pays, and never back and forth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.plan.pipeline import DeviceClass, Hop, StreamKernel, StreamSystem, StreamWork, plan_pipeline
from coexec.stream.features import bucket, features_of, key_of
from coexec.stream.planning import PreparedFront
from coexec.stream.rescheduling import CHANGE, KEEP, WINDOW, Adviser
from tests.stream.test_results import opened

SPARSE, DENSE = (("density", 1),), (("density", 8),)


def system(load: float = 0.0) -> StreamSystem:
    classes = (DeviceClass("fpga", 1, 60.0, 30.0, load=load), DeviceClass("gpu", 1, 300.0, 40.0))
    ways = {(a, b): Hop(1e-6, 1e10) for a in ("host", "fpga", "gpu") for b in ("host", "fpga", "gpu") if a != b}
    return StreamSystem(classes, ways)


def front(spmm: dict[str, float], gemm: dict[str, float], load: float = 0.0, host: float = 0.0) -> PreparedFront:
    """Return a front for two kernels with these seconds."""
    work = StreamWork.chain([StreamKernel("0.spmm", spmm), StreamKernel("1.gemm", gemm)], [1e4, 1e4, 1e4])
    found = plan_pipeline(work, system(load))
    members = {"fpga": ("fpga:0",), "gpu": ("gpu:0",)}
    names, lines = ("0.spmm", "1.gemm"), ("a.py:1", "a.py:2")
    made = PreparedFront(
        found, work, system(load), members, ("spmm", "gemm"), names, lines, 0, "", 0.0, frozenset(), 3e4
    )
    return made.paced(host)


GEMM = {"fpga": 9e-3, "gpu": 1e-3}
OF_SPARSE = {"fpga": 1e-3, "gpu": 3e-3}  # the FPGA takes the product
OF_DENSE = {"fpga": 20e-3, "gpu": 2e-3}  # the GPU takes everything


def run(adviser: Adviser, kinds: list[Any], first: PreparedFront) -> list[int]:
    """Let items of these kinds pass; return at which of them the plan changed."""
    point, changes = adviser.choose(first), []
    for number, key in enumerate(kinds):
        adviser.seen(key)
        decision, plan = adviser.decide(key, point)
        assert decision.item == number and decision.what in (KEEP, CHANGE)
        if plan is not None:
            point = plan[1]
            changes.append(number)
    return changes


def both(load: float = 0.0, objective: str = "throughput") -> tuple[Adviser, PreparedFront]:
    adviser, sparse = Adviser(objective), front(OF_SPARSE, GEMM, load)
    adviser.learn(SPARSE, sparse)
    adviser.learn(DENSE, front(OF_DENSE, GEMM, load))
    return adviser, sparse


@pytest.mark.parametrize("objective", ["throughput", "energy", "latency", "balanced"])
def test_the_plan_changes_once_after_the_data_has_changed(objective: str) -> None:
    adviser, first = both(objective=objective)
    changes = run(adviser, [SPARSE] * 40 + [DENSE] * 60, first)
    assert len(changes) <= 1
    assert all(40 <= number <= 40 + WINDOW for number in changes)
    if objective == "throughput":
        assert changes and changes[0] < 48  # twenty milliseconds per item are too many to wait for long


def test_alternating_data_does_not_thrash() -> None:
    adviser, first = both()
    assert len(run(adviser, [SPARSE, DENSE] * 200, first)) <= 1
    for length in (2, 5, 10, 16):
        adviser, first = both()
        assert len(run(adviser, ([SPARSE] * length + [DENSE] * length) * 20, first)) <= 2, length


def test_a_change_that_costs_more_than_it_saves_is_not_made_and_told() -> None:
    adviser, first = both()
    adviser.learn(DENSE, front({"fpga": 3.1e-3, "gpu": 2.1e-3}, GEMM, load=30.0))
    point = adviser.choose(first)
    for _ in range(WINDOW):
        adviser.seen(DENSE)
    decision, plan = adviser.decide(DENSE, point)
    assert plan is None and decision.what == KEEP
    assert decision.now >= decision.best > 0.0
    assert "density~8" in decision.told() and f"{decision.best:.6g}" in decision.told()


def test_where_python_sets_the_pace_nothing_changes() -> None:
    adviser, first = Adviser("throughput"), front(OF_SPARSE, GEMM, host=50e-3)
    adviser.learn(SPARSE, first)
    adviser.learn(DENSE, front(OF_DENSE, GEMM, host=50e-3))
    assert run(adviser, [SPARSE] * 10 + [DENSE] * 100, first) == []


def test_items_within_a_factor_share_a_bucket_and_features_are_cheap_to_read() -> None:
    import scipy.sparse as sp

    assert bucket(100.0) == bucket(105.0) != bucket(200.0)
    assert bucket(0.0) < bucket(1e-9) and bucket(-4.0) < bucket(0.0)
    with opened(devices="cpu:0"):
        graph = cx.csr(sp.random_array((300, 300), density=0.05, format="csr", rng=np.random.default_rng(0)))
        found = features_of({"graph": graph, "x": np.ones((300, 8)), "k": 3}, {"mine": lambda item: item["k"] * 2})
        assert found["[0].nonzeros"] == graph.nnz and found["[0].rows"] == 300.0
        assert 0.0 < found["[0].skew"] < 1.0
        assert found["[1].shape[1]"] == 8.0 and found["mine"] == 6.0
        assert key_of(found) == key_of(found | {"[0].nonzeros": graph.nnz + 1.0})
        with pytest.raises(cx.errors.ArgumentError, match="mine"):
            features_of(3, {"mine": lambda item: float("nan")})


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 40.0 * x.size)
def first_half(x: Any, y: Any) -> None:
    y[...] = x * 2


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 40.0 * x.size * x.shape[0])
def second_half(x: Any, y: Any) -> None:
    y[...] = x + 1


def halves(item: Any) -> Any:
    y, z = cx.empty(item.shape, item.dtype), cx.empty(item.shape, item.dtype)
    first_half(item, y)
    second_half(y, z)
    return z


def test_a_stream_of_items_that_grow_changes_its_plan_and_says_so_in_the_trace(tmp_path: Any) -> None:
    trace = tmp_path / "run.jsonl"
    small, large = [np.full((n, 64), 1.0, np.float32) for n in (8, 2048)]
    with opened(platform="workstation", execute=True, trace=trace):
        pipe = cx.Pipeline(halves)
        pipe.plan(small, devices="cpu:0,gpu:0")
        before = pipe.explain()
        found = pipe.map([small] * 20 + [large] * 30)
        decisions = pipe.decisions
        after = pipe.explain()
    assert [len(result) for result in found] == [8] * 20 + [2048] * 30
    assert all(np.all(result == 3.0) for result in found)
    changes = [decision for decision in decisions if decision.what == CHANGE]
    assert len(changes) == 1 and 20 < changes[0].item < 40
    assert before.splitlines()[1:3] != after.splitlines()[1:3]
    notes = [row["text"] for row in cx.Trace.load(trace).notes]
    assert len([text for text in notes if text.startswith("stream item")]) >= len(decisions) >= 3
    assert any("change: last 32 items cost" in text for text in notes)


def test_planning_happens_beside_a_real_stream_and_results_stay_right() -> None:
    small, large = [np.full((n, 64), 1.0, np.float32) for n in (8, 512)]
    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(halves).feature("rows", lambda item: item.shape[0])
        found = pipe.map(([small] * 3 + [large] * 3) * 4)
        assert all(np.all(result == 3.0) for result in found)
        assert pipe.decisions[0].what == "new"
    import threading

    assert not [t for t in threading.enumerate() if t.name == "coexec-stream-plan"]
