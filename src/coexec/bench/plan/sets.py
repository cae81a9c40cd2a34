"""The sets of devices that all devices are compared with: one of each class, each class, every union of classes.

Before: machine/.  After: harness.py.  Devices of a class are alike, so one of them stands for each.
"""

from __future__ import annotations

from itertools import combinations

from ...machine.platform import Device, Platform


def classes(platform: Platform) -> list[list[str]]:
    """Return the names of devices that are alike, class by class."""
    found: dict[object, list[str]] = {}
    for device in platform.devices:
        found.setdefault(_alike(device), []).append(device.name)
    return list(found.values())


def _alike(device: Device) -> object:
    return (device.kind, device.speed, device.wide, device.flops, device.rates, device.bandwidth, device.ops)


def sets(platform: Platform) -> list[tuple[str, ...]]:
    """Return the sets, each once; all devices are the last of them."""
    groups = classes(platform)
    found: list[tuple[str, ...]] = [(group[0],) for group in groups]
    for count in range(1, len(groups) + 1):
        found += [tuple(name for group in chosen for name in group) for chosen in combinations(groups, count)]
    return list(dict.fromkeys(found))
