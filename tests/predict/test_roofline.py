"""Peak rates: the slower of computing and moving, as far as the rates are known."""

from __future__ import annotations

import pytest

from coexec.predict.roofline import Roofline


def test_the_slower_of_computing_and_moving_counts() -> None:
    device = Roofline(flops=1e12, bandwidth=1e11)
    assert device.seconds(2e12, 1e9) == pytest.approx(2.0)
    assert device.seconds(1e6, 1e11) == pytest.approx(1.0)


def test_a_rate_nobody_knows_limits_nothing() -> None:
    assert Roofline(flops=None, bandwidth=1e9).seconds(1e15, 2e9) == pytest.approx(2.0)
    assert Roofline(flops=1e9, bandwidth=None).seconds(3e9, 1e15) == pytest.approx(3.0)
    assert Roofline(flops=1e9, bandwidth=1e9).seconds(None, 2e9) == pytest.approx(2.0)


def test_without_rates_nothing_is_said() -> None:
    assert Roofline().seconds(1e9, 1e9) is None
    assert Roofline(flops=1e9).seconds(None, 1e9) is None
    assert Roofline(flops=0.0, bandwidth=0.0).seconds(1e9, 1e9) is None
