from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.ops import matmul
from coexec.ops.matmul import NUMERICS, gpu_variant, product, product_kernel
from coexec.ops.op import TILES
from coexec.testing import check_kernel
from tests.backend.opencl_parts import needs_opencl
from tests.ops.devices_for_ops import LAYOUTS, MEMORIES, MIXES, laid_out, mixed_runtime

SIZES = [0, 1, 2, 3, 5, 6, 7, 15, 16, 17, 40, 193, 257, 400]
FLOATS = [np.float32, np.float64]


@pytest.fixture(scope="module", params=MEMORIES)
def runtime(request):
    with mixed_runtime(request.param) as runtime:
        yield runtime


def numbers(shape, dtype, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * 8
    return (values + 1j * values[..., ::-1] if np.dtype(dtype).kind == "c" else values).astype(dtype)


def assert_product(got, a, b):
    """Compare with the product in double precision, by the declared numerics."""
    expected = np.matmul(a, b)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if got.dtype.kind in "biu":
        assert np.array_equal(got, expected)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    size = np.matmul(np.abs(a).astype(np.float64), np.abs(b).astype(np.float64)).astype(got.real.dtype)
    error = np.abs(got.astype(wide) - np.matmul(a.astype(wide), b.astype(wide)))
    assert (error <= NUMERICS.ulp * np.spacing(size)).all()


@needs_opencl
@pytest.mark.parametrize("devices", MIXES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((100, 200), (200, 130)),
        ((97, 513), (513, 530)),
        ((1, 700), (700, 300)),
        ((3, 500), (500, 70)),
        ((300, 700), (700, 1)),
        ((300, 700), (700, 4)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((7, 30, 40), (7, 40, 20)),
        ((1, 3, 4), (6, 4, 2)),
        ((3, 0), (0, 4)),
        ((0, 3), (3, 2)),
        ((0,), (0,)),
        ((5, 0, 3, 4), (4, 2)),
    ],
)
def test_a_product_of_any_shapes_is_numpys(runtime, devices, dtype, left, right):
    a, b = numbers(left, dtype), numbers(right, dtype, 1)
    assert_product(np.asarray(matmul.using(devices=devices)(cx.array(a), b)), a, b)


@needs_opencl
@settings(max_examples=40)
@given(st.data())
def test_shapes_layouts_and_types_in_any_combination_give_numpys_product(runtime, data):
    m, k, n = (data.draw(st.sampled_from(SIZES)) for _ in range(3))
    batch = data.draw(st.sampled_from([((), ()), ((), ()), ((3,), ()), ((2,), (2,)), ((1,), (2,)), ((2, 1), (3,))]))
    dtype, layouts = data.draw(st.sampled_from(FLOATS)), [data.draw(st.sampled_from(LAYOUTS)) for _ in range(3)]
    a, b = numbers((*batch[0], m, k), dtype), numbers((*batch[1], k, n), dtype, 1)
    out = laid_out(np.zeros(np.matmul(a, b).shape, dtype), layouts[2] if layouts[2] != "borrowed" else "dense")
    devices = data.draw(st.sampled_from(MIXES))
    result = matmul.using(devices=devices)(laid_out(a, layouts[0]), laid_out(b, layouts[1]), out=out)
    assert result is out
    assert_product(np.asarray(out), a, b)


@needs_opencl
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_may_lie_in_memory_in_any_way(runtime, layout):
    a, b = numbers((210, 401), np.float32), numbers((401, 270), np.float32, 1)
    divided = matmul.using(devices="cpu:0,opencl:0")
    assert_product(np.asarray(divided(laid_out(a, layout), laid_out(b, layout))), a, b)


@needs_opencl
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("left", "right"), [((210, 60), (60, 290)), ((5, 9, 20), (5, 20, 18)), ((2, 1, 9, 8), (2, 3, 8, 7))]
)
def test_a_product_may_be_divided_along_every_axis(dtype, left, right):
    a, b = np.abs(numbers(left, dtype)), np.abs(numbers(right, dtype, 1))  # no cancellation: bits of the result count
    check_kernel(product_kernel(np.dtype(dtype).name, len(left)), a, b, np.empty_like(a @ b), ulp=NUMERICS.ulp)


