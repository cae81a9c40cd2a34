"""Reductions are NumPy's: types, shapes, NaN, ties and errors, on every mix of devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import coexec as cx
from tests.ops.forced import DEVICES, agree, divided

EXACT = [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
REDUCTIONS: list[Any] = [np.sum, np.prod, np.max, np.min, np.any, np.all]


@st.composite
def operands(draw: Any, dtypes: Any) -> tuple[Any, Any]:
    """Return small whole numbers of any type and shape, and axes that may be reduced."""
    shape, dtype = draw(SHAPES), np.dtype(draw(st.sampled_from(dtypes)))
    data = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 4, shape).astype(dtype)
    if dtype.kind == "f" and draw(st.booleans()):
        data[np.random.default_rng(1).random(shape) < 0.1] = draw(st.sampled_from([np.nan, np.inf, -0.0]))
    axes = st.lists(st.integers(-len(shape), len(shape) - 1), max_size=len(shape)).map(tuple) if shape else st.just(())
    axis = draw(st.one_of(st.none(), axes, st.integers(-3, 3)))
    return data, axis


@pytest.fixture(params=DEVICES, scope="module")
def devices(request):
    with divided(request.param):
        yield request.param


@settings(max_examples=150)
@given(operands([*EXACT, np.float32, np.float64]), st.sampled_from(REDUCTIONS), st.booleans())
def test_every_reduction_gives_numpys_values_types_and_errors(devices, operand, function, keepdims) -> None:
    data, axis = operand
    if function in (np.sum, np.prod) and data.dtype.kind == "f":
        data = np.where(np.isfinite(data), data, 1).astype(data.dtype)  # whole numbers: exact in any order
    agree(lambda x: function(x, axis=axis, keepdims=keepdims), data)


@settings(max_examples=80)
@given(operands([np.float64, np.float32, np.int16]), st.sampled_from([np.argmax, np.argmin]), st.booleans())
def test_the_first_extreme_wins_and_nan_before_all(devices, operand, function, keepdims) -> None:
    data, axis = operand
    axis = axis if not isinstance(axis, tuple) or not axis else axis[0]
    agree(lambda x: function(x, axis=axis, keepdims=keepdims), data)
    if data.ndim > 1:
        agree(lambda x: function(np.transpose(x), axis=axis), data)


@settings(max_examples=80)
@given(operands([np.float64, np.float32, np.float16, np.int32, np.bool_]), st.sampled_from([np.mean, np.var, np.std]))
def test_means_and_variances_have_numpys_types(devices, operand, function) -> None:
    data, axis = operand
    if function is not np.mean and data.dtype.kind == "b":
        data = data.astype(np.int8)
    if data.dtype.kind == "f":
        data = np.where(np.isfinite(data), data, 1).astype(data.dtype)
    ulp = 4 if function is np.mean else 64
    agree(lambda x: function(x, axis=axis), data, ulp=ulp)


@given(operands([np.float64, np.int32, np.float32]), st.booleans())
def test_a_mask_and_a_first_value_count_as_in_numpy(devices, operand, broadcast) -> None:
    data, axis = operand
    mask = data > 1
    if broadcast and mask.ndim:
        mask = mask.reshape(-1)[:1] if mask.size else np.ones(1, bool)
    agree(lambda x, m: np.add.reduce(x, axis=axis, where=m), np.nan_to_num(data, posinf=3), mask)
    agree(lambda x, m: np.max(x, axis=axis, where=m, initial=-5), data, mask)
    agree(lambda x: np.sum(x, axis=axis, initial=10), np.nan_to_num(data, posinf=3))
    agree(lambda x: np.multiply.reduce(x, axis=axis, initial=3), np.nan_to_num(data, posinf=3))
    agree(lambda x, m: np.max(x, axis=axis, where=m), data, mask)  # no identity: NumPy's error


@pytest.mark.parametrize("dtype", [None, np.float32, np.int8, np.complex64])
def test_dtype_and_out_decide_as_in_numpy(devices, dtype) -> None:
    data = np.random.default_rng(0).integers(0, 200, (40, 3)).astype(np.uint8)
    agree(lambda x: np.sum(x, axis=0, dtype=dtype), data)
    agree(lambda x: np.prod(x, dtype=dtype), data % 2 + 1)
    out: Any = cx.zeros(3, np.float64)
    assert np.sum(cx.array(data), axis=0, out=out) is out
    assert np.asarray(out).tolist() == data.sum(axis=0).tolist()
    kept: Any = cx.zeros((1, 3), np.uint64)
    np.add.reduce(cx.array(data), axis=0, out=kept, keepdims=True)
    assert np.asarray(kept).tolist() == [data.sum(axis=0).tolist()]


@pytest.mark.parametrize("out", ["bool", "int64", "float32"])
def test_booleans_go_into_an_output_of_any_type(devices, out) -> None:
    for function in (np.any, np.all):
        for axis in (None, 0, 1):
            shape = np.empty((5, 7)).any(axis=axis).shape
            agree(lambda x, into, f=function, a=axis: f(x, axis=a, out=into), np.eye(5, 7) / 2, np.ones(shape, out))


def test_out_may_be_part_of_the_operand(devices) -> None:
    data = np.arange(60.0).reshape(20, 3)
    x: Any = cx.array(data)
    np.add.reduce(x, axis=0, out=x[0])
    assert np.asarray(x[0]).tolist() == data.sum(axis=0).tolist()


def test_ufuncs_that_are_not_associative_reduce_in_order(devices) -> None:
    data = np.arange(1.0, 25).reshape(8, 3)
    for axis in (0, 1):
        agree(lambda x, axis=axis: np.subtract.reduce(x, axis=axis), data)
        agree(lambda x, axis=axis: np.divide.reduce(x, axis=axis), data, ulp=2)
    agree(np.bitwise_xor.reduce, data.astype(int))
    agree(lambda x: np.subtract.reduce(x, axis=None), data)  # NumPy refuses to reorder it
