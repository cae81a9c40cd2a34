"""ONNX files: what is read, what is worked out on the way, and what is refused with everything that is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import coexec as cx
from coexec.errors import ModelError
from coexec.models.onnx_reading import read_onnx

RNG = np.random.default_rng(3)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[str], weights: Any = (), opset: int = 18, shape: Any = None
) -> Any:
    """Return a model; its outputs have no shape."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs]
    graph = helper.make_graph(nodes, "made", inputs, ends, [numpy_helper.from_array(v, n) for n, v in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def floats(name: str, *shape: int | str | None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def by_onnxruntime(proto: Any, **inputs: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, inputs)
    return found


def test_shape_arithmetic_is_worked_out_and_not_executed() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = [("zero", np.array(0)), ("axes", np.array([0])), ("rest", np.array([-1]))]
    proto = model(nodes, [floats("x", "batch", 3, "side", "side")], ["y"], weights)
    graph = read_onnx(proto, {"batch": 2, "side": 4})
    assert [node.kind for node in graph.operations] == ["Reshape"]
    x = RNG.standard_normal((2, 3, 4, 4), dtype=np.float32)
    np.testing.assert_array_equal(cx.Model(graph)(x), x.reshape(2, 48))


def test_open_sizes_are_all_named_with_the_way_to_give_them() -> None:
    proto = model([helper.make_node("Add", ["x", "y"], ["z"])], [floats("x", "n", 3), floats("y", None, "m")], ["z"])
    with pytest.raises(
        ModelError, match=r"'n' \(axis 0 of 'x'\), axis 0 of 'y', 'm' \(axis 1 of 'y'\); give them as"
    ) as seen:
        read_onnx(proto)
    assert "--shape" in str(seen.value)
    with pytest.raises(ModelError, match="names 'q', which is no input or open size"):
        read_onnx(proto, {"q": 3})
    with pytest.raises(ModelError, match=r"gives 'x' the shape \(2, 4\), and the model says \(n, 3\)"):
        read_onnx(proto, {"x": (2, 4), "y": (2, 4)})
    assert read_onnx(proto, {"x": (2, 3), "y": (2, 3)}).types["z"].shape == (2, 3)


def test_all_operators_that_are_missing_are_named_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Foo", ["x"], ["b"], name="second", domain="mine"),
        helper.make_node("Relu", ["x"], ["c"]),
        helper.make_node("Det", ["c"], ["d"], name="third"),
    ]
    proto = model(nodes, [floats("x", 3, 3)], ["a", "b", "d"])
    with pytest.raises(ModelError, match=r"Det \(third\), NonZero \(first\), mine.Foo \(second\)"):
        read_onnx(proto)


def test_open_sizes_and_missing_operators_are_named_together() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ReverseSequence", ["s", "s"], ["t"], name="of sizes: a constant later"),
        helper.make_node("Relu", ["x"], ["c"]),
        helper.make_node("NonZero", ["c"], ["d"], name="third"),
    ]
    with pytest.raises(ModelError, match=r"open: 'n' \(axis 0 of 'x'\); .* Beside that, .* uses: NonZero \(third\)$"):
        read_onnx(model(nodes, [floats("x", "n", 3)], ["d", "t"]))


def test_sizes_that_some_exporters_write_for_unknown_are_open() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [floats("x", -1, "?", "?"), floats("z", "?")], ["y"])
    with pytest.raises(ModelError, match="axis 0 of 'x', axis 1 of 'x', axis 2 of 'x', axis 0 of 'z'"):
        read_onnx(proto)
    with pytest.raises(ModelError, match="open: axis 0 of 'z';"):
        read_onnx(proto, {"x": (2, 3, 4)})
    assert read_onnx(proto, {"x": (2, 3, 4), "z": 1}).types["y"].shape == (2, 3, 4)


def test_values_that_an_input_cannot_take_are_refused() -> None:
    number = helper.make_tensor_value_info("to", TensorProto.INT64, (2,))
    proto = model([helper.make_node("Reshape", ["x", "to"], ["y"])], [floats("x", 6), number], ["y"])
    with pytest.raises(ModelError, match=r"gives 'to' float64, and the model takes int64"):
        read_onnx(proto, values={"to": [2.5, 3]})
    with pytest.raises(ModelError, match=r"gives 'to' the shape \(3,\), and the model says \(2\)"):
        read_onnx(proto, values={"to": [1, 2, 3]})
    with pytest.raises(ModelError, match="'to'"):
        read_onnx(proto, values={"to": ["two", "three"]})


def test_floats_of_python_are_rounded_to_the_type_of_the_input_and_those_of_numpy_are_not() -> None:
    scale = helper.make_tensor_value_info("scale", TensorProto.FLOAT, ())
    proto = model([helper.make_node("Mul", ["x", "scale"], ["y"])], [floats("x", 6), scale], ["y"])
    assert read_onnx(proto, values={"scale": 0.1}).constants["scale"] == np.float32(0.1)
    for wrong in (np.float64(0.1), 1e300):
        with pytest.raises(ModelError, match="gives 'scale' float64, and the model takes float32"):
            read_onnx(proto, values={"scale": wrong})


