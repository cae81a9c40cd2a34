"""Which devices a step could run on: classes of devices that are alike, in powers of two, and unions of classes.

Before: machine/.  After: planner.py.  A dozen sets or two, not 2 to the number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from ...machine.platform import Device, Platform

MOST_CLASSES = 4  # of which all unions are looked at; of more, the fastest together


def classes(platform: Platform, lost: Mapping[str, str]) -> list[list[Device]]:
    """Return the devices that are alike, class by class; those that are lost are left out."""
    found: dict[object, list[Device]] = {}
    for device in platform.devices:
        if device.name not in lost:
            found.setdefault(alike(device), []).append(device)
    return list(found.values())


def alike(device: Device) -> object:
    """Return what devices of a class have in common."""
    return (
        device.kind, device.speed, device.wide, device.flops, device.rates, device.bandwidth, device.ops, device.launch
    )  # fmt: skip


def device_sets(groups: Sequence[Sequence[Device]]) -> list[tuple[str, ...]]:
    """Return sets of devices, the smaller ones of each class first. No set has all cores as one device beside the cores."""
    found: list[tuple[Device, ...]] = []
    for group in groups:
        count = 1
        while count < len(group):
            found.append(tuple(group[:count]))
            count *= 2
        found.append(tuple(group))
    few = groups[:MOST_CLASSES]
    for count in range(2, len(few) + 1):
        found += [tuple(d for group in chosen for d in group) for chosen in combinations(few, count)]
    return [tuple(d.name for d in chosen) for chosen in found if not _twice(chosen)]


def _twice(chosen: Sequence[Device]) -> bool:
    """Tell whether a set has some cores both one by one and as one device."""
    taken: set[int] = set()
    for device in chosen:
        cores = set(device.cores)
        if taken & cores:
            return True
        taken |= cores
    return False