@needs_opencl
@settings(max_examples=15)
@given(st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from(FLOATS), st.data())
@example(65, 63, 17, np.float32, None)
def test_the_source_for_gpus_computes_the_same(runtime, m, k, n, dtype, data):
    layouts = ["dense", "dense"] if data is None else [data.draw(st.sampled_from(LAYOUTS)) for _ in range(2)]
    made = cx.kernel(a=cx.read(cx.axis(1)), b=cx.read(cx.axis(0)), out=cx.write)(product)
    made.variants.append(gpu_variant(TILES[np.dtype(dtype).name], 2))
    a, b = numbers((m, k), dtype), numbers((k, n), dtype, 1)
    out = cx.empty((m, n), dtype)
    made.using(devices="opencl:0")(laid_out(a, layouts[0]), laid_out(b, layouts[1]), out)
    assert_product(np.asarray(out), a, b)


@needs_opencl
def test_batches_of_the_source_for_gpus_are_found_in_their_places(runtime):
    kernel = product_kernel("float32", 3)
    accesses: dict[str, Any] = {param.name: param.access for param in kernel.array_params}
    made = cx.kernel(**accesses)(product)
    made.variants.append(gpu_variant(TILES["float32"], 3))
    a, b = numbers((5, 70, 20), np.float32), numbers((20, 70), np.float32, 1)
    out = cx.empty((5, 70, 70), np.float32)
    made.using(devices="opencl:0")(cx.array(a), cx.array(b)[None], out)
    assert_product(np.asarray(out[:1]), a[:1], b)
    stacked = matmul.prepare(cx.array(a), cx.array(b)).arguments
    made.using(devices="opencl:0")(*stacked[:2], out)
    assert_product(np.asarray(out), a, b)


@needs_opencl
@pytest.mark.parametrize("devices", MIXES)
@pytest.mark.parametrize("shape", [(50, 60), (2, 60), (50, 2)])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nan_and_infinity_spread_to_their_rows_and_columns_alone(runtime, devices, shape, value):
    a, b = numbers((shape[0], 40), np.float32), numbers((40, shape[1]), np.float32, 1)
    a[1, 3] = value
    b[5, 0] = value
    b[3, 1] = 0  # infinity times zero
    with np.errstate(invalid="ignore"):
        expected = a @ b
        got = np.asarray(matmul.using(devices=devices)(cx.array(a), cx.array(b)))
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(np.isinf(got), np.isinf(expected))
    assert np.array_equal(np.sign(got[np.isinf(got)]), np.sign(expected[np.isinf(expected)]))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.int8, np.int8),
        (np.int32, np.int64),
        (np.uint8, np.bool_),
        (np.bool_, np.bool_),
        (np.float16, np.float16),
        (np.float32, np.float64),
        (np.int32, np.float32),
        (np.complex64, np.complex64),
        (np.float64, np.complex64),
    ],
)
def test_types_are_promoted_as_numpy_does(left, right):
    with cx.Runtime("cpu:0"):
        a, b = numbers((6, 9), left), numbers((9, 5), right, 1)
        got = np.asarray(matmul(a, cx.array(b)))
        expected = np.matmul(a, b)
        assert got.dtype == expected.dtype
        assert np.allclose(got, expected, rtol=1e-2 if left == np.float16 else 1e-5, equal_nan=True)


@needs_opencl
def test_operands_of_two_float_types_are_converted_for_opencl_too(runtime):
    a, b = numbers((30, 20), np.float32), numbers((20, 10), np.float64, 1)
    got = np.asarray(matmul.using(devices="opencl:0")(cx.array(a), cx.array(b)))
    np.testing.assert_allclose(got, a @ b, rtol=1e-12, atol=1e-10)


