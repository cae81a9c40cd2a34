"""Options of a runtime: what is malformed or unknown is said at once, with the nearest known name."""

from __future__ import annotations

import threading

import pytest

import coexec as cx
from coexec.errors import ConfigError, UnknownName


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": "cpu;0"}, "is not a device"),
        ({"devices": "cpu:0,cpu:0"}, "named twice"),
        ({"devices": ","}, "no device is named"),
        ({"devices": "cpu:0@999"}, "core 999 is not available"),
        ({"devices": "cpu:0@a"}, "is not a device"),
        ({"devices": "cpu:0", "memory": {"host": "lots"}}, "is not a size"),
        ({"devices": "cpu:0", "memory": "host"}, "must read device=size"),
        ({"devices": 5}, "expected a str"),
        ({"sync": "yes"}, "expected a bool"),
        ({"horizon": 0}, "at least 1"),
    ],
)
def test_malformed_options_are_refused_in_words(options, words) -> None:
    with pytest.raises(ConfigError, match=words):
        cx.Runtime(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": "opencll:0"}, r"unknown device kind 'opencll'; did you mean 'opencl'\?"),
        ({"devices": "cpu:99"}, r"unknown device 'cpu:99'; did you mean 'cpu:"),
        ({"devices": "opencl:99"}, "opencl:99"),
        ({"devices": "cpu:0", "placement": "round-robbin"}, r"did you mean 'round-robin'\?"),
        ({"devices": "cpu:0", "lanes": "disjont"}, r"did you mean 'disjoint'\?"),
        ({"devices": "cpu:0", "memory": {"cpu:1": "1GB"}}, "unknown device in memory="),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(options, words) -> None:
    before = threading.enumerate()
    with pytest.raises(UnknownName, match=words):
        cx.Runtime(**options)
    assert threading.enumerate() == before


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("COEXEC_DEVICE", "cpu:0", r"unknown environment variable 'COEXEC_DEVICE'; did you mean 'COEXEC_DEVICES'\?"),
        ("COEXEC_SYNC", "maybe", "COEXEC_SYNC='maybe' is not a bool"),
        ("COEXEC_HORIZON", "many", "COEXEC_HORIZON='many' is not a int"),
        ("COEXEC_DATA_THRESHOLD", "x", "is not a float"),
    ],
)
def test_mistakes_in_the_environment_are_errors(monkeypatch, name, value, words) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words):
        cx.Runtime("cpu:0")


def test_the_environment_sets_defaults_and_arguments_win(monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_DEVICES", "cpu:0")
    monkeypatch.setenv("COEXEC_HORIZON", "17")
    with cx.Runtime() as runtime:
        assert [device.name for device in runtime.platform.devices] == ["cpu:0"]
        assert runtime.config.horizon == 17
    with cx.Runtime("null:2", horizon=5) as runtime:
        assert len(runtime.platform.devices) == 2
        assert runtime.config.horizon == 5
