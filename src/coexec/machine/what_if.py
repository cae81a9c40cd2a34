"""What would change if: a platform with one figure, or one number of things, other than it has.

Before: machine/platform.py, machine/growing.py.  After: cli/.  Pure: a platform and a sentence give a platform.

A change reads SUBJECT NAME FIELD HOW: "link pcie bandwidth x2", "device gpu:0 watts 200", "memory gpu capacity 80GB",
"network latency x0.5", "device gpu count +1", "nodes x2".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from ..errors import ConfigError, PlatformError, unknown_name
from .files.loading import parse
from .files.writing import first_node, text_of
from .growing import resized
from .parts import HOST, USER, Device, Link, Memory
from .platform import Platform
from .sizes import parse_bytes
from .topology import Parts, Topology, local

FIELDS: dict[str, tuple[str, ...]] = {
    "device": ("count", "flops", "bandwidth", "launch", "watts", "idle_watts", "concurrent", "granule"),
    "link": ("bandwidth", "latency"),
    "memory": ("capacity", "bandwidth"),
    "bus": ("bandwidth",),
    "network": ("bandwidth", "latency", "total"),
    "nodes": ("nodes",),
}
"""What can be changed: subject -> fields."""
WHOLE = ("count", "concurrent", "granule", "nodes", "capacity")
NOT_ZERO = ("flops", "bandwidth", "total", *WHOLE)
NAMELESS = ("network", "nodes")
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
MOST = 128
"""Devices of a kind in one node: each new one may be joined with each other."""
EXAMPLES = '"link pcie bandwidth x2", "device gpu count +1", "memory gpu capacity 80GB", "network latency x0.5"'


@dataclass(frozen=True, slots=True)
class PlatformChange:
    """One figure of a platform, and what becomes of it."""

    subject: str
    name: str  # of the things that are meant; empty where there is one only
    field: str
    how: str  # "x", "+", "-" or "="
    amount: float

    def of(self, old: float | None, what: str) -> float:
        """Return what becomes of a figure."""
        if old is None and self.how != "=":
            raise ConfigError(f"{what} has no {self.field} that could be changed by {self.how}; give a value instead")
        before = old or 0.0
        new = {"x": before * self.amount, "+": before + self.amount, "-": before - self.amount}.get(
            self.how, self.amount
        )
        new = float(round(new)) if self.field in WHOLE and isfinite(new) else new
        if not isfinite(new) or new < 0.0 or (new == 0.0 and self.field in NOT_ZERO):
            raise ConfigError(f"{self.field} of {what} would become {new:g}; it must be a finite number above 0")
        return new


def what_if(platform: Platform, text: str) -> Platform:
    """Return the platform with a change, as `text` says."""
    change = parse_change(text)
    try:
        return _CHANGES[change.subject](platform, change)
    except PlatformError as error:
        raise ConfigError(f"{text!r} gives no platform: {error}") from error


def parse_change(text: str) -> PlatformChange:
    """Read a change; what it names is not looked for."""
    words = text.split()
    subject = words[0] if words else ""
    if subject not in FIELDS:
        raise ConfigError(f"{text!r}: {unknown_name('thing to change', subject, list(FIELDS))}; such as {EXAMPLES}")
    wanted = _shape(subject)
    if subject == "nodes":
        words.insert(1, "nodes")
    if subject in NAMELESS:
        words.insert(1, "")
    if len(words) == 5:
        words[3:] = [words[3] + words[4]]  # "80 GB"
    if len(words) != 4:
        raise ConfigError(f"{text!r} does not read {wanted}, as in {EXAMPLES}")
    _, name, field, amount = words
    if field not in FIELDS[subject]:
        raise ConfigError(f"{text!r}: {unknown_name(f'field of a {subject}', field, FIELDS[subject])}")
    how, figure = ("=", amount) if amount[0] not in "x+-" else (amount[0], amount[1:])
    return PlatformChange(subject, name, field, how, _figure(figure, field, text))


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """Read "link pcie bandwidth=8e9,16e9": what is changed, and the ways in which it is."""
    subject, equals, values = text.partition("=")
    listed = tuple(value.strip() for value in values.split(","))
    if not equals or not subject.strip() or not all(listed):
        raise ConfigError(
            f'a sweep reads WHAT=VALUE,VALUE,..., as in devices=1,2,4 or "link pcie bandwidth=x1,x2", not {text!r}'
        )
    if len(set(listed)) < len(listed):
        raise ConfigError(f"the sweep {text!r} has a value twice")
    return " ".join(subject.split()), listed


def _shape(subject: str) -> str:
    fields = "|".join(FIELDS[subject])
    name = "" if subject in NAMELESS else "NAME "
    return f"{subject} {name}{'' if subject == 'nodes' else fields + ' '}x2|+1|VALUE"


def _figure(text: str, field: str, whole: str) -> float:
    try:
        if field == "capacity" or (field in ("bandwidth", "total") and re.search("[bB](/s)?$", text)):
            return float(parse_bytes(text.removesuffix("/s")))
        unit = next((unit for unit in ("ms", "us", "µs", "ns", "s") if text.endswith(unit)), "")
        if unit and field in ("latency", "launch"):
            return float(text.removesuffix(unit)) * SECONDS[unit]
        return float(text)
    except ValueError:
        raise ConfigError(f"{whole!r}: {text!r} is not a number for {field}; write x2, x0.5, +1 or a value") from None


# Devices ------------------------------------------------------------------------------------------------------------------


def _device(platform: Platform, change: PlatformChange) -> Platform:
    chosen = [device for device in platform.devices if _is(change.name, device.name, device.kind)]
    if not chosen:
        names = [device.name for device in platform.devices]
        raise unknown_name("device", change.name, [*_stems(names), *names[:LISTED]])
    if change.field == "count":
        return _recounted(platform, change)
    made = {device.name: _refigured(device, change) for device in chosen}
    memories = _own_memories(platform, made) if change.field == "bandwidth" else platform.memories
    devices = tuple(made.get(device.name, device) for device in platform.devices)
    return replace(platform, devices=devices, memories=memories)


def _own_memories(platform: Platform, made: Mapping[str, Device]) -> tuple[Memory, ...]:
    """Return the memories, those that serve changed devices alone wide enough for them."""
    memories = list(platform.memories)
    shared = {device.memory for device in platform.devices if device.name not in made} | {HOST}
    for device in platform.devices:
        memory = memories[device.memory]
        if device.memory not in shared and memory.bandwidth is not None and device.bandwidth:
            factor = (made[device.name].bandwidth or device.bandwidth) / device.bandwidth
            memories[device.memory] = replace(
                memory, bandwidth=(platform.memories[device.memory].bandwidth or 0) * factor
            )
    return tuple(memories)


def _refigured(device: Device, change: PlatformChange) -> Device:
    field = change.field
    if field == "flops" and device.flops is None and device.rates:
        return _scaled(device, change)
    new = change.of(getattr(device, field), device.name)
    figure: dict[str, Any] = {field: int(new) if field in WHOLE else new}
    if field == "flops":
        factor = new / device.flops if device.flops else 1.0
        rates = tuple((dtype, rate * factor) for dtype, rate in device.rates)
        device = replace(device, flops=new, rates=rates)
    else:
        device = replace(device, **figure)
    if field in ("flops", "bandwidth"):  # what was measured there is scaled by these, and holds here no more
        return replace(device, speed=f"{device.speed or device.name} with {field} {new:g}")
    if field == "watts" and (device.idle_watts or 0.0) > new:
        raise ConfigError(f"watts of {device.name} would be {new:g}, less than its idle_watts {device.idle_watts:g}")
    if field == "idle_watts" and device.watts is not None and new > device.watts:
        raise ConfigError(f"idle_watts of {device.name} would be {new:g}, more than its watts {device.watts:g}")
    return device


def _scaled(device: Device, change: PlatformChange) -> Device:
    """Return a device without a rate for single precision, with the rates that it has multiplied."""
    if change.how != "x":
        raise ConfigError(
            f"flops of {device.name} are for {', '.join(device.types)}, and not for float32, which a value would be for; "
            "write x2 or the like"
        )
    rates = tuple((dtype, change.of(rate, device.name)) for dtype, rate in device.rates)
    return replace(device, rates=rates, speed=f"{device.speed or device.name} with flops x{change.amount:g}")


def _recounted(platform: Platform, change: PlatformChange) -> Platform:
    parts = first_node(_parts(platform))
    chosen = [d.name for d in parts.devices if _is(local(change.name), d.name, d.kind) and not d.wide]
    if not chosen:
        raise ConfigError(f"{change.name} is all cores of its kind; there is no more than one of it")
    wanted = int(change.of(len(chosen), f"device {change.name}"))
    if wanted > MOST:
        raise ConfigError(
            f"{wanted} devices {change.name} are more than {MOST} in one node; write a platform file instead"
        )
    return _reread(resized(parts, chosen, wanted))


def _nodes(platform: Platform, change: PlatformChange) -> Platform:
    parts = first_node(_parts(platform))
    topology = parts.topology
    wanted = int(change.of(platform.nodes, "the platform"))
    if topology is None or topology.network is None:
        raise ConfigError(f"platform {platform.name or 'here'} has no [network], so it stays one node")
    return _reread(parts._replace(topology=replace(topology, nodes=wanted, prefix="")))


def _reread(parts: Parts) -> Platform:
    """Return the platform of one node's parts, checked and repeated as a file would be."""
    return Platform(*parse(text_of(parts), parts.name or "platform")._replace(name=parts.name))


