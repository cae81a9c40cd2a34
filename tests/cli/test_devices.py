"""`coexec devices` says what is here, what is off, and why."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from coexec.backend.base import Unavailable
from coexec.backend.opencl.probe import Probe, ProbedDevice
from coexec.backend.torch.driver import Listed
from coexec.cli import devices
from coexec.config import Config
from coexec.machine.cores import available_cores
from coexec.plan.policies import PLACEMENTS
from tests.cli.commands import call


def probed(index: int = 0, type: str = "cpu", name: str = "pthread-x") -> ProbedDevice:
    return ProbedDevice(
        index, name, "vendor", "Portable Computing Language", type, 2, 2**32, 2**30, True, True, "3", "5"
    )


def pretend(monkeypatch: pytest.MonkeyPatch, *found: ProbedDevice, off: tuple[Unavailable, ...] = ()) -> None:
    monkeypatch.setattr(devices, "probe", lambda: Probe(found, off))
    monkeypatch.setattr(devices, "listing", lambda: ([], []))


def by_name(data: Any) -> dict[str, Any]:
    return {device["name"]: device for device in data["devices"]}


def test_every_core_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    data = call("devices", "--json").data
    found = by_name(data)
    cores = available_cores()
    assert [found[f"cpu:{i}"]["cores"] for i in range(len(cores))] == [[core] for core in cores]
    assert all(device["on"] for device in found.values())
    assert data["processor"]["cores"] == list(cores)


def test_the_cpu_seen_through_opencl_is_off_with_the_way_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, probed())
    found = by_name(call("devices", "--json").data)["opencl:0"]
    assert not found["on"]
    assert "the same silicon" in found["why"]
    monkeypatch.setattr(devices, "available_cores", lambda: (0, 1))
    out = call("devices").out
    assert "opencl:0 is off: the same silicon as the CPU" in out
    assert "cx.Runtime(devices='cpu:0,opencl:0@1'), or COEXEC_DEVICES=cpu:0,opencl:0@1" in out


@pytest.mark.parametrize(
    ("cores", "expected"), [((0,), "opencl:0"), ((0, 1), "cpu:0,opencl:0@1"), ((2, 3, 7), "cpu:0,cpu:1,opencl:0@7")]
)
def test_the_last_core_is_given_to_opencl(cores: tuple[int, ...], expected: str) -> None:
    assert devices.shared_cores("opencl:0", cores) == expected


def test_an_accelerator_is_on_by_default_and_what_the_environment_leaves_out_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, probed(0, "gpu", "Fast GPU"))
    monkeypatch.setattr(devices, "default_devices", lambda: "cpu,opencl:0")
    assert by_name(call("devices", "--json").data)["opencl:0"]["on"]
    found = by_name(call("devices", "--json", COEXEC_DEVICES="cpu:0").data)
    assert {name for name, device in found.items() if device["on"]} == {"cpu:0"}
    assert found["opencl:0"]["why"] == "not named in COEXEC_DEVICES"


def test_what_cannot_be_used_comes_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    off = Unavailable("opencl:0", "PoCL needs the linker 'ld', which is not on the PATH", "install binutils")
    pretend(monkeypatch, off=(off,))
    ended = call("devices")
    assert "opencl:0 is off: PoCL needs the linker" in ended.out
    assert "The way to get it: install binutils." in ended.out
    assert call("devices", "--json").data["unavailable"][0]["remedy"] == "install binutils"


def test_torch_devices_are_off_until_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    cpu = Listed("torch:cpu", "a processor (torch 2.13.0)", None, cpu=True)
    gpu = Listed("torch:cuda0", "Fast GPU (torch 2.13.0)", 8 << 30, cpu=False)
    monkeypatch.setattr(devices, "listing", lambda: ([gpu, cpu], []))
    monkeypatch.setattr(devices, "available_cores", lambda: (0, 1))
    found = by_name(call("devices", "--json").data)
    assert "the same silicon" in found["torch:cpu"]["why"] and not found["torch:cuda0"]["on"]
    assert found["torch:cpu"]["use"] == "devices='cpu:0,torch:cpu@1'" and found["torch:cpu"]["memory"] == "host"
    assert found["torch:cuda0"]["use"] == "devices='torch:cuda0'" and found["torch:cuda0"]["memory"] == "own"
    named = by_name(call("devices", "--json", COEXEC_DEVICES="cpu:0,torch:cuda0").data)
    assert named["torch:cuda0"]["on"] and named["torch:cpu"]["why"] == "not named in COEXEC_DEVICES"


def test_a_real_probe_agrees_with_the_table() -> None:
    assert call("devices").code == 0


def test_every_option_is_listed_with_its_meaning() -> None:
    listed = call("devices", "--options", "--json").data["options"]
    assert [option["name"] for option in listed] == [field.name for field in fields(Config)]
    assert [option["name"] for option in listed if not option["meaning"]] == []
    out = call("devices", "--options").out
    assert [option["variable"] for option in listed if option["variable"] not in out] == []


def test_every_placement_is_listed_with_its_meaning() -> None:
    listed = call("devices", "--placements", "--json").data["placements"]
    assert {placement["name"] for placement in listed} >= PLACEMENTS.keys()
    assert [placement["name"] for placement in listed if not placement["meaning"]] == []
    assert "round-robin" in call("devices", "--placements").out


def test_a_wrong_device_in_the_environment_is_said() -> None:
    ended = call("devices", COEXEC_DEVICES="c p u")
    assert ended.code == 2
    assert "is not a device" in ended.err


def test_what_takes_part_in_reproducible_runs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, probed())
    assert "REPRODUCIBLE" not in call("devices").out
    monkeypatch.setenv("COEXEC_REPRODUCIBLE", "1")
    assert "opencl:0 computes kernels whose OpenCL variant declares cx.exact." in call("devices").out
    assert by_name(call("devices", "--json").data)["cpu:0"]["reproducible"] == "every kernel"
