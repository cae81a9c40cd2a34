"""Every kernel of the applications computes the same whole, in uneven pieces, and through each of its variants."""

from __future__ import annotations

import numpy as np

import coexec as cx
from coexec.bench.apps.programs import load


def test_prices_are_the_same_in_pieces_and_on_every_device():
    example = load("black_scholes")
    spot, strike, years, call, put, value = example.start(500)
    cx.testing.check_kernel(example.price, spot, strike, years, call, put, 0.02, 0.3, ulp=1e9)  # cheap ones cancel
    cx.testing.check_kernel(example.total, spot, strike, value, ulp=64)


def test_clusters_are_the_same_in_pieces_and_on_every_device():
    example = load("kmeans")
    x, centre, label, sums, count = example.start(700, 5)
    cx.testing.check_kernel(example.assign, x, centre, label, sums, count, ulp=1e6)
    sums[:], count[:] = np.random.default_rng(1).random(sums.shape), [3, 1, 0, 2, 7]
    cx.testing.check_kernel(example.move, sums, count, centre)


def test_an_empty_cluster_stays_where_it_is():
    example = load("kmeans")
    centre = cx.array(np.full((2, 3), 9.0))
    example.move(cx.ones((2, 3)), cx.array([0.0, 4.0]), centre)
    assert np.asarray(centre).tolist() == [[9.0] * 3, [0.25] * 3]


def test_a_point_between_equal_centres_is_counted_once():
    example = load("kmeans")
    x, centre, label, sums, count = example.start(300, 4)
    centre[:] = centre[0]
    given = [cx.array(array) for array in (x, centre, label, sums, count)]
    example.assign(*given)
    assert np.asarray(given[4]).sum() == 300
    assert set(np.asarray(given[2]).tolist()) <= {0, 1, 2, 3}


def test_steps_of_conjugate_gradients_are_the_same_in_pieces_and_on_every_device():
    example = load("cg")
    random = np.random.default_rng(2)
    p, q, x, r = random.random((4, 30, 23))
    number = np.array(0.0)
    cx.testing.check_kernel(example.apply, p, q, number, ulp=64)
    cx.testing.check_kernel(example.advance, p, q, np.array(3.0), np.array(2.0), x, r, number, ulp=64)
    cx.testing.check_kernel(example.turn, r, p, 2.0, 3.0)


def test_tiles_are_factored_as_numpy_does():
    example = load("cholesky")
    a = random_positive(80)
    lower, inverse = a.copy(), np.empty_like(a)
    example.potrf.function(lower, inverse)
    assert np.allclose(lower, np.linalg.cholesky(a))
    assert np.allclose(lower @ inverse, np.eye(80))
    below = np.random.default_rng(4).random((30, 80))
    solved = below.copy()
    example.trsm.function(inverse, solved)
    assert np.allclose(solved @ lower.T, below)


def random_positive(size):
    """Return a positive definite matrix."""
    half = np.random.default_rng(3).random((size, size))
    return half @ half.T + size * np.eye(size)


def test_random_numbers_are_the_same_in_pieces():
    example = load("monte_carlo")
    cx.testing.check_kernel(example.dart, 999, np.zeros((), np.int64), 7)
    cx.testing.check_kernel(example.asian, np.empty(999), np.zeros(()), 3, 7, ulp=64)
