"""What few unlike calls say of others: never more than they can, however noisy they are."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.predict.regression import solver
from coexec.predict.table import SHAPES, MeasurementTable
from coexec.predict.work import Work

RATE, LAUNCH, FLOPS = 1.2e11, 2e-5, 5


def product(rows: int, columns: int, inner: int) -> Work:
    a, b, out = 4.0 * rows * inner, 4.0 * inner * columns, 4.0 * rows * columns
    features = (a + b + out, rows * columns * 1.0, a, b, out, 2.0 * rows * columns * inner)
    return Work(features, "float32", ("product", rows, columns, inner))


def seconds(work: Work) -> float:
    return work.features[FLOPS] / RATE + LAUNCH


def off(count: int, noise: float, seed: int) -> float:
    """Return how far predictions lie from the truth, as the middle of a few, after so many unlike products were measured."""
    solver()
    random = np.random.default_rng(seed)
    table = MeasurementTable("float32", together=True)
    for sides in 2.0 ** random.uniform(6, 10, (count, 3)):
        work = product(*[int(side) for side in sides])
        for _ in range(3):
            table.learn(work, seconds(work) * float(np.exp(random.normal(0.0, noise))))
    found = []
    for sides in 2.0 ** random.uniform(7, 11, (9, 3)):
        work = product(*[int(side) for side in sides])
        guess = table.guess(work.features, FLOPS)
        assert guess is not None
        found.append(abs(log(guess.seconds / seconds(work))))
    return float(np.median(found))


@pytest.mark.parametrize("count", [3, 4, 5, 6, 8])
def test_as_many_unlike_products_as_features_predict_others(count: int) -> None:
    found = sorted(off(count, 0.05, seed) for seed in range(30))
    assert found[15] < 0.1 and found[24] < 0.15


@settings(max_examples=30, deadline=None)
@given(st.integers(SHAPES, 12), st.integers(1, 5))
def test_times_that_follow_bytes_are_scaled_by_them_however_operations_are_counted(count: int, per_point: int) -> None:
    solver()
    table = MeasurementTable("float32", together=False)
    for number in range(count):
        points = 1 << (10 + number)
        table.learn(Work((12.0 * points, 1.0 * points, 5.0), "float32", number), 12.0 * points * 1e-10)
    wanted = Work((12.0 * 3000 * per_point, 3000.0 * per_point, 5.0), "float32", "new")
    guess = table.guess(wanted.features, 2)  # a feature that is the same for all
    assert guess is not None
    assert guess.seconds == pytest.approx(wanted.features[0] * 1e-10, rel=0.1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 1e-300, 1e300]), min_size=SHAPES, max_size=9))
def test_absurd_features_break_nothing(odd: list[float]) -> None:
    solver()
    table = MeasurementTable("float32", together=False)
    for number, value in enumerate(odd):
        table.learn(Work((1000.0 * 2**number, value), "float32", number), 1e-5 * 2**number)
    guess = table.guess((5000.0, 1.0), 0)
    assert guess is None or isinstance(guess.seconds, float)
