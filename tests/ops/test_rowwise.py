from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import erfc, expit, softmax as scipy_softmax

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.ops.rowwise import NUMERICS, gelu_kernel, layernorm_kernel, softmax_kernel, sparse_softmax_kernel
from coexec.testing import check_kernel
from tests.backend.opencl_parts import needs_opencl
from tests.ops.devices_for_ops import LAYOUTS, MIXES, laid_out, mixed_runtime
from tests.ops.sparse_parts import FLOATS, assert_sums, numbers, scattered

SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


@settings(max_examples=25)
@given(SHAPES, st.integers(-3, 2), st.sampled_from(FLOATS), st.sampled_from(LAYOUTS))
def test_softmax_is_scipys(shape, axis, dtype, layout):
    x = numbers(shape, dtype) * 20
    if not -x.ndim <= axis < x.ndim:
        with pytest.raises(ShapeError, match="axis"):
            cx.softmax(x, axis)
        return
    got = np.asarray(cx.softmax(laid_out(x, layout), axis))
    assert got.dtype == dtype
    assert_sums(got, scipy_softmax(x.astype(np.float64), axis), np.ones(shape), NUMERICS.ulp)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_of_a_sparse_matrix_goes_along_its_stored_elements(dtype):
    s = scattered(50, 30, dtype=dtype) * dtype(9)
    got = cx.softmax(s)
    assert isinstance(got, cx.CSR)
    for row, (first, last) in enumerate(zip(s.indptr, s.indptr[1:], strict=False)):
        if first < last:
            expected = scipy_softmax(s.data[first:last].astype(np.float64))
            assert np.allclose(np.asarray(got.data)[first:last], expected, rtol=1e-5), row
    check_kernel(sparse_softmax_kernel(got.pattern, np.dtype(dtype).name), s.data, s.indptr, np.empty_like(s.data))
    assert cx.softmax(scattered(3, 0, dtype=dtype)).nnz == 0


@settings(max_examples=25)
@given(SHAPES, st.sampled_from(FLOATS), st.sampled_from(LAYOUTS), st.booleans())
def test_layernorm_has_mean_nothing_and_variance_one(shape, dtype, layout, scaled):
    x = numbers(shape, dtype) * 3 + dtype(1)
    vectors = [numbers(shape[-1:], dtype, seed) if scaled else None for seed in (7, 8)]
    got = np.asarray(cx.layernorm(laid_out(x, layout), *vectors, eps=1e-3))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    weight, bias = np.asarray(vectors, dtype=dtype) if scaled else (np.ones(1), np.zeros(1))
    assert got.dtype == dtype
    sizes = (np.abs(wide).max() / np.sqrt(1e-3)) * np.abs(weight) + np.abs(bias) + np.zeros(shape)
    assert_sums(got, expected * weight + bias, sizes, NUMERICS.ulp)


def gelu(x, approximate):
    x = x.astype(np.float64)
    if approximate == "none":
        return 0.5 * x * erfc(-x / np.sqrt(2))
    return x * expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


@needs_opencl
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_exact_also_far_below_nothing(approximate):
    with mixed_runtime("own"):
        for dtype in FLOATS:
            x = np.linspace(-9, 9, 301, dtype=dtype).reshape(7, 43)
            for devices in MIXES:
                got = np.asarray(cx.gelu.using(devices=devices)(x, approximate))
                rtol = 2e-5 if dtype == np.float32 else 1e-12
                assert got.dtype == dtype and np.allclose(got, gelu(x, approximate), rtol=rtol, atol=1e-37)


@needs_opencl
def test_parts_and_variants_agree():
    x = numbers((6, 20, 9))
    check_kernel(softmax_kernel("float32", 3, 1), x, np.empty_like(x), 1)
    check_kernel(layernorm_kernel("float32", 3), x, numbers(9), numbers(9), np.empty_like(x), 1e-5)
    for approximate in ("none", "tanh"):
        check_kernel(gelu_kernel("float32", 3, approximate), x, np.empty_like(x))


def test_relu_is_numpys_maximum():
    x = np.array([[-1.0, 0.0, 2.0, np.nan, -np.inf]], np.float32)
    assert np.array_equal(np.asarray(cx.relu(cx.array(x))), np.maximum(x, 0), equal_nan=True)
    whole = np.array([-3, 4], np.int16)
    assert np.asarray(cx.relu(whole)).dtype == np.int16
    s = scattered(5, 5)
    assert np.array_equal(cx.relu(cx.csr(s)).toarray(), np.maximum(s.toarray(), 0))
    out = cx.zeros(2, np.int16)
    assert cx.relu(cx.array(whole), out=out) is out and np.asarray(out).tolist() == [0, 4]


def test_gelu_of_a_sparse_matrix_keeps_its_pattern():
    s = scattered(5, 5)
    assert np.allclose(cx.gelu(s).toarray(), gelu(s.toarray(), "none"), atol=1e-6)


def test_operands_that_do_not_fit_are_refused():
    for call, error, message in [
        (lambda: cx.softmax(np.arange(3)), ArgumentError, "float32 or float64"),
        (lambda: cx.softmax(np.float32(1.0)), ShapeError, "axis=-1"),
        (lambda: cx.softmax(cx.csr(scattered(3, 3)), axis=0), ArgumentError, "along its rows"),
        (lambda: cx.layernorm(np.ones((2, 3)), np.ones(2)), ShapeError, "weight has shape"),
        (lambda: cx.layernorm(np.ones((2, 3)), eps=-1.0), ArgumentError, "eps"),
        (lambda: cx.layernorm(np.float64(1.0)), ShapeError, "no axis"),
        (lambda: cx.gelu(np.ones(3), "erf"), ArgumentError, "none, tanh"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_arrays_without_elements_stay_so(shape):
    x = np.empty(shape, np.float32)
    assert np.asarray(cx.softmax(x)).shape == np.asarray(cx.layernorm(x)).shape == np.asarray(cx.gelu(x)).shape == shape
