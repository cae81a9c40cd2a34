"""Views of views against NumPy: any chain of basic indices and transpositions, read and written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx


@cx.kernel(x=cx.update)
def triple(x):
    x *= 3


def slices(extent: int):
    bound = st.none() | st.integers(-extent - 2, extent + 2)
    step = st.none() | st.sampled_from([1, 2, 3, -1, -2, -3])
    return st.builds(slice, bound, bound, step)


@st.composite
def keys(draw, shape: tuple[int, ...]):
    """Draw a basic index for an array of `shape`."""
    named = draw(st.integers(0, len(shape)))
    entries = []
    for extent in shape[:named]:
        if extent and draw(st.integers(0, 3)) == 0:
            entries.append(draw(st.integers(-extent, extent - 1)))
        else:
            entries.append(draw(slices(extent)))
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        rest = len(shape) - named
        at = draw(st.integers(0, len(entries)))
        tail = sum(entry is not None for entry in entries[at:])
        if not tail or not rest:  # what follows the dots was drawn for the axes it now meets
            entries.insert(at, ...)
    return tuple(entries) if len(entries) != 1 or draw(st.booleans()) else entries[0]


@st.composite
def chains(draw):
    """Draw a shape and a chain of steps, each an index or an order of axes."""
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=0, max_size=3)))
    view = np.empty(shape, np.int64)
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 3)) == 0:
            steps.append(("transpose", tuple(draw(st.permutations(range(view.ndim))))))
            view = view.transpose(steps[-1][1])
        else:
            steps.append(("index", draw(keys(view.shape))))
            view = view[(*_tuple(steps[-1][1]), ...)] if ... not in _tuple(steps[-1][1]) else view[steps[-1][1]]
    return shape, steps


def _tuple(key):
    return key if isinstance(key, tuple) else (key,)


def follow(array, steps):
    for kind, value in steps:
        if kind == "transpose":
            array = array.transpose(value)
        elif ... not in _tuple(value):
            array = array[(*_tuple(value), ...)]  # keeps a full index a view
        else:
            array = array[value]
    return array


def data_of(shape):
    return np.arange(1, int(np.prod(shape)) + 1, dtype=np.int64).reshape(shape)


@settings(max_examples=200)
@given(chains())
def test_a_view_of_views_reads_like_numpys(chain) -> None:
    shape, steps = chain
    data = data_of(shape)
    view = follow(cx.array(data), steps)
    expected = follow(data, steps)
    assert view.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(view), expected)


@settings(max_examples=200)
@given(chains(), st.sampled_from(["scalar", "array", "kernel", "coexec array"]))
def test_a_write_through_a_view_changes_exactly_its_elements(chain, how) -> None:
    shape, steps = chain
    data = data_of(shape)
    x = cx.array(data)
    view = follow(x, steps)
    target = follow(data, steps)
    values = np.arange(target.size).reshape(target.shape) - 5
    if how == "kernel":
        triple(view)
        target *= 3
    else:
        view[...] = {"scalar": -7, "array": values, "coexec array": cx.asarray(values)}[how]
        target[...] = -7 if how == "scalar" else values
    np.testing.assert_array_equal(np.asarray(x), data)


@pytest.mark.parametrize("memory", ["own", "shared"])
def test_views_reach_a_device_as_they_are(memory) -> None:
    scale = cx.kernel(name="scale", x=cx.update)(lambda x: np.multiply(x, 3, out=x))
    scale.opencl("x(i, j) *= 3;")
    data = np.arange(60.0).reshape(6, 10)
    with cx.Runtime("cpu:0,opencl:0@1", memory={"opencl:0": memory}):
        x = cx.array(data)
        for view, part in [
            (x[1:5, ::3], data[1:5, ::3]),
            (x.T, data.T),
            (x[::-2, ::-1], data[::-2, ::-1]),
            (x[2:3, 4:9], data[2:3, 4:9]),
        ]:
            scale.using(devices="opencl:0")(view)
            np.multiply(part, 3, out=part)
            np.testing.assert_array_equal(np.asarray(x), data)


@pytest.mark.parametrize("shape", [(3, 4), (5_000, 400)])  # at home, and in memories
def test_an_axis_made_with_none_can_be_cut_to_nothing(shape) -> None:
    data = np.ones(shape)
    x = cx.array(data)
    for key in (slice(0), slice(1, None), slice(0, 1, -1)):
        empty = x[:, None][:, key]
        assert (empty.shape, empty.dtype, empty.size) == (data[:, None][:, key].shape, data.dtype, 0)
        empty[...] = 7
        triple(empty)
        assert np.asarray(empty).shape == empty.shape
        assert float((empty + 1).sum()) == 0
        assert empty.T[::-1].shape == data[:, None][:, key].T[::-1].shape
    np.testing.assert_array_equal(np.asarray(x), data)


def test_transposing_follows_numpy() -> None:
    data = np.arange(24).reshape(2, 3, 4)
    x = cx.array(data)
    np.testing.assert_array_equal(np.asarray(x.T), data.T)
    np.testing.assert_array_equal(np.asarray(x.transpose()), data.transpose())
    np.testing.assert_array_equal(np.asarray(x.transpose(2, 0, 1)), data.transpose(2, 0, 1))
    np.testing.assert_array_equal(np.asarray(x.transpose((0, -1, 1))), data.transpose((0, -1, 1)))
    for wrong in ((0, 1), (0, 0, 1), (0, 1, 2, 3), (0, 1, 5)):
        with pytest.raises(ValueError):
            x.transpose(wrong)


def test_views_share_elements_and_never_wait() -> None:
    x = cx.zeros((4, 4))
    row, column = x[1], x[:, 2]
    row[...] = 5
    column[...] = 7
    assert np.asarray(x[1]).tolist() == [5, 5, 7, 5]
    assert float(x[1, 1]) == 5
