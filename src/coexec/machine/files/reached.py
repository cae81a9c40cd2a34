"""What a device of a platform file reaches in an operation, by itself or configured as one of its designs.

Before: machine/files/reading.py, machine/parts.py.  After: machine/files/expanding.py.  What cannot be is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..parts import AchievedRate, DeviceDesign
from .reading import FileTable
from .schema import LEAST


def device_design(entry: FileTable, known: Mapping[str, Any], peak: float | None, idle: float | None) -> DeviceDesign:
    """Return one design of a device."""
    achieved = tuple([achieved_rate(entry, one, peak, idle) for one in known.get("achieved", ())])
    ops = tuple(dict.fromkeys([*known.get("ops", ()), *[one.op for one in achieved]]))
    return DeviceDesign(known["name"], ops, achieved, known.get("load", 0.0), known.get("basis", ""))


def achieved_rate(entry: FileTable, known: Mapping[str, Any], peak: float | None, idle: float | None) -> AchievedRate:
    """Return what a device reaches in an operation: a part of its peak, or a rate, which is made one."""
    op = known["op"]
    if known.get("watts") is not None and known["watts"] < (idle or 0.0):
        raise entry.error("achieved", f"{op} draws {known['watts']:g} W, less than {idle:g} W while it waits")
    if "of_peak" in known:
        return AchievedRate(op, known["of_peak"], known.get("watts"), known.get("basis", ""))
    if peak is None:
        raise entry.error(
            "achieved", f"{op} has a rate, but the device states no `flops` for float32 to compare it with"
        )
    if known["flops"] > peak:
        raise entry.error(
            "achieved", f"{op} reaches {known['flops']:g} operations per second, more than the peak {peak:g}"
        )
    if known["flops"] < LEAST * peak:
        raise entry.error(
            "achieved",
            f"{op} reaches {known['flops']:g} operations per second, less than {LEAST:g} of the peak {peak:g}",
        )
    return AchievedRate(op, known["flops"] / peak, known.get("watts"), known.get("basis", ""))
