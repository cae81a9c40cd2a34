"""Open the machine: device names in, backends and the platform they form out.

Before: every backend.  After: opening.py, cli/.  The table below is all a new backend needs to be found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..config import blamed, shortened
from ..errors import ConfigError, unknown_name
from ..lower.state import MEMORIES
from ..machine.abilities import abilities_of
from ..machine.cores import available_cores, cpu_model, memory_capacity
from ..machine.platform import HOST, USER, Device, Memory, Platform, host_links, peer_links
from ..machine.sizes import parse_bytes
from .base import Backend

BACKENDS = {
    "cpu": "coexec.backend.machine:open_cpu",
    "opencl": "coexec.backend.machine:open_opencl",
    "torch": "coexec.backend.machine:open_torch",
    "simulated": "coexec.backend.machine:open_simulated",
    "null": "coexec.backend.machine:open_null",
}
"""Device kind -> function (names, Opening) -> backends. Packages add theirs in the group coexec.backends."""


class Named(NamedTuple):
    """A device as the user named it: `opencl:0@1` is kind opencl, index 0, cores (1,)."""

    kind: str
    which: str
    cores: tuple[int, ...]

    @property
    def name(self) -> str:
        """The device's name, without its cores."""
        return f"{self.kind}:{self.which}" if self.which else self.kind


@dataclass
class Opening:
    """What factories need and fill in while a machine is opened."""

    memory: Mapping[str, str]
    debug: bool = False
    sync: bool = False
    memories: list[Memory] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)  # cores that named devices occupy

    def capacity(self, name: str) -> int | None:
        """Return the limit the user set for a device's memory, in bytes."""
        text = self.memory.get(name, "")
        with blamed("memory", self.memory):
            return parse_bytes(text) if text and text not in ("own", "shared") else None

    def add_memory(self, memory: Memory) -> int:
        """Add a memory and return its id."""
        self.memories.append(memory)
        return len(self.memories) - 1


class Machine(NamedTuple):
    """An opened machine."""

    platform: Platform
    lanes: dict[str, Any]  # device name (and "host") -> backend
    memories: dict[int, Any]  # memory id -> backend
    seat: Any = None  # cluster/table.py's Seat, if it is one rank of several

    @property
    def backends(self) -> list[Any]:
        """Every backend once."""
        return list(dict.fromkeys([*self.lanes.values(), *self.memories.values()]))


def parse_devices(spec: str) -> list[Named]:
    """Read "cpu:0,opencl:0@1" as names. Cores after @ are a number, a range (0-3), or several joined by +."""
    named = []
    for part in filter(None, (part.strip() for part in spec.split(","))):
        match = re.fullmatch(r"([a-z_]+)(?::(\w{1,60}))?(?:@([0-9+-]+))?", part, re.ASCII)
        if match is None:
            raise ConfigError(
                f"{shortened(part)!r} is not a device; write for example cpu, cpu:0, cpu:all or opencl:0@1"
            )
        named.append(Named(match[1], match[2] or "", _parse_cores(match[3] or "", part)))
    if not named:
        raise ConfigError("no device is named; write for example devices='cpu' or devices='cpu:0,opencl:0@1'")
    names = [n.name for n in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"device {twice!r} is named twice")
    return named


def _parse_cores(text: str, part: str) -> tuple[int, ...]:
    cores: list[int] = []
    known = available_cores()
    for piece in text.split("+") if text else ():
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", piece)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(f"{part!r}: cores after @ are numbers (1), ranges (0-3), or several joined by +")
        for core in range(int(match[1]), int(match[2] or match[1]) + 1):
            if core not in known:
                raise ConfigError(f"{part!r}: core {core} is not available to this process (available: {_list(known)})")
            cores.append(core)
    return tuple(dict.fromkeys(cores))


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def open_machine(
    devices: str | None = None, memory: Mapping[str, str] | None = None, *, debug: bool = False, sync: bool = False
) -> Machine:
    """Open the named devices, by default every CPU core and every accelerator that is no CPU in disguise."""
    named = parse_devices(default_devices() if devices is None else devices)
    host = Memory("host", memory_capacity(), paged=True, strict=False)
    opening = Opening(memory or {}, debug, sync, [Memory("user"), host])
    if limit := opening.capacity("host"):
        opening.memories[HOST] = Memory("host", limit, paged=True)
    opening.taken = {core for n in named for core in n.cores}
    backends = []
    for kind in dict.fromkeys(n.kind for n in named):
        backends += _factory(kind)([n for n in named if n.kind == kind], opening)
    found: list[Device] = [device for backend in backends for device in backend.devices]
    _check_memory_names(opening.memory, found)
    return assemble(backends, opening)


