"""What `coexec simulate` has to simulate: the platform as it is, and every change of it that the user asked for.

Before: machine/what_if.py, backend/simulated/.  After: simulate.py.  Runs nothing; every mistake is found here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from ..machine.files.loading import presets
from ..machine.platform import Device, Platform
from ..machine.what_if import parse_sweep, what_if

DEVICES = "devices"
"""The sweep over the number of devices."""
AS_IT_IS = "as it is"
"""The label of the platform without any change."""
MOST_POINTS = 64
"""Values of a sweep: more are taken for a mistake."""


@dataclass(frozen=True)
class SimulationCase:
    """One simulation: a platform, and the devices of it that are used."""

    label: str
    platform: Platform
    source: str = ""  # a preset or a file that has this platform as it is; empty: it must be written first
    devices: str = ""  # names or kinds; empty = all
    count: int = 0  # how many devices that is, in a sweep over them


@dataclass(frozen=True)
class Sweep:
    """The same program for several values of one thing."""

    what: str
    values: tuple[str, ...]
    cases: tuple[SimulationCase, ...]


@dataclass(frozen=True)
class Cases:
    """Everything that is asked for."""

    base: SimulationCase
    sweeps: tuple[Sweep, ...] = ()
    what_ifs: tuple[SimulationCase, ...] = ()

    @property
    def all(self) -> list[SimulationCase]:
        """Every case, those that are alike once."""
        swept = [case for sweep in self.sweeps for case in sweep.cases]
        return list({id(case): case for case in (self.base, *swept, *self.what_ifs)}.values())


@dataclass(frozen=True)
class Wanted:
    """The platform as the user names it, and what to change of it."""

    platform: str
    devices: str = ""
    memory: Mapping[str, str] = field(default_factory=dict)
    scenario: str = ""
    sweeps: tuple[str, ...] = ()
    what_ifs: tuple[str, ...] = ()


def cases_of(wanted: Wanted) -> Cases:
    """Return what to simulate, each case checked; raise ConfigError or UnknownName with what is wrong."""
    platform = Platform.load(wanted.platform)
    source = wanted.platform if wanted.platform in presets() else str(Path(wanted.platform).resolve())
    base = SimulationCase(AS_IT_IS, platform, source, wanted.devices)
    sweeps: list[Sweep] = []
    for text in wanted.sweeps:
        what, values = parse_sweep(text)
        if len(values) > MOST_POINTS:
            raise ConfigError(f"the sweep {text!r} has {len(values)} values, more than {MOST_POINTS}")
        if what == DEVICES:
            sweep = Sweep(what, values, _by_number(platform, source, wanted.devices, values))
            largest = max(sweep.cases, key=lambda case: case.count)
            base = largest if wanted.devices or largest.count else base
        else:
            sweep = Sweep(what, values, tuple(_changed(base, f"{what} {value}") for value in values))
        sweeps.append(sweep)
    found = Cases(base, tuple(sweeps), tuple(_changed(base, text) for text in wanted.what_ifs))
    _check(found, wanted)
    return found


def _changed(base: SimulationCase, text: str) -> SimulationCase:
    """Return a case with a change of the platform, on the devices of the base that are still there."""
    platform = what_if(base.platform, text)
    if platform == base.platform:
        return base
    kinds = {device.kind for device in base.platform.devices} | {device.name for device in platform.devices}
    devices = ",".join(name for name in _split(base.devices) if name in kinds)
    return SimulationCase(text, platform, "", devices)


def _by_number(platform: Platform, source: str, devices: str, values: Sequence[str]) -> tuple[SimulationCase, ...]:
    """Return the cases of a sweep over the number of devices: the first of those that may be used."""
    pool = _pool(platform, devices)
    made = []
    for value in values:
        if not re.fullmatch("[0-9]{1,18}", value) or not int(value):
            raise ConfigError(f"devices={value}: give whole numbers from 1, as in --sweep devices=1,2,4")
        if int(value) > len(pool):
            kind = pool[0].name.rpartition("/")[2].partition(":")[0]
            raise ConfigError(
                f"devices={value}: platform {platform.name} has {len(pool)} to choose from ({_span(pool)}); sweep over a larger "
                f'platform, or over more of them: --sweep "device {kind} count={len(pool)},{2 * len(pool)}"'
            )
        chosen = pool[: int(value)]
        made.append(SimulationCase(f"devices={value}", platform, source, _named(platform, chosen), len(chosen)))
    return tuple(made)


def _pool(platform: Platform, devices: str) -> list[Device]:
    """Return the devices that are counted: those named, else accelerators, else cores."""
    names = _split(devices)
    chosen = [d for d in platform.devices if not names or d.name in names or d.kind in names]
    if not names and any(not device.abilities.on_numpy for device in chosen):
        chosen = [device for device in chosen if not device.abilities.on_numpy]
    return [device for device in chosen if not device.wide] or chosen


def _named(platform: Platform, chosen: Sequence[Device]) -> str:
    """Return what to call these devices: their kinds if those stand for the same, so that new ones are meant too."""
    kinds = list(dict.fromkeys(device.kind for device in chosen))
    same = sum(device.kind in kinds for device in platform.devices) == len(chosen)
    return ",".join(kinds if same else [device.name for device in chosen])


def _span(pool: Sequence[Device]) -> str:
    return pool[0].name if len(pool) == 1 else f"{pool[0].name} to {pool[-1].name}"


def _split(devices: str) -> list[str]:
    return [name.strip() for name in devices.split(",") if name.strip()]


def _check(cases: Cases, wanted: Wanted) -> None:
    """Raise what opening any of the platforms would raise."""
    from ..backend.simulated import Scenario, simulate

    scenario = Scenario.load(wanted.scenario) if wanted.scenario else None
    for case in cases.all:
        simulate(case.platform, devices=case.devices, memory=wanted.memory, scenario=scenario)
