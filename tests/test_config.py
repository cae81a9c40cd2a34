from __future__ import annotations

import pytest

import coexec as cx
from coexec.config import Config, merged, parse, parse_memory
from coexec.errors import ConfigError


def test_options_are_read_from_the_environment():
    assert parse({"COEXEC_SYNC": "1", "COEXEC_HORIZON": "8", "PATH": "/bin"}) == Config(sync=True, horizon=8)


def test_a_misspelt_option_does_not_pass_silently():
    with pytest.raises(ConfigError, match=r"COEXEC_SNYC'; did you mean 'COEXEC_SYNC'\?"):
        parse({"COEXEC_SNYC": "1"})


@pytest.mark.parametrize(("name", "text"), [("SYNC", "maybe"), ("HORIZON", "many"), ("DATA_THRESHOLD", "high")])
def test_a_malformed_value_names_the_option_and_its_type(name, text):
    with pytest.raises(ConfigError, match=f"COEXEC_{name}='{text}' must be "):
        parse({f"COEXEC_{name}": text})


def test_arguments_go_before_the_environment():
    assert merged(Config(horizon=8), horizon=16, sync=None) == Config(horizon=16)


def test_arguments_of_a_wrong_type_are_refused():
    with pytest.raises(ConfigError, match=r"Runtime\(horizon='8'\): expected a int"):
        merged(Config(), horizon="8")
    with pytest.raises(ConfigError, match="must be at least 1"):
        cx.Runtime(horizon=0)


def test_memory_limits_are_read_per_device():
    assert parse_memory("opencl:0=6GB, host=8GB") == {"opencl:0": "6GB", "host": "8GB"}
    with pytest.raises(ConfigError, match="must read device=size"):
        parse_memory("opencl:0")
