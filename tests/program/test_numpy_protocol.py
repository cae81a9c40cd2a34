"""NumPy's own functions on coexec arrays: elementwise ones are kernels, a few others are listed, the rest is refused."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import ProgramError, ShapeError, UnsupportedError
from tests.ops.forced import outcome

# NumPy's own annotations know NumPy's arrays only.
array: Any = cx.array
zeros: Any = cx.zeros

DTYPES = [np.bool_, np.int8, np.uint8, np.int32, np.uint64, np.float16, np.float32, np.float64, np.complex64]
BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.ge,
    operator.eq,
    operator.ne,
    operator.and_,
    operator.xor,
    operator.lshift,
]


def agree(function, *args):
    """Assert that `function` does the same to coexec arrays as to NumPy's, types included."""
    ours = outcome(function, *[array(a) if isinstance(a, np.ndarray) else a for a in args])
    theirs = outcome(function, *args)
    if isinstance(theirs, type):
        assert isinstance(ours, type) and issubclass(ours, (TypeError, ValueError, OverflowError)), (ours, theirs)
        return
    assert not isinstance(ours, type), (ours, theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_operators_give_numpys_values_and_types(function) -> None:
    for first in DTYPES:
        for second in (np.int32, np.float32, np.bool_):
            agree(function, np.arange(1, 7).astype(first), np.arange(2, 8).astype(second))


@pytest.mark.parametrize("scalar", [2, 2.5, True, 300, -1, 1j, np.float32(1.5), np.int64(3), np.array(2.0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scalar_counts_as_little_as_in_numpy(dtype, scalar) -> None:
    data = np.arange(1, 5).astype(dtype)
    for function in (operator.add, operator.mul, operator.lt):
        agree(function, data, scalar)
        agree(lambda x, s, f=function: f(s, x), data, scalar)


@pytest.mark.parametrize(
    "ufunc",
    [
        np.exp,
        np.sin,
        np.sqrt,
        np.negative,
        np.abs,
        np.isnan,
        np.floor,
        np.sign,
        np.logical_not,
        np.invert,
        np.conjugate,
    ],
)
def test_unary_functions_give_numpys_values_and_types(ufunc) -> None:
    for dtype in DTYPES:
        agree(ufunc, np.arange(1, 6).astype(dtype))


def test_functions_with_several_outputs() -> None:
    data = np.array([1.5, -2.25, 3.0])
    agree(np.modf, data)
    agree(np.frexp, data)
    agree(np.divmod, data, 2)
    agree(divmod, data, data)


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=3), st.data())
def test_shapes_broadcast_as_in_numpy(shape, choice) -> None:
    def sized(extents):
        kept = [1 if choice.draw(st.booleans()) else n for n in extents[choice.draw(st.integers(0, len(extents))) :]]
        return np.arange(1.0, 1 + int(np.prod(kept))).reshape(kept)

    agree(operator.add, sized(shape), sized(shape))


@pytest.mark.parametrize("devices", ["cpu:0", "cpu"])
def test_large_operands_are_divided_and_broadcast_in_pieces(devices) -> None:
    rng = np.random.default_rng(1)
    matrix, row, column = rng.random((600, 500)), rng.random(500), rng.random((600, 1))
    with cx.Runtime(devices):
        for _ in range(3):  # measured, it may be divided
            agree(lambda m, r, c: np.exp(m) * r + c, matrix, row, column)


def test_shapes_that_do_not_fit_raise_at_the_call() -> None:
    with pytest.raises(ShapeError, match="broadcast"):
        zeros(3) + zeros(4)
    with pytest.raises(ShapeError, match="out has shape"):
        np.add(zeros((2, 3)), 1, out=zeros(3))


def test_what_numpy_refuses_is_refused_at_the_call() -> None:
    with pytest.raises(OverflowError):
        zeros(3, np.uint8) + 300
    with pytest.raises(TypeError):
        zeros(3) & 1
    with pytest.raises(TypeError):
        np.add(zeros(3), 1.5, out=zeros(3, int))


def test_out_is_written_and_returned() -> None:
    x, out = array([1.0, 2.0]), zeros(2)
    assert np.add(x, 1, out=out) is out
    assert np.asarray(out).tolist() == [2, 3]
    whole, part = zeros(2), zeros(2)
    returned = np.modf(x * 1.25, out=(part, whole))
    assert returned[0] is part and returned[1] is whole
    assert np.asarray(whole).tolist() == [1, 2]
    np.add(1, 2, out=out)
    assert np.asarray(out).tolist() == [3, 3]
    assert np.multiply(x, 2, dtype=np.float32).dtype == np.float32
    with pytest.raises(UnsupportedError, match="later"):
        np.add(x, 1, out=np.zeros(2))


@pytest.mark.parametrize("debug", [False, True])
def test_in_place_operators_change_the_array_and_its_views(debug) -> None:
    with cx.Runtime("cpu:0", debug=debug):
        x = array(np.arange(5.0))
        alias = x
        view = x[1:3]
        x += 1
        x *= x
        x[3:] -= 100
        view /= 2
        assert x is alias
        assert np.asarray(x).tolist() == [1, 2, 4.5, -84, -75]
        np.add(x[:-1], 0, out=x[1:])  # overlapping, as in NumPy through a copy
        assert np.asarray(x).tolist() == [1, 1, 2, 4.5, -84]


def test_numpy_arrays_and_lists_join_in_as_copies() -> None:
    x = array([1.0, 2.0])
    host = np.array([10.0, 20.0])
    left, right, listed = host - x, x - host, x + [1, 2]  # noqa: RUF005 - a sum
    host[:] = 0
    assert np.asarray(left).tolist() == [9, 18]
    assert np.asarray(right).tolist() == [-9, -18]
    assert np.asarray(listed).tolist() == [2, 4]
    assert isinstance(left, cx.Array)


def test_a_single_element_stays_on_its_device() -> None:
    x = array([1.0, 4.0, 9.0])
    total = np.sqrt(x[2]) + x[0]
    assert isinstance(total, cx.Array) and total.shape == ()
    assert float(total) == 4
    assert np.asarray(x * x[1]).tolist() == [4, 16, 36]


def test_floating_point_errors_follow_the_callers_errstate() -> None:
    x = zeros(3)
    with np.errstate(divide="raise"):
        failing = 1 / x
    with pytest.raises(FloatingPointError):
        np.asarray(failing)
    with np.errstate(divide="ignore"):
        assert np.isinf(np.asarray(1 / x)).all()


def test_what_would_gather_silently_is_refused_with_the_explicit_way() -> None:
    x = array(np.ones((3, 3)))
    for call in (
        lambda: np.sort(x),
        lambda: np.argsort(x),
        lambda: np.unique(x),
        lambda: np.cumsum(x),
        lambda: np.reshape(x, (9,)),
        lambda: np.mean(x, out=np.zeros(())),
        lambda: np.linalg.norm(x, 2),
        lambda: np.einsum("ii", x),
        lambda: np.vecdot(x, x),
        lambda: np.add.reduceat(x, [0]),
        lambda: np.add.accumulate(x),
        lambda: np.add.at(x, 0, 1),
        lambda: np.where(x),
    ):
        with pytest.raises(UnsupportedError, match=r"np\.(asarray|array|where)"):
            call()


def test_the_listed_functions_do_not_wait() -> None:
    data = np.arange(6.0).reshape(2, 3)
    x = array(data)
    assert np.shape(x) == (2, 3) and np.ndim(x) == 2 and np.size(x) == 6 and np.size(x, 1) == 3
    assert not np.iscomplexobj(x) and np.isrealobj(x)
    assert np.result_type(x, np.float32) == np.float64
    for maker in (np.zeros_like, np.ones_like, np.empty_like):
        made: Any = maker(x, dtype=np.int8)
        assert isinstance(made, cx.Array) and made.shape == (2, 3) and made.dtype == np.int8
    assert np.asarray(np.full_like(x, 7)).tolist() == [[7] * 3] * 2
    with pytest.raises(UnsupportedError, match="shape"):
        np.zeros_like(x, shape=(5,))
    views: tuple[Any, ...] = (np.copy, np.transpose, lambda a: np.moveaxis(a, 0, -1), lambda a: np.swapaxes(a, 0, 1))
    for function in views:
        agree(function, data)
    agree(lambda a: np.transpose(a, (1, 0)), data)
    agree(lambda a: np.where(a > 2, a, -1), data)
    agree(lambda a: np.where(a > 2, np.float32(0), 1), data.astype(np.float32))
    agree(lambda a: np.where(a > 2, a - np.float32(1), np.float32(0)), np.asarray(np.float32(3)))  # numbers only
    agree(lambda a: np.clip(a, 1, 4), data)
    agree(lambda a: np.clip(a, None, 4), data)
    agree(lambda a: np.clip(a, min=2), data.astype(np.int16))
    for low, high in ((-3, 2), (1, 300), (-(10**30), 10**30), (300, 2), (3, -2), (None, -1), (2.5, None), (-0.5, 3)):
        for dtype in (np.uint8, np.int64, bool, np.float32):
            agree(lambda a, low=low, high=high: np.clip(a, low, high), data.astype(dtype))
            agree(lambda a, b, low=low, high=high: np.clip(a, low, high, out=b), data.astype(dtype), data)
    agree(lambda a, b: np.clip(a, 1, b, out=b), data, data[::-1].copy())
    agree(lambda a, b: np.clip(a, 1, 3, out=b, where=a > 0), data, -data)
    agree(lambda a: np.clip(5, a, 7), data)


@pytest.mark.parametrize("bounds", [(0, 9), (-0.0, 9), (-9, 0.0), (-9, -0.0), (None, 0.0), (None, -0.0), (0, None)])
@pytest.mark.parametrize("size", [1, 7, 100_000])  # NumPy at once, and kernels
def test_clip_has_numpys_sign_of_zero(bounds: tuple[Any, Any], size: int) -> None:
    data = np.resize(np.array([-0.0, 0.0, -1, np.nan, 9, 10, -0.0]), size)
    for dtype in (np.float32, np.float64):
        x = data.astype(dtype)
        into = array(x)
        np.clip(into, *bounds, out=into)
        for found in (np.clip(array(x), *bounds), array(x).clip(*bounds), into):
            np.testing.assert_array_equal(np.signbit(np.asarray(found)), np.signbit(np.clip(x, *bounds)))


def test_copyto_goes_both_ways() -> None:
    x = array([1.0, 2.0, 3.0])
    host = np.zeros(3)
    np.copyto(host, x)
    assert host.tolist() == [1, 2, 3]
    np.copyto(x, host[::-1])
    np.copyto(x[:1], 9)
    assert np.asarray(x).tolist() == [9, 2, 1]
    whole = zeros(3, int)
    with pytest.raises(TypeError, match="cast"):
        np.copyto(whole, x)
    np.copyto(x, host, where=host > 1)
    assert np.asarray(x).tolist() == [9, 2, 3]
    np.copyto(whole, 7, where=np.array([True, False, True]))
    assert np.asarray(whole).tolist() == [7, 0, 7]


def test_an_array_of_another_runtime_is_refused() -> None:
    with cx.Runtime("cpu:0"):
        foreign = zeros(3)
        with cx.Runtime("cpu:0"), pytest.raises(ProgramError, match="another runtime"):
            foreign + 1
