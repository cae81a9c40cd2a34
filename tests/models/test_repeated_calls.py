"""Models that are called again and again: what is between operations is kept, and nobody can tell but by the time it takes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.models.building import NetBuilder
from tests.clusters import cluster

IMAGE = (1, 4, 40, 40)
TURNS = 6


def convolutions() -> cx.Model:
    """Four convolutions: three values between them."""
    net = NetBuilder("convolutions")
    x = net.input("x", IMAGE)
    for _ in range(4):
        x = net.same("Relu", net.conv(x, 24, 3))
    return cx.Model(net.done(x))


def views() -> cx.Model:
    """A network whose results are a value between operations and another one's other shape."""
    net = NetBuilder("views")
    first = net.same("Relu", net.conv(net.input("x", IMAGE), 24, 3))
    second = net.conv(net.conv(first, 24, 3), 24, 3)
    return cx.Model(net.done(net.transpose(second, (0, 2, 3, 1)), first, net.conv(second, 8, 3)))


def images(count: int = TURNS) -> list[Any]:
    return list(np.random.default_rng(0).standard_normal((count, *IMAGE)).astype(np.float32))


def results(model: cx.Model, x: Any) -> list[Any]:
    found = model(x)
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def alone(model: cx.Model, x: Any) -> list[Any]:
    """Return the results of the first call of a runtime, as arrays of their own."""
    with cx.Runtime("cpu:0", store="off"):
        return [one.copy() for one in results(model, x)]


def times_given(model: cx.Model) -> int:
    return sum(kept.given for _, kept in model._scratch)


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:1"])
def test_values_between_operations_are_written_to_the_arrays_of_the_call_before(devices: str) -> None:
    model = convolutions()
    with cx.Runtime(devices, store="off", replay=False) as runtime:  # one device would do all of it in one call
        numbers = runtime._driver.pump.scheduler.arrays
        made = []
        for x in images():
            before = numbers.last
            model(x)
            runtime.wait()
            made.append(numbers.last - before)
    assert times_given(model) == 3 * (TURNS - 1)
    weights = len(model.graph.constants)
    assert made == [weights + 1 + 4, *[1 + 1] * (TURNS - 1)], "from the second call on the input and the result are new"


@pytest.mark.parametrize("make", [convolutions, views])
def test_results_stay_what_they_were_when_the_model_is_called_again(make: Any) -> None:
    model = make()
    expected = [alone(make(), x) for x in images()]
    with cx.Runtime("cpu:0,cpu:1", store="off") as runtime:
        arrays, plain = [], []
        for x in images():
            found = model(x)
            arrays.append(found if isinstance(found, tuple) else (found,))
            plain.append([np.asarray(one) for one in arrays[-1]])
            runtime.wait()
        for turn in (arrays, plain):
            for found, right in zip(turn, expected, strict=True):
                for one, other in zip(found, right, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert times_given(model) > 0


def test_a_result_may_be_changed_and_given_back_as_an_input() -> None:
    net = NetBuilder("same_shape")
    x = net.input("x", IMAGE)
    for _ in range(3):
        x = net.conv(x, IMAGE[1], 3)
    model = cx.Model(net.done(x))
    (first,) = alone(model, images()[0])
    (second,) = alone(model, first + 1)
    with cx.Runtime("cpu:0,cpu:1", store="off") as runtime:
        model(images()[0])
        runtime.wait()
        found = model(images()[0])
        runtime.wait()
        found += 1
        np.testing.assert_allclose(model(found), second, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found, first + 1, rtol=1e-4, atol=1e-5)


def test_a_call_does_not_wait_for_the_arrays_of_one_that_is_under_way() -> None:
    model, go = convolutions(), threading.Event()
    wait = go.wait

    @cx.kernel(split=0, out=cx.write)
    def blocked(out: Any) -> None:
        wait()
        out[...] = 1

    (right,) = alone(convolutions(), images()[0])
    with cx.Runtime("cpu:0", store="off", inline=False):
        try:
            blocked(cx.empty(100_000))
            found = [model(images()[0]), model(images()[0])]
        finally:
            go.set()
        for one in found:
            np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-5)
    assert model._scratch == []


def test_nothing_is_kept_in_simulations_and_among_ranks() -> None:
    model = convolutions()
    for machine, ranks in (("workstation", 1), (cluster(2), 2)):
        with cx.Runtime("", platform=machine, ranks=ranks, store="off", diagnostics="off", execute=True) as runtime:
            for x in images(2):
                model(x)
                runtime.wait()
            assert not runtime.quiet()
    assert model._scratch == []


def test_another_runtime_gets_arrays_of_its_own() -> None:
    model = convolutions()
    (right,) = alone(convolutions(), images()[0])
    for _ in range(2):
        with cx.Runtime("cpu:0", store="off", replay=False) as runtime:
            for _ in range(2):
                np.testing.assert_allclose(model(images()[0]), right, rtol=1e-4, atol=1e-5)
                runtime.wait()
            assert times_given(model) == 3


def test_threads_may_call_one_model_at_once() -> None:
    model = convolutions()
    expected = [alone(convolutions(), x)[0] for x in images()]
    with cx.Runtime("cpu:0,cpu:1", store="off"), ThreadPoolExecutor(3) as threads:
        for found, right in zip(threads.map(lambda x: results(model, x)[0], images()), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
