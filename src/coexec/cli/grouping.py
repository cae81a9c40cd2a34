"""Many devices and links as few rows: what is alike is told together.

Before: observe/report.py.  After: trace.py.  Knows names and sums; decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Data = dict[str, Any]
MANY = 24
"""Devices or links from which those that are alike share a row."""
HELPERS = ("host", "network")
"""What runs instructions and is no device of the platform."""


def stem(name: str) -> str:
    """Return what a name is without its node and its number."""
    return name.rpartition("/")[2].partition(":")[0]


def platform_devices(report: Mapping[str, Any]) -> list[str]:
    """Return the devices of a report that the platform has."""
    return [name for name in report["devices"] if stem(name) not in HELPERS]


def counts(by_device: Mapping[str, int]) -> str:
    """Return how many kernels each device ran; many devices by what they are called."""
    if len(by_device) <= MANY // 2:
        return ", ".join(f"{device} {count:,}" for device, count in by_device.items())
    total: dict[str, int] = defaultdict(int)
    for device, count in by_device.items():
        total[stem(device)] += count
    return f"{', '.join(f'{name} {count:,}' for name, count in total.items())} on {len(by_device)} devices"


def devices(report: Mapping[str, Any]) -> list[Data]:
    """Return what to tell of devices, a row each: name, busy as text, seconds, joules and idle seconds by cause."""
    energy = ((report["simulation"] or {}).get("energy") or {}).get("devices", {})
    groups: dict[str, list[str]] = defaultdict(list)
    many = len(report["devices"]) > MANY
    for name in report["devices"]:
        groups[stem(name) if many else name].append(name)
    return [_device(name, members, report["devices"], energy) for name, members in groups.items()]


def _device(name: str, members: list[str], told: Mapping[str, Data], energy: Mapping[str, float]) -> Data:
    shares = sorted(told[member]["utilisation"] for member in members)
    mean = sum(shares) / len(shares)
    one = len(members) == 1
    causes: dict[str, float] = defaultdict(float)
    for member in members:
        for cause, seconds in told[member]["idle_by_cause"].items():
            causes[cause] += seconds
    known = [energy[member] for member in members if member in energy]
    return {
        "name": members[0] if one else f"{len(members)} x {name}",
        "share": f"{mean:.0%}" if one else f"{mean:.0%} ({shares[0]:.0%} to {shares[-1]:.0%})",
        "busy": sum(told[member]["busy"] for member in members),
        "joules": sum(known) if known else None,
        "idle": sum(told[member]["idle"] for member in members),
        "causes": dict(sorted(causes.items(), key=lambda item: -item[1])),
    }


def links(report: Mapping[str, Any]) -> dict[str, Data]:
    """Return the copies by link; many links by what they join and are made of."""
    found: Mapping[str, Data] = report["copies"]["links"]
    if len(found) <= MANY:
        return dict(found)
    groups: dict[str, list[Data]] = defaultdict(list)
    for link, copies in found.items():
        ends = " -> ".join(stem(end) for end in link.split(" -> "))
        groups[f"{ends} {copies['over']}"].append(copies | {"ends": ends})
    made = {f"{g[0]['ends']} ({len(g)} ways)": _together(g) for g in groups.values()}
    return dict(sorted(made.items(), key=lambda item: (-item[1]["bytes"], item[0])))


def _together(group: list[Data]) -> Data:
    reasons: dict[str, int] = defaultdict(int)
    for copies in group:
        for reason, count in copies["reasons"].items():
            reasons[reason] += count
    total = {field: sum(copies[field] for copies in group) for field in ("count", "bytes", "seconds")}
    rate = total["bytes"] / total["seconds"] if total["seconds"] else 0.0
    return {**total, "over": group[0]["over"], "reasons": dict(reasons), "bytes_per_second": rate}
