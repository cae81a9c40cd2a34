"""Range mappers: what each body sees, whole and divided, compared with np.pad and plain slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.testing import check_kernel
from tests.devices import TWO

PAD: dict[Any, dict[str, Any]] = {
    "wrap": {"mode": "wrap"},
    "edge": {"mode": "edge"},
    "reflect": {"mode": "reflect"},
    0: {"mode": "constant", "constant_values": 0},
    -2.5: {"mode": "constant", "constant_values": -2.5},
}


@pytest.fixture(autouse=True)
def two_cores():
    with cx.Runtime(TWO):
        yield


def run(kernel, *args):
    """Call a kernel so that it is divided over all devices."""
    kernel.using(devices=TWO)(*args)


def window_sum(border: Any, before: int, after: int):
    """Return a kernel that adds up a window of each row, and its NumPy reference."""

    @cx.kernel(split=0, u=cx.read(cx.halo([(before, after)], border=border)), out=cx.write)
    def total(u, out):
        out[...] = 0
        for shift in range(before + after + 1):
            out += u[shift : shift + len(out)]

    def reference(u):
        padded = np.pad(u, [(before, after)] + [(0, 0)] * (u.ndim - 1), **PAD[border])
        return sum(padded[shift : shift + len(u)] for shift in range(before + after + 1))

    return total, reference


@pytest.mark.parametrize("border", PAD)
@settings(max_examples=15)
@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 9), st.integers(0, 1))
def test_padded_borders_are_np_pads(border, before, after, rows, extra) -> None:
    kernel, reference = window_sum(border, before, after)
    u = np.arange(1.0, 1 + rows * 2**extra).reshape((rows, 2) if extra else (rows,))
    out = cx.zeros_like(u)
    run(kernel, cx.array(u), out)
    np.testing.assert_allclose(np.asarray(out), reference(u), rtol=1e-14)
    check_kernel(kernel, u, np.zeros_like(u))


@pytest.mark.parametrize("border", PAD)
def test_padding_in_two_dimensions_is_np_pads(border) -> None:
    @cx.kernel(split=(1, 0), u=cx.read(cx.halo((1, 2), border=border)), out=cx.write)
    def corners(u, out):
        out[...] = u[:-2, :-4] + 10 * u[2:, 4:] + 100 * u[:-2, 4:] + 1000 * u[2:, :-4]

    u = np.random.default_rng(1).random((7, 8))
    out = cx.empty_like(u)
    run(corners, cx.array(u), out)
    p = np.pad(u, [(1, 1), (2, 2)], **PAD[border])
    np.testing.assert_allclose(
        np.asarray(out), p[:-2, :-4] + 10 * p[2:, 4:] + 100 * p[:-2, 4:] + 1000 * p[2:, :-4], rtol=1e-13
    )
    check_kernel(corners, u, np.zeros_like(u))


def test_clip_cuts_at_the_edge_and_chunk_tells_where_one_is() -> None:
    @cx.kernel(split=0, u=cx.read(cx.halo(2)), out=cx.write)
    def furthest(u, out, chunk):
        (mine,) = chunk.at("u")
        for i in range(len(out)):
            here = mine.start + i
            out[i] = u[max(0, here - 2) : here + 3].max()

    u = np.random.default_rng(2).random(23)
    out = cx.zeros(23)
    run(furthest, cx.array(u), out)
    expected = [u[max(0, i - 2) : i + 3].max() for i in range(23)]
    assert np.asarray(out).tolist() == expected
    check_kernel(furthest, u, np.zeros(23))


def test_inside_leaves_the_rim_alone() -> None:
    @cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
    def blur(u, out):
        out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4

    u = np.random.default_rng(3).random((12, 9))
    out = cx.full((12, 9), -1.0)
    run(blur, cx.array(u), out)
    expected = np.full((12, 9), -1.0)
    expected[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
    np.testing.assert_array_equal(np.asarray(out), expected)
    check_kernel(blur, u, np.zeros_like(u))
    tiny = cx.full((2, 5), 3.0)
    run(blur, cx.zeros((2, 5)), tiny)  # no point has its whole halo
    assert np.asarray(tiny).tolist() == [[3.0] * 5] * 2


def test_same_takes_the_chunk_on_shared_axes() -> None:
    @cx.kernel(split=0, m=cx.read, v=cx.read, out=cx.write)
    def scale(m, v, out):
        out[...] = m * v[:, None]

    m, v = np.random.default_rng(4).random((6, 3)), np.arange(6.0)
    out = cx.empty((6, 3))
    run(scale, cx.array(m), cx.array(v), out)
    np.testing.assert_array_equal(np.asarray(out), m * v[:, None])
    check_kernel(scale, m, v, np.zeros((6, 3)))


def test_all_gives_every_chunk_everything() -> None:
    @cx.kernel(split=0, a=cx.read(cx.axis(1)), b=cx.read(cx.all), out=cx.write)
    def multiply(a, b, out):
        assert b.shape == (5, 4)
        out[...] = a @ b

    a, b = np.random.default_rng(5).random((8, 5)), np.random.default_rng(6).random((5, 4))
    out = cx.empty((8, 4))
    run(multiply, cx.array(a), cx.array(b), out)
    np.testing.assert_allclose(np.asarray(out), a @ b, rtol=1e-15)
    check_kernel(multiply, a, b, np.zeros((8, 4)), ulp=4)


def test_axis_gives_everything_along_an_axis() -> None:
    @cx.kernel(split=(0, 1), x=cx.read(cx.axis(1)), y=cx.read(cx.axis(0)), out=cx.write)
    def ends(x, y, out):
        out[...] = x[:, :1] + y[-1:, :]

    x, y = np.arange(12.0).reshape(4, 3), np.arange(12.0, 24.0).reshape(4, 3)
    out = cx.empty((4, 3))
    run(ends, cx.array(x), cx.array(y), out)
    np.testing.assert_array_equal(np.asarray(out), x[:, :1] + y[-1:, :])
    check_kernel(ends, x, y, np.zeros((4, 3)))


def test_fixed_gives_one_box() -> None:
    @cx.kernel(split=0, table=cx.read(cx.fixed(slice(2, 4), 1)), out=cx.write)
    def use(table, out):
        assert table.shape == (2, 1)
        out[...] = table.sum()

    out = cx.empty(6)
    run(use, cx.array(np.arange(20.0).reshape(5, 4)), out)
    assert np.asarray(out).tolist() == [9.0 + 13.0] * 6


def test_a_function_maps_chunks_as_it_likes() -> None:
    def mirrored(chunk):
        return slice(chunk.array_shape[0] - chunk.hi[0], chunk.array_shape[0] - chunk.lo[0])

    @cx.kernel(split=0, x=cx.read(mirrored), out=cx.write)
    def reverse(x, out):
        out[...] = x[::-1]

    out = cx.empty(9)
    run(reverse, cx.array(np.arange(9.0)), out)
    assert np.asarray(out).tolist() == list(range(9))[::-1]
    check_kernel(reverse, np.arange(9.0), np.zeros(9))


def test_a_function_may_name_several_boxes_and_gets_their_hull() -> None:
    @cx.kernel(split=0, x=cx.read(lambda c: [slice(0, 1), slice(c.lo[0], c.hi[0])]), out=cx.write)
    def from_first(x, out):
        out[...] = x[-len(out) :] - x[0]

    out = cx.empty(8)
    run(from_first, cx.array(np.arange(5.0, 13.0)), out)
    assert np.asarray(out).tolist() == list(range(8))


def test_a_transposed_and_stepped_view_is_mapped_in_its_own_coordinates() -> None:
    kernel, reference = window_sum("edge", 1, 1)
    base = np.random.default_rng(7).random((20, 14))
    view, out = base.T[::-2, 3:], cx.zeros((7, 17))
    run(kernel, cx.array(base).T[::-2, 3:], out)
    np.testing.assert_allclose(np.asarray(out), reference(view), rtol=1e-14)


def test_an_output_wider_than_its_chunk_runs_undivided_with_one_warning() -> None:
    @cx.kernel(split=0, x=cx.update(cx.halo(1)))
    def smear(x):
        x[1:] = x[1:] + x[:-1]

    x = cx.array(np.arange(10.0))
    with pytest.warns(cx.CoexecWarning, match="undivided"):
        run(smear, x)
    run(smear, x)  # said once
    expected = np.arange(10.0)
    for _ in range(2):
        expected[1:] = expected[1:] + expected[:-1]
    assert np.asarray(x).tolist() == expected.tolist()


def test_what_does_not_fit_is_said_at_the_call() -> None:
    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def plain(x, out):
        out[...] = x

    with pytest.raises(ShapeError, match=r"'x' has shape \(3,\), the index space \(4,\)"):
        plain(cx.zeros(3), cx.zeros(4))

    @cx.kernel(x=cx.read(cx.axis(2)), out=cx.write)
    def axes(x, out):
        out[...] = 0

    with pytest.raises(ShapeError, match="axis"):
        axes(cx.zeros((3, 3)), cx.zeros((3, 3)))

    @cx.kernel(x=cx.read(cx.halo((1, 1, 1))), out=cx.write)
    def wide(x, out):
        out[...] = 0

    with pytest.raises(ShapeError, match=r"cx\.halo names 3"):
        wide(cx.zeros((3, 3)), cx.zeros((3, 3)))

    @cx.kernel(x=cx.read(cx.halo(1, border="wrap")), out=cx.write)
    def empty(x, out):
        out[...] = 0

    with pytest.raises(ShapeError, match="empty"):
        empty(cx.zeros(0), cx.zeros(0))

    @cx.kernel(x=cx.read(lambda chunk: "nonsense"), out=cx.write)
    def wrong(x, out):
        out[...] = 0

    with pytest.raises(ArgumentError, match="range mapper"):
        wrong(cx.zeros(3), cx.zeros(3))


def test_declarations_that_make_no_sense_are_refused() -> None:
    for make in (
        lambda: cx.halo(1, border="mirror"),
        lambda: cx.halo(-1),
        cx.axis,
        lambda: cx.axis(-1),
        lambda: cx.read("same"),
        lambda: cx.reduce("sum")(cx.all),
        lambda: cx.reduce(print),
    ):
        with pytest.raises(ArgumentError):
            make()
    with pytest.raises(cx.errors.UnknownName, match="did you mean 'sum'"):
        cx.reduce("summ")
