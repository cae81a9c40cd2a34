"""The steps of a model by torch give what a core gives: laid-out weights, and torch's functions where there are none."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.machine.cores import available_cores
from coexec.models.building import NetBuilder
from coexec.models.torch_steps import torch_steps
from coexec.models.whole import RecordedModel

torch = pytest.importorskip("torch", reason="steps by torch need it")
IMAGE = (2, 6, 11, 9)


def conv(net: NetBuilder, x: str, filters: int, pads: tuple[int, ...], **given: Any) -> str:
    """Add a convolution with any padding, stride and groups."""
    shape, groups = net.shape(x), given.get("group", 1)
    w = net.parameter(f"w{len(net._operations)}", (filters, shape[1] // groups, 3, 3))
    b = net.parameter(f"b{len(net._operations)}", (filters,))
    step = given.get("strides", (1, 1))
    sizes = [(shape[2 + a] + pads[a] + pads[2 + a] - 3) // step[a] + 1 for a in (0, 1)]
    return net.add_operation("Conv", (x, w, b), (shape[0], filters, *sizes), pads=pads, **given)


def network(kind: str) -> cx.Model:
    net = NetBuilder(kind)
    x = net.input("x", IMAGE)
    low, high = (net.constant(n, np.array(v, np.float32)) for n, v in (("low", -0.2), ("high", 0.4)))
    match kind:
        case "even":
            y = net.same("Relu", conv(net, x, 8, (1, 1, 1, 1)))
        case "uneven":
            y = net.same("Relu", conv(net, x, 8, (0, 1, 2, 1)))
        case "groups":
            y = net.same("Clip", conv(net, x, 12, (1, 1, 1, 1), group=6), low, high)
        case "bounded below":
            y = net.same("Clip", conv(net, x, 6, (1, 1, 1, 1), strides=(2, 1)), low)
        case "shortcut":
            first = conv(net, x, 6, (1, 1, 1, 1))
            y = net.same("Relu", net.same("Add", conv(net, first, 6, (1, 1, 1, 1)), first))
        case "bounded shortcut":
            first = conv(net, x, 6, (1, 1, 1, 1))
            y = net.same("Clip", net.same("Add", conv(net, first, 6, (1, 1, 1, 1)), first), low, high)
        case _:
            y = net.pool(conv(net, x, 8, (1, 1, 1, 1)), 3, 2, 1)
    y = net.same("Add", y, net.same("Sigmoid", y))
    return cx.Model(net.done(net.fc(net.flatten(net.global_pool(y)), 3), net.transpose(y, (0, 2, 3, 1))))


KINDS = ["even", "uneven", "groups", "bounded below", "shortcut", "bounded shortcut", "pool"]


@pytest.mark.parametrize("laid_out", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_gives_what_a_core_gives(kind: str, laid_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not laid_out:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    model = network(kind)
    images = np.random.default_rng(3).standard_normal((3, *IMAGE)).astype(np.float32)
    with cx.Runtime("cpu:0", store="off", replay=False):
        right = [[np.array(one) for one in model(x)] for x in images]
    with cx.Runtime("torch:cpu", store="off"):
        found = [model(x) for x in images]
        for some, expected in zip(found, right, strict=True):
            for one, other in zip(some, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("laid_out", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_none_stay_so_where_sums_have_bounds(
    kind: str, laid_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not laid_out:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    model = network(kind)
    image = np.random.default_rng(3).standard_normal(IMAGE).astype(np.float32)
    image[0, :, 5, 4] = np.nan
    with cx.Runtime("cpu:0", store="off", replay=False):
        right = [np.array(one) for one in model(image)]
    assert np.isnan(right[1][0]).any() and not np.isnan(right[1][1]).any()
    with cx.Runtime("torch:cpu", store="off"):
        for one, other in zip(model(image), right, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_products_with_a_relu_keep_what_is_no_number() -> None:
    for added in (False, True):
        net = NetBuilder("product")
        x = net.input("x", (4, 6))
        y = net.fc(x, 6)
        y = net.same("Relu", net.same("Add", y, x) if added else y)
        model, given = cx.Model(net.done(y)), np.ones((4, 6), np.float32)
        given[1, 2] = np.nan
        with cx.Runtime("torch:cpu", store="off"):
            found = np.isnan(np.asarray(model(given)))
        assert found[1].all() and not found[[0, 2, 3]].any()


def test_a_torch_that_refuses_laid_out_weights_computes_by_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("another version")

    monkeypatch.setattr("coexec.models.torch_steps._packed", refuse)
    recorded = RecordedModel(network("even")._whole._graph, images=True)
    steps = torch_steps(recorded.steps, recorded.tape, recorded.results)
    assert all(arguments for _, arguments in steps), "none of them has its operands inside"


def test_images_lie_with_their_channels_innermost_where_torch_computes() -> None:
    graph = network("even")._whole._graph
    outputs = {True: 0, False: 0}
    for images in outputs:
        for step in RecordedModel(graph, images=images).steps:
            outputs[images] += sum(
                isinstance(v, np.ndarray) and v.shape == (2, 8, 11, 9) and v.strides[1] == 4 for v in step.arguments
            )
    assert outputs[False] == 0
    assert outputs[True] >= 4


def test_weights_are_laid_out_by_the_devices_thread_for_its_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []

    def noting(*given: Any) -> Any:
        seen.append((torch.get_num_threads(), threading.current_thread() is threading.main_thread()))
        return torch_steps(*given)

    monkeypatch.setattr("coexec.models.whole.torch_steps", noting)
    model = network("even")
    image = np.random.default_rng(3).standard_normal(IMAGE).astype(np.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(3)  # the program's thread has another number than any device
    try:
        for devices in ("torch:cpu@0", "torch:cpu@0", "torch:cpu"):
            with cx.Runtime(devices, store="off"):
                for _ in range(2):
                    np.asarray(model(image)[0])
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, False), (len(available_cores()), False)]


@pytest.mark.parametrize("filters", [5, 700])
@pytest.mark.parametrize("shortcut", [True, False])
def test_convolutions_with_one_tap_are_products(filters: int, shortcut: bool) -> None:
    net = NetBuilder("pixels")
    before = conv(net, net.input("x", IMAGE), filters, (1, 1, 1, 1))
    w, b = net.parameter("w", (filters, filters, 1, 1)), net.parameter("b", (filters,))
    y = net.add_operation("Conv", (before, w, b), net.shape(before), pads=(0, 0, 0, 0))
    model = cx.Model(net.done(net.same("Relu", net.same("Add", y, before) if shortcut else y)))
    given = np.random.default_rng(3).standard_normal(IMAGE).astype(np.float32)
    given[1, 2, 3, 4] = np.nan
    with cx.Runtime("cpu:0", store="off", replay=False):
        right = np.array(model(given))
    with cx.Runtime("torch:cpu", store="off"):
        np.testing.assert_allclose(model(given), right, rtol=1e-4, atol=1e-4)
