"""Ufuncs on coexec arrays: NumPy's values within each variant's numerics, on every mix of devices; all of their options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.compile.opencl_text import TEXTS
from coexec.errors import ShapeError, UnsupportedError
from coexec.program import ufunc
from tests.ops.forced import DEVICES, agree, divided

SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.0, 0.25, 100.0, np.nan, np.inf, -np.inf]
UFUNCS = sorted(TEXTS, key=lambda u: u.__name__)


@pytest.fixture(params=DEVICES, scope="module")
def devices(request):
    with divided(request.param):
        yield request.param


def operand(dtype, shape, seed):
    rng = np.random.default_rng(seed)
    return rng.choice(SPECIAL if np.dtype(dtype).kind == "f" else [0, 1, 2, 7], shape).astype(dtype)


@pytest.mark.parametrize("function", UFUNCS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_every_variant_keeps_its_numerics(devices, function, dtype) -> None:
    for shapes in [((19,), (19,)), ((4, 21), (21,))]:
        data = [operand(dtype, shape, i) for i, shape in enumerate(shapes[: function.nin])]
        agree(function, *data, ulp=TEXTS[function].ulp)


@pytest.mark.parametrize("function", [np.add, np.exp, np.maximum, np.less, np.absolute], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_wider_types_and_more_axes_do_too(devices, function, dtype) -> None:
    for shapes in [((4, 1), (4, 9)), ((2, 3, 2, 9), (3, 1, 1))]:
        data = [operand(dtype, shape, i) for i, shape in enumerate(shapes[: function.nin])]
        agree(function, *data, ulp=TEXTS[function].ulp)
    agree(function, *[operand(dtype, (33, 2), 1).T] * function.nin, ulp=TEXTS[function].ulp)


@pytest.mark.parametrize("function", [np.subtract, np.power, np.less, np.logical_and], ids=lambda f: f.__name__)
@pytest.mark.parametrize("scalar", [2, 2.5, True, np.float32(1.5), 10**30, 2**40])
def test_scalars_join_in_on_every_device(devices, function, scalar) -> None:
    for dtype in ("float32", "int32") if function is not np.power else ("float32",):
        data = operand(dtype, 37, 1)
        agree(lambda x, f=function: f(x, scalar), data, ulp=TEXTS[function].ulp)
        agree(lambda x, f=function: f(scalar, x), data, ulp=TEXTS[function].ulp)


def test_a_single_element_on_a_device_joins_in_too(devices) -> None:
    data = np.arange(1.0, 30, dtype=np.float32)
    agree(lambda x: x * x[3] + np.exp(x[1]), data, ulp=4)
    agree(lambda x: np.where(x > x[4], x, 0), data)


def test_a_nan_on_either_side_is_the_maximum(devices) -> None:
    for dtype in (np.float32, np.float64):
        a, b = np.array([np.nan, 1, np.nan, 2] * 8, dtype), np.array([1, np.nan, np.nan, 3] * 8, dtype)
        for function in (np.maximum, np.minimum):
            agree(function, a, b)
            agree(lambda x, f=function: f(x, np.nan), b)


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=3), st.data())
@settings(max_examples=15)
def test_shapes_broadcast_on_every_device(devices, shape, choice) -> None:
    def sized(extents, dtype):
        kept = [1 if choice.draw(st.booleans()) else n for n in extents[choice.draw(st.integers(0, len(extents))) :]]
        return np.arange(1, 1 + int(np.prod(kept))).reshape(kept).astype(dtype)

    agree(np.add, sized(shape, np.float32), sized(shape, np.int32))
    agree(np.sqrt, sized(shape, np.float64), ulp=3)
    agree(np.where, sized(shape, np.int32) > 2, sized(shape, np.float32), sized(shape, np.float64))


def test_views_of_any_order_and_step_are_operands(devices) -> None:
    data = np.random.default_rng(0).random((12, 10)).astype(np.float32)
    agree(lambda x: np.exp(x[::2, ::-1]) + x.T[:10, :6].T, data, ulp=8)
    out: Any = cx.zeros((10, 24), np.float32)
    np.exp(cx.array(data), out=out[:, ::2].T)
    np.testing.assert_allclose(np.asarray(out)[:, ::2].T, np.exp(data), rtol=1e-6)
    assert not np.asarray(out)[:, 1::2].any()


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_where_computes_only_where_the_mask_is_true(devices, dtype) -> None:
    data, mask = np.arange(1, 21).astype(dtype), np.arange(20) % 3 == 0
    out: Any = cx.full(20, 77, dtype)
    assert np.multiply(cx.array(data), 2, out=out, where=mask) is out
    assert np.asarray(out).tolist() == np.where(mask, data * 2, 77).tolist()
    np.add(out, out, out=out, where=cx.array(mask))
    assert np.asarray(out).tolist() == np.where(mask, data * 4, 77).tolist()
    np.add(out, 1, out=out, where=False)
    assert np.asarray(out).tolist() == np.where(mask, data * 4, 77).tolist()
    fresh: Any = np.negative(cx.array(data), where=mask)  # elsewhere undefined, as in NumPy
    assert np.asarray(fresh)[mask].tolist() == (-data[mask]).tolist()
    wide: Any = np.add(cx.array(data[:1]), 1, where=np.ones((2, 3), bool))
    assert np.asarray(wide).tolist() == [[2] * 3] * 2


def test_dtype_and_casting_are_numpys(devices) -> None:
    data = np.arange(10, dtype=np.int32)
    agree(lambda x: np.add(x, x, dtype=np.float32), data)
    agree(lambda x: np.sqrt(x, dtype=np.float32), data.astype(np.float32), ulp=3)
    agree(lambda x: np.add(x, 0.5, casting="no"), data)
    agree(lambda x: np.add(x, 0.5, dtype=np.int32, casting="unsafe"), data)
    agree(lambda x: np.add(x, 0.5, dtype=np.int32), data)
    out: Any = cx.zeros(10, np.int32)
    np.multiply(cx.array(data), 1.5, out=out, casting="unsafe")
    assert np.asarray(out).tolist() == (data * 1.5).astype(np.int32).tolist()


def test_outer_pairs_all_elements(devices) -> None:
    a, b = np.arange(1.0, 5), np.arange(6.0).reshape(2, 3)
    agree(np.multiply.outer, a, b)
    agree(lambda x: np.subtract.outer(x, 3), a)
    agree(lambda x: np.less.outer(2, x), b)
    mixed: Any = np.add.outer(cx.array(a), b)
    assert np.asarray(mixed).tolist() == np.add.outer(a, b).tolist()


def test_matmul_is_the_ready_made_one(devices) -> None:
    a, b = np.random.default_rng(0).random((6, 5)), np.random.default_rng(1).random((5, 7))
    agree(lambda x, y: x @ y, a, b, ulp=64)
    agree(np.matmul, a, b[:, 0], ulp=64)
    agree(lambda y: a @ y, b, ulp=64)
    out: Any = cx.zeros((6, 7))
    assert np.matmul(cx.array(a), cx.array(b), out=out) is out
    np.testing.assert_allclose(np.asarray(out), a @ b)
    with pytest.raises(UnsupportedError, match="asarray"):
        np.matmul(cx.array(a), cx.array(b), axes=[(0, 1), (0, 1), (0, 1)])


def test_what_does_not_fit_is_refused_at_the_call() -> None:
    x: Any = cx.zeros(4)
    with pytest.raises(ShapeError, match="broadcast"):
        np.add(x, 1, where=np.ones(3, bool))
    with pytest.raises(TypeError, match="cast"):
        np.add(x, 1, where=np.ones(4))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match=r"np\.add\.accumulate\(np\.asarray"):
        np.add.accumulate(x)


def test_kernels_are_made_once_per_kind_of_operands() -> None:
    x: Any = cx.array(np.ones(5))
    before = ufunc._kernel.cache_info().misses
    for _ in range(5):
        np.hypot(x, 2.0)
        np.hypot(x, 3.0)
    assert ufunc._kernel.cache_info().misses <= before + 1


EXTREMES: dict[str, list[Any]] = {
    "float32": [0.0, 0.5, -0.25, 256.0, 1e-30, -1.5, 3.0],
    "float64": [0.0, 0.5, -0.25, 256.0, 1e-300, -1.5, 3.0],
    "int32": [0, 256, -256, 2**31 - 1, -(2**31), 65536, 3],
    "int64": [0, 256, -256, 2**63 - 1, -(2**63), 2**32, 3],
    "bool": [False, True, False, True, True, False, True],
}


@pytest.mark.parametrize("out", ["bool", "int64", "float32"])
@pytest.mark.parametrize("dtype", sorted(EXTREMES))
@pytest.mark.parametrize("function", [np.multiply, np.absolute], ids=lambda f: f.__name__)
def test_results_are_converted_as_numpy_does(devices, function, dtype, out) -> None:
    """Whatever is not zero is true, and integers wrap around in the type that the ufunc computes in."""
    values = np.array(EXTREMES[dtype] * 3, dtype)

    def run(*taken):
        result = np.zeros(21, out) if isinstance(taken[0], np.ndarray) else cx.zeros(21, out)
        return function(*taken, out=result, casting="unsafe")

    agree(run, *[values, values[::-1].copy()][: function.nin])


def test_numbers_beside_an_array_are_looked_at_as_numpy_does(devices) -> None:
    data = np.array([1.0, 0.0, 2.0] * 7, np.float32)
    wide = np.zeros(21)
    agree(lambda x, out: np.logical_and(x, 1e-300, out=out), data, wide)
    agree(lambda x: np.logical_or(x, 1e-300), data)
    agree(lambda x: np.where(1e-300, x, 2), data)
    agree(lambda x, out: np.add(x, 0.1, out=out), data, wide)
    agree(lambda x: np.where(x, x > 1, True), data)
