"""Peak rates: the slower of computing and moving, as far as the rates are known."""

from __future__ import annotations

import pytest

from coexec.machine.platform import Device
from coexec.predict.roofline import DevicePeaks, Roofline, computing_type


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


def test_peaks_compare_only_what_both_state() -> None:
    assert Roofline(2e9, 1e9).ratio((1e9, None), 1e9, 100.0) == 0.5
    assert Roofline(None, 1e9).ratio((1e9, 4e9), 1e9, 100.0) == 4.0
    assert Roofline(None, None).ratio((1e9, 4e9), 1e9, 100.0) is None


def test_the_widest_number_sets_the_pace() -> None:
    assert computing_type("<f4 <f8 |b1") == "float64"
    assert computing_type("<i8 <f2") == "float16"
    assert computing_type("<i8 |b1") == "int64"
    assert computing_type("<c16") == "complex128"
    assert computing_type("") == "float32"


def test_peaks_go_by_type_and_fall_back_to_what_is_known() -> None:
    device = Device("gpu:0", "gpu", 2, flops=4e12, rates=(("float64", 2e12), ("float16", 8e12)), bandwidth=1e11)
    peaks = DevicePeaks(device, memory=5e10)
    assert peaks.of("<f8") == (2e12, 1e11) and peaks.of("<f4 <f2") == (4e12, 1e11) and peaks.of("<f2") == (8e12, 1e11)
    assert peaks.of("<c16") == (2e12, 1e11) and peaks.of("<i4") == (4e12, 1e11)
    plain = Device("gpu:0", "gpu", 2)
    assert DevicePeaks(plain, memory=5e10).of("<f8") == (None, 5e10)
    assert DevicePeaks(plain, measured=Roofline(1e9, 2e9)).of("<f8") == (1e9, 2e9)
