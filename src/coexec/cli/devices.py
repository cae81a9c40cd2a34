"""`coexec devices`: what is here, what it can do, what is off and why.

Before: backend/machine.py, backend/opencl/probe.py, backend/torch/driver.py, machine/.  After: app.py.  Opens no device.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..backend.base import Unavailable
from ..backend.machine import default_devices, open_machine, parse_devices
from ..backend.opencl.probe import ProbedDevice, probe
from ..backend.torch.driver import Listed, listing
from ..config import PREFIX, Config, parse
from ..machine.cores import available_cores, cpu_model, cpu_quota, memory_capacity, memory_limit
from ..observe.pictures.svg import bytes_text
from .output import console, emit, table
from .platforms import list_presets, print_presets

Data = dict[str, Any]
ALL = "cpu:all"
SAME_BITS = {
    "cpu": "every kernel",
    "opencl": "kernels whose OpenCL variant declares cx.exact",
    "torch": "kernels with a torch variant that declares cx.exact",
}
"""What devices of each kind compute when bits must not depend on who does."""


def show(*, json: bool, options: bool, placements: bool, presets: bool = False) -> None:
    """Print devices, or the options, placements and presets that were asked for."""
    data: Data = {}
    if presets:
        data["presets"] = list_presets()
    if options:
        data["options"] = list_options()
    if placements:
        data["placements"] = list_placements()
    if not data:
        data = find(os.environ)
    if json:
        emit(data)
        return
    screen = console()
    if options:
        title, columns = "Options: arguments of cx.Runtime(...), or variables", ["variable", "default", "meaning"]
        listed = [(o["variable"], repr(o["default"]), o["meaning"]) for o in data["options"]]
        screen.print(table(title, columns, listed, numbers="llw"))
    if placements:
        named = [(p["name"], p["meaning"]) for p in data["placements"]]
        screen.print(table("Placements: where indivisible tasks go", ["name", "meaning"], named, numbers="lw"))
    if presets:
        print_presets(data["presets"])
    if "devices" in data:
        _print(data)


def find(environ: Mapping[str, str]) -> Data:
    """Return everything known of this machine's devices, JSON-ready."""
    named = parse(environ).devices
    on = {n.name for n in parse_devices(named or default_devices())}
    cores = available_cores()
    platform = open_machine("cpu").platform
    found = [
        {
            "name": device.name,
            "kind": "cpu",
            "description": device.description,
            "cores": list(device.cores),
            "memory": platform.memories[device.memory].name,
            "capacity": platform.memories[device.memory].capacity,
            "variants": ["python", "cpu"],
            "on": "cpu" in on or device.name in on,
            "why": "" if "cpu" in on or device.name in on else f"not named in {PREFIX}DEVICES",
            "use": f"devices={device.name!r}",
        }
        for device in platform.devices
    ]
    probed = probe()
    found += [_opencl(device, cores, on, named=bool(named)) for device in probed.devices]
    listed, missing = listing()
    found += [_torch(device, cores, on, named=bool(named)) for device in listed]
    for device in found:
        device["reproducible"] = SAME_BITS[str(device["kind"])] + (
            ", where no core is on" if device["name"] == ALL else ""
        )
    return {
        "reproducible": parse(environ).reproducible,
        "processor": {
            "model": cpu_model(),
            "cores": list(cores),
            "machine_cores": os.cpu_count(),
            "quota": cpu_quota(),
            "memory": memory_capacity(),
            "memory_limit": memory_limit(),
        },
        "devices": found,
        "unavailable": [_unavailable(entry) for entry in [*probed.unavailable, *missing]],
        "default": named or default_devices(),
    }


def _opencl(device: ProbedDevice, cores: tuple[int, ...], on: set[str], *, named: bool) -> Data:
    """Describe an OpenCL device, and how to use it if it is off."""
    name = f"opencl:{device.index}"
    used = name in on
    why, use = "", f"devices={name!r}"
    if device.type == "cpu":
        use = f"devices={shared_cores(name, cores)!r}"
    if not used:
        why = f"not named in {PREFIX}DEVICES" if named else "no driver is registered for the whole machine"
        if device.type == "cpu" and not named:
            why = "the same silicon as the CPU: used at once, each would take the other's cores"
    return {
        "name": name,
        "kind": "opencl",
        "description": f"{device.name} ({device.platform})",
        "cores": list(cores) if device.type == "cpu" else [],
        "memory": "own, or shared with the host" if device.unified else "own",
        "capacity": device.global_memory,
        "variants": ["opencl"],
        "on": used,
        "why": why,
        "use": use,
        "opencl": device.as_dict(),
    }


