"""cx.map: any elementwise NumPy function, in blocks, on every mix of devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import coexec as cx
from coexec.errors import ArgumentError, ShapeError, UnsupportedError
from coexec.ops.map import map as cx_map
from tests.ops.forced import DEVICES, divided


@pytest.fixture(params=DEVICES, scope="module")
def devices(request):
    with divided(request.param):
        yield request.param


def wave(x, y, k):
    return np.sin(x) * y + k


@given(hnp.array_shapes(min_dims=0, max_dims=3, max_side=9), st.sampled_from([np.float32, np.float64, np.int16]))
@settings(max_examples=30)
def test_the_result_is_that_of_the_function_on_the_whole(devices, shape, dtype) -> None:
    x = np.random.default_rng(0).integers(0, 9, shape).astype(dtype)
    y = x[..., :1] if shape else x
    got = np.asarray(cx_map(wave, cx.array(x), cx.array(y), 2))
    expected = wave(x, y, 2)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


def test_operands_broadcast_along_the_first_axis_too(devices) -> None:
    x, row, column = np.arange(60.0).reshape(12, 5), np.arange(5.0), np.arange(12.0)[:, None]
    for operands in [(x, row, 1), (row, x, 1), (x, column, 1), (x[:1], x, 1), (x, row[None], 1)]:
        got = cx_map(wave, *[cx.array(o) if isinstance(o, np.ndarray) else o for o in operands])
        np.testing.assert_array_equal(np.asarray(got), wave(*operands))


def test_out_and_dtype_say_where_and_as_what(devices) -> None:
    x = cx.array(np.arange(20.0))
    out = cx.zeros(20, np.float32)
    assert cx_map(np.sqrt, x, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), np.sqrt(np.arange(20.0)).astype(np.float32))
    assert cx_map(np.sqrt, x, dtype=np.float32).dtype == np.float32
    cx_map(np.negative, x, out=x)
    assert np.asarray(x).tolist() == (-np.arange(20.0)).tolist()


def test_blocks_are_small_and_values_from_outside_are_those_of_the_call() -> None:
    factor, sizes = 3.0, []

    def scaled(x):
        sizes.append(x.size)
        return x * factor

    with pytest.raises(ArgumentError, match="sizes"):  # a list could change before the function runs
        cx_map(scaled, cx.zeros(5))

    first = cx_map(lambda x: x * factor, cx.array(np.ones(300_000)))
    factor = 0.0
    assert np.asarray(first).min() == 3.0

    def limited(x):
        assert x.size <= 1 << 16
        return x + 1

    assert np.asarray(cx_map(limited, cx.zeros((400, 1000)))).min() == 1
    assert factor == 0.0


def test_a_function_that_does_not_fit_is_told_apart() -> None:
    x: Any = cx.zeros((4, 3))
    with pytest.raises(ArgumentError, match="takes a function"):
        cx_map(x, x)
    with pytest.raises(ArgumentError, match="at least one array"):
        cx_map(np.sqrt, 2.0)
    with pytest.raises(ShapeError, match="cannot be broadcast"):
        cx_map(np.add, x, cx.zeros(4))
    with pytest.raises(ShapeError, match="out has shape"):
        cx_map(np.sqrt, x, out=cx.zeros(3))
    with pytest.raises(UnsupportedError, match="later"):
        cx_map(np.sqrt, x, out=np.zeros((4, 3)))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="pass dtype="):
        cx_map(lambda a: a / a.max(), x)
    with pytest.raises(ArgumentError, match="not a list"):
        cx_map(lambda a: [a], x)
    shrunk = cx_map(lambda a: a[:, :2], x, dtype=float)
    with pytest.raises(ShapeError, match="element by element"):
        np.asarray(shrunk)
