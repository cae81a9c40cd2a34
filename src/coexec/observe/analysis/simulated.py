"""What a simulated run answers beside its times: energy, efficiency, and how far its durations can be trusted.

Before: trace.py.  After: report.py.  Knows rows only: no simulation is asked anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..trace import Trace
from .scheduling import virtual

DEFAULT, ROOFLINE, MEASURED, SCALED = "default", "roofline", "measured", "scaled from"
MANY = 0.05
"""Share of kernel time from which defaults are worth a warning."""


def simulated(trace: Trace) -> dict[str, Any] | None:
    """Return what is known of a simulated run only, as JSON-ready data; None for a real one."""
    if not virtual(trace):
        return None
    closing = trace.simulation
    known = durations(trace)
    return {
        "platform": closing.get("platform") or trace.header.get("options", {}).get("platform", ""),
        "about": closing.get("about", ""),
        "nodes": closing.get("nodes", 1),
        "executes": bool(trace.header.get("options", {}).get("execute")),
        "energy": _energy(closing),
        "durations": known,
        "trust": trust(known),
    }


def _energy(closing: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return joules in all and by device; None if the run was cut off before its end."""
    if "joules" not in closing:
        return None
    joules, seconds = closing["joules"], closing.get("seconds") or 0.0
    total = sum(joules.values())
    return {
        "total": total if joules else None,
        "mean_watts": total / seconds if joules and seconds else None,
        "devices": joules,
        "no_watts": closing.get("no_watts", []),
    }


def durations(trace: Trace) -> dict[str, dict[str, Any]]:
    """Return, by how durations of kernels are known, their number, seconds, share of the seconds, and kernels."""
    found: dict[str, dict[str, Any]] = {}
    for row in trace.work:
        if row.get("source"):
            entry = found.setdefault(row["source"], {"count": 0, "seconds": 0.0, "share": 0.0, "kernels": {}})
            entry["count"] += 1
            entry["seconds"] += row["stop"] - row["start"]
            entry["kernels"][row["name"]] = entry["kernels"].get(row["name"], 0) + 1
    whole = sum(entry["seconds"] for entry in found.values())
    for entry in found.values():
        entry["share"] = entry["seconds"] / whole if whole else 0.0
    return dict(sorted(found.items(), key=lambda item: (-item[1]["seconds"], item[0])))


def trust(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one sentence on what the durations of kernels rest on; empty if there were none."""
    if not known:
        return ""
    guessed = known.get(DEFAULT)
    if guessed is not None and guessed["share"] >= MANY:
        names = ", ".join(list(guessed["kernels"])[:3])
        return (
            f"{guessed['share']:.0%} of the kernel time is a guess of 1 ms per kernel ({names}), so the answer means little; "
            "declare flops= on these kernels, or measure them by running the program on real devices once"
        )
    least = known.get(ROOFLINE)
    if least is not None and least["share"] >= 0.5:
        return (
            f"{least['share']:.0%} of the kernel time is what peak rates allow (roofline); real kernels reach a part of that, "
            "so take the answer as a lower bound, or measure them by running the program on real devices once"
        )
    scaled = sum(entry["share"] for source, entry in known.items() if source.startswith(SCALED))
    told = {"measured": known.get(MEASURED, {}).get("share", 0.0), "scaled from measurements by peak rates": scaled}
    told["what peak rates allow"] = least["share"] if least is not None else 0.0
    parts = [f"{share:.0%} {how}" for how, share in told.items() if share > 0.0]
    return ", ".join(parts).replace(" ", " of the kernel time is ", 1) if parts else ""


def efficiency(trace: Trace, busy: Mapping[str, float]) -> float:
    """Return useful device time over devices times the length of the run. A device of all cores counts as those cores."""
    start, stop = trace.window
    devices = {str(device["name"]): device for device in trace.header.get("devices", ())}
    cores = {name: set(device.get("cores") or ()) for name, device in devices.items()}
    wide = [name for name, device in devices.items() if device.get("wide")]
    inside = {name: [n for n in devices if n not in wide and cores[n] and cores[n] <= cores[name]] for name in wide}
    counted = [name for name in devices if not inside.get(name)]
    useful = sum(busy.get(name, 0.0) * max(1, len(inside.get(name, ()))) for name in devices)
    return min(1.0, useful / (len(counted) * (stop - start))) if counted and stop > start else 0.0
