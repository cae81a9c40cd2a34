"""`coexec devices --save`, `--platform` and `--presets`: the present machine as a file, and machines of others.

Before: machine/, backend/machine.py, predict/store.py, predict/links.py.  After: devices.py.  Measures nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..backend.machine import open_machine
from ..config import parse, parse_memory
from ..machine.cores import cpu_model
from ..machine.files.loading import ENDING
from ..machine.platform import Device, Platform
from ..machine.power import parse_watts, powered
from ..observe.pictures.svg import count_text
from ..predict.links import Links
from ..predict.store import Store, default_path
from .output import check_files, console, emit, say, table


def save(path: Path, *, json: bool) -> None:
    """Write the present machine as a platform file."""
    check_files(("--save", path, ()))
    platform = replace(here(os.environ), name=path.name.removesuffix(ENDING))
    platform.save(path)
    unmeasured = [device.name for device in platform.devices if device.flops is None or device.bandwidth is None]
    if json:
        emit({"saved": str(path), "devices": [device.name for device in platform.devices], "unmeasured": unmeasured})
        return
    say(f"wrote {path}: {count_text(len(platform.devices), 'device')}")
    if unmeasured:
        say(f"no rates are known of {', '.join(unmeasured)}: run `coexec calibrate`, then save again")


def here(environ: Mapping[str, str]) -> Platform:
    """Return the present machine as programs see it, with rates and links as they were measured."""
    config = parse(environ)
    machine = open_machine(config.devices or None, parse_memory(config.memory))
    for backend in machine.backends:
        backend.stop()
    store = Store(default_path(config.store))
    platform = powered(machine.platform, parse_watts(config.watts))
    Links(platform, dict(store.links()))  # corrects the platform
    rates = store.rates()
    store.close()
    devices = [_rated(device, *rates.get((device.speed, device.software), (None, None))) for device in platform.devices]
    links = {
        pair: replace(link, latency=_rounded(link.latency), bandwidth=_rounded(link.bandwidth))
        for pair, link in platform.links.items()
    }
    about = f"{cpu_model()}, as coexec found it"
    return Platform(tuple(devices), platform.memories, links, platform.topology, about=about)


def _rated(device: Device, flops: float | None, bandwidth: float | None) -> Device:
    """Return the device with measured peaks where it states none; cores are described alike, so that one entry will do."""
    description = f"one core of {cpu_model()}" if device.is_core else device.description
    flops, bandwidth = device.flops or flops, device.bandwidth or bandwidth
    return replace(
        device,
        description=description,
        flops=None if flops is None else _rounded(flops),
        bandwidth=None if bandwidth is None else _rounded(bandwidth),
    )


def _rounded(figure: float) -> float:
    """Return a measurement with as many digits as mean something."""
    return float(f"{figure:.4g}")


def show(name: str, *, json: bool) -> None:
    """Print what a platform consists of: a preset's name, or a file."""
    platform = Platform.load(name)
    if json:
        emit(as_data(platform))
    else:
        console().print(platform.describe(), soft_wrap=True)


def as_data(platform: Platform) -> dict[str, Any]:
    """Return a platform as JSON-ready data, with every field of its devices."""
    described = platform.as_dict()
    return {
        "name": platform.name,
        "about": platform.about,
        "nodes": platform.nodes,
        "devices": [
            asdict(device) | {"rates": dict(device.rates), "memory": platform.memories[device.memory].name}
            for device in platform.devices
        ],
        "memories": described["memories"],
        "links": described["links"],
    }


def list_presets() -> list[dict[str, Any]]:
    """Return the platforms that come with coexec."""
    found = [Platform.load(name) for name in Platform.presets()]
    return [{"name": p.name, "nodes": p.nodes, "devices": len(p.devices), "about": p.about} for p in found]


def print_presets(listed: list[dict[str, Any]]) -> None:
    """Print them as a table."""
    rows = [(p["name"], p["devices"], p["about"]) for p in listed]
    console().print(table("Platforms that come with coexec", ["name", "devices", "what it is"], rows, numbers="lrw"))
