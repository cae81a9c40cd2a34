"""`cx.Model`: builders, torch modules, calls, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ModelError, ShapeError, UnknownName, UnsupportedError
from coexec.models.onnx_writing import to_onnx

SMALL: dict[str, dict[str, int]] = {
    "alexnet": {"image": 64}, "vgg16": {"image": 32}, "resnet18": {"image": 32}, "resnet34": {"image": 32},
    "resnet50": {"image": 32}, "resnet101": {"image": 32}, "wide_resnet50_2": {"image": 32},
    "mobilenet_v2": {"image": 32}, "casia_surf": {"image": 32},
    "encoder": {"length": 16, "width": 32, "blocks": 2, "heads": 4},
    "vit": {"image": 32, "patch": 8, "width": 32, "blocks": 2, "heads": 4},
}  # fmt: skip
QUICK = ("resnet18", "mobilenet_v2", "encoder", "vit", "casia_surf")
RNG = np.random.default_rng(5)


def given(model: cx.Model) -> dict[str, Any]:
    """Return random inputs."""
    return {name: RNG.standard_normal(t.shape).astype(t.dtype) for name, t in model.inputs.items()}


def check_against_onnxruntime(name: str) -> None:
    model = cx.Model.named(name, **SMALL[name])
    proto = to_onnx(model.graph)
    onnx.checker.check_model(proto, full_check=True)
    inputs = given(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)[0]
    found = np.asarray(model(**inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


@pytest.mark.parametrize("name", QUICK)
def test_builders_run_and_agree_with_onnxruntime(name: str) -> None:
    check_against_onnxruntime(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SMALL) - set(QUICK)))
def test_all_builders_run_and_agree_with_onnxruntime(name: str) -> None:
    check_against_onnxruntime(name)


def test_a_list_of_layers_that_is_no_model_says_why_it_does_not_run() -> None:
    model = cx.Model.named("facebag")
    assert len(model.layers.layers) == 52
    with pytest.raises(UnsupportedError, match="so it can be planned but not run"):
        model(np.zeros((1, 3, 112, 112), np.float32))


def test_an_unknown_model_or_size_is_said() -> None:
    with pytest.raises(UnknownName, match="did you mean 'resnet50'"):
        cx.Model.named("resnet51")
    with pytest.raises(ArgumentError, match="pixels"):
        cx.Model.named("resnet50", pixels=3)


def test_inputs_of_another_shape_or_type_are_refused() -> None:
    model = cx.Model.named("encoder", **SMALL["encoder"])
    with pytest.raises(ShapeError, match=r"'words' has shape \(3,\), and the model takes \(1, 16, 32\)"):
        model(np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match=r"is float64, and the model takes float32; convert it"):
        model(np.zeros((1, 16, 32)))
    with pytest.raises(ArgumentError, match=r"needs the input 'words': shape \(1, 16, 32\), float32"):
        model()
    with pytest.raises(ArgumentError, match="'sounds' which it does not have"):
        model(sounds=np.zeros((1, 16, 32), np.float32))
    with pytest.raises(ArgumentError, match=r"'words' is no array: .*inhomogeneous"):
        model([[1.0, 2.0], [3.0]])
    plan: Any = 3
    with pytest.raises(ArgumentError, match=r"plan= takes what model.plan\(\) returns, not int"):
        model(np.zeros((1, 16, 32), np.float32), plan=plan)


def test_what_is_no_path_is_no_model() -> None:
    path: Any = None
    with pytest.raises(ArgumentError, match="takes the path of a file, not NoneType"):
        cx.Model.from_onnx(path)


def test_a_saved_model_is_read_back_and_gives_the_same(tmp_path: Path) -> None:
    model = cx.Model.named("vit", **SMALL["vit"])
    model.save(tmp_path / "vit.onnx")
    again = cx.Model.from_onnx(tmp_path / "vit.onnx")
    assert [layer.loops for layer in again.layers.layers] == [layer.loops for layer in model.layers.layers]
    inputs = given(model)
    np.testing.assert_allclose(again(**inputs), model(**inputs), rtol=1e-5, atol=1e-6)


def test_results_share_no_memory_with_inputs() -> None:
    from coexec.models.building import NetBuilder

    net = NetBuilder("views")
    x = net.input("x", (2, 3))
    model = cx.Model(net.done(net.add_operation("Identity", (x,), (2, 3)), net.transpose(x, (1, 0))))
    array = cx.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    same, turned = model(array)
    array[...] = 0
    assert np.asarray(same).sum() == np.asarray(turned).sum() == 15


def test_torch_modules_become_models_and_so_do_their_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.linear = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y = torch.nn.functional.gelu(self.norm(self.conv(x)))
            return torch.softmax(self.linear(y.mean((2, 3))), -1)

    net = Net()
    x = torch.randn(2, 3, 16, 16)
    with pytest.raises(ModelError, match=r"call module.eval\(\)"):
        cx.Model.from_torch(net, x)
    model = cx.Model.from_torch(net.eval(), x)
    assert model.graph.kinds()["Conv"] == 1
    np.testing.assert_allclose(model(x.numpy()), net(x).detach().numpy(), rtol=1e-4, atol=1e-6)
    file = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.export.export(net, (x,)), f=file, dynamo=True, external_data=True, verbose=False)
    assert file.with_name("net.onnx.data").is_file(), "weights lie beside the file, however few they are"
    np.testing.assert_allclose(cx.Model.from_onnx(file)(x.numpy()), net(x).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_model_keeps_its_weights_when_those_of_its_torch_module_change() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    x = torch.randn(2, 6)
    expected = net(x).detach().numpy().copy()
    called, fresh = cx.Model.from_torch(net, x), cx.Model.from_torch(net, x)
    called(x.numpy())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    for model in (called, fresh):  # whether or not it was called before
        np.testing.assert_allclose(model(x.numpy()), expected, rtol=1e-4, atol=1e-6)
