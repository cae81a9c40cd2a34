"""Layers that run as they are sharded give what the whole layer gives: every legal choice, sizes that do not divide, uneven parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import coexec as cx
from coexec.models.building import NetBuilder
from coexec.models.extract import workload
from coexec.models.running import GraphConstants, call_of, run_graph
from coexec.models.sharded import LayerCut, even_sizes, run_conv, run_product
from coexec.models.sharding import COUT, Sharding, shardings
from coexec.models.values import LayerGraph

DEVICES = ("cpu:0", "cpu:1")


def conv_net(
    batch: int, cin: int, cout: int, side: tuple[int, int], taps: int, stride: int, pad: int, groups: int
) -> LayerGraph:
    net = NetBuilder("conv")
    x = net.input("x", (batch, cin * groups, *side))
    return net.done(net.conv(x, cout * groups, taps, stride, pad, groups))


def product_net(lead: tuple[int, ...], rows: int, inner: int, columns: int, *, stored: bool) -> LayerGraph:
    net = NetBuilder("product")
    x = net.input("x", (*lead, rows, inner))
    w = net.parameter("w", (inner, columns)) if stored else net.input("w", (*lead, inner, columns))
    return net.done(net.matmul(x, w))


def sharded(graph: LayerGraph, sharding: Sharding, sizes: Any, inputs: dict[str, Any]) -> Any:
    """Run the one layer of a graph as it is sharded."""
    layer = workload(graph).layers[0]
    devices = tuple(DEVICES[i % 2] for i in range(sharding.parts))
    cut = LayerCut(layer, sharding, devices, sizes)
    call = call_of(graph, graph.operations[0], inputs, GraphConstants(graph))
    found = run_conv(call, cut) if graph.operations[0].kind == "Conv" else run_product(call, cut)
    assert found is not None
    return np.asarray(found)


def uneven(draw: Any, layer: Any, sharding: Sharding) -> tuple[tuple[int, ...], ...]:
    """Draw sizes of parts that make up each dimension; some may be empty."""
    found = []
    for dim, (size, parts) in enumerate(zip(layer.loops, sharding.factors, strict=True)):
        unit = size // layer.groups if dim == COUT and layer.groups > 1 else 1
        cuts = sorted(draw(st.lists(st.integers(0, size // unit), min_size=parts - 1, max_size=parts - 1)))
        ends = [0, *cuts, size // unit]
        found.append(tuple((b - a) * unit for a, b in pairwise(ends)))
    return tuple(found)


@st.composite
def convolutions(draw: Any) -> tuple[LayerGraph, Sharding, Any]:
    taps = draw(st.sampled_from([1, 2, 3, 5]))
    side = tuple(draw(st.integers(taps, 13)) for _ in range(2))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    graph = conv_net(
        draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5)), side, taps, draw(st.integers(1, 3)),
        draw(st.integers(0, taps // 2)), groups,
    )  # fmt: skip
    layer = workload(graph).layers[0]
    sharding = draw(st.sampled_from(shardings(layer, draw(st.sampled_from([1, 2, 3, 4])))))
    sizes = uneven(draw, layer, sharding) if draw(st.booleans()) else even_sizes(layer, sharding)
    return graph, sharding, sizes


@st.composite
def products(draw: Any) -> tuple[LayerGraph, Sharding, Any]:
    stored = draw(st.booleans())
    lead = draw(st.sampled_from([(), (3,), (2, 3), (1, 5)]) if stored else st.sampled_from([(3,), (2, 3), (1, 5)]))
    graph = product_net(lead, draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.integers(1, 7)), stored=stored)
    layer = workload(graph).layers[0]
    sharding = draw(st.sampled_from(shardings(layer, draw(st.sampled_from([1, 2, 3, 4])))))
    sizes = uneven(draw, layer, sharding) if draw(st.booleans()) else even_sizes(layer, sharding)
    return graph, sharding, sizes


def check(case: tuple[LayerGraph, Sharding, Any]) -> None:
    graph, sharding, sizes = case
    rng = np.random.default_rng(1)
    inputs = {n: cx.array(rng.standard_normal(graph.types[n].shape).astype(np.float32)) for n in graph.inputs}
    whole = np.asarray(run_graph(graph, inputs, GraphConstants(graph))[0])
    found = sharded(graph, sharding, sizes, inputs)
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(whole).max())))


QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(QUICK, max_examples=1500)


@given(convolutions())
@QUICK
def test_convolutions_run_as_they_are_sharded(case: tuple[LayerGraph, Sharding, Any]) -> None:
    check(case)


@given(products())
@QUICK
def test_products_run_as_they_are_sharded(case: tuple[LayerGraph, Sharding, Any]) -> None:
    check(case)


@pytest.mark.slow
@given(convolutions())
@LONG
def test_many_convolutions_run_as_they_are_sharded(case: tuple[LayerGraph, Sharding, Any]) -> None:
    check(case)


@pytest.mark.slow
@given(products())
@LONG
def test_many_products_run_as_they_are_sharded(case: tuple[LayerGraph, Sharding, Any]) -> None:
    check(case)
