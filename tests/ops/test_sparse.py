from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.ops.matmul import NUMERICS
from coexec.ops.op import TILES
from coexec.ops.sparse import gpu_variant, multiply_kernel, sample_kernel
from coexec.testing import check_kernel
from tests.backend.opencl_parts import needs_opencl
from tests.ops.devices_for_ops import LAYOUTS, MEMORIES, MIXES, laid_out, mixed_runtime
from tests.ops.sparse_parts import FLOATS, assert_sums, numbers, scattered


@pytest.fixture(scope="module", params=MEMORIES)
def runtime(request):
    with mixed_runtime(request.param) as runtime:
        yield runtime


def assert_product(got, s, b):
    wide = s.astype(np.float64)
    assert got.dtype == np.result_type(s.dtype, b.dtype)
    assert_sums(got, wide @ b.astype(np.float64), abs(wide) @ np.abs(b).astype(np.float64), NUMERICS.ulp)


@needs_opencl
@settings(max_examples=20)
@given(st.data())
def test_a_product_with_any_sparse_matrix_is_scipys(runtime, data):
    dtype = data.draw(st.sampled_from(FLOATS))
    rows, columns = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 50))
    width = data.draw(st.sampled_from([0, 1, 3, 8, 31, 33, 70]))
    index = data.draw(st.sampled_from([np.int32, np.int64]))
    s = scattered(rows, columns, data.draw(st.sampled_from([0.5, 3.0])), dtype, data.draw(st.integers(0, 99)), index)
    b = numbers((columns, width), dtype)
    devices, policy = data.draw(st.sampled_from(MIXES)), data.draw(st.sampled_from(["", "even"]))
    operand = laid_out(b, data.draw(st.sampled_from(LAYOUTS))) if b.size else b
    got = cx.spmm.using(devices=devices, policy=policy)(cx.csr(s), operand)
    assert_product(np.asarray(got), s, b)


@needs_opencl
@pytest.mark.parametrize("devices", MIXES)
def test_products_with_vectors_are_scipys(runtime, devices):
    s, x = scattered(300, 200), numbers(200)
    for got in (cx.spmv.using(devices=devices)(s, x), cx.spmm.using(devices=devices)(cx.csr(s), cx.array(x))):
        assert_product(np.asarray(got), s, x)


@pytest.mark.parametrize("dtype", [np.int32, np.complex64, np.float16, bool])
def test_products_of_other_types_are_scipys(dtype):
    s, b = scattered(20, 15, dtype=np.float64), numbers((15, 4)) * 5
    s = s.astype(np.float32 if dtype == np.float16 else dtype)
    b = b.astype(dtype)
    got = np.asarray(cx.csr(s) @ cx.array(b))
    assert np.allclose(got, s @ b, rtol=1e-3) and got.dtype == np.result_type(s.dtype, b.dtype)


def test_results_go_where_they_are_wanted():
    s, b, out = scattered(20, 15), numbers((15, 4)), cx.zeros((20, 4), np.float64)
    assert cx.spmm(s, b, out=out) is out
    assert np.allclose(np.asarray(out), s @ b, rtol=1e-5, atol=1e-6)
    square = scattered(6, 6, seed=3)
    x = cx.array(numbers((6, 2)))
    before = np.asarray(x)
    cx.spmm(square, x, out=x)
    assert np.allclose(np.asarray(x), square @ before, rtol=1e-5, atol=1e-6)


@needs_opencl
@pytest.mark.parametrize("dtype", FLOATS)
def test_parts_and_variants_of_a_product_agree(dtype):
    s = abs(scattered(40, 30, dtype=dtype))
    matrix, b = cx.csr(s), np.abs(numbers((30, 70), dtype))
    arguments = (s.data, s.indices, s.indptr, b, np.empty((40, 70), dtype))
    check_kernel(multiply_kernel(matrix.pattern, np.dtype(dtype).name), *arguments, ulp=NUMERICS.ulp)


@needs_opencl
def test_the_source_for_gpus_computes_the_same():
    s, b = abs(scattered(40, 30)), np.abs(numbers((30, 9)))
    made = multiply_kernel(cx.csr(s).pattern, "float32")
    made.variants[-1] = gpu_variant(TILES["float32"], "int32")
    check_kernel(made, s.data, s.indices, s.indptr, b, np.empty((40, 9), np.float32), splits=(2,), ulp=NUMERICS.ulp)


@settings(max_examples=20)
@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 20), st.sampled_from(FLOATS), st.integers(0, 99))
def test_sampled_products_are_scipys(rows, columns, inner, dtype, seed):
    s = scattered(rows, columns, dtype=dtype, seed=seed)
    a, b = numbers((rows, inner), dtype), numbers((columns, inner), dtype, 2)
    got = cx.sddmm(s, a, cx.array(b).T)
    stored = s.data.astype(np.float64)
    each = np.repeat(np.arange(rows), np.diff(s.indptr))
    dots = (a[each].astype(np.float64) * b[s.indices]).sum(1)
    sizes = np.abs(stored) * np.abs(a[each].astype(np.float64) * b[s.indices]).sum(1)
    assert isinstance(got, cx.CSR) and got.dtype == dtype
    assert_sums(np.asarray(got.data), stored * dots, sizes, NUMERICS.ulp)


def test_parts_of_sampled_products_agree():
    s = abs(scattered(40, 30))
    a, b = np.abs(numbers((40, 8))), np.abs(numbers((8, 30)))
    made = sample_kernel(cx.csr(s).pattern, "float32")
    check_kernel(made, s.data, s.indices, s.indptr, a, b, np.empty(s.nnz, np.float32), ulp=NUMERICS.ulp)


def test_rows_are_divided_by_what_they_store():
    ends = np.concatenate([[0], np.cumsum([90] * 10 + [1] * 990)]).astype(np.int32)
    indices = np.resize(np.arange(50, dtype=np.int32), ends[-1])
    with cx.Runtime("cpu:0"):
        matrix = cx.csr((np.ones(ends[-1], np.float32), indices, ends), shape=(1000, 50))
        plan = cx.spmm.plan(matrix, np.ones((50, 4), np.float32))
    assert plan.space == (1000, 4) and sum(part.share for part in plan.parts) == pytest.approx(1.0)
    assert matrix.pattern.weight(np.arange(1000))[:10].sum() == pytest.approx(910.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: cx.spmm(s, np.zeros((4, 2))), ShapeError, "has 5 columns, b has 4 rows"),
        (lambda s: cx.spmm(s, np.zeros((5, 2, 2))), ShapeError, "a matrix or a vector"),
        (lambda s: cx.spmv(s, np.zeros((5, 1))), ShapeError, "takes a vector"),
        (lambda s: cx.spmm(cx.zeros((3, 5)), np.zeros(5)), ArgumentError, "cx.matmul"),
        (lambda s: cx.spmm(s, ["a"] * 5), ArgumentError, "array of numbers"),
        (lambda s: cx.spmm(s, np.zeros(5), out=cx.zeros(4)), ShapeError, "out has shape"),
        (lambda s: cx.sddmm(s, np.zeros((3, 2)), np.zeros((3, 5))), ShapeError, "a @ b takes"),
        (lambda s: cx.sddmm(s, np.zeros((4, 2)), np.zeros((2, 5))), ShapeError, "has shape \\(4, 5\\)"),
    ],
)
def test_operands_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(cx.csr(scattered(3, 5)))
