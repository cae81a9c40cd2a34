"""A model is calls like any others: it is the function of a pipeline, and runs among ranks of a simulated cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.models.building import NetBuilder
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


def test_a_model_is_predicted_among_simulated_ranks_without_computing(items: list[Any]) -> None:
    model = small()
    with cx.Runtime(platform=cluster(2), ranks=2) as runtime:
        model(items[0])
        cx.wait()
        assert runtime.machine.lanes["host"].now > 0
