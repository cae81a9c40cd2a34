"""A model that one device computes is one call, with the results of its operations' calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.models.building import NetBuilder
from coexec.models.whole import WholeModel, whole_device
from coexec.program.fingerprint import fingerprint

SMALL = {
    "mobilenet_v2": {"image": 32},
    "resnet18": {"image": 32},
    "encoder": {"length": 12, "width": 16, "blocks": 2, "heads": 2},
}


def inputs(model: cx.Model, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed).standard_normal
    return {name: draw(kind.shape).astype(kind.dtype) for name, kind in model.inputs.items()}


def close(found: Any, right: Any) -> None:
    """Compare results; with another number of its threads BLAS adds up in another order."""
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5 * np.abs(right).max())


def small() -> cx.Model:
    net = NetBuilder("small")
    x = net.same("Relu", net.conv(net.input("x", (1, 3, 9, 9)), 4, 3))
    return cx.Model(net.done(net.fc(net.flatten(net.global_pool(x)), 5), net.conv(x, 2, 3)))


def calls_made(model: cx.Model, devices: str, plan: Any = None, **options: Any) -> int:
    """Return how many calls a warm call of a model becomes, without the read of its result."""
    with cx.Runtime(devices, store="off", inline=False, **options) as runtime:
        found = [np.asarray(one) for _ in range(2) for one in _several(model(**inputs(model), plan=plan))]
        assert len(found) == 2 * len(model.outputs)
        runtime.wait()
        before = runtime._driver.pump.scheduler.link.graph.last
        kept = _several(model(**inputs(model), plan=plan))
        made = runtime._driver.pump.scheduler.link.graph.last - before
        assert len(kept) == len(model.outputs)
        return made


def _several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", SMALL)
def test_one_call_gives_what_many_give(name: str) -> None:
    model = cx.Model.named(name, **SMALL[name])
    with cx.Runtime("cpu:0", store="off", replay=False):
        right = [np.array(model(**inputs(model, seed))) for seed in range(3)]
    with cx.Runtime("cpu:0", store="off"):
        found = [model(**inputs(model, seed)) for seed in range(3)]
        for one, expected in zip(found, right, strict=True):
            close(one, expected)


@pytest.mark.parametrize("name", SMALL)
def test_torch_computes_the_same_within_tolerance(name: str) -> None:
    pytest.importorskip("torch")
    model = cx.Model.named(name, **SMALL[name])
    with cx.Runtime("cpu:0", store="off"):
        right = np.array(model(**inputs(model)))
    with cx.Runtime("torch:cpu", store="off"):
        for _ in range(2):
            close(model(**inputs(model)), right)


def test_a_model_on_one_device_is_one_call_and_who_asks_for_every_call_gets_every_call() -> None:
    model = small()
    assert calls_made(model, "cpu:0") == 1
    for options in ({"replay": False}, {"debug": True}, {"reproducible": True}):
        assert calls_made(model, "cpu:0", **options) > 3
    assert calls_made(model, "cpu:0,cpu:1") > 3


def test_a_plan_for_one_device_of_several_is_one_call() -> None:
    model = small()
    with cx.Runtime("cpu:0", store="off"):
        plan = model.plan(budget=0.1)
    assert calls_made(model, "cpu:0,cpu:1", plan) == 1


def test_threads_share_a_model() -> None:
    model = small()
    with cx.Runtime("cpu:0", store="off"), ThreadPoolExecutor(4) as pool:
        right = {seed: [np.array(one) for one in model(**inputs(model, seed))] for seed in range(8)}
        found = list(pool.map(lambda seed: [np.array(one) for one in model(**inputs(model, seed))], range(8)))
    for seed, results in enumerate(found):
        for one, expected in zip(results, right[seed], strict=True):
            close(one, expected)


def test_a_model_that_cannot_be_written_down_is_called_operation_by_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = small(), small()
    monkeypatch.setattr("coexec.models.whole.MOST_BYTES", 100)
    with cx.Runtime("cpu:0", store="off"):
        found = [np.array(one) for one in model(**inputs(model))]
        assert model._whole.kernel("cpu") is None
    monkeypatch.undo()
    with cx.Runtime("cpu:0", store="off"):
        for one, expected in zip(other(**inputs(other)), found, strict=True):
            close(one, expected)


def test_a_failure_says_the_models_name_and_leaves_the_model_usable() -> None:
    model = small()
    whole: WholeModel = model._whole
    with cx.Runtime("cpu:0", store="off"):
        right = [np.array(one) for one in model(**inputs(model))]
        made = whole.kernel("cpu")
        assert made is not None
        body: Any = made.function
        steps, body._steps = body._steps, [(_fail, ())]
        with pytest.raises(cx.CoexecError, match="small"):
            np.asarray(model(**inputs(model))[0])
        body._steps = steps
        for one, expected in zip(model(**inputs(model)), right, strict=True):
            close(one, expected)


def _fail() -> None:
    raise ValueError("no")


def test_measurements_of_one_model_are_not_those_of_another_of_its_name() -> None:
    kernels = [cx.Model.named("resnet18", image=image)._whole.kernel("cpu") for image in (32, 64, 32)]
    first, second, third = map(fingerprint, kernels)
    assert first == third != second


def test_only_a_device_with_the_hosts_memory_computes_whole_models() -> None:
    with cx.Runtime("cpu:0,cpu:1", store="off") as runtime:
        assert whole_device(runtime) == ("", "")
        assert whole_device(runtime, "cpu:1") == ("cpu:1", "cpu")
        assert whole_device(runtime, "opencl:0") == ("", "")
    with cx.Runtime(platform="laptop", store="off") as runtime:
        name = runtime.platform.devices[0].name
        assert whole_device(runtime, name) == ("", "")
