"""Arrays as the user meets them: how they are made, what they hold, and NumPy's manners."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ShapeError, UnsupportedError
from tests.holding import closed_gate, pass_gate


@cx.kernel(x=cx.update)
def increment(x):
    x += 1


@cx.kernel(x=cx.read, y=cx.write)
def copy(x, y):
    y[...] = x


def odd_arrays():
    base = np.arange(24, dtype=np.int64).reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    return {
        "0-d": np.array(3.5),
        "one element": np.array([7]),
        "no elements": np.empty((0, 3)),
        "no elements along the last axis": np.empty((3, 0), np.int8),
        "Fortran order": np.asfortranarray(base),
        "negative strides": base[::-1, ::-1],
        "steps": base[::2, 1::3],
        "zero strides": np.broadcast_to(np.arange(6), (4, 6)),
        "transposed": base.T,
        "read-only": read_only,
        "byte-swapped": base.astype(">i8"),
        "byte-swapped floats": np.linspace(0, 1, 5).astype(">f4"),
        "structured": np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")]),
        "bool": base > 5,
        "complex": base * 1j,
        "half": base.astype(np.float16),
        "bytes": np.array([b"ab", b"cde"]),
        "text": np.array(["x", "yz"]),
        "dates": np.array(["2020-01-01", "2021-02-03"], "M8[D]"),
        "five axes": np.arange(32).reshape(2, 2, 2, 2, 2),
    }


@pytest.mark.parametrize("make", [cx.array, cx.asarray])
@pytest.mark.parametrize("kind", odd_arrays())
def test_any_fixed_size_array_comes_back_as_it_went_in(kind, make) -> None:
    data = odd_arrays()[kind]
    x = make(data)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == (data.shape, data.dtype, data.ndim, data.size, data.nbytes)
    np.testing.assert_array_equal(np.asarray(x), data)
    assert np.asarray(x).dtype == data.dtype


@pytest.mark.parametrize("kind", odd_arrays())
def test_any_fixed_size_array_goes_through_kernels_and_views(kind) -> None:
    data = odd_arrays()[kind]
    y = cx.empty_like(cx.asarray(data))
    copy(cx.asarray(data), y)
    np.testing.assert_array_equal(np.asarray(y), data)
    if data.ndim:
        np.testing.assert_array_equal(np.asarray(y[::-1]), data[::-1])


def test_arrays_are_made_like_numpys() -> None:
    np.testing.assert_array_equal(np.asarray(cx.zeros((2, 3))), np.zeros((2, 3)))
    np.testing.assert_array_equal(np.asarray(cx.ones(4, np.int16)), np.ones(4, np.int16))
    np.testing.assert_array_equal(np.asarray(cx.full((2, 2), 7)), np.full((2, 2), 7))
    assert cx.full(3, 7).dtype == np.full(3, 7).dtype
    assert cx.full(3, 2.5, np.float32).dtype == np.float32
    assert cx.empty((5, 0, 2)).shape == (5, 0, 2)
    x = cx.zeros((2, 3), np.int8)
    for like in (cx.empty_like(x), cx.zeros_like(x), cx.ones_like(x), cx.full_like(x, 9)):
        assert (like.shape, like.dtype) == (x.shape, x.dtype)
    assert cx.zeros_like(np.ones((3, 2), np.float32)).dtype == np.float32
    assert cx.zeros_like(x, dtype=float).dtype == np.float64
    assert cx.array([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert cx.array(5).shape == ()
    assert cx.array([1, 2], np.float32).dtype == np.float32


def test_what_cannot_be_an_array_is_refused_in_words() -> None:
    with pytest.raises(ArgumentError, match="fixed-size type"):
        cx.array([object()])
    with pytest.raises(ArgumentError, match="fixed-size type"):
        cx.empty(3, object)
    with pytest.raises(ShapeError, match="negative extent"):
        cx.zeros((2, -1))
    with pytest.raises(ShapeError, match="is not a shape"):
        cx.zeros(2.5)
    with pytest.raises(ShapeError, match="takes one value"):
        cx.full(3, [1, 2, 3])
    with pytest.raises(TypeError):
        cx.zeros(3, "no such type")


def test_array_copies_at_once() -> None:
    data = np.arange(5.0)
    x = cx.array(data)
    data[:] = -1
    assert np.asarray(x).tolist() == [0, 1, 2, 3, 4]
    y = cx.array(x)
    increment(x)
    assert np.asarray(y).tolist() == [0, 1, 2, 3, 4]
    assert cx.array(x, np.float32).dtype == np.float32


def test_asarray_borrows_and_never_writes() -> None:
    data = np.arange(6.0)
    x = cx.asarray(data)
    data[0] = 10  # no task has read it yet
    assert float(x[0]) == 10
    increment(x)
    x[1] = 99
    assert np.asarray(x).tolist() == [11, 99, 3, 4, 5, 6]
    assert data.tolist() == [10, 1, 2, 3, 4, 5]
    assert data.flags.writeable
    assert cx.asarray(x) is x
    assert cx.asarray(data, np.float32).dtype == np.float32


def test_asarray_takes_dlpack_memory() -> None:
    class Foreign:
        """Speaks DLPack and nothing else."""

        def __init__(self, data):
            self.data = data

        def __dlpack__(self, **options):
            return self.data.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.data.__dlpack_device__()

    data = np.arange(4.0)
    x = cx.asarray(Foreign(data))
    assert np.asarray(x).tolist() == [0, 1, 2, 3]
    increment(x)
    assert np.asarray(x).tolist() == [1, 2, 3, 4]
    assert data.tolist() == [0, 1, 2, 3]


def test_a_memory_map_is_borrowed_and_its_file_never_written(tmp_path) -> None:
    path = tmp_path / "data"
    np.arange(8, dtype=np.int32).tofile(path)
    x = cx.asarray(np.memmap(path, np.int32, mode="r"))
    increment(x)
    assert np.asarray(x).tolist() == list(range(1, 9))
    assert np.fromfile(path, np.int32).tolist() == list(range(8))
    writable = np.memmap(path, np.int32, mode="r+")
    y = cx.asarray(writable)
    y[...] = 0
    assert np.asarray(y).tolist() == [0] * 8
    assert np.fromfile(path, np.int32).tolist() == list(range(8))


def test_arrays_larger_than_any_memory_cost_what_is_touched() -> None:
    big = cx.empty((2**40,), np.uint8)
    assert big.nbytes == 2**40
    window = big[2**33 : 2**33 + 1000]
    window[...] = 7
    assert int(big[2**33 + 999]) == 7
    assert np.asarray(window).sum() == 7000


def test_arrays_over_two_gib_are_addressed_exactly() -> None:
    big = cx.empty((3, 2**30), np.int32)  # 12 GiB, virtual
    big[2, -4:] = np.arange(4)
    increment(big[2, -4:])
    assert np.asarray(big[2, 2**30 - 4 :]).tolist() == [1, 2, 3, 4]


def test_zeros_of_any_size_are_read_piece_by_piece() -> None:
    big = cx.zeros((2**20, 2**20))
    assert np.asarray(big[12345, :5]).tolist() == [0] * 5
    big[7, 7] = 1
    assert np.asarray(big[6:9, 6:9]).sum() == 1


# Conversion ---------------------------------------------------------------------------------------------------------------


def test_asarray_is_a_read_only_snapshot_that_later_tasks_never_change() -> None:
    x = cx.zeros(100_000)
    before = np.asarray(x)
    increment(x)
    x[0] = 5
    assert np.asarray(x)[0] == 5
    assert before.sum() == 0
    assert not before.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 1


def test_a_snapshot_of_borrowed_memory_does_not_change_with_it() -> None:
    data = np.zeros(10)
    snapshot = np.asarray(cx.asarray(data))
    data[:] = 1
    assert snapshot.sum() == 0


def test_np_array_gives_a_writable_copy() -> None:
    x = cx.array([1.0, 2.0])
    mine = np.array(x)
    mine[0] = 50
    assert np.asarray(x).tolist() == [1, 2]
    assert np.array(x, dtype=np.int32).dtype == np.int32
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.array(x, copy=False)


def test_numpy_finds_no_memory_to_alias() -> None:
    x = cx.zeros(3)
    assert not hasattr(x, "__array_interface__")
    assert not hasattr(x, "__array_struct__")
    assert not hasattr(x, "__buffer__")


def test_scalars_come_out_of_single_elements_only() -> None:
    x = cx.array([[1.5]])
    assert float(x) == 1.5 and int(x) == 1 and complex(x) == 1.5 and bool(x) and x.item() == 1.5
    y = cx.array([3, 4])
    assert y[1].item() == 4 and y.item(0) == 3 and isinstance(y.item(0), int)
    assert [10, 11, 12, 13, 14][y[0]] == 13
    for convert in (float, int, complex, bool, cx.Array.item):
        with pytest.raises(ValueError):
            convert(y)
    with pytest.raises(TypeError, match="index"):
        [1, 2][cx.array(1.0)]


def test_len_and_iteration_give_views() -> None:
    x = cx.array(np.arange(6).reshape(2, 3))
    assert len(x) == 2
    rows = list(x)
    assert [row.shape for row in rows] == [(3,), (3,)]
    increment(rows[1])
    assert np.asarray(x).tolist() == [[0, 1, 2], [4, 5, 6]]
    assert [int(v) for v in rows[0]] == [0, 1, 2]
    with pytest.raises(TypeError, match="0-d"):
        len(cx.array(1))
    with pytest.raises(TypeError, match="0-d"):
        iter(cx.array(1))


def test_arrays_are_not_hashable_since_equality_is_elementwise() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(cx.zeros(3))


def test_repr_neither_waits_nor_raises() -> None:
    @cx.kernel(x=cx.update)
    def hold(x):
        pass_gate("repr")
        raise ValueError("later")

    with cx.Runtime("cpu:0") as rt:
        x = cx.zeros((4, 2), np.float32)
        with closed_gate("repr"):
            task = hold(x)
            assert repr(x) == "cx.Array(shape=(4, 2), dtype=float32)"
            assert repr(x[1:, 0]) == "cx.Array(shape=(3,), dtype=float32)"
            assert "pending" in repr(task) and "hold" in repr(task)
        assert isinstance(task.exception(), ValueError)
        assert repr(x) == "cx.Array(shape=(4, 2), dtype=float32)"
        assert "failed" in repr(task)
    assert repr(x) and "closed" in repr(rt)


# Host writes --------------------------------------------------------------------------------------------------------------


def test_assignment_broadcasts_and_casts_as_in_numpy() -> None:
    cases: list[tuple[Any, Any]] = [
        (..., 3),
        (1, 2.9),
        ((slice(None), 0), np.arange(4)),
        (slice(1, 3), np.arange(5)),
        ((slice(None, None, 2), slice(None, None, -1)), np.arange(10).reshape(2, 5)),
        ((0, 0), -1),
        (..., [[9], [8], [7], [6]]),
        (slice(0, 0), 5),
        ((slice(None), None, 2), np.ones((4, 1))),
        (2, True),
    ]
    for key, value in cases:
        expected = np.arange(20, dtype=np.int32).reshape(4, 5)
        x = cx.array(expected)
        x[key] = value
        expected[key] = value
        np.testing.assert_array_equal(np.asarray(x), expected)


def test_arrays_are_assigned_to_arrays_in_program_order() -> None:
    x = cx.array(np.arange(12.0).reshape(3, 4))
    y = cx.zeros((3, 4), np.float32)
    y[...] = x
    x[...] = 0
    assert np.asarray(y).tolist() == np.arange(12.0).reshape(3, 4).tolist()
    y[...] = cx.array([1, 2, 3, 4])
    assert np.asarray(y[2]).tolist() == [1, 2, 3, 4]
    y[:, 1] = y[0, 0]
    assert np.asarray(y[:, 1]).tolist() == [1, 1, 1]


@pytest.mark.parametrize("devices", ["cpu:0", "cpu"])
def test_overlapping_assignment_within_one_array_is_as_in_numpy(devices) -> None:
    for target, source in [((slice(1, None),), (slice(None, -1),)), ((slice(None, -1),), (slice(1, None),))]:
        data = np.arange(300_000.0)
        with cx.Runtime(devices):
            x = cx.array(data)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cx.CoexecWarning)
                x[target] = x[source]
                data[target] = data[source].copy()
                np.testing.assert_array_equal(np.asarray(x), data)
                x[...] = x[::-1]
            np.testing.assert_array_equal(np.asarray(x), data[::-1])


def test_an_assigned_host_array_is_copied_at_once() -> None:
    x = cx.zeros(3)
    values = np.array([1.0, 2.0, 3.0])
    x[...] = values
    values[:] = -1
    assert np.asarray(x).tolist() == [1, 2, 3]


def test_structured_arrays_take_structured_values() -> None:
    x = cx.zeros(3, [("a", "i4"), ("b", "f8")])
    x[1] = (5, 0.5)
    x[2] = np.array((6, 1.5), x.dtype)
    assert np.asarray(x).tolist() == [(0, 0.0), (5, 0.5), (6, 1.5)]


def test_assignments_that_do_not_fit_raise_at_once() -> None:
    x = cx.zeros((3, 4))
    with pytest.raises(ShapeError, match=r"shape \(3,\) to a view of shape \(3, 4\)"):
        x[...] = np.arange(3)
    with pytest.raises(ShapeError):
        x[...] = cx.zeros((4, 3))
    with pytest.raises(TypeError, match="complex"):
        x[...] = 1j
    with pytest.raises((TypeError, ValueError)):
        x[...] = "text"
    with pytest.raises(IndexError):
        x[3] = 0
    assert np.asarray(x).sum() == 0


def test_indexing_by_value_is_refused_with_the_explicit_way() -> None:
    x = cx.zeros(5)
    key: Any
    for key in ([0, 1], np.array([True] * 5), np.array([1, 2]), 1.0, "a", True):
        with pytest.raises(UnsupportedError, match=r"np\.asarray"):
            x[key]
    for key in ([0, 1], np.array([1, 2]), 1.0, "a", True):  # masks may be assigned to
        with pytest.raises(UnsupportedError, match=r"np\.asarray"):
            x[key] = 1
    for key in (5, -6, (0, 0), (..., 0, ...)):
        with pytest.raises(IndexError):
            x[key]


def test_fill_and_copy() -> None:
    x = cx.zeros(4)
    y = x.copy()
    x.fill(3)
    assert np.asarray(x).tolist() == [3, 3, 3, 3]
    assert np.asarray(y).tolist() == [0, 0, 0, 0]
    assert np.asarray(x[::2].copy()).tolist() == [3, 3]


def test_the_same_array_may_be_given_twice() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def add(x, y):
        y += x

    with cx.Runtime("cpu"):
        x = cx.array(np.arange(4_000_000.0))
        add(x, x)
        np.testing.assert_array_equal(np.asarray(x), 2 * np.arange(4_000_000.0))
        with pytest.warns(cx.CoexecWarning, match="undivided"):
            add(x[:-1], x[1:])
        expected = 2 * np.arange(4_000_000.0)
        expected[1:] += expected[:-1]
        np.testing.assert_array_equal(np.asarray(x), expected)
