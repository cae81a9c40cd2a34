from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import coexec as cx
from coexec.errors import ArgumentError, ShapeError, UnsupportedError
from coexec.geometry import Box
from coexec.ops.csr import EndsOf, StoredOf
from tests.ops.sparse_parts import scattered


def test_a_scipy_matrix_is_borrowed_and_comes_back():
    given = scattered(30, 20)
    matrix = cx.csr(given)
    assert (matrix.shape, matrix.nnz, matrix.dtype) == ((30, 20), given.nnz, np.dtype(np.float32))
    assert matrix.data._storage.borrowed and matrix.indices._storage.borrowed
    back = matrix.to_scipy()
    assert (back != given).nnz == 0 and not np.shares_memory(back.data, given.data)
    assert np.array_equal(matrix.toarray(), given.toarray())
    assert repr(matrix) == f"<cx.csr 30x20, {given.nnz} stored, float32>"
    assert matrix.density == given.nnz / 600 and matrix.ndim == 2 and matrix.nbytes > 0


@pytest.mark.parametrize("form", ["coo", "csc", "bsr", "lil", "dok", "dia"])
def test_other_formats_are_converted(form):
    given = scattered(12, 16, seed=2)
    given.sum_duplicates()
    assert np.array_equal(cx.csr(given.asformat(form)).toarray(), given.toarray())


def test_dense_and_taken_apart_matrices_are_taken():
    dense = np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
    assert cx.csr(dense).nnz == 3 and np.array_equal(cx.csr(dense).toarray(), dense)
    values = cx.array([2.0, 3.0, 4.0])
    parts = cx.csr((values, [1, 0, 1], [0, 1, 1, 3]), shape=(3, 2))
    assert np.array_equal(parts.toarray(), dense)
    assert cx.csr(parts) is parts and cx.csr(parts, dtype=np.float32).dtype == np.float32
    spare = cx.csr((np.arange(9.0), np.arange(9) % 2, np.array([0, 2], np.uint8)), shape=(1, 2))
    assert spare.nnz == 2 and spare.indices.dtype == np.int64


@pytest.mark.parametrize(
    ("parts", "shape", "message"),
    [
        (([1.0], [0], [0, 1]), (2, 2), "2 rows need 3 entries"),
        (([1.0], [2], [0, 1]), (1, 2), "columns 2 to 2 of a matrix that has 2"),
        (([1.0], [-1], [0, 1]), (1, 2), "columns -1"),
        (([1.0], [0], [1, 1]), (1, 2), "begin with 0"),
        (([1.0, 2.0], [0, 0], [0, 2, 1]), (2, 2), "never fall"),
        (([1.0], [0], [0, 3]), (1, 2), "ends with 3; there are 1 indices and 1 values"),
        (([1.0], [0], [0, 1]), (1,), "rows and columns"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(parts, shape, message):
    with pytest.raises(ShapeError, match=message):
        cx.csr(parts, shape=shape)


def test_what_is_no_sparse_matrix_is_refused():
    with pytest.raises(ArgumentError, match="whole numbers"):
        cx.csr(([1.0], [0.5], [0, 1]), shape=(1, 2))
    with pytest.raises(ArgumentError, match="3 axes"):
        cx.csr(np.zeros((2, 2, 2)))
    with pytest.raises(ArgumentError, match="shape= goes with"):
        cx.csr(np.zeros((2, 2)), shape=(2, 2))
    with pytest.raises(UnsupportedError, match=r"np\.asarray"):
        cx.csr(cx.zeros((2, 2)))
    with pytest.raises(ShapeError, match="1 axes"):
        cx.csr(sparse.coo_array(np.array([1.0, 0.0])))
    matrix = cx.csr(scattered(4, 4))
    with pytest.raises(UnsupportedError, match="toarray"):
        np.asarray(matrix)
    with pytest.raises(ShapeError, match="with_data"):
        matrix.with_data(cx.zeros(matrix.nnz + 1))


def test_a_chunk_of_rows_is_a_box_of_what_is_stored():
    pattern = cx.csr((np.ones(5), [0, 1, 2, 0, 1], [0, 2, 2, 5]), shape=(3, 3)).pattern
    stored, ends = StoredOf(pattern), EndsOf()
    assert stored.box(Box((0,), (1,)), (3,), (5,)) == Box((0,), (2,))
    assert stored.box(Box((1,), (3,)), (3,), (5,)) == Box((2,), (5,))
    assert stored.box(Box((1,), (2,)), (3,), (5,)).empty
    assert ends.box(Box((1,), (3,)), (3,), (4,)) == Box((1,), (4,))
    with pytest.raises(ShapeError, match="5 stored elements"):
        stored.check("data", (4,), (3,))


def test_rows_weigh_what_they_store_also_when_only_some_are_asked_for():
    given = scattered(1000, 50, seed=5)
    pattern, counts = cx.csr(given).pattern, np.diff(given.indptr)
    assert np.array_equal(pattern.weight(np.arange(1000)), counts + 1.0)
    every = pattern.weight(np.arange(5, 1000, 10))
    assert every @ np.full(100, 10.0) == pytest.approx(counts.sum() + 1000, rel=0.02)
    assert pattern.weight(np.array([7])) == counts[7] + 1.0
