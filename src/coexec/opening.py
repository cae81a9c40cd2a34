"""What the options of a runtime open: devices of this machine, a simulated platform, or the ranks of a simulated cluster.

Before: config.py, backend/.  After: driver.py, ranked.py, runtime.py.  Puts nothing together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import process
from .backend.machine import Machine, default_devices, open_machine
from .backend.network import NetworkBackend
from .cluster.dealing import Dealing
from .cluster.following import digest, plans_of
from .cluster.roster import introduce, of_ranks
from .cluster.sharing import LocalRank, accelerators_of
from .cluster.table import Table
from .config import Config, blamed, merged, parse, parse_memory
from .errors import ConfigError
from .machine.platform import HOST, Platform
from .predict.store import default_path

if TYPE_CHECKING:
    from .backend.simulated import Scenario
    from .cluster.team import Team

ALIKE = ("reproducible", "fuse", "sync", "diagnostics", "debug", "policy")
"""Options that decide which calls a program makes, or how they are dealt: every rank must have the same."""


def named(option: str, given: object) -> str | None:
    """Return what to call a platform or a scenario in the options: its path, or its name."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, os.PathLike):
        return str(os.fspath(given))
    if type(given).__name__.lower() != option:
        ours = "the name of a preset or a cx.Platform" if option == "platform" else "a Scenario"
        raise ConfigError(f"Runtime({option}={given!r}): expected the path of a file, {ours}")
    return getattr(given, "name", "") or option


def configured(
    devices: str | None,
    trace: str | os.PathLike[str] | None,
    platform: object,
    scenario: object,
    options: Mapping[str, Any],
) -> Config:
    """Return the options of a runtime: as given, else as the environment says."""
    file = None if trace is None else os.fspath(trace)
    given = {**options, "platform": named("platform", platform), "scenario": named("scenario", scenario)}
    config = merged(parse(os.environ), devices=devices, trace=file, **given)
    if config.trace and trace is None:
        config = merged(config, trace=process.free_trace_name(config.trace))
    return config


def simulated_ranks(
    config: Config,
    memory: Mapping[str, str] | str | None,
    platform: Platform | str | os.PathLike[str] | None,
    scenario: Scenario | str | os.PathLike[str] | None,
) -> tuple[Platform, list[Machine]]:
    """Open one process per node of a platform, in one simulation."""
    if not config.platform:
        with blamed("ranks", config.ranks):
            raise ConfigError(
                f"ranks={config.ranks} is for simulated clusters; name one: platform='a100x128', which has 32 nodes"
            )
    what = platform if isinstance(platform, Platform) else Platform.load(config.platform)
    if config.ranks not in (0, what.nodes):
        with blamed("ranks", config.ranks):
            raise ConfigError(
                f"ranks={config.ranks}, but platform {what.name or config.platform} has {what.nodes} nodes: "
                f"give ranks={what.nodes} for one process on each, or ranks=1 for one that drives them all"
            )
    from .backend.simulated.opening import simulate_ranks

    machines = simulate_ranks(what, reproducible=config.reproducible, **_simulation(config, memory, scenario))
    return machines[0].lanes["host"].world.platform, machines


def _simulation(
    config: Config,
    memory: Mapping[str, str] | str | None,
    scenario: Scenario | str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """Return what a simulation needs to know beside its platform."""
    from .backend.simulated import Scenario

    happens = scenario if isinstance(scenario, Scenario) else None
    if happens is None and config.scenario:
        with blamed("scenario", config.scenario):
            happens = Scenario.load(config.scenario)
    return {
        "devices": config.devices,
        "memory": _limits(config, memory),
        "execute": config.execute,
        "scenario": happens,
        "store": default_path(config.store),
    }


def open_as(
    config: Config,
    memory: Mapping[str, str] | str | None,
    platform: Platform | str | os.PathLike[str] | None,
    scenario: Scenario | str | os.PathLike[str] | None,
) -> Machine:
    """Open what the options say: devices of this machine, or a platform that is simulated."""
    if not config.platform:
        if config.scenario or config.execute:
            with blamed("execute", config.execute), blamed("scenario", config.scenario):
                raise ConfigError("scenario= and execute= are for simulations; name a platform=, such as 'a100x4'")
        limits = _limits(config, memory)
        with blamed("devices", config.devices):
            return open_machine(config.devices or None, limits, debug=config.debug, sync=config.sync)
    from .backend.simulated import simulate  # many modules, which real machines do without

    what = platform if isinstance(platform, Platform) else Platform.load(config.platform)
    with blamed("devices", config.devices):
        return simulate(what, **_simulation(config, memory, scenario))


def open_rank(config: Config, memory: Mapping[str, str] | str | None, team: Team) -> Machine:
    """Open the devices of one rank of several, which tell each other what they have. Waits for all ranks."""
    machine = _share(open_as(own_devices(config, team.local), memory, None, None), team.local.ranks)
    alike = {name: getattr(config, name) for name in ALIKE}
    alike["plan"] = digest(plans_of(config.plan, team.size)) if config.plan else ""
    roster = of_ranks(team.allgather(introduce(machine.platform, alike)))
    table = Table(Dealing(team.size, roster, reproducible=config.reproducible), [team.rank], team.calls)
    machine.lanes["network"] = NetworkBackend(team.endpoint, team.open_runtime())
    return machine._replace(seat=table.seats[0])


def own_devices(config: Config, local: LocalRank) -> Config:
    """Return the options with the devices of one rank of its machine, unless the user names devices."""
    if config.devices or local.ranks == 1:
        return config
    names = default_devices().split(",")
    others = [name for name in names if not name.startswith("cpu")]
    cores = [name for name in names if name.startswith("cpu")]
    return replace(config, devices=",".join([*cores, *accelerators_of(local, others)]))


def _share(machine: Machine, ranks: int) -> Machine:
    """Return a machine whose host has this rank's part of the memory, unless the user says how much it may use."""
    host = machine.platform.memories[HOST]
    if ranks == 1 or host.strict or host.capacity is None:
        return machine
    memories = list(machine.platform.memories)
    memories[HOST] = replace(host, capacity=host.capacity // ranks)
    return machine._replace(platform=replace(machine.platform, memories=tuple(memories)))


def _limits(config: Config, memory: Mapping[str, str] | str | None) -> dict[str, str]:
    limits = config.memory if memory is None else memory
    with blamed("memory", limits):
        return parse_memory(limits) if isinstance(limits, str) else dict(limits)