def _parts(platform: Platform) -> Parts:
    return Parts(*(getattr(platform, field) for field in Parts._fields))


# Everything else ----------------------------------------------------------------------------------------------------------


def _memory(platform: Platform, change: PlatformChange) -> Platform:
    memories = list(platform.memories)
    chosen = [i for i, memory in enumerate(memories) if i != USER and _is(change.name, memory.name)]
    if not chosen:
        raise unknown_name("memory", change.name, _stems([memory.name for memory in memories[1:]]))
    for i in chosen:
        new = change.of(getattr(memories[i], change.field), f"memory {memories[i].name}")
        if change.field == "capacity":
            memories[i] = replace(memories[i], capacity=int(new), strict=True)
        else:
            memories[i] = replace(memories[i], bandwidth=new)
    return replace(platform, memories=tuple(memories))


def _link(platform: Platform, change: PlatformChange) -> Platform:
    memories = [local(memory.name) for memory in platform.memories]
    memories[USER] = "host"
    topology = platform.topology
    wires = {(wire.source, wire.target): wire for wire in topology.wires} if topology is not None else {}
    ends: dict[Any, str] = {pair: f"{memories[pair[0]]}>{memories[pair[1]]}" for pair in platform.links}
    ends |= {pair: wire.id for pair, wire in wires.items()}
    every: dict[Any, Any] = {**platform.links, **wires}
    chosen = {pair for pair, link in every.items() if _is_link(change.name, ends[pair], link.name)}
    if not chosen:
        known = {link.name for link in every.values()} | _stemmed(ends.values())
        raise unknown_name("link", change.name, sorted(known - {"", "host>host"}))
    made = {pair: _better(link, change, ends[pair]) if pair in chosen else link for pair, link in every.items()}
    if topology is not None:
        topology = replace(topology, wires=tuple(made[pair] for pair in wires))
    return replace(platform, links={pair: made[pair] for pair in platform.links}, topology=topology)


