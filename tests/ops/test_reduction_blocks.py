"""Reductions as the program calls them: errors at once, blocks that depend on shapes alone, bits on nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ShapeError, UnsupportedError
from coexec.ops import extremes, reductions, statistics
from coexec.ops.reduce import block_rows, cut_axis, memory_order
from coexec.ops.reduce_kernels import Request, WholeReduction
from coexec.ops.reduction_source import source
from tests.devices import TWO
from tests.ops.forced import DEVICES, divided


def test_empty_reductions_raise_at_the_call() -> None:
    x: Any = cx.zeros((0, 3))
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
        np.max(x)
    with pytest.raises(ValueError, match="empty sequence"):
        np.argmin(x)
    with pytest.raises(np.exceptions.AxisError):
        np.sum(x, axis=2)
    with pytest.raises(ShapeError, match="out has shape"):
        reductions.sum(x, axis=0, out=cx.zeros(4))
    with pytest.raises(UnsupportedError, match="later"):
        np.sum(x, axis=0, out=np.zeros(3))
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"), np.errstate(invalid="ignore"):
        assert np.isnan(np.asarray(np.mean(x)))
    assert float(np.sum(x)) == 0 and np.asarray(np.prod(x, axis=0)).tolist() == [1, 1, 1]


def test_methods_are_the_functions() -> None:
    data = np.random.default_rng(0).random((5, 4))
    x: Any = cx.array(data)
    for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "var", "std"):
        for options in ({}, {"axis": 1}, {"axis": 0, "keepdims": True}):
            np.testing.assert_allclose(np.asarray(getattr(x, name)(**options)), getattr(data, name)(**options))
    np.testing.assert_allclose(np.asarray(x.dot(x.T)), data.dot(data.T))
    np.testing.assert_allclose(np.asarray(x.clip(0.2, 0.5)), data.clip(0.2, 0.5))
    assert x.reshape(5, 1, 4).shape == (5, 1, 4) and x[:1].squeeze().shape == (4,) and x.swapaxes(0, 1).shape == (4, 5)
    assert x.astype(np.float32).dtype == np.float32 and x[0].ravel().shape == (4,)


def test_the_public_names_take_plain_arrays_too() -> None:
    data = np.arange(6.0)
    assert float(reductions.sum(data)) == 15 and float(reductions.prod(data + 1)) == 720
    assert float(reductions.max([1, 5, 2])) == 5 and float(reductions.min(cx.array(data))) == 0
    assert int(extremes.argmax(data)) == 5 and int(extremes.argmin(data)) == 0
    assert float(statistics.mean(data)) == 2.5 and int(reductions.count_nonzero(data)) == 5
    assert bool(reductions.any(data)) and not bool(reductions.all(data))


@pytest.mark.parametrize("shape", [(300_000,), (600, 500), (3, 100_000), (100_000, 3), (20, 30, 500)])
def test_the_bits_do_not_depend_on_devices_or_shares(shape) -> None:
    data = np.random.default_rng(5).random(shape).astype(np.float32)
    seen: dict[Any, set[bytes]] = {}
    for open_runtime in (lambda: cx.Runtime("cpu:0"), lambda: cx.Runtime("cpu"), lambda: divided(TWO, tiny=False)):
        with open_runtime():
            x: Any = cx.array(data)
            for view, name in ((x, "as made"), (x.T, "transposed")):
                for axis in (None, *range(len(shape))):
                    for _ in range(2):  # measured, it may be divided otherwise
                        seen.setdefault((name, axis), set()).add(np.asarray(np.sum(view, axis=axis)).tobytes())
    assert {key: len(results) for key, results in seen.items()} == dict.fromkeys(seen, 1)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_column_of_its_own_is_added_up_as_beside_others(parts) -> None:
    data = np.random.default_rng(6).random((12, 5000)).astype(np.float32)
    body = WholeReduction(Request(np.add, (0,), np.dtype(np.float32)), masked=False, lone=1)
    whole, pieces = np.empty(data.shape[1], np.float32), np.empty(data.shape[1], np.float32)
    body(data, whole)
    for first in range(0, data.shape[1], parts):
        part = slice(first, first + parts)
        body(data[:, part], pieces[part])
    assert whole.tobytes() == pieces.tobytes()


def test_sums_are_as_accurate_as_numpys() -> None:
    for devices in DEVICES:
        with cx.Runtime(devices):
            for dtype in (np.float32, np.float64):
                data = np.random.default_rng(7).random(1_000_000).astype(dtype)
                exact = float(np.sum(data.astype(np.longdouble)))
                assert abs(float(np.sum(cx.array(data))) - exact) <= 4 * np.finfo(dtype).eps * exact


def test_half_precision_is_added_up_wider() -> None:
    data = np.full(100_000, 0.25, np.float16)
    assert float(np.mean(cx.array(data))) == 0.25
    assert np.sum(cx.array(data)).dtype == np.float16 and float(np.sum(cx.array(data))) == np.float16(25_000)


def test_blocks_depend_on_shapes_alone() -> None:
    assert cut_axis((100, 5), (0,)) == 0 and cut_axis((2, 90_000), (0, 1)) == 1
    assert cut_axis((1000, 1_000_000), (0,)) == 1  # blocks of rows would give as many results as there are rows
    assert block_rows((20_000_000,), 0) == 1 << 18 and block_rows((100_000,), 0) == 1 << 15
    x = cx.zeros((3, 1, 4))
    assert memory_order(x) == (1, 0, 2) and memory_order(x.T) == (1, 2, 0)


def test_only_types_with_a_counterpart_have_opencl_source() -> None:
    single, whole = np.dtype(np.float32), np.dtype(np.int64)
    text = source(np.add, single, single, 2, (0, 1), 0)
    assert text is not None and "vload8" in text
    assert source(np.maximum, whole, whole, 1, (0,), 0) is not None
    assert source(np.add, np.dtype(np.int8), whole, 1, (0,), 0) is None
    assert source(np.logical_or, single, np.dtype(bool), 1, (0,), 0) is None


def test_a_failure_in_the_operand_reaches_the_result() -> None:
    with np.errstate(divide="raise"):
        failing = 1 / cx.zeros(100_000)
    result: Any = np.sum(failing)
    with pytest.raises(FloatingPointError):
        float(result)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_a_negative_zero_to_begin_with_stays_one(dtype) -> None:
    """Each block of a large sum begins at -0.0, too: +0.0 would lose the sign."""
    for shape, axis in [((100_000,), None), ((60_000, 3), 0), ((3, 60_000), (0, 1))]:
        data = np.full(shape, -0.0, dtype)
        x: Any = cx.array(data)
        for initial in (-0.0, 0.0, np.float64(-0.0), -1.5, -2):
            expected = np.sum(data, axis=axis, initial=initial)
            assert np.asarray(np.sum(x, axis=axis, initial=initial)).tobytes() == expected.tobytes()
        mask = np.zeros(shape, bool)
        masked: Any = np.sum(x, axis=axis, initial=-0.0, where=cx.array(mask))
        assert np.asarray(masked).tobytes() == np.sum(data, axis=axis, initial=-0.0, where=mask).tobytes()


@pytest.mark.parametrize("shape", [(5, 1), (300, 400)])
def test_a_kernel_for_zero_is_none_for_negative_zero(shape) -> None:
    """Both zeros are equal, so that one's kernel must not be found for the other's call."""
    data = np.full(shape, -0.0)
    x: Any = cx.array(data)
    for initial in (0.0, -0.0, 0, np.float32(-0.0), complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0), 0j):
        dtype = np.complex128 if isinstance(initial, complex) else np.float64
        for axis in (0, 1, None):
            expected = np.sum(data, axis=axis, dtype=dtype, initial=initial)
            assert np.asarray(np.sum(x, axis=axis, dtype=dtype, initial=initial)).tobytes() == expected.tobytes()
