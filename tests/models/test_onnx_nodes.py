"""Every operator that is claimed passes the `onnx` package's own tests of it, as far as NumPy has their types."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import coexec as cx
from coexec.errors import UnsupportedError
from coexec.models.onnx_reading import read_onnx
from coexec.models.operators.table import OPERATORS

from .onnx_cases import NodeCase, node_cases

NAMED = {
    "Conv",
    "ConvTranspose",
    "Gemm",
    "BatchNormalization",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Relu",
    "Clip",
    "Sigmoid",
    "HardSwish",
    "HardSigmoid",
    "LeakyRelu",
    "PRelu",
    "Resize",
    "Concat",
    "Split",
    "ReduceMean",
    "Add",
    "Mul",
    "MatMul",
    "LayerNormalization",
    "Softmax",
    "Gelu",
    "Erf",
    "Transpose",
    "Reshape",
    "Slice",
    "Gather",
    "Squeeze",
    "Unsqueeze",
    "Pow",
    "Sqrt",
    "Sub",
    "Div",
    "Where",
    "Cast",
    "LSTM",
    "GRU",
}
"""The operators that a model is promised to find."""


def check(case: NodeCase) -> None:
    """Run a test through the reader and the runtime, and compare."""
    fixed = case.fixed()
    shapes = {name: value.shape for name, value in case.inputs.items() if name not in fixed}
    model = cx.Model(read_onnx(case.model, shapes, fixed))
    found = model(**{name: case.inputs[name] for name in model.inputs})
    for got, expected in zip(found if isinstance(found, tuple) else (found,), case.outputs, strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype), case.name
        np.testing.assert_allclose(np.asarray(got), expected, rtol=case.rtol, atol=case.atol, err_msg=case.name)


def run_all(kinds: set[str]) -> tuple[Counter[str], Counter[str], list[str]]:
    """Run all tests of some operators; return how many ran, of which foreign types others are, and what is random."""
    ran: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    random = []
    with cx.Runtime(devices="cpu:0,cpu:1"):
        for case in node_cases(kinds):
            if case.foreign:
                foreign[case.foreign] += 1
                continue
            if case.name.startswith("test_training_dropout"):
                with pytest.raises(UnsupportedError, match="at random"):
                    check(case)
                random.append(case.name)
                continue
            check(case)
            ran[case.node.op_type] += 1
    return ran, foreign, random


def test_promised_operators_pass_all_tests_of_the_onnx_package() -> None:
    ran, foreign, random = run_all(NAMED)
    assert not random
    assert {kind for kind in NAMED if not ran[kind]} <= {"Cast"}, "every operator has a test that was run"
    assert ran.total() >= 230
    assert set(foreign) <= {"TensorProto", "bfloat16"}, "what was left out is of types that NumPy does not have"


@pytest.mark.slow
def test_all_operators_pass_all_tests_of_the_onnx_package() -> None:
    ran, foreign, random = run_all(set(OPERATORS))
    assert ran.total() >= 830
    assert set(foreign) <= {"TensorProto", "bfloat16", "object", "list"}
    assert len(random) <= 4, "only dropping at random is refused"