def test_out_may_be_wider_or_one_of_the_operands():
    with cx.Runtime("cpu:0"):
        a, b = numbers((8, 8), np.float32), numbers((8, 8), np.float32, 1)
        wide = cx.zeros((8, 8), np.float64)
        assert matmul(cx.array(a), b, out=wide) is wide
        np.testing.assert_allclose(np.asarray(wide), a @ b, rtol=1e-4)
        x = cx.array(a)
        matmul(x, x.T, out=x)
        np.testing.assert_allclose(np.asarray(x), a @ a.T, rtol=1e-4, atol=1e-4)


def test_a_product_waits_for_its_operands_and_is_waited_for():
    with cx.Runtime("cpu:0"):
        x = cx.zeros((4, 4))
        x[...] = 2.0
        y = matmul(x, x)
        x[...] = 100.0
        assert (np.asarray(matmul(y, y)) == 4 * 16.0**2).all()


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((3, 4), (5, 6), r"shapes \(3, 4\) and \(5, 6\) do not match: a's last axis has 4 .* last but one has 5"),
        ((3, 4), (3,), r"shapes \(3, 4\) and \(3,\) .* only has 3"),
        ((), (3,), r"shapes \(\) and \(3,\): a 0-d operand .* use a \* b"),
        ((2, 3, 4), (3, 4, 5), r"shapes \(2, 3, 4\) and \(3, 4, 5\) .* stacks \(2,\) and \(3,\) cannot be broadcast"),
    ],
)
def test_shapes_that_do_not_match_are_both_named(left, right, message):
    with cx.Runtime("cpu:0"), pytest.raises(ShapeError, match=message):
        matmul(cx.zeros(left), cx.zeros(right))


def test_an_out_that_cannot_take_the_result_is_refused_with_the_remedy():
    with cx.Runtime("cpu:0"):
        a = cx.zeros((3, 4))
        with pytest.raises(ShapeError, match=r"out has shape \(3, 4\), the result \(3, 3\)"):
            matmul(a, a.T, out=a)
        with pytest.raises(ArgumentError, match="out is a ndarray, which would be written some time later"):
            matmul(a, a.T, out=np.zeros((3, 3)))
        with pytest.raises(ArgumentError, match="the result is float64, which out of int64 cannot hold"):
            matmul(a, a.T, out=cx.zeros((3, 3), np.int64))
        with pytest.raises(ArgumentError, match="b is a list of <U1; pass an array of numbers"):
            matmul(a, ["x"])
        with pytest.raises(ArgumentError, match="cannot be multiplied"):
            matmul(cx.array(np.zeros((2, 3), "S3")), a)


def test_the_operations_of_a_product_are_known():
    kernel = product_kernel("float32", 2)
    a, out = np.empty((6, 5)), np.empty((6, 7))
    assert kernel.cost.flops is not None
    assert kernel.cost.flops.function(a, out) == 2 * 6 * 5 * 7
    assert repr(matmul) == "<cx.matmul>"


def test_a_plan_is_made_without_computing_anything():
    with cx.Runtime("cpu:0"):
        a = cx.array(np.ones((30, 40)))
        out = cx.zeros((30, 30))
        plan = matmul.using(devices="cpu:0").plan(a, a.T, out=out)
        assert plan.name == "matmul_float64" and [part.device for part in plan.parts] == ["cpu:0"]
        assert not np.asarray(out).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_work_items_are_enough_for_the_cores_but_have_many_rows(dtype):
    tile = TILES[dtype]
    assert tile.groups(5, 7) == (1, 1, 1)
    across, down, stacked = tile.groups(4096, 4096, 3)
    assert across * tile.columns >= 4096 and down * tile.rows >= 4096 and stacked == 3
    _, few, _ = tile.groups(100, 100)
    assert few <= 3
