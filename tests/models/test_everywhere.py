"""A model is calls like any others: it is the function of a pipeline, and runs among ranks of a simulated cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.models.building import NetBuilder
from coexec.testing import on_teams
from tests.clusters import cluster


def small() -> cx.Model:
    """Return two convolutions, one of them with a shortcut, and a classifier."""
    net = NetBuilder("small")
    x = net.same("Relu", net.conv(net.input("x", (1, 3, 12, 10)), 6, 3))
    x = net.same("Relu", net.same("Add", net.conv(x, 6, 3), x))
    return cx.Model(net.done(net.fc(net.flatten(net.global_pool(x)), 5)))


@pytest.fixture(scope="module")
def items() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 3, 12, 10)).astype(np.float32) for _ in range(4)]


@pytest.fixture(scope="module")
def expected(items: list[Any]) -> list[Any]:
    model = small()
    with cx.Runtime(devices="cpu:0"):
        return [np.asarray(model(item)) for item in items]


@pytest.mark.parametrize("machine", [{"devices": "cpu:0,cpu:1"}, {"platform": "dype-pcie4", "execute": True}])
def test_a_model_is_the_function_of_a_pipeline(machine: dict[str, Any], items: list[Any], expected: list[Any]) -> None:
    with cx.Runtime(**machine):
        pipe = cx.Pipeline(small())
        plan = pipe.plan(items[0])[0]
        found = pipe.map(items)
    assert (plan.kind, plan.name) == ("pipeline", "small") and plan.stages
    for result, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_model_runs_among_simulated_ranks(nodes: int, items: list[Any], expected: list[Any]) -> None:
    model = small()
    with cx.Runtime(platform=cluster(nodes), ranks=nodes, execute=True):
        found = [np.asarray(model(item)) for item in items]
    for result, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, values, rtol=1e-4, atol=1e-5)


TWO_NODES = """
nodes = 2

[[memory]]
name = "host"
bandwidth = 10e9

[[device]]
name = "cpu"
kind = "cpu"
count = 1
cores = 1
memory = "host"
flops = 1e10

[[nic]]
name = "nic"

[[link]]
from = "host"
to = "nic"
bandwidth = 1e10
latency = 0.0

[network]
bandwidth = 1e10
latency = 1e-6
"""


def test_a_model_runs_on_ranks_as_it_is_and_sharded_over_them(
    items: list[Any], expected: list[Any], tmp_path: Path
) -> None:
    """Every rank is its own thread here; the plan cuts layers over the devices of both."""
    file = tmp_path / "two.toml"
    file.write_text(TWO_NODES)

    def run() -> Any:
        model = small()
        with cx.Runtime("cpu:0", store="off"):
            sharded = model.plan(str(file), budget=1.0)
            here = model.plan(budget=1.0)
            ways: list[dict[str, Any]] = [{}, {"plan": sharded}, {"plan": here}]
            return sharded.as_dict(), here.as_dict(), [[np.asarray(model(x, **way)) for x in items] for way in ways]

    first, second = on_teams(2, run)
    assert first[:2] == second[:2]
    for found in (*first[2], *second[2]):
        for result, values in zip(found, expected, strict=True):
            np.testing.assert_allclose(result, values, rtol=1e-4, atol=1e-5)


def test_a_model_is_predicted_among_simulated_ranks_without_computing(items: list[Any]) -> None:
    model = small()
    with cx.Runtime(platform=cluster(2), ranks=2) as runtime:
        model(items[0])
        cx.wait()
        assert runtime.machine.lanes["host"].now > 0
