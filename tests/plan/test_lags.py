"""How late devices begin is a median of what was measured; what was kept waiting by something else does not count."""

from __future__ import annotations

import pytest

from coexec.plan.lags import MOST, USUAL, Lags


def test_a_device_nobody_measured_begins_as_late_as_usual() -> None:
    assert Lags().of("cpu:0") == USUAL and Lags().measured() == {}


def test_the_median_counts_and_one_outlier_does_not_move_it() -> None:
    lags = Lags()
    for seconds in (1e-3, 1.1e-3, 4.9e-3, 0.9e-3, 1e-3):
        lags.learn("gpu", seconds)
    assert lags.of("gpu") == pytest.approx(1e-3) and lags.measured() == {"gpu": pytest.approx(1e-3)}
    lags.learn("gpu", MOST * 2)
    assert lags.of("gpu") == pytest.approx(1e-3), "something else kept it"


def test_a_kernel_that_began_before_its_predicted_copies_were_over_was_not_late() -> None:
    lags = Lags()
    lags.learn("gpu", -1e-3)
    assert lags.of("gpu") == 0.0


def test_what_a_store_kept_counts_until_something_is_measured() -> None:
    lags = Lags()
    lags.load({"gpu": 2e-3, "odd": 7.0, "negative": -1.0})
    assert lags.of("gpu") == 2e-3 and lags.of("odd") == lags.of("negative") == USUAL
    lags.learn("gpu", 1e-3)
    assert lags.of("gpu") == 1e-3