def _better(link: Any, change: PlatformChange, ends: str) -> Any:
    new: dict[str, Any] = {change.field: change.of(getattr(link, change.field), f"link {ends}")}
    return replace(link, **new) if isinstance(link, Link) else link._replace(**new)


def _bus(platform: Platform, change: PlatformChange) -> Platform:
    topology = platform.topology
    buses = topology.buses if topology is not None else ()
    if topology is None or all(bus.name != change.name for bus in buses):
        raise unknown_name("bus", change.name, [bus.name for bus in buses])
    made = [
        bus._replace(bandwidth=change.of(bus.bandwidth, f"bus {bus.name}")) if bus.name == change.name else bus
        for bus in buses
    ]
    return replace(platform, topology=replace(topology, buses=tuple(made)))


def _network(platform: Platform, change: PlatformChange) -> Platform:
    topology: Topology | None = platform.topology
    if topology is None or topology.network is None:
        raise ConfigError(f"platform {platform.name or 'here'} has no [network] that could be changed")
    new = change.of(getattr(topology.network, change.field), "the network")
    network = topology.network._replace(**{change.field: new})
    return replace(platform, topology=replace(topology, network=network))


_CHANGES: dict[str, Callable[[Platform, PlatformChange], Platform]] = {
    "device": _device,
    "link": _link,
    "memory": _memory,
    "bus": _bus,
    "network": _network,
    "nodes": _nodes,
}

LISTED = 20


def _is(wanted: str, name: str, kind: str = "") -> bool:
    """Tell whether a name is meant: itself, without its node, without its number, or by kind."""
    return wanted in (name, local(name), local(name).partition(":")[0], kind)


def _is_link(wanted: str, ends: str, name: str) -> bool:
    source, _, target = ends.partition(">")
    begin, _, end = wanted.partition(">")
    if source == target:
        return False  # from the user's memory to the host's, which is no link of the machine
    return wanted in name.split("+") if not end else _is(begin, source) and _is(end, target)


def _stems(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(local(name).partition(":")[0] for name in names))


def _stemmed(pairs: Iterable[str]) -> set[str]:
    return {">".join(end.partition(":")[0] for end in pair.split(">")) for pair in pairs}