def test_sizes_that_depend_on_values_are_named() -> None:
    number = helper.make_tensor_value_info("to", TensorProto.INT64, (2,))
    proto = model([helper.make_node("Reshape", ["x", "to"], ["y"], name="r")], [floats("x", 6), number], ["y"])
    with pytest.raises(ModelError, match=r"depend on the values of inputs: Reshape 'r' \(operand 'to'\); .*values="):
        read_onnx(proto)
    assert read_onnx(proto, values={"to": [2, 3]}).types["y"].shape == (2, 3)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"])
def test_a_reduction_along_no_axis_still_squares_or_takes_logarithms(kind: str) -> None:
    node = helper.make_node(f"Reduce{kind}", ["x"], ["y"], noop_with_empty_axes=1)
    proto = model([node], [floats("x", 2, 3)], ["y"])
    x = RNG.random((2, 3), dtype=np.float32) + 0.5
    np.testing.assert_allclose(cx.Model(read_onnx(proto))(x), by_onnxruntime(proto, x=x)[0], rtol=1e-5)


@pytest.mark.parametrize("opset", [11, 18, 22])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_no_window_begins_beyond_the_image_when_sizes_are_rounded_up(kind: str, opset: int) -> None:
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[1, 2], strides=[2, 2], ceil_mode=1)
    proto = model([node], [floats("x", 1, 1, 4, 5)], ["y"], opset=opset)
    x = RNG.standard_normal((1, 1, 4, 5), dtype=np.float32)
    found = cx.Model(read_onnx(proto))(x)
    assert found.shape == (1, 1, 2, 3)
    np.testing.assert_allclose(found, by_onnxruntime(proto, x=x)[0], rtol=1e-6)


def test_a_reshape_to_another_number_of_elements_is_refused_with_its_node() -> None:
    node = helper.make_node("Reshape", ["x", "to"], ["y"], name="r")
    proto = model([node], [floats("x", 3, 0, 5)], ["y"], [("to", np.array([0]))])
    with pytest.raises(ModelError, match=r"'r'"):
        read_onnx(proto)


@pytest.mark.parametrize("cut", [0, 1, 40, -7])
def test_a_file_that_is_no_model_or_ends_early_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "net.onnx"
    cx.Model.named("encoder", length=4, width=8, blocks=1, heads=2).save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelError, match=r"net\.onnx"):
        cx.Model.from_onnx(path)
    path.write_bytes(b"\x89PNG not a model at all")
    with pytest.raises(ModelError, match=r"net\.onnx"):
        cx.Model.from_onnx(path)
    with pytest.raises(ModelError, match="there is no file"):
        cx.Model.from_onnx(tmp_path / "none.onnx")


def test_an_invalid_model_is_refused_with_the_checkers_words(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["nowhere"], ["y"])], [floats("x", 3)], ["y"], shape=(3,))
    onnx.save(proto, tmp_path / "bad.onnx")
    with pytest.raises(ModelError, match="no valid ONNX model"):
        cx.Model.from_onnx(tmp_path / "bad.onnx")


def with_external_data(folder: Path) -> tuple[Path, Any]:
    weight = RNG.standard_normal((4, 300), dtype=np.float32)
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [floats("x", 2, 4)], ["y"], [("w", weight)], shape=(2, 300)
    )
    path = folder / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path, weight


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    path, weight = with_external_data(tmp_path)
    x = RNG.standard_normal((2, 4), dtype=np.float32)
    np.testing.assert_allclose(cx.Model.from_onnx(path)(x), x @ weight, rtol=1e-5)


@pytest.mark.parametrize("location", ["../net.data", "/etc/passwd", "below/../../net.data", ""])
def test_external_data_never_leaves_the_models_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path, _ = with_external_data(folder)
    (folder / "net.data").rename(tmp_path / "net.data")
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = location if entry.key == "location" else entry.value
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's folder"):
        cx.Model.from_onnx(path)


def test_a_link_that_leaves_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path, _ = with_external_data(folder)
    (folder / "net.data").rename(tmp_path / "net.data")
    (folder / "net.data").symlink_to(tmp_path / "net.data")
    with pytest.raises(ModelError, match="outside the model's folder"):
        cx.Model.from_onnx(path)


def test_external_data_that_is_missing_or_too_short_is_said(tmp_path: Path) -> None:
    path, _ = with_external_data(tmp_path)
    data = tmp_path / "net.data"
    data.write_bytes(data.read_bytes()[:-8])
    with pytest.raises(ModelError, match="has 4792 bytes, and 'w' needs 4800"):
        cx.Model.from_onnx(path)
    data.unlink()
    with pytest.raises(ModelError, match=r"there is no file net\.data beside it"):
        cx.Model.from_onnx(path)


