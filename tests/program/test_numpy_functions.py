"""NumPy's functions on coexec arrays, through __array_function__: the same shapes, types and values, on every mix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import coexec as cx
from coexec.errors import ProgramError, ShapeError, UnsupportedError
from coexec.program.later_stages import late
from coexec.program.numpy_protocol import READY_MADE
from tests.ops.forced import DEVICES, agree, divided

DTYPES = [np.float32, np.float64, np.int16, np.bool_]
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


@pytest.fixture(params=DEVICES, scope="module")
def devices(request):
    with divided(request.param):
        yield request.param


def numbers(shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def test_every_listed_function_is_where_the_table_says() -> None:
    for path in READY_MADE.values():
        assert callable(late(path))


@given(st.lists(SHAPES, min_size=1, max_size=3), st.sampled_from(DTYPES), st.integers(-3, 3))
@settings(max_examples=15)
def test_joining_takes_what_numpy_takes(devices, shapes, dtype, axis) -> None:
    parts = [numbers(shape, dtype if i else np.int32, i) for i, shape in enumerate(shapes)]
    agree(lambda *p: np.concatenate(p, axis=axis), *parts)
    agree(lambda *p: np.stack(p, axis=axis), *parts)
    alike = [parts[0]] * len(parts)
    for function in (np.vstack, np.hstack, np.dstack, np.column_stack):
        agree(lambda *p, f=function: f(p), *alike)
        agree(lambda *p, f=function: f(p), *parts)
    agree(lambda *p: np.concatenate(p, axis=axis), *alike)
    agree(lambda *p: np.stack(p, axis=axis), *alike)


@given(SHAPES, st.integers(-7, 7), st.data())
@settings(max_examples=15)
def test_roll_tile_and_broadcast_move_elements_as_in_numpy(devices, shape, shift, choice) -> None:
    data = numbers(shape)
    axis = choice.draw(st.integers(0, len(shape) - 1))
    agree(lambda x: np.roll(x, shift, axis), data)
    agree(lambda x: np.roll(x, (shift, 1), (axis, 0)), data)
    agree(lambda x: np.tile(x, (2, 1)), data)
    agree(lambda x: np.broadcast_to(x, (2, *shape)), data)
    if len(shape) == 1:
        agree(lambda x: np.roll(x, shift), data)


@pytest.mark.parametrize(
    ("reps", "error"), [(-1, ValueError), ((2, -1), ValueError), (1.5, TypeError), ([2.0], TypeError)]
)
def test_tile_refuses_what_numpy_refuses(reps: Any, error: type[Exception]) -> None:
    for x in (np.ones(3), cx.ones(3)):
        with pytest.raises(error):
            np.tile(x, reps)
    assert np.asarray(np.tile(cx.ones(3), np.array([2, 1]))).shape == (2, 3)


@given(SHAPES, st.data())
@settings(max_examples=15)
def test_views_by_name_are_numpys(shape, choice) -> None:
    data = numbers(shape)
    axis = choice.draw(st.integers(-len(shape) - 1, len(shape)))
    other = choice.draw(st.integers(-len(shape) - 1, len(shape)))
    agree(lambda x: np.expand_dims(x, axis), data)
    agree(lambda x: np.expand_dims(x, (axis, other)), data)
    agree(np.squeeze, data)
    agree(lambda x: np.squeeze(x, axis), data)
    agree(lambda x: np.moveaxis(x, axis, other), data)
    agree(lambda x: np.moveaxis(x, (0, axis), (other, 0)), data)
    agree(lambda x: np.swapaxes(x, axis, other), data)
    agree(lambda x: np.flip(x, axis), data)
    for function in (np.flip, np.atleast_1d, np.atleast_2d, np.atleast_3d):
        agree(function, data)


def test_reshape_lets_axes_of_length_one_come_and_go() -> None:
    x: Any = cx.array(np.arange(12.0).reshape(3, 1, 4))
    for shape in [(3, 4), (1, 3, 4, 1), (3, -1), (-1, 4)]:
        agree(lambda a, s=shape: np.reshape(a, s), np.arange(12.0).reshape(3, 1, 4))
    view: Any = np.reshape(x, (3, 4))
    view[0, 0] = 99
    assert float(x[0, 0, 0]) == 99
    with pytest.raises(ShapeError, match="cannot reshape"):
        np.reshape(x, (5, 5))
    with pytest.raises(UnsupportedError, match="no view"):
        np.reshape(x, (4, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_products_are_numpys(devices, dtype) -> None:
    ulp = 64
    a, b, v = numbers((6, 5), dtype), numbers((5, 7), dtype, 1), numbers(40, dtype, 2)
    for function, operands in [
        (np.dot, (a, b)),
        (np.dot, (v, v)),
        (np.dot, (a, b[:, 0])),
        (np.dot, (numbers((2, 3, 5), dtype), numbers((2, 5, 4), dtype))),
        (np.vdot, (v, v)),
        (np.vdot, (a, a)),
        (np.inner, (a, b.T)),
        (np.inner, (v, v)),
        (np.outer, (v, v[:3])),
        (np.tensordot, (numbers((3, 4, 5), dtype), numbers((4, 5, 2), dtype))),
    ]:
        agree(function, *operands, ulp=ulp)
    agree(
        lambda x, y: np.tensordot(x, y, axes=([1, 0], [0, 1])), numbers((3, 4), dtype), numbers((4, 3), dtype), ulp=ulp
    )
    agree(lambda x: np.dot(x, 3), a)
    agree(np.dot, v[:0], v[:0])
    agree(np.dot, v, v[:3])
    agree(np.dot, v > 0, v > 1)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(4, 5), (5, 6)]),
        ("ij,jk", [(4, 5), (5, 6)]),
        ("ij,kj->ki", [(4, 5), (6, 5)]),
        ("bij,bjk->bik", [(3, 4, 5), (3, 5, 2)]),
        ("bij,bj->bi", [(3, 4, 5), (3, 5)]),
        ("i,i", [(9,), (9,)]),
        ("i,j->ij", [(4,), (5,)]),
        ("ij,ij->ij", [(4, 5), (4, 5)]),
        ("ij,ij->j", [(4, 5), (4, 5)]),
        ("ij,ij->", [(4, 5), (4, 5)]),
        ("abc,dc->abd", [(2, 3, 4), (5, 4)]),
        ("ijk,il->ljk", [(2, 3, 4), (2, 5)]),
        ("ijk,l->ij", [(2, 3, 4), (5,)]),
        ("ij->ji", [(4, 5)]),
        ("ij->", [(4, 5)]),
        ("ij", [(4, 5)]),
        ("ij,jk->ik", [(4, 5), (6, 6)]),
        ("ij,jk->iz", [(4, 5), (5, 6)]),
        ("ijk,jk->ik", [(4, 5), (5, 6)]),
    ],
)
def test_einsum_of_two_operands(devices, subscripts, shapes) -> None:
    agree(lambda *x: np.einsum(subscripts, *x), *[numbers(s, np.float64, i) for i, s in enumerate(shapes)], ulp=64)


def test_einsum_refuses_what_it_cannot_do() -> None:
    x: Any = cx.zeros((3, 3))
    for call in (
        lambda: np.einsum("ii->i", x),
        lambda: np.einsum("ij,jk,kl", x, x, x),
        lambda: np.einsum("...j,j", x, x[0]),
    ):
        with pytest.raises(UnsupportedError, match=r"np\.asarray"):
            call()


@pytest.mark.parametrize("order", [None, 0, 1, 2, 3, np.inf, -np.inf, "fro", -1])
@pytest.mark.parametrize("shape", [(9,), (4, 5)])
def test_norms_are_numpys_or_refused(devices, order, shape) -> None:
    data = numbers(shape, np.float64)
    for axis in (None, 0):
        for keepdims in (False, True):
            matrix = len(shape) == 2 and axis is None
            if matrix and order in (0, 2, 3):
                if order == 2:
                    with pytest.raises(UnsupportedError, match="asarray"):
                        np.linalg.norm(cx.array(data), order)
                continue
            agree(lambda x, a=axis, k=keepdims: np.linalg.norm(x, order, axis=a, keepdims=k), data, ulp=8)
    agree(lambda x: np.linalg.norm(x), data.astype(np.int32), ulp=4)  # noqa: PLW0108 - a function of one argument


def test_questions_about_whole_arrays_wait_and_answer_with_a_bool() -> None:
    data = np.arange(6.0)
    x: Any = cx.array(data)
    assert np.array_equal(x, data) is True and np.array_equal(x, data + 1) is False
    assert np.array_equal(x, data[:3]) is False
    broken = np.where(data > 2, np.nan, data)
    assert not np.array_equal(cx.array(broken), broken)
    assert np.array_equal(cx.array(broken), broken, equal_nan=True)
    assert np.allclose(x, data + 1e-12) and not np.allclose(x, data + 1e-3)
    agree(lambda a: np.isclose(a, 3.0, atol=1.5), data)


def test_averages_weigh_elements(devices) -> None:
    data, weights = numbers((6, 4)), np.arange(1.0, 7)
    agree(lambda x, w: np.average(x, axis=0, weights=w), data, weights, ulp=8)
    agree(lambda x: np.average(x, weights=np.abs(data) + 1), data, ulp=8)
    agree(np.average, data, ulp=4)
    agree(lambda x: np.average(x, axis=1, weights=[1, 2, 3, 4]), data.astype(int), ulp=8)


def test_results_are_new_arrays_and_nothing_waits() -> None:
    x: Any = cx.array(np.arange(6.0).reshape(2, 3))
    made: list[Any] = [np.concatenate([x, x]), np.roll(x, 1, 0), np.sum(x, 0), np.clip(x, 1, 2), np.astype(x, int)]
    x[...] = 0
    assert all(isinstance(array, cx.Array) for array in made)
    assert [np.asarray(array).sum() for array in made] == [30, 15, 15, 10, 15]


def test_mixed_operands_out_and_errors() -> None:
    x: Any = cx.array(np.arange(4.0))
    out: Any = cx.zeros(8)
    assert np.concatenate([x, np.ones(4)], out=out) is out
    assert np.asarray(out).tolist() == [0, 1, 2, 3, 1, 1, 1, 1]
    with pytest.raises(ShapeError, match="out has shape"):
        np.concatenate([x, x], out=x)
    with pytest.raises(ShapeError, match="differ"):
        np.concatenate([x, cx.zeros((2, 2))])
    with pytest.raises(ProgramError):
        np.dot(x, x, out=cx.zeros(3))  # type: ignore[call-overload]
    with pytest.raises(ShapeError, match="broadcast"):
        np.broadcast_to(x, (3, 3))
