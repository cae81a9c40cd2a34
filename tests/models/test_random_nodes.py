"""Every operator that is claimed, with random shapes, attributes, types and opsets, against independent implementations.

The `onnx` package's reference is asked first. Where it cannot do a node, or is known to differ, ONNX Runtime is.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx.reference import ReferenceEvaluator

import coexec as cx
from coexec.models.onnx_reading import read_onnx
from coexec.models.operators.table import OPERATORS

from .node_making import RandomNode
from .random_nodes import NODES

onnxruntime.set_default_logger_severity(4)

PEER = {
    "AveragePool": "the reference counts windows beyond the padding",
    "BatchNormalization": "the reference takes epsilon for another one in old opsets",
    "ConvTranspose": "the reference has no groups",
    "DequantizeLinear": "the reference begins with opset 19",
    "Flatten": "the reference cannot flatten nothing",
    "GatherElements": "the reference wants whole axes",
    "GlobalLpPool": "the reference has none",
    "GlobalMaxPool": "the reference drops an axis of one-dimensional images",
    "LRN": "the reference's window begins elsewhere",
    "LogSoftmax": "the reference knows opset 13 and later",
    "LpPool": "the reference pads otherwise",
    "MaxPool": "the reference shifts windows with automatic padding",
    "OneHot": "the reference refuses a depth with one axis",
    "Pad": "the reference cannot cut away",
    "Resize": "the reference rounds sizes otherwise",
    "Scatter": "the reference has none",
    "Slice": "the reference of opset 9 takes large ends for negative ones",
    "Softmax": "the reference knows opset 13 and later",
    "Softsign": "the reference cannot do a number",
    "Unsqueeze": "the reference of old opsets counts negative axes one after the other",
}
"""Operators for which ONNX Runtime may be right where the reference is not, and why."""


def results(found: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(value) for value in (found if isinstance(found, tuple) else (found,))]


def by_reference(node: RandomNode) -> list[Any] | None:
    try:
        found: list[Any] = ReferenceEvaluator(node.model()).run(None, node.feeds())
    except Exception:  # whatever it cannot do
        return None
    return found


def by_peer(node: RandomNode) -> list[Any] | None:
    try:
        session = onnxruntime.InferenceSession(node.model().SerializeToString(), providers=["CPUExecutionProvider"])
        found: list[Any] = session.run(None, node.feeds())
    except Exception:  # whatever it cannot do
        return None
    return found


def compare(mine: list[Any], other: list[Any]) -> None:
    for got, expected in zip(mine, map(np.asarray, other), strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def check(kind: str, seed: int) -> bool:
    """Compare a random node; return False if nobody else can do it."""
    node = NODES[kind](np.random.default_rng(seed))
    model = cx.Model(read_onnx(node.model()))
    mine = results(model(**node.feeds()))
    expected = by_reference(node)
    if expected is not None:
        try:
            compare(mine, expected)
        except AssertionError:
            if kind not in PEER:
                raise
            expected = None
        else:
            return True
    expected = by_peer(node) if kind in PEER else None
    if expected is None:
        return False
    compare(mine, expected)
    return True


def test_every_operator_has_a_random_node() -> None:
    assert set(NODES) == set(OPERATORS)


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings(), cx.Runtime(devices="cpu:0,cpu:1"):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("kind", sorted(NODES))
def test_operators_do_what_others_do(kind: str) -> None:
    """The same few nodes each time; at least one of them can be done by somebody else."""
    done = [check(kind, seed) for seed in range(4)]
    assert any(done)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(NODES))
def test_operators_do_what_others_do_for_any_node(kind: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def run(seed: int) -> None:
        check(kind, seed)

    run()


CUT = ("gpu:0", "gpu:1")


def check_cut(kind: str, seed: int) -> None:
    """Compare a node whose calls are cut along each axis of its result, on memories of their own, with the whole."""
    node = NODES[kind](np.random.default_rng(seed))
    model = cx.Model(read_onnx(node.model()))
    whole = results(model(**node.feeds()))
    for axis in range(whole[0].ndim):
        with cx.placed(cx.Placement(CUT, {axis: 2})):
            found = results(model(**node.feeds()))
        compare(found, whole)


@pytest.mark.parametrize("kind", sorted(NODES))
def test_operators_give_the_same_cut_along_any_axis(kind: str) -> None:
    with cx.Runtime(platform="a100x4", execute=True):
        check_cut(kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(NODES))
def test_operators_give_the_same_cut_along_any_axis_for_any_node(kind: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def run(seed: int) -> None:
        check_cut(kind, seed)

    with cx.Runtime(platform="a100x4", execute=True):
        run()
