"""What goes wrong in a simulated run, and when: devices that are lost or slow down, links that degrade, noise.

Before: machine/.  After: backend.py.  Plain data; a seed makes it repeat.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import inf, nan
from pathlib import Path
from typing import Any, Literal

from ...errors import ConfigError, unknown_name
from ...machine.platform import Device, Platform

What = Literal["lost", "slow", "link"]


@dataclass(frozen=True)
class Happening:
    """One thing that happens at a time, and lasts from then on."""

    what: What
    name: str  # of a device; for links, what they are made of ("pcie"), share ("host>pcie"), or join ("host>gpu:0")
    at: float = 0.0  # virtual seconds
    factor: float = 1.0  # kernels take so many times as long; a link has so much of its bandwidth

    def __post_init__(self) -> None:
        if self.what not in ("lost", "slow", "link"):
            raise ConfigError(str(unknown_name("happening", self.what, ["lost", "slow", "link"])))
        for name, value, positive in (("at", self.at, False), ("factor", self.factor, True)):
            if not (0.0 < _number(value) < inf or (value == 0.0 and not positive)):
                raise ConfigError(f"{self.what} {self.name}: {name} is {value!r}; it must be a finite number above 0")

    @classmethod
    def lost(cls, device: str, at: float = 0.0) -> Happening:
        """Return that a device computes nothing any more."""
        return cls("lost", device, at)

    @classmethod
    def slow(cls, device: str, factor: float, at: float = 0.0) -> Happening:
        """Return that kernels of a device take `factor` times as long."""
        return cls("slow", device, at, factor)

    @classmethod
    def degraded(cls, link: str, factor: float, at: float = 0.0) -> Happening:
        """Return that links have `factor` times their bandwidth."""
        return cls("link", link, at, factor)


@dataclass(frozen=True)
class Scenario:
    """Everything that happens, and how much durations vary."""

    happenings: tuple[Happening, ...] = ()
    noise: Mapping[str, float] = field(default_factory=dict)  # device, kind or "*" -> spread of log seconds; 0.1 = 10 %
    seed: int = 0

    def __post_init__(self) -> None:
        for name, spread in self.noise.items():
            if not 0.0 <= _number(spread) < 10.0:
                raise ConfigError(f"noise of {name} is {spread!r}; it must be a number from 0, such as 0.1 for 10 %")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scenario:
        """Read a TOML file: `seed`, a table `[noise]`, and entries `[[happening]]` with what, name, at and factor."""
        import tomllib

        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls.of(data)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"scenario {os.fspath(path)}: {error}") from error

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Scenario:
        """Return the scenario that the tables of a file describe."""
        _known(data, ["seed", "noise", "happening"])
        entries = data.get("happening", [])
        for entry in entries:
            _known(entry, [f.name for f in fields(Happening)])
        return cls(tuple(Happening(**entry) for entry in entries), data.get("noise", {}), data.get("seed", 0))

    def check(self, platform: Platform) -> None:
        """Raise if something is named that the platform does not have."""
        devices = [device.name for device in platform.devices]
        kinds = dict.fromkeys(device.kind for device in platform.devices)
        for name in self.noise:
            if name != "*" and name not in kinds and name not in devices:
                raise unknown_name("device in noise", name, ["*", *kinds, *devices])
        for happening in self.happenings:
            if happening.what != "link" and happening.name not in devices:
                raise unknown_name("device", happening.name, devices)

    def in_order(self) -> list[Happening]:
        """Return what happens, the first first."""
        return sorted(self.happenings, key=lambda happening: happening.at)

    def spread(self, device: Device) -> float:
        """Return how much the durations of a device vary: what is said of it, else of its kind, else of all."""
        for name in (device.name, device.kind, "*"):
            if name in self.noise:
                return self.noise[name]
        return 0.0


def _number(value: object) -> float:
    """Return a number as one, and anything else as none: files hold what they want."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else nan


def _known(table: Mapping[str, Any], names: Iterable[str]) -> None:
    names = list(names)
    for name in table:
        if name not in names:
            raise ConfigError(str(unknown_name("field", name, names)))
