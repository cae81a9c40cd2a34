"""Opening torch devices by name, and what is said where there are none."""

import sys
from importlib.metadata import PackageNotFoundError

import pytest

from coexec.backend.machine import open_machine
from coexec.errors import (
    ConfigError,
    UnknownName,
)
from coexec.machine.cores import available_cores
from coexec.machine.platform import HOST

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from coexec.backend.torch import driver as driver_module  # noqa: E402 - needs torch


def test_a_machine_without_torch_is_told_what_to_install(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(driver_module, "version", version)
    with pytest.raises(ConfigError, match=r"need PyTorch and array-api-compat; pip install 'coexec\[torch\]'"):
        open_machine("torch:cpu")


def test_a_broken_torch_is_told_apart_from_a_missing_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match="PyTorch cannot be imported: ModuleNotFoundError"):
        open_machine("torch:cpu")


def test_devices_are_opened_by_name():
    cores = available_cores()
    platform = open_machine("torch").platform
    assert [device.name for device in platform.devices] == ["torch:cpu"] and len(platform.memories) == 2
    platform = open_machine(f"torch:cpu@{cores[-1]}", {"torch:cpu": "1MB"}).platform
    assert platform.devices[0].cores == (cores[-1],) and platform.memories[2].capacity == 10**6
    assert platform.link(HOST, 2) is not None
    with pytest.raises(UnknownName, match="unknown device 'torch:cuda'"):
        open_machine("torch:cuda")
    assert open_machine("torch:cpu", {"torch:cpu": "shared"}).platform.devices[0].memory == HOST


def test_the_cpu_takes_the_cores_that_nobody_else_was_given():
    cores = available_cores()
    device = open_machine(f"cpu:0@{cores[0]},torch:cpu").platform.device("torch:cpu")
    assert device.cores == (cores[1:] or cores)


def test_devices_are_listed_with_the_reason_when_there_is_none(monkeypatch):
    listed, missing = driver_module.listing()
    assert [device.name for device in listed][-1] == "torch:cpu" and listed[-1].cpu and missing == []
    assert torch.__version__ in listed[-1].description
    monkeypatch.setattr(driver_module, "installed", lambda: "2.13.0")  # a build that may know accelerators
    assert driver_module.listing()[0][-1].name == "torch:cpu"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "cannot be imported" in driver_module.listing()[1][0].reason
    monkeypatch.setattr(driver_module, "installed", lambda: "")
    assert driver_module.listing() == (
        [],
        [("torch", "PyTorch or array-api-compat is not installed", driver_module.REMEDY)],
    )
