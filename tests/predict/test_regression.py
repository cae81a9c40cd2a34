"""Regression alone: exact where the truth is linear, sane everywhere, unmoved by outliers."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.predict.nearest import NearestSamples
from coexec.predict.regression import Fit, fit
from tests.predict.shapes import cached, product, some_shapes, steady

coefficient = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
rows = st.lists(st.tuples(*[st.floats(1.0, 1e6)] * 3), min_size=8, max_size=30, unique=True)
noisy = st.lists(
    st.tuples(st.tuples(*[st.floats(0.0, 1e9)] * 3), st.floats(1e-7, 1e2)),
    min_size=4,
    max_size=24,
    unique_by=lambda r: r[0],
)


def fitted(samples: list[tuple[tuple[float, ...], float]]) -> Fit:
    return fit([row for row, _ in samples], [seconds for _, seconds in samples])


@settings(max_examples=50, deadline=None)
@given(rows, st.tuples(*[coefficient] * 4).filter(any))
def test_a_linear_truth_is_found_again(data: list[tuple[float, ...]], truth: tuple[float, ...]) -> None:
    seconds = [truth[0] + sum(c * f for c, f in zip(truth[1:], row, strict=True)) for row in data]
    found = fit(data, seconds)
    assert [found.seconds(row) for row in data] == pytest.approx(seconds, rel=0.01)


@settings(max_examples=50, deadline=None)
@given(noisy, st.tuples(*[st.floats(0.0, 1e12)] * 3), st.integers(0, 2), st.floats(1.0, 1e6))
def test_seconds_are_never_negative_and_never_fall_when_a_feature_grows(
    samples: list[tuple[tuple[float, ...], float]], at: tuple[float, ...], which: int, times: float
) -> None:
    found = fitted(samples)
    more = tuple(value * times + (times - 1.0) if i == which else value for i, value in enumerate(at))
    assert 0.0 <= found.seconds(at) <= found.seconds(more) < math.inf


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.tuples(*[st.integers(-30, 30)] * 6))
def test_the_unit_of_a_feature_makes_no_difference(seed: int, powers: tuple[int, ...]) -> None:
    """Flops or Teraflops, bytes or pages: the variables are scaled, as the optimiser's are (P2)."""
    works = [product(shape) for shape in some_shapes(12, seed)]
    noise = np.exp(np.random.default_rng(seed).normal(0.0, 0.03, len(works)))
    seconds = [steady(work) * off for work, off in zip(works, noise, strict=True)]
    scale = np.exp2(powers)
    plain = fit([work.features for work in works], seconds)
    scaled = fit([work.features * scale for work in works], seconds)
    for work in works:
        assert scaled.seconds(list(work.features * scale)) == pytest.approx(plain.seconds(work.features), rel=1e-4)


def test_the_coefficients_are_those_of_the_constant_and_of_each_feature() -> None:
    data = [(float(i), float(i * i % 7)) for i in range(1, 12)]
    found = fit(data, [3.0 + 2.0 * a + 5.0 * b for a, b in data])
    assert found.coefficients == pytest.approx((3.0, 2.0, 5.0), rel=1e-3) and found.breaks == ()


def test_features_that_say_the_same_share_the_time() -> None:
    data = [(float(n), 8.0 * n, 24.0 * n, 0.0) for n in (10, 100, 1000, 10_000)]
    found = fit(data, [1e-6 + 2e-9 * row[0] for row in data])
    assert found.seconds((500.0, 4000.0, 12_000.0, 0.0)) == pytest.approx(2e-6, rel=0.01)


@pytest.mark.parametrize("factor", [368.0, 1 / 368.0], ids=["longer", "shorter"])
@pytest.mark.parametrize("which", range(0, 20, 3))
def test_one_outlier_does_not_move_the_fit(factor: float, which: int) -> None:
    """190 us seen as 70 ms once sent all the work to two of eight devices (starpu#50)."""
    works = [product(shape) for shape in some_shapes(20, seed=5)]
    seconds = [steady(work) for work in works]
    seconds[which] *= factor
    found = fit([work.features for work in works], seconds)
    others = [work for i, work in enumerate(works) if i != which]
    assert [found.seconds(w.features) for w in others] == pytest.approx([steady(w) for w in others], rel=0.02)


def test_one_line_has_no_breaks_in_spite_of_noise() -> None:
    works = [product(shape) for shape in some_shapes(25, seed=1)]
    noise = np.exp(np.random.default_rng(2).normal(0.0, 0.03, len(works)))
    seconds = [steady(work) * off for work, off in zip(works, noise, strict=True)]
    assert fit([work.features for work in works], seconds).breaks == ()


@pytest.mark.parametrize(("small", "large"), [(1e-9, 4e-9), (4e-9, 1e-9)], ids=["slower", "faster"])
def test_a_break_is_found_where_the_slope_changes(small: float, large: float) -> None:
    """Beyond a cache each byte takes longer; beyond a vector's length it takes less."""

    def truth(size: float) -> float:
        return 1e-6 + small * min(size, 1e6) + large * max(size - 1e6, 0.0)

    sizes = [float(size) for size in np.geomspace(1e4, 1e8, 17)]
    noise = np.exp(np.random.default_rng(3).normal(0.0, 0.01, len(sizes)))
    found = fit([(size, size / 8) for size in sizes], [truth(s) * off for s, off in zip(sizes, noise, strict=True)])
    assert any(2.5e5 < place < 4e6 for place in found.breaks)
    assert len(found.coefficients) == 1 + 2 * (1 + len(found.breaks))
    between = [float(size) for size in np.geomspace(1.3e4, 0.7e8, 30)]
    assert median(abs(found.seconds((s, s / 8)) / truth(s) - 1.0) for s in between) < 0.03


def test_a_fit_with_breaks_does_not_jump() -> None:
    works = [product(shape) for shape in some_shapes(30, seed=4, low=64, high=4096)]
    found = fit([work.features for work in works], [cached(work) for work in works])
    assert found.breaks
    for place in found.breaks:
        features = [place, *works[0].features[1:]]
        beyond = [place * (1 + 1e-9), *works[0].features[1:]]
        assert found.seconds(beyond) == pytest.approx(found.seconds(features), rel=1e-6)


def test_times_of_zero_are_fitted_as_next_to_nothing() -> None:
    found = fit([(1.0,), (2.0,), (3.0,), (4.0,)], [0.0] * 4)
    assert 0.0 <= found.seconds((10.0,)) < 1e-9


def test_neighbours_correct_the_fit_nearby_and_not_far_away() -> None:
    sizes = np.geomspace(1e3, 1e6, 20)[:, None]
    errors = np.where(sizes[:, 0] > 1e5, math.log(1.5), 0.0)
    local = NearestSamples(sizes, errors)
    assert local.at([5e5])[0] == pytest.approx(1.5, rel=0.05)
    assert local.at([5e3])[0] == pytest.approx(1.0, rel=0.05)
    factor, distance = local.at([1e9])
    assert factor == 1.0 and distance == pytest.approx(math.log(1e3))


def test_a_sample_unlike_its_neighbours_corrects_nothing() -> None:
    sizes = np.geomspace(1e3, 1e6, 20)[:, None]
    errors = np.zeros(20)
    errors[10] = math.log(368.0)
    assert NearestSamples(sizes, errors).at(sizes[10])[0] == pytest.approx(1.0, rel=0.01)