def branched(condition: str) -> Any:
    """Return a choice between adding and multiplying by constants that belong to the branches."""
    constant = numpy_helper.from_array(np.arange(300, dtype=np.float32), "c")

    def branch(kind: str) -> Any:
        end = helper.make_tensor_value_info("r", TensorProto.FLOAT, (300,))
        held = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(300, np.float32), "k"))
        nodes = [held, helper.make_node(kind, ["x", "c"], ["q"]), helper.make_node("Add", ["q", "k"], ["r"])]
        return helper.make_graph(nodes, kind, [], [end], [constant])

    return helper.make_node("If", [condition], ["y"], then_branch=branch("Add"), else_branch=branch("Mul"))


def test_external_data_of_branches_is_read_and_stays_in_the_folder(tmp_path: Path) -> None:
    choice = branched("yes")
    proto = model([choice], [floats("x", 300)], ["y"], [("yes", np.array(False))], shape=(300,))
    path = tmp_path / "net.onnx"
    data = b""
    for attribute in proto.graph.node[0].attribute:
        for tensor in (attribute.g.initializer[0], attribute.g.node[0].attribute[0].t):
            held = numpy_helper.to_array(tensor).tobytes()
            onnx.external_data_helper.set_external_data(tensor, "net.data", len(data), len(held))
            tensor.ClearField("raw_data")
            data += held
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "net.data").write_bytes(data)
    x = RNG.standard_normal(300, dtype=np.float32)
    np.testing.assert_allclose(cx.Model.from_onnx(path)(x), x * np.arange(300) + 1, rtol=1e-5)
    for index in (0, 1):
        text = proto.SerializeToString()
        tensor = (
            proto.graph.node[0].attribute[0].g.initializer[0],
            proto.graph.node[0].attribute[1].g.node[0].attribute[0].t,
        )
        tensor[index].external_data[0].value = "../net.data"
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(ModelError, match="outside the model's folder"):
            cx.Model.from_onnx(path)
        proto = onnx.ModelProto.FromString(text)


def test_a_branch_that_shapes_decide_is_taken() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Size", ["s"], ["rank"]),
        helper.make_node("Equal", ["rank", "one"], ["flat"]),
        branched("flat"),
    ]
    proto = model(nodes, [floats("x", "n")], ["y"], [("one", np.array(1))])
    graph = read_onnx(proto, {"n": 300})
    assert graph.kinds() == {"Add": 2}
    x = RNG.standard_normal(300, dtype=np.float32)
    np.testing.assert_allclose(cx.Model(graph)(x), x + np.arange(300) + 1, rtol=1e-5)


def test_functions_of_a_model_are_inlined() -> None:
    opsets = [helper.make_opsetid("", 18)]
    body = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="mine")], [floats("x", 3)], ["y"])
    proto.functions.append(helper.make_function("mine", "Twice", ["a"], ["c"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_array_equal(cx.Model(read_onnx(proto))(x), [0, 0, -2])


def test_normalisation_after_a_convolution_becomes_part_of_it() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="norm", epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    weights = [("w", RNG.standard_normal((5, 3, 3, 3), dtype=np.float32))]
    weights += [(name, RNG.random(5, dtype=np.float32) + 0.5) for name in "sbmv"]
    proto = model(nodes, [floats("x", 2, 3, 7, 7)], ["y"], weights, opset=9)
    read = cx.Model(read_onnx(proto))
    assert read.graph.kinds() == {"Conv": 1, "Relu": 1}
    x = RNG.standard_normal((2, 3, 7, 7), dtype=np.float32)
    np.testing.assert_allclose(read(x), by_onnxruntime(proto, x=x)[0], rtol=1e-4, atol=1e-5)


def test_quantised_values_are_computed_as_floats_and_said_so() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["f"]),
        helper.make_node("Relu", ["f"], ["y"]),
    ]
    weights = [("s", np.float32(0.1)), ("z", np.int8(3))]
    proto = model(nodes, [floats("x", 4, 5)], ["y"], [(n, np.asarray(v)) for n, v in weights])
    read = cx.Model(read_onnx(proto))
    assert "as floats" in read.graph.notes[0]
    x = RNG.standard_normal((4, 5), dtype=np.float32) * 20
    np.testing.assert_allclose(read(x), by_onnxruntime(proto, x=x)[0], rtol=1e-6)


def test_old_softmax_takes_all_further_axes_together() -> None:
    x = RNG.standard_normal((2, 3, 4), dtype=np.float32)
    for opset, axes in ((11, (1, 2)), (13, (1,))):
        proto = model([helper.make_node("Softmax", ["x"], ["y"], axis=1)], [floats("x", 2, 3, 4)], ["y"], opset=opset)
        e = np.exp(x)
        np.testing.assert_allclose(cx.Model(read_onnx(proto))(x), e / e.sum(axis=axes, keepdims=True), rtol=1e-5)


def test_a_branch_with_a_known_condition_is_taken() -> None:
    def branch(kind: str) -> Any:
        end = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(kind, ["x"], ["r"])], kind, [], [end])

    choice = helper.make_node("If", ["yes"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    proto = model([choice], [floats("x", 3)], ["y"], [("yes", np.array(True))])
    graph = read_onnx(proto)
    assert graph.kinds() == {"Relu": 1}
