"""Say what is wrong with the options of a script before it runs: one sentence here, instead of a traceback from there.

Before: config.py, backend/machine.py, machine/.  After: run.py, simulate.py.  Opens no device.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..config import Config, blamed, merged, parse, parse_memory
from ..errors import ConfigError, unknown_name


def check_environment(environ: Mapping[str, str]) -> Config:
    """Return the options that a script will find; raise what opening its runtime would raise for any of them."""
    config = merged(parse(environ))
    with blamed("memory", config.memory):
        memory = parse_memory(config.memory)
    names = _simulated(config, memory) if config.platform else _here(config, memory)
    _check_watts(config, names)
    _check_rest(config)
    return config


def _here(config: Config, memory: Mapping[str, str]) -> list[str] | None:
    """Check devices of this machine and return their names; None if only opening them would tell."""
    from ..backend.machine import check_devices
    from ..machine.sizes import parse_bytes

    if config.scenario or config.execute:
        with blamed("execute", config.execute), blamed("scenario", config.scenario):
            raise ConfigError("a scenario and --execute are for simulations; see `coexec simulate --help`")
    if config.ranks != 1:
        with blamed("ranks", config.ranks):
            raise ConfigError("several ranks are for simulated clusters; see `coexec simulate --help`")
    with blamed("devices", config.devices):
        names = check_devices(config.devices) if config.devices else None
    with blamed("memory", config.memory):
        for name, size in memory.items():
            if name != "host":
                _check_name("device in memory=", name, names)
            if size not in ("own", "shared"):
                parse_bytes(size)
    return names


def _check_name(what: str, name: str, names: list[str] | None) -> None:
    """Raise unless a device has that name; where the script says which devices it uses, unless one could have it."""
    if names is not None:
        if name not in names:
            raise unknown_name(what, name, names)
        return
    from ..backend.machine import check_devices

    check_devices(name)


def _simulated(config: Config, memory: Mapping[str, str]) -> list[str]:
    """Check a platform and what is to happen on it; return the names of its devices."""
    from ..backend.simulated import Scenario, simulate
    from ..machine.platform import Platform

    with blamed("platform", config.platform):
        platform = Platform.load(config.platform)
    with blamed("scenario", config.scenario):
        scenario = Scenario.load(config.scenario) if config.scenario else None
    with blamed("devices", config.devices):
        simulate(platform, devices=config.devices, memory=memory, scenario=scenario)
    if config.ranks not in (0, 1, platform.nodes):
        with blamed("ranks", config.ranks):
            raise ConfigError(
                f"--ranks {config.ranks}, but {platform.name} has {platform.nodes} nodes; give 0 for one process on each, "
                "or 1 for one that drives them all"
            )
    return [device.name for device in platform.devices]


def _check_watts(config: Config, names: list[str] | None) -> None:
    from ..machine.power import parse_watts

    with blamed("watts", config.watts):
        for name in parse_watts(config.watts):
            _check_name("device", name, names)


def _check_rest(config: Config) -> None:
    from importlib.metadata import entry_points

    from ..execute.lanes import LanePolicy
    from ..plan.plan import load_plans
    from ..plan.policies import PLACEMENTS

    LanePolicy.parse(config.lanes)
    with blamed("placement", config.placement):
        added = [entry.name for entry in entry_points(group="coexec.placements")]
        if config.placement not in (known := [*PLACEMENTS, *added]):
            raise unknown_name("placement", config.placement, known)
    if config.plan:
        with blamed("plan", config.plan):
            load_plans(config.plan)