def _torch(device: Listed, cores: tuple[int, ...], on: set[str], *, named: bool) -> Data:
    """Describe a torch device, and how to use it if it is off."""
    used = device.name in on
    why = "used only when named: OpenCL may drive the same device"
    if device.cpu:
        why = "the same silicon as the CPU: used at once, each would take the other's cores"
    if named:
        why = f"not named in {PREFIX}DEVICES"
    return {
        "name": device.name,
        "kind": "torch",
        "description": device.description,
        "cores": list(cores) if device.cpu else [],
        "memory": "host" if device.cpu else "own",
        "capacity": device.capacity,
        "variants": ["python", "torch"],
        "on": used,
        "why": "" if used else why,
        "use": f"devices={(shared_cores(device.name, cores) if device.cpu else device.name)!r}",
    }


def shared_cores(name: str, cores: tuple[int, ...]) -> str:
    """Return devices that divide the cores: the last one to `name`, the others to NumPy."""
    if len(cores) < 2:
        return name
    return ",".join([*(f"cpu:{i}" for i in range(len(cores) - 1)), f"{name}@{cores[-1]}"])


def _unavailable(entry: Unavailable) -> Data:
    return {"name": entry.name, "reason": entry.reason, "remedy": entry.remedy}


def list_options() -> list[Data]:
    """Return every option with its variable, default and meaning: the comment beside it in config.py."""
    source = inspect.getsource(Config)
    meaning = dict(re.findall(r"^    (\w+): [^#\n]+#\s*(.+)$", source, re.MULTILINE))
    return [
        {
            "name": field.name,
            "variable": PREFIX + field.name.upper(),
            "type": field.type,
            "default": field.default,
            "meaning": meaning.get(field.name, ""),
        }
        for field in fields(Config)
    ]


def list_placements() -> list[Data]:
    """Return the placement policies by name, built-in ones first."""
    from importlib.metadata import entry_points

    from ..plan.policies import PLACEMENTS

    built_in = [{"name": name, "meaning": _contract(policy)} for name, policy in PLACEMENTS.items()]
    added = [
        {"name": entry.name, "meaning": f"from {entry.value}"} for entry in entry_points(group="coexec.placements")
    ]
    return built_in + added


def _contract(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _print(data: Data) -> None:
    screen = console()
    processor = data["processor"]
    cores = f"{len(processor['cores'])} of {processor['machine_cores']} cores"
    memory = bytes_text(processor["memory"]) if processor["memory"] else "memory unknown"
    screen.print(f"{processor['model']}: {cores}, {memory}", soft_wrap=True)
    rows = [
        (
            device["name"],
            "on" if device["on"] else "off",
            device["description"],
            _cores_text(device["cores"]),
            device["memory"] + (f", {bytes_text(device['capacity'])}" if device["capacity"] else ""),
            ", ".join(device["variants"]),
        )
        for device in data["devices"]
    ]
    columns = ["device", "", "what it is", "cores", "memory", "runs kernels in"]
    screen.print(table("", columns, rows, numbers="llwlww"))
    for device in data["devices"]:
        if not device["on"]:
            screen.print(f"{device['name']} is off: {device['why']}.", soft_wrap=True)
            screen.print(f"   To use it: cx.Runtime({device['use']}), or {_variable(device['use'])}", soft_wrap=True)
    if data["reproducible"]:
        for device in data["devices"]:
            screen.print(
                f"With {PREFIX}REPRODUCIBLE, {device['name']} computes {device['reproducible']}.", soft_wrap=True
            )
    for entry in data["unavailable"]:
        screen.print(f"{entry['name']} is off: {entry['reason']}.", soft_wrap=True)
        screen.print(f"   The way to get it: {entry['remedy']}.", soft_wrap=True)
    screen.print(
        f"Used by default: {data['default']}   (cpu = every core, and cpu:all for library calls)", soft_wrap=True
    )


def _variable(use: str) -> str:
    return f"{PREFIX}DEVICES={use.partition('=')[2].strip(chr(39))}"


def _cores_text(cores: list[int]) -> str:
    if len(cores) > 2 and cores == list(range(cores[0], cores[-1] + 1)):
        return f"{cores[0]}-{cores[-1]}"
    return ", ".join(map(str, cores))
