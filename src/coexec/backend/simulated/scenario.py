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

MOST_NOISE = 5.0
"""Spreads of log seconds: at 5, single kernels take thousands of times as long as others."""

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
            raise ConfigError(str(unknown_name("happening", str(self.what), ["lost", "slow", "link"])))
        if not isinstance(self.name, str):
            raise ConfigError(f"{self.what}: name is {self.name!r}; it must be a text, such as 'gpu:0'")
        if not 0.0 <= _number(self.at) < inf:
            raise ConfigError(
                f"{self.what} {self.name}: at is {self.at!r}; it must be a finite number of seconds from 0"
            )
        if not 0.0 < _number(self.factor) < inf:
            raise ConfigError(f"{self.what} {self.name}: factor is {self.factor!r}; it must be a finite number above 0")

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

    @property
    def happens(self) -> bool:
        """Whether anything does: devices are not as their platform says all the time."""
        return bool(self.happenings or any(self.noise.values()))

    def __post_init__(self) -> None:
        if not all(isinstance(happening, Happening) for happening in self.happenings):
            raise ConfigError(f"a scenario takes happenings, such as Happening.lost('gpu:0'), not {self.happenings!r}")
        if not isinstance(self.noise, Mapping):
            raise ConfigError(f"noise is {self.noise!r}; it must be a table, such as {{ gpu = 0.1 }}")
        for name, spread in self.noise.items():
            if not 0.0 <= _number(spread) < MOST_NOISE:
                raise ConfigError(
                    f"noise of {name} is {spread!r}; it must be a number from 0 to {MOST_NOISE:g}, such as 0.1 for 10 %"
                )
        seed: object = self.seed
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError(f"seed is {self.seed!r}; it must be a whole number")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scenario:
        """Read a TOML file: `seed`, a table `[noise]`, and entries `[[happening]]` with what, name, at and factor."""
        import tomllib

        file = os.fspath(path)
        try:
            return cls.of(tomllib.loads(Path(file).read_text(encoding="utf-8-sig")))
        except UnicodeDecodeError as error:
            raise ConfigError(f"scenario {file}: is not text in UTF-8: {error.reason} at byte {error.start}") from None
        except OSError as error:
            raise ConfigError(f"scenario {file}: cannot be read: {error.strerror or error}") from error
        except ConfigError as error:
            raise ConfigError(f"scenario {file}: {error}") from None
        except ValueError as error:  # TOMLDecodeError is one, and so are integers of too many digits
            raise ConfigError(f"scenario {file}: not valid TOML: {error}") from None
        except RecursionError:
            raise ConfigError(f"scenario {file}: not valid TOML: nested too deeply") from None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Scenario:
        """Return the scenario that the tables of a file describe."""
        _known(data, ["seed", "noise", "happening"])
        entries = data.get("happening", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ConfigError("happening: must be written [[happening]]")
        return cls(tuple(_happening(entry) for entry in entries), data.get("noise", {}), data.get("seed", 0))

    def check(self, platform: Platform) -> None:
        """Raise if something is named that the platform does not have."""
        devices = [device.name for device in platform.devices]
        kinds = dict.fromkeys(device.kind for device in platform.devices)
        for name in self.noise:
            if name != "*" and name not in kinds and name not in devices:
                raise unknown_name("device in the noise of a scenario", name, ["*", *kinds, *devices])
        for happening in self.happenings:
            if happening.what != "link" and happening.name not in devices:
                raise unknown_name("device in a scenario", happening.name, devices)

    def in_order(self) -> list[Happening]:
        """Return what happens, the first first."""
        return sorted(self.happenings, key=lambda happening: happening.at)

    def spread(self, device: Device) -> float:
        """Return how much the durations of a device vary: what is said of it, else of its kind, else of all."""
        for name in (device.name, device.kind, "*"):
            if name in self.noise:
                return self.noise[name]
        return 0.0


def _happening(entry: Mapping[str, Any]) -> Happening:
    """Return what one entry of a file says."""
    _known(entry, [f.name for f in fields(Happening)])
    for name in ("what", "name"):
        if name not in entry:
            raise ConfigError(f"happening.{name}: is missing: each [[happening]] needs it")
    if entry["what"] == "lost" and "factor" in entry:
        raise ConfigError("happening.factor: what is lost takes no factor")
    if entry["what"] in ("slow", "link") and "factor" not in entry:
        raise ConfigError(f"happening.factor: is missing: {entry['what']!r} needs it, such as factor = 0.5")
    return Happening(**entry)


def _number(value: object) -> float:
    """Return a number as one, and anything else as none: files hold what they want."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def _known(table: Mapping[str, Any], names: Iterable[str]) -> None:
    names = list(names)
    for name in table:
        if name not in names:
            raise ConfigError(str(unknown_name("field", name, names)))
