"""Predictions from measurements: robust against outliers, honest about what nobody measured."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.predict.history import WINDOW, Estimate, History, Model


def trained(*seconds: float, size: int = 1000) -> Model:
    model = Model()
    for value in seconds:
        model.learn(size, value)
    return model


def test_nothing_is_predicted_from_nothing() -> None:
    model = Model()
    assert model.seconds(1000) is None and model.estimate(1000) is None and model.measured(1000) == 0


def test_a_repeated_measurement_is_the_prediction() -> None:
    model = trained(2e-3, 2e-3, 2e-3)
    assert model.seconds(1000) == pytest.approx(2e-3)
    assert model.estimate(1000) == pytest.approx(Estimate(2e-3, 0.0))
    assert model.measured(1000) == 3


def test_the_first_run_is_cold_and_does_not_count_beside_others() -> None:
    model = trained(50e-3)
    assert model.seconds(1000) == pytest.approx(50e-3)  # better than nothing
    model.learn(1000, 1e-3)
    assert model.seconds(1000) == pytest.approx(1e-3)


@given(st.lists(st.floats(1.0, 1e6), min_size=3, max_size=3), st.permutations(range(WINDOW)))
def test_three_outliers_of_seven_do_not_move_the_prediction(outliers: list[float], order: list[int]) -> None:
    values = [1e-3] * (WINDOW - 3) + outliers
    model = trained(1e-3, *(values[i] for i in order))
    assert model.seconds(1000) == pytest.approx(1e-3)


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=60))
def test_a_prediction_lies_within_what_was_measured(values: list[float]) -> None:
    predicted = trained(*values).seconds(1000)
    assert predicted is not None
    assert min(values) * (1 - 1e-9) <= predicted <= max(values) * (1 + 1e-9)


def test_a_lasting_change_is_learned() -> None:
    model = trained(*[1e-3] * 10)
    for _ in range(WINDOW):
        model.learn(1000, 5e-3)
    assert model.seconds(1000) == pytest.approx(5e-3)


def test_a_lasting_change_is_learned_even_by_a_settled_model() -> None:
    model = trained(*[1e-3] * 500)
    for _ in range(16 * WINDOW):
        model.learn(1000, 5e-3)
    assert model.seconds(1000) == pytest.approx(5e-3)


def test_sizes_of_one_class_scale_and_other_classes_are_their_own() -> None:
    model = trained(1e-3, 1e-3)
    assert model.seconds(800) == pytest.approx(0.8e-3)
    for _ in range(2):
        model.learn(1_000_000, 0.5)
    assert model.seconds(1000) == pytest.approx(1e-3)
    assert model.seconds(900_000) == pytest.approx(0.45)


def test_a_size_nobody_measured_is_scaled_from_the_nearest_and_says_so() -> None:
    model = trained(1e-3, 1e-3)
    assert model.seconds(8000) == pytest.approx(8e-3)
    estimate = model.estimate(8000)
    assert estimate is not None and estimate.spread == 1.0
    assert model.measured(8000) == 0


def test_the_spread_is_that_of_the_measurements() -> None:
    estimate = trained(1e-3, 1e-3, 2e-3, 1e-3).estimate(1000)
    assert estimate is not None and estimate.spread == pytest.approx(1.0)


def test_no_elements_is_a_size_like_any_other() -> None:
    model = trained(1e-6, 1e-6, size=0)
    assert model.seconds(0) == pytest.approx(1e-6)


def test_a_new_measurement_is_seen_by_the_next_question() -> None:
    """The last answer is remembered, but not beyond the next measurement."""
    model = trained(1e-3, 1e-3)
    assert model.seconds(1000) == pytest.approx(1e-3)
    model.learn(1000, 3e-3)
    model.learn(1000, 3e-3)
    assert model.seconds(1000) == pytest.approx(3e-3)


def test_models_are_kept_by_key() -> None:
    history = History()
    history.model(("axpy", "cpu")).learn(1000, 1e-3)
    assert history.model(("axpy", "cpu")).seconds(1000) == pytest.approx(1e-3)
    assert history.model(("axpy", "opencl")).seconds(1000) is None
