"""Open a platform as a machine of simulated devices.

Before: backend.py, backend/machine.py.  After: the package's opening.py.  Starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...cluster.dealing import Dealing
from ...cluster.roster import of_platform
from ...cluster.table import Table
from ...config import blamed
from ...errors import ConfigError, unknown_name
from ...machine.platform import Device, Memory, Platform
from ...machine.sizes import parse_bytes
from ...predict.store import Store
from ..machine import Machine
from .backend import SimulatedBackend
from .costs import Costs
from .durations import Durations, processor
from .measured import StoredModels
from .scenario import Scenario
from .world import World


def simulate(
    platform: Platform,
    *,
    devices: str = "",
    memory: Mapping[str, str] | None = None,
    execute: bool = False,
    scenario: Scenario | None = None,
    costs: Costs | None = None,
    store: Path | str | None = None,
    vary: bool = False,
) -> Machine:
    """Return a machine whose devices are those of `platform` (or the named ones), on one virtual clock.

    `store` is the file with what was measured on real devices; durations `vary` as those did, or are their medians.
    What the runtime learns about links changes its own copy of the platform, never the one that is simulated.
    """
    host = processor(platform)
    platform = replace(_limited(platform, memory or {}), devices=_chosen(platform, devices))
    law = Durations(platform, _measured(store), vary=vary, host=host)
    return _machine(World(platform, scenario), platform, 0, law, costs, execute=execute)


def machine_of(platform: Platform, law: Durations, costs: Costs) -> Machine:
    """Return a machine of a platform on which instructions take what a law says."""
    return _machine(World(platform), platform, 0, law, costs, execute=False)


def simulate_ranks(
    platform: Platform,
    *,
    devices: str = "",
    memory: Mapping[str, str] | None = None,
    execute: bool = False,
    scenario: Scenario | None = None,
    costs: Costs | None = None,
    store: Path | str | None = None,
    reproducible: bool = False,
) -> list[Machine]:
    """Return one machine per node of `platform`, each driven by a process of its own, in one world."""
    hosts = [processor(platform.node(rank)) for rank in range(platform.nodes)]
    platform = replace(_limited(platform, memory or {}), devices=_chosen(platform, devices))
    measured, world = _measured(store), World(platform, scenario)
    nodes = [platform.node(rank) for rank in range(platform.nodes)]
    table = Table(Dealing(len(nodes), of_platform(platform), reproducible=reproducible), range(len(nodes)))
    machines = []
    for rank, node in enumerate(nodes):
        if not node.devices:
            raise ConfigError(f"rank {rank} has no device: devices={devices!r} leaves none of its node; name a kind")
        machine = _machine(world, node, rank, Durations(node, measured, host=hosts[rank]), costs, execute=execute)
        machine.lanes["network"] = machine.lanes["host"]
        machines.append(machine._replace(seat=table.seats[rank]))
    return machines


def _measured(store: Path | str | None) -> StoredModels | None:
    """Return what was measured on real devices, if a file is named."""
    return StoredModels(Store(Path(store))) if store is not None else None


def _machine(
    world: World,
    platform: Platform,
    rank: int,
    law: Durations,
    costs: Costs | None,
    *,
    execute: bool,
) -> Machine:
    """Return what one process sees of a world."""
    backend = SimulatedBackend(
        platform.devices,
        law=law,
        platform=platform,
        execute=execute,
        costs=Costs() if costs is None else costs,
        world=world,
        rank=rank,
    )
    lanes = dict.fromkeys([*(device.name for device in platform.devices), "host"], backend)
    memories = dict.fromkeys(range(len(platform.memories)), backend)
    return Machine(replace(platform, links=dict(platform.links)), lanes, memories)


def _chosen(platform: Platform, devices: str) -> tuple[Device, ...]:
    """Return the devices that are named, by name or kind."""
    names = [part.strip() for part in devices.split(",") if part.strip()]
    known = dict.fromkeys([*(d.kind for d in platform.devices), *(d.name for d in platform.devices)])
    for name in names:
        if name not in known:
            raise unknown_name(f"device of platform {platform.name}", name, list(known))
    return tuple(d for d in platform.devices if not names or d.name in names or d.kind in names)


def _limited(platform: Platform, memory: Mapping[str, str]) -> Platform:
    """Return the platform with less memory, as the user says: by device or by memory."""
    memories = list(platform.memories)
    places = {m.name: i for i, m in enumerate(memories)} | {d.name: d.memory for d in platform.devices}
    with blamed("memory", memory):
        for name, size in memory.items():
            if name not in places:
                raise unknown_name("device in memory=", name, list(places))
            if size in ("own", "shared"):
                raise ConfigError(
                    f"memory {name}={size}: the platform says whose memory it is; give a size, such as 6GB"
                )
            old: Memory = memories[places[name]]
            memories[places[name]] = replace(old, capacity=parse_bytes(size), strict=True)
    return replace(platform, memories=tuple(memories))
