"""Say in a few lines what a platform consists of.

Before: machine/files/writing.py.  After: machine/platform.py, cli/devices.py.  Prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .files.writing import entries
from .topology import Parts

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def quantity(figure: float, unit: str) -> str:
    """Return a figure with three digits and its unit."""
    for scale, prefix in PREFIXES:
        if abs(figure) >= scale * 0.9995:
            return f"{figure / scale:.3g} {prefix}{unit}"
    return f"0 {unit}" if figure == 0 else f"{figure / 1e-9:.3g} n{unit}"


def described(parts: Parts) -> str:
    """Return the platform as text: a line for each kind of device, memory and link."""
    nodes = parts.topology.nodes if parts.topology is not None else 1
    lines = [": ".join(part for part in (parts.name, parts.about) if part) or "a platform"]
    if nodes > 1:
        lines.append(f"{nodes} nodes, {len(parts.devices)} devices in all; each node has")
    for table, values in entries(parts):
        if table in SENTENCES:
            lines.append("  " + ", ".join(part for part in SENTENCES[table](values) if part))
    return "\n".join(lines)


def _named(table: str, values: Mapping[str, Any]) -> str:
    many = f"{values['count']} x " if "count" in values else ""
    return f"{table:<7} {many}{values['name']}"


def _device(values: Mapping[str, Any]) -> Iterator[str]:
    yield _named("device", values) + (f" ({values['model']})" if "model" in values else "")
    rates = values.get("flops", {})
    rates = rates if isinstance(rates, Mapping) else {"float32": rates}
    yield from (f"{quantity(rate, 'flop/s')} {dtype}" for dtype, rate in rates.items())
    if "bandwidth" in values:
        yield quantity(values["bandwidth"], "B/s")
    if "watts" in values:
        yield f"{values['watts']:g} W" + (f" ({values['idle_watts']:g} idle)" if "idle_watts" in values else "")
    yield f"memory {values['memory']}"
    if "achieved" in values:
        parts = [f"{op} {entry['of_peak']:.1%} of peak" for op, entry in values["achieved"].items()]
        yield ", ".join(parts)
    if "design" in values:
        yield "as " + ", as ".join(
            f"{name} ({' '.join(d['ops'])}; {d['load']:g} s to load)" for name, d in values["design"].items()
        )
    elif "designs" in values:
        loaded = f" (loaded in {values['load']:g} s)" if "load" in values else ""
        yield "designs " + " ".join(values["designs"]) + loaded


def _memory(values: Mapping[str, Any]) -> Iterator[str]:
    yield _named("memory", values)
    if "capacity" in values:
        capacity = values["capacity"]
        yield capacity if isinstance(capacity, str) else quantity(capacity, "B")
    if "bandwidth" in values:
        yield quantity(values["bandwidth"], "B/s")


def _switch(values: Mapping[str, Any]) -> Iterator[str]:
    yield _named("switch", values)
    yield "" if values.get("peers", True) else "no copies between devices"


def _card(values: Mapping[str, Any]) -> Iterator[str]:
    yield _named("nic", values)


def _bus(values: Mapping[str, Any]) -> Iterator[str]:
    yield _named("bus", values)
    yield quantity(values["bandwidth"], "B/s")


def _link(values: Mapping[str, Any]) -> Iterator[str]:
    ends = [end if isinstance(end, str) else " ".join(end) for end in (values["from"], values["to"])]
    arrow = "to" if values.get("one_way") or values["from"] == "user" else "and"
    arrow += " its" if values.get("pairwise") else ""
    yield f"link    {ends[0]} {arrow} {ends[1]}" + (f" ({values['name']})" if "name" in values else "")
    yield quantity(values["bandwidth"], "B/s")
    yield quantity(values["latency"], "s")
    if "shared" in values:
        yield "over " + (values["shared"] if isinstance(values["shared"], str) else " ".join(values["shared"]))


def _network(values: Mapping[str, Any]) -> Iterator[str]:
    yield "network of all nodes"
    yield f"{quantity(values['bandwidth'], 'B/s')} per nic"
    yield quantity(values["latency"], "s")
    if "total" in values:
        yield f"{quantity(values['total'], 'B/s')} in all"


SENTENCES = {
    "device": _device,
    "memory": _memory,
    "switch": _switch,
    "nic": _card,
    "bus": _bus,
    "link": _link,
    "network": _network,
}
"""How each table is said."""
