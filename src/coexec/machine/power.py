"""What devices draw: watts while they compute and while they wait, as the user says them.

Before: machine/platform.py.  After: assembly.py, cli/plan.py.  Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from ..errors import ConfigError, unknown_name
from .platform import Platform

Watts = Mapping[str, tuple[float, float]]
"""Device -> watts while it computes or copies, watts while it waits."""


def parse_watts(text: str) -> dict[str, tuple[float, float]]:
    """Read "cpu:0=15/3,opencl:0=20" as watts busy and idle; idle ones default to 0."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, figures = part.rpartition("=")
        busy, _, idle = figures.partition("/")
        try:
            pair = float(busy), float(idle or 0.0)
        except ValueError:
            pair = (-1.0, -1.0)
        if not equals or not name or not 0.0 <= pair[1] <= pair[0] < inf:
            raise ConfigError(
                f"watts {part!r} must read device=busy or device=busy/idle with busy >= idle >= 0, e.g. cpu:0=15/3"
            )
        found[name] = pair
    return found


def powered(platform: Platform, watts: Watts) -> Platform:
    """Return the platform with these watts."""
    known = [device.name for device in platform.devices]
    for name in watts:
        if name not in known:
            raise unknown_name("device", name, known)
    devices = [
        replace(device, watts=watts[device.name][0], idle_watts=watts[device.name][1])
        if device.name in watts
        else device
        for device in platform.devices
    ]
    return replace(platform, devices=tuple(devices))
