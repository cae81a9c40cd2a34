"""Tables of what a run answers as a whole: the path it took, its energy, and how its durations are known.

Before: observe/report.py.  After: trace.py, simulate.py.  Computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..observe.pictures.svg import count_text, joules_text, seconds_text
from .grouping import platform_devices
from .output import table

if TYPE_CHECKING:
    from rich.table import Table

Data = dict[str, Any]
SHOWN = 6
"""Steps of the path that are listed from its beginning, and as many from its end."""
PARTS = 12
"""Parts of the path that are listed."""
STREAMS = 8
"""Streams that are listed; all are in the report."""


def headline(report: Data) -> Iterator[str]:
    """Yield what matters most of a simulated run, a line each; nothing of a real one."""
    simulation = report["simulation"]
    if simulation is None:
        return
    name = simulation["platform"] or "a machine of the program's own"
    devices = count_text(len(platform_devices(report)), "device")
    busy = f"efficiency {report['efficiency']:.0%}"
    yield f"simulated on {name}, {devices}: {seconds_text(report['makespan'])} of virtual time, {busy}{_joules(simulation)}"
    if simulation["trust"]:
        yield f"durations: {simulation['trust']}"


def _joules(simulation: Data) -> str:
    energy = simulation["energy"]
    if energy is None or energy["total"] is None:
        return "" if energy is None else ", energy unknown (no device states its watts)"
    less = f" without {_names(energy['no_watts'])}, which state no watts" if energy["no_watts"] else ""
    return f", {joules_text(energy['total'])}{less}"


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def tables(report: Data) -> Iterator[Table]:
    """Yield the tables that have something to say."""
    for stream in report["streams"][:STREAMS]:
        yield _stream(stream)
    planning = report.get("planning")
    if planning and planning["seconds"]:
        yield _planning(planning)
    simulation = report["simulation"]
    if simulation is not None and simulation["durations"]:
        yield _durations(simulation["durations"])
    if report["bottleneck"]["parts"]:
        yield _parts(report["bottleneck"])
        yield _steps(report["bottleneck"]["steps"])


def _planning(planning: Data) -> Table:
    """Return what planning steps has taken of a program's time."""
    computed = planning["computed_s"] or float("inf")
    rows = [
        ("all looks at plans", seconds_text(planning["seconds"]), f"{planning['seconds'] / computed:.2%}"),
        ("after first looks (at most 1 %)", seconds_text(planning["later_s"]), f"{planning['later_s'] / computed:.2%}"),
        ("the longest at once (at most 5 ms)", seconds_text(planning["longest_s"]), ""),
        ("lost by trials (at most 3 %)", seconds_text(planning["trials_s"]), f"{planning['trials_s'] / computed:.2%}"),
    ]
    return table("Planning of steps", ["what", "took", "of the time"], rows, numbers="lrr")


def _stream(stream: Data) -> Table:
    """Return the stages of a stream of items, and what it came to in all."""
    rows = [
        (
            f"{stage['stage']}, {stage['mode']}",
            _names(stage["devices"]),
            _or_dash(seconds_text, stage["seconds_per_item"]),
            seconds_text(stage["predicted_compute"]),
            seconds_text(stage["predicted_copies"]),
            f"{stage['busy']:.0%}",
            f"{stage['starved']:.0%}",
            f"{stage['blocked']:.0%}",
            _or_dash(joules_text, stage["joules_per_item"]),
            ", ".join(stage["kernels"]),
        )
        for stage in stream["stages"]
    ]
    drawn = _or_dash(joules_text, stream["joules_per_item"])
    planning = f", {seconds_text(stream['planning_s'])} of them planning" if stream["planning_s"] else ""
    title = (
        f"Stream {stream['name']}: {count_text(stream['items'], 'item')} in {seconds_text(stream['seconds'])}{planning}; "
        f"{stream['items_per_s']:.4g} items/s, {drawn} per item"
    )
    columns = [
        "stage",
        "devices",
        "per item",
        "predicted",
        "copies in",
        "busy",
        "starved",
        "blocked",
        "energy",
        "kernels",
    ]
    return table(title, columns, rows, numbers="llrrrrrrrw")


def _or_dash(text: Callable[[float], str], value: float | None) -> str:
    return "-" if value is None else text(value)


def _durations(known: Data) -> Table:
    rows = [
        (
            source,
            f"{entry['count']:,}",
            seconds_text(entry["seconds"]),
            f"{entry['share']:.0%}",
            ", ".join(f"{name} {count:,}" for name, count in list(entry["kernels"].items())[:6]),
        )
        for source, entry in known.items()
    ]
    return table("How durations are known", ["source", "kernels", "time", "share", ""], rows, numbers="lrrrw")


def _parts(bottleneck: Data) -> Table:
    rows = [
        (
            part["text"],
            seconds_text(part["seconds"]),
            f"{part['share']:.0%}",
            f"{part['count']:,}",
            _names(list(part["devices"])) + (f"; beside {part['others']:.1f} others" if part["others"] >= 0.05 else ""),
        )
        for part in bottleneck["parts"][:PARTS]
    ]
    return table("Critical path as it happened", ["", "time", "share", "steps", "where"], rows, numbers="lrrrw")


def _steps(steps: Data) -> Table:
    """Return the path step by step: its beginning and its end if it is long."""
    count, shown = steps["count"], steps["shown"]
    if count <= 2 * SHOWN:
        return _path("... step by step", [_step(step) for step in shown])
    skipped = ("...", "", f"{count - 2 * SHOWN:,} more steps", "", "")
    rows = [*map(_step, shown[:SHOWN]), skipped, *map(_step, shown[-SHOWN:])]
    return _path(f"... step by step: the first {SHOWN} and the last {SHOWN} of {count:,}", rows)


def _path(title: str, rows: list[tuple[str, ...]]) -> Table:
    return table(title, ["at", "time", "what", "where", "why the next waited"], rows, numbers="rrwlw")


def _step(step: Data) -> tuple[str, ...]:
    what = f"{step['kind']} {step['name']}" if step["kind"] in ("kernel", "copy") else step["name"] or step["kind"]
    what = "a result for the program" if step["kind"] == "fence" else what
    if step["others"] >= 0.05:
        what += f" beside {step['others']:.1f} others"
    return seconds_text(step["start"]), seconds_text(step["seconds"]), what, step["device"], step["why"]
