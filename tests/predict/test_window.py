"""Windows of measurements: outliers do not move them, lasting changes do."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.predict.window import SETTLED, SURPRISES, WINDOW, MeasurementWindow


def measured(*seconds: float) -> MeasurementWindow:
    window = MeasurementWindow()
    for value in seconds:
        window.learn(value)
    return window


def test_the_first_run_is_cold_and_does_not_count_beside_others() -> None:
    window = measured(50e-3)
    assert window.middle == 50e-3  # better than nothing
    window.learn(1e-3)
    assert window.middle == 1e-3 and window.recent == (1e-3,)


@given(st.lists(st.floats(1.0, 1e6), min_size=3, max_size=3), st.permutations(range(WINDOW)))
def test_three_outliers_of_seven_do_not_move_the_median(outliers: list[float], order: list[int]) -> None:
    values = [1e-3] * (WINDOW - 3) + outliers
    assert measured(1e-3, *(values[i] for i in order)).middle == 1e-3


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=80))
def test_the_median_lies_within_what_was_measured(values: list[float]) -> None:
    window = measured(*values)
    assert min(values) <= window.middle <= max(values)
    assert len(window.recent) <= WINDOW and window.count == len(values)


@given(st.integers(1, 5 * SETTLED))
def test_a_lasting_change_is_learnt_within_four_runs_however_settled(before: int) -> None:
    window = measured(*[1e-3] * before)
    for _ in range(WINDOW // 2 + 1):
        window.learn(5e-3)
    assert window.middle == 5e-3


def test_a_settled_window_looks_at_every_16th_run_only() -> None:
    window = measured(*[1e-3] * SETTLED)
    assert sum(window.learn(1e-3) for _ in range(160)) == 10


def test_a_settled_window_is_not_moved_by_outliers_between_good_runs() -> None:
    window = measured(*[1e-3] * SETTLED)
    for _ in range(50):
        for value in (*[70e-3] * (SURPRISES - 1), 1e-3):
            window.learn(value)
    assert window.middle == 1e-3


def test_the_spread_is_that_of_half_the_measurements() -> None:
    assert measured(9.0, 1.0, 1.0, 1.0).spread == 0.0
    assert measured(9.0, 1.0, 1.1, 1.2, 1.3, 1.4).spread == pytest.approx(0.1 / 1.2)


def test_usual_noise_is_no_surprise() -> None:
    calm, wild = measured(1.0, 1.0, 1.0, 1.0), measured(1.0, 0.6, 0.8, 1.0, 1.2, 1.4)
    assert calm.high < 1.2 and wild.high > 1.5


def test_what_was_measured_before_a_change_of_speed_is_restated() -> None:
    window = measured(*[1.0] * 4, 2.0)
    window.drift(2.0, fresh=1)
    assert window.middle == 2.0 and window.spread == 0.0
    assert window.recent == (1.0, 1.0, 1.0, 2.0)  # as measured


def test_a_change_of_speed_and_back_leaves_no_error() -> None:
    window = measured(*[1.0] * 4)
    window.drift(2.0, fresh=0)
    window.drift(0.52, fresh=0)
    assert window.middle == 1.0


def test_older_measurements_come_before_what_is_here() -> None:
    window = measured(9.0, 2.0)
    window.load((1.0, 1.1, 1.2))
    assert window.recent == (1.0, 1.1, 1.2, 2.0) and window.count == 5 and not window.cold


def test_a_single_loaded_measurement_is_warm() -> None:
    window = MeasurementWindow()
    window.load((1e-3,))
    window.learn(70e-3)
    assert window.middle == 1e-3
