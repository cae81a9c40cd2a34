"""`coexec devices` writes the present machine as a platform file, and describes other platforms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coexec.backend.machine import open_machine
from coexec.cli.platforms import here
from coexec.machine.platform import Platform
from coexec.predict.store import Store
from tests.cli.commands import call


def test_the_present_machine_is_saved_and_loads_again_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    ended = call("devices", "--save", str(path), COEXEC_WATTS="cpu:0=15/3")
    assert ended.code == 0 and f"wrote {path}" in ended.err and "coexec calibrate" in ended.err
    found = here({"COEXEC_STORE": "off", "COEXEC_WATTS": "cpu:0=15/3"})
    assert Platform.load(path) == replace(found, name="here")
    assert (found.device("cpu:0").watts, found.device("cpu:0").idle_watts) == (15.0, 3.0)
    opened = open_machine("cpu").platform
    assert [device.name for device in found.devices][: len(opened.devices)] == [d.name for d in opened.devices]


def test_measured_rates_and_links_are_saved(tmp_path: Path) -> None:
    device = open_machine("cpu:0").platform.devices[0]
    store = Store(tmp_path / "measured.sqlite")
    store.save_rates({(device.speed, device.software): (12345678901.2, 9.87654321e9)})
    store.save_links({("user", "host"): (1.23456789e-6, 3e9)})
    store.close()
    path, measured = (
        tmp_path / "here.toml",
        {"COEXEC_STORE": str(tmp_path / "measured.sqlite"), "COEXEC_DEVICES": "cpu:0"},
    )
    ended = call("devices", "--save", str(path), "--json", **measured)
    assert ended.data == {"saved": str(path), "devices": ["cpu:0"], "unmeasured": []}
    loaded = Platform.load(path)
    assert (loaded.devices[0].flops, loaded.devices[0].bandwidth) == (1.235e10, 9.877e9)
    assert loaded.links[0, 1].latency == 1.235e-6 and loaded.links[0, 1].bandwidth == 3e9
    assert loaded == replace(here(measured), name="here")


def test_a_device_with_a_memory_of_its_own_is_saved_with_its_links(tmp_path: Path) -> None:
    path = tmp_path / "null.toml"
    environment = {"COEXEC_DEVICES": "null:3", "COEXEC_MEMORY": "null:1=2GB", "COEXEC_STORE": "off"}
    assert call("devices", "--save", str(path), **environment).code == 0
    loaded = Platform.load(path)
    assert loaded == replace(here(environment), name="null")
    assert [memory.capacity for memory in loaded.memories[2:]] == [None, 2 * 10**9, None]
    assert loaded.link(1, 4) is not None and loaded.link(4, 1) is not None


def test_presets_are_listed_and_described() -> None:
    listed = call("devices", "--presets", "--json").data["presets"]
    assert [preset["name"] for preset in listed] == list(Platform.presets())
    assert all(preset["about"] and preset["devices"] for preset in listed)
    assert "a100x128" in call("devices", "--presets").out
    assert "NVIDIA A100" in call("devices", "--platform", "a100x4").out
    data = call("devices", "--platform", "a100x128", "--json").data
    assert data["nodes"] == 32 and len(data["devices"]) == 192
    assert data["devices"][-1]["memory"] == "n31/gpu:3" and data["devices"][-1]["rates"]["float64"] == 9.7e12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--platform", "a100x5"], "did you mean 'a100x4'"),
        (["--platform", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--save", "no/where.toml"], "cannot write"),
        (["--save", "x.toml", "--platform", "laptop"], "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: list[str], words: str) -> None:
    ended = call("devices", *arguments)
    assert ended.code == 2 and words in ended.err
