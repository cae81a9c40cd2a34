"""What follows a convolution is part of it: fewer calls, the same results; graphs that are planned and saved stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import coexec as cx
from coexec.models.building import NetBuilder
from coexec.models.onnx_reading import read_onnx
from coexec.models.running import GraphConstants, run_graph
from coexec.program import array as arrays

RNG = np.random.default_rng(11)


def net(build: Any, shape: tuple[int, ...] = (2, 3, 9, 8)) -> cx.Model:
    made = NetBuilder("net")
    return cx.Model(made.done(build(made, made.input("x", shape))))


def unfused(model: cx.Model, x: Any) -> Any:
    """Return the result of a model's operations one by one."""
    (found,) = run_graph(model.graph, {"x": arrays.array(x)}, GraphConstants(model.graph))
    return np.asarray(found)


def check(model: cx.Model, kinds: dict[str, int]) -> None:
    assert model.running.kinds() == kinds
    x = RNG.standard_normal(model.inputs["x"].shape).astype(np.float32)
    for devices in ("cpu:0", "cpu:0,cpu:1"):
        with cx.Runtime(devices=devices):
            np.testing.assert_allclose(model(x), unfused(model, x), rtol=1e-5, atol=1e-5)


def residual(made: NetBuilder, x: str) -> str:
    first = made.same("Relu", made.conv(x, 4, 3))
    return made.same("Relu", made.same("Add", made.conv(first, 4, 3), first))


def test_a_residual_block_is_two_calls_and_is_planned_and_saved_as_it_was() -> None:
    model = net(residual)
    check(model, {"Conv": 2})
    assert model.graph.kinds() == {"Add": 1, "Conv": 2, "Relu": 2}


def test_a_sum_belongs_to_the_later_of_two_convolutions() -> None:
    def both(made: NetBuilder, x: str) -> str:
        a, b = made.conv(x, 4, 3), made.conv(x, 4, 1)
        return made.same("Relu", made.same("Add", a, b))

    model = net(both)
    check(model, {"Conv": 2})
    assert [len(node.inputs) for node in model.running.operations] == [2, 4]


def test_a_value_that_somebody_else_reads_is_kept() -> None:
    def shared(made: NetBuilder, x: str) -> str:
        a = made.conv(x, 4, 3)
        return made.same("Mul", made.same("Relu", a), made.same("Tanh", a))

    check(net(shared), {"Conv": 1, "Mul": 1, "Relu": 1, "Tanh": 1})


def test_a_sum_with_itself_or_with_another_shape_is_no_part_of_a_convolution() -> None:
    def doubled(made: NetBuilder, x: str) -> str:
        a = made.conv(x, 4, 3)
        return made.same("Add", a, a)

    check(net(doubled), {"Add": 1, "Conv": 1})

    def widened(made: NetBuilder, x: str) -> str:
        return made.same("Add", made.conv(x, 4, 3), made.global_pool(made.conv(x, 4, 3)))

    check(net(widened), {"Add": 1, "Conv": 2, "GlobalAveragePool": 1})


def test_what_comes_after_bounds_is_another_operation() -> None:
    def bounded(made: NetBuilder, x: str) -> str:
        first = made.same("Relu", made.conv(x, 4, 3))
        return made.same("Relu", made.same("Add", made.same("Relu", made.conv(first, 4, 3)), first))

    check(net(bounded), {"Add": 1, "Conv": 2, "Relu": 1})


def by_onnx(limits: list[Any], opset: int, **attributes: float) -> cx.Model:
    inputs = ["c", *(name if value is not None else "" for name, value in zip(("lo", "hi"), limits, strict=False))]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1]),
        helper.make_node("Clip", inputs, ["y"], **attributes),
    ]
    weights = [numpy_helper.from_array(RNG.standard_normal((4, 3, 3), dtype=np.float32), "w")]
    weights += [
        numpy_helper.from_array(np.float32(v), n) for n, v in zip(("lo", "hi"), limits, strict=False) if v is not None
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 20))
    graph = helper.make_graph(
        [*nodes], "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights
    )
    return cx.Model(read_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)))


@pytest.mark.parametrize("limits", [[0.0, 1.5], [None, 0.5], [-0.5]])
def test_bounds_of_a_clip_along_one_axis_are_part_of_a_convolution(limits: list[Any]) -> None:
    check(by_onnx(limits, 13), {"Conv": 1})


def test_bounds_that_are_attributes_are_part_of_a_convolution() -> None:
    check(by_onnx([], 9, min=-0.25, max=0.5), {"Conv": 1})


@pytest.mark.parametrize("stride", [1, 2])
def test_torch_finishes_sums_too(stride: int) -> None:
    pytest.importorskip("torch", reason="torch is a device where it is installed")

    def block(made: NetBuilder, x: str) -> str:
        a, b = made.conv(x, 4, 3, stride), made.conv(x, 4, 1, stride)
        return made.same("Relu", made.same("Add", a, b))

    model = net(block)
    x = RNG.standard_normal((2, 3, 9, 8)).astype(np.float32)
    with cx.Runtime(devices="cpu:0"):
        expected = unfused(model, x)
    with cx.Runtime(devices="torch:cpu"):
        np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)


def test_a_network_cut_by_force_finishes_its_sums() -> None:
    """Partial sums are added up before bounds are set."""
    from coexec.models.deploying import planned
    from coexec.models.sharded import LayerCut, even_sizes
    from coexec.models.sharding import Sharding

    model = net(residual)
    devices = ("gpu:0", "gpu:1")
    x = RNG.standard_normal((2, 3, 9, 8)).astype(np.float32)
    for factors in ((1, 1, 2, 1, 1, 1, 1), (1, 1, 1, 1, 2, 1, 1), (1, 2, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 2, 1)):
        sharding = Sharding(factors)
        cuts = [LayerCut(layer, sharding, devices, even_sizes(layer, sharding)) for layer in model.layers.layers]
        with cx.Runtime(platform="a100x4", execute=True):
            found = np.asarray(model.run(planned(model.running, cuts), x))
            np.testing.assert_allclose(found, unfused(model, x), rtol=1e-4, atol=1e-5)