def assemble(backends: list[Any], opening: Opening) -> Machine:
    """Join backends to a machine. The host's own work goes to the CPU, or to the first backend without one."""
    devices = tuple(device for backend in backends for device in backend.devices)
    lanes: dict[str, Any] = {device.name: backend for backend in backends for device in backend.devices}
    host = next((b for b in backends if abilities_of(b.kind).on_numpy), None)
    if host is None and any(abilities_of(b.kind).invented for b in backends):
        host = backends[0]
    if host is None:
        host = _cpu_backend((), opening)
    lanes["host"] = host
    memories: dict[int, Any] = {USER: host, HOST: host}
    for device in devices:
        if device.memory not in (USER, HOST):
            memories[device.memory] = lanes[device.name]
    links = host_links(m for m in memories if m not in (USER, HOST))
    links |= peer_links([device.memory for device in devices if device.kind == "null"])  # nothing moves over them
    return Machine(Platform(devices, tuple(opening.memories), links), lanes, memories)


def _factory(kind: str) -> Callable[[list[Named], Opening], list[Backend]]:
    target = BACKENDS.get(kind)
    if target is None:
        from importlib.metadata import entry_points  # slow to import

        installed = {entry.name: entry for entry in entry_points(group="coexec.backends")}
        if kind not in installed:
            raise unknown_name("device kind", kind, [*BACKENDS, *installed])
        found: Callable[[list[Named], Opening], list[Backend]] = installed[kind].load()
        return found
    module, _, attribute = target.partition(":")
    factory: Callable[[list[Named], Opening], list[Backend]] = getattr(import_module(module), attribute)
    return factory


def _check_memory_names(memory: Mapping[str, str], devices: Iterable[Device]) -> None:
    known = [device.name for device in devices] + ["host"]
    for name in memory:
        if name not in known:
            with blamed("memory", memory):
                raise unknown_name("device in memory=", name, known)


def check_devices(spec: str) -> list[str] | None:
    """Raise what opening the named devices would raise; return their names, or None if only opening would tell."""
    named = parse_devices(spec)
    names: list[str] = []
    known = True
    opening = Opening({}, memories=[Memory("user"), Memory("host")])
    opening.taken = {core for entry in named for core in entry.cores}
    for kind in dict.fromkeys(entry.kind for entry in named):
        _factory(kind)
        mine = [entry for entry in named if entry.kind == kind]
        if kind == "cpu":
            names += [device.name for device in _cpu_devices(mine, opening)]
        elif abilities_of(kind).invented:
            names += [device.name for device in _many(kind, mine, opening)]
        elif kind == "opencl":
            names += [_require_opencl(_index(entry)) for entry in mine]
        elif kind == "torch":
            from .torch.driver import name_of

            names += [f"torch:{name_of(entry.which)}" for entry in mine]
        else:
            known = False
    return names if known else None


def default_devices() -> str:
    """Return every core, and every OpenCL device that is not the CPU once more. Probes only if a driver is installed."""
    if not _has_system_driver():
        return "cpu"
    from .opencl.probe import probe

    return ",".join(["cpu", *(f"opencl:{device.index}" for device in probe().devices if device.type != "cpu")])


def _has_system_driver() -> bool:
    from importlib.util import find_spec

    registered = os.environ.get("OCL_ICD_VENDORS") or any(Path("/etc/OpenCL/vendors").glob("*.icd"))
    return bool(registered) and find_spec("pyopencl") is not None


def _require_opencl(index: int) -> str:
    """Return the name of OpenCL device `index`; raise unless it works. A driver that crashes does so in a child process."""
    from .opencl.probe import probe

    found = probe()
    if index in [device.index for device in found.devices]:
        return f"opencl:{index}"
    if found.unavailable:
        why = found.unavailable[0]
        raise ConfigError(f"opencl:{index} cannot be used: {why.reason}; {why.remedy}")
    raise unknown_name("device", f"opencl:{index}", [f"opencl:{device.index}" for device in found.devices])


# Factories --------------------------------------------------------------------------------------------------------------


def open_cpu(named: list[Named], opening: Opening) -> list[Any]:
    """Open CPU devices: `cpu` is every core nobody else was given, one narrow device each, and the wide one."""
    return [_cpu_backend(_cpu_devices(named, opening), opening)]


def _cpu_devices(named: list[Named], opening: Opening) -> list[Device]:
    cores = available_cores()
    devices: list[Device] = []
    for entry in named:
        if entry.which in ("", "all"):
            free = tuple(core for core in cores if core not in opening.taken)
            if not entry.which:
                devices += [_narrow(i, core) for i, core in enumerate(cores) if core in free]
            if entry.which == "all" or len(free) > 1:
                devices.append(_wide(free))
        elif entry.which.isdigit() and int(entry.which) < len(cores):
            devices.append(_narrow(int(entry.which), entry.cores[0] if entry.cores else cores[int(entry.which)]))
        else:
            known = [f"cpu:{i}" for i in range(len(cores))] + ["cpu:all"]
            raise unknown_name("device", entry.name, known)
    return devices


