"""Watts are read, checked, and put on the devices they name."""

from __future__ import annotations

import pytest

from coexec.errors import ConfigError, UnknownName
from coexec.machine.platform import Device, Platform
from coexec.machine.power import parse_watts, powered


def test_watts_are_busy_and_idle() -> None:
    assert parse_watts("cpu:0=15/3, opencl:0=20.5") == {"cpu:0": (15.0, 3.0), "opencl:0": (20.5, 0.0)}
    assert parse_watts("") == {}


@pytest.mark.parametrize(
    "text", ["cpu:0", "cpu:0=", "cpu:0=a", "cpu:0=3/15", "cpu:0=-1", "cpu:0=inf", "=3", "cpu:0=nan"]
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="device=busy"):
        parse_watts(text)


def test_devices_get_what_is_theirs() -> None:
    platform = Platform((Device("cpu:0", "cpu", 1), Device("cpu:1", "cpu", 1)))
    first, second = powered(platform, {"cpu:1": (9.0, 1.0)}).devices
    assert (first.watts, second.watts, second.idle_watts) == (None, 9.0, 1.0)
    with pytest.raises(UnknownName, match="did you mean 'cpu:1'"):
        powered(platform, {"cpu:11": (1.0, 0.0)})