def _narrow(index: int, core: int) -> Device:
    speed, text = f"cpu {cpu_model()}", f"core {core} of {cpu_model()}"
    return Device(f"cpu:{index}", "cpu", HOST, (HOST, USER), speed, (core,), eager=False, description=text)


def _wide(cores: tuple[int, ...]) -> Device:
    speed, text = f"cpu {cpu_model()} x{len(cores)}", f"{len(cores)} cores of {cpu_model()}, library threads"
    return Device("cpu:all", "cpu", HOST, (HOST, USER), speed, cores, wide=True, eager=False, description=text)


def _cpu_backend(devices: Iterable[Device], opening: Opening) -> Any:
    from .cpu import CpuBackend

    capacity = opening.capacity("host")
    return CpuBackend(tuple(devices), capacity=capacity, debug=opening.debug, sync=opening.sync)


def open_opencl(named: list[Named], opening: Opening) -> list[Any]:
    """Open OpenCL devices, each with a memory of its own unless memory={name: "shared"}."""
    from .opencl import OpenCLBackend

    backends = []
    for entry in named:
        index = _index(entry)
        name = f"opencl:{index}"
        _require_opencl(index)
        mode: Literal["own", "shared"] = "shared" if opening.memory.get(name) == "shared" else "own"
        memory_id = HOST if mode == "shared" else len(opening.memories)
        backend = OpenCLBackend(index, name, memory_id, mode, entry.cores, capacity=opening.capacity(name))
        if mode == "own":
            opening.add_memory(backend.memories[memory_id])
        backends.append(backend)
    return backends


def _index(entry: Named) -> int:
    """Return which of several devices is meant: the first unless there is a number."""
    if entry.which and not entry.which.isdigit():
        raise ConfigError(f"{entry.name!r} is not a device; number OpenCL devices, as in opencl:0")
    return int(entry.which or 0)


def open_torch(named: list[Named], opening: Opening) -> list[Any]:
    """Open torch devices: the CPU in the host's memory unless memory={name: "own"}, others with their own.

    `torch` is the best one there is. The CPU gets the cores named after @, or all that nobody else was given.
    """
    from .torch.driver import TorchDriver, name_of, require

    require()
    from .torch.backend import TorchBackend

    backends = []
    for entry in named:
        which = name_of(entry.which)
        name = f"torch:{which}"
        driver = TorchDriver(which)
        free = tuple(core for core in available_cores() if core not in opening.taken)
        cores = entry.cores or ((free or available_cores()) if which == "cpu" else ())
        memory: Literal["own", "shared", ""] = ""
        if opening.memory.get(name) == "shared":
            memory = "shared"
        elif name in opening.memory:
            memory = "own"
        memory_id = len(opening.memories)
        capacity = opening.capacity(name)
        backend = TorchBackend(driver, name, memory_id, memory, cores, capacity, debug=opening.debug)
        for own in backend.memories.values():
            opening.add_memory(own)
        backends.append(backend)
    return backends


def _many(kind: str, named: list[Named], opening: Opening) -> tuple[Device, ...]:
    """Return devices with a memory each: `null:4` means four of them."""
    devices: list[Device] = []
    for entry in named:
        if entry.which and not entry.which.isdigit():
            raise ConfigError(f"{entry.name!r} is not a device; say how many, as in {kind}:4")
        count = int(entry.which or 1)
        if not 0 < count <= MEMORIES - len(opening.memories):
            raise ConfigError(
                f"{entry.name!r}: there may be from 1 to {MEMORIES - 2:,} such devices, each with a memory of its own"
            )
        for _ in range(count):
            name = f"{kind}:{len(devices)}"
            memory = opening.add_memory(Memory(name, opening.capacity(name)))
            devices.append(Device(name, kind, memory, (memory,), kind))
    return tuple(devices)


def open_simulated(named: list[Named], opening: Opening) -> list[Any]:
    """Open simulated devices: `simulated:4` is four, each with its own memory, on one virtual clock."""
    from .simulated.backend import SimulatedBackend

    return [SimulatedBackend(_many("simulated", named, opening))]


def open_null(named: list[Named], opening: Opening) -> list[Any]:
    """Open null devices: `null:4` is four, each with its own memory, that compute nothing."""
    from .null import NullBackend

    return [NullBackend(_many("null", named, opening))]
