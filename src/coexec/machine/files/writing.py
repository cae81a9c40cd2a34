"""Write a platform as the text of a file: what is alike becomes one entry with a count.

Before: machine/topology.py, machine/files/expanding.py.  After: machine/files/loading.py, machine/describing.py.  Writes no file itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from ..parts import DTYPES, HOST, USER, AchievedRate, Device, DeviceDesign, Memory
from ..sizes import bytes_as_written
from ..topology import Parts, Topology, Wire, local
from .expanding import default_memory, default_readable, default_speed, user_links

Entry = tuple[str, dict[str, Any]]
"""A table's name and its fields. "" are the fields before the first table."""

UNSAID = {field.name: field.default for field in fields(Device)}
"""What a device is taken to be where nothing is said."""
PLAIN = (
    "bandwidth", "launch", "granule", "concurrent", "copies", "watts", "idle_watts", "clock", "ops", "designs", "load",
    "wide", "lanes", "waits_across_lanes", "eager",
)  # fmt: skip
"""Fields of a device that the file has under the same name."""


def text_of(parts: Parts) -> str:
    """Return the text of the platform's file."""
    lines: list[str] = []
    for table, values in entries(parts):
        if table:
            lines += ["", f"[{table}]" if table == "network" else f"[[{table}]]"]
        lines += [f"{field} = {value(given)}" for field, given in values.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def value(given: Any) -> str:
    """Return a value as TOML has it."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, str):
        return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(given, float):
        short = f"{given:g}"
        found = re.sub(r"e(-?)\+?0*", r"e\1", short if float(short) == given else repr(given))
        return found if set(found) & set(".e") else found + ".0"
    if isinstance(given, Mapping):
        return "{ " + ", ".join(f"{key} = {value(entry)}" for key, entry in given.items()) + " }"
    if isinstance(given, Sequence):
        return "[" + ", ".join(value(entry) for entry in given) + "]"
    return str(given)


def entries(parts: Parts) -> Iterator[Entry]:
    """Yield the tables of the platform's file, of the first node where there are several."""
    parts = first_node(parts)
    topology = parts.topology or Topology(tuple(memory.name for memory in parts.memories))
    top = {"name": parts.name, "about": parts.about, "nodes": topology.nodes if topology.nodes > 1 else ""}
    yield "", {field: given for field, given in top.items() if given}
    stores = list(_runs(parts.memories[HOST:], lambda memory: replace(memory, name="")))
    switches = list(_runs(topology.switches, lambda switch: switch.peers))
    cards = list(_runs([NameOnly(name) for name in topology.cards], lambda _: True))
    groups = {run.stem: run.names for run in (*stores, *switches, *cards) if len(run.names) > 1}
    for run in stores:
        yield "memory", {**run.named, **_memory(run.first)}
    yield from _devices(parts, groups)
    for run in switches:
        yield "switch", {**run.named, **({} if run.first.peers else {"peers": False})}
    for run in cards:
        yield "nic", run.named
    for bus in topology.buses:
        yield "bus", bus._asdict()
    yield from _links(parts, topology, groups)
    if topology.network is not None:
        yield "network", {field: given for field, given in topology.network._asdict().items() if given is not None}


def first_node(parts: Parts) -> Parts:
    """Return the first node, with names as its file has them."""
    topology = parts.topology
    if topology is None or not topology.named(0):
        return parts
    own = len(topology.memories)
    return parts._replace(
        memories=tuple(replace(memory, name=local(memory.name)) for memory in parts.memories[:own]),
        devices=tuple(replace(d, name=local(d.name)) for d in parts.devices if topology.place(d.memory)[0] == 0),
        links={pair: replace(link, shared=tuple(map(local, link.shared))) for pair, link in parts.links.items()},
    )


class NameOnly(NamedTuple):
    """Something that has a name only."""

    name: str


class Run(NamedTuple):
    """Things that are alike but for their numbers."""

    stem: str
    names: tuple[str, ...]
    first: Any

    @property
    def named(self) -> dict[str, Any]:
        """The fields that name them."""
        return {"name": self.stem, "count": len(self.names)} if len(self.names) > 1 else {"name": self.names[0]}


def _runs(things: Sequence[Any], likeness: Any) -> Iterator[Run]:
    """Yield neighbours that are alike and are called stem:0, stem:1 and so on; everything else alone."""
    taken = Counter(thing.name.partition(":")[0] for thing in things)
    i = 0
    while i < len(things):
        stem = things[i].name.partition(":")[0]
        names = [things[i].name]
        if names[0] == f"{stem}:0" and stem not in {thing.name for thing in things} and taken[stem] > 1:
            for thing in things[i + 1 :]:
                if thing.name != f"{stem}:{len(names)}" or likeness(thing) != likeness(things[i]):
                    break
                names.append(thing.name)
        yield Run(stem, tuple(names), things[i])
        i += len(names)


# Memories and devices -----------------------------------------------------------------------------------------------------


def _memory(memory: Memory) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if memory.capacity is not None:
        found["capacity"] = bytes_as_written(memory.capacity)
    if memory.bandwidth is not None:
        found["bandwidth"] = memory.bandwidth
    usual = default_memory(memory.name)
    if memory.paged != usual.paged:
        found["paged"] = memory.paged
    if memory.strict != usual.strict:
        found["strict"] = memory.strict
    if memory.largest is not None:
        found["largest"] = bytes_as_written(memory.largest)
    return found


def _devices(parts: Parts, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Entry]:
    """Yield the devices; a run of them only if its memories and cores follow from the first one's."""
    done: list[Device] = []
    for run in _runs(parts.devices, _likeness):
        devices = list(parts.devices[len(done) : len(done) + len(run.names)])
        memory = _memory_of(devices, parts.memories, groups)
        cores = _cores(devices, done)
        if memory is not None and cores is not None:
            yield "device", {**run.named, **_device(devices[0], memory, cores, parts.memories)}
            done += devices
            continue
        for device in devices:
            one = parts.memories[device.memory].name
            alone = _cores([device], done)
            found = {"cores": list(device.cores)} if alone is None else alone
            yield "device", {"name": device.name, **_device(device, one, found, parts.memories)}
            done.append(device)


def _likeness(device: Device) -> Device:
    """Return what must be equal in devices that are written as one."""
    usual = device.readable == default_readable(device.memory)
    speed = "" if device.speed == default_speed(device.description, device.name) else device.speed
    readable = () if usual else device.readable
    return replace(device, name="", memory=0, cores=tuple(device.cores[:0]), readable=readable, speed=speed)


def _memory_of(
    devices: Sequence[Device], memories: Sequence[Memory], groups: Mapping[str, tuple[str, ...]]
) -> str | None:
    """Return what the file calls the memories of these devices, or None if there is no one word for them."""
    names = [memories[device.memory].name for device in devices]
    if len(set(names)) == 1:
        return names[0]
    for stem, members in groups.items():
        each = len(names) // len(members)
        if each * len(members) == len(names) and names == [member for member in members for _ in range(each)]:
            return stem
    return None


def _cores(devices: Sequence[Device], done: Sequence[Device]) -> dict[str, Any] | None:
    """Return the field that gives these devices their cores, or None if no single one does."""
    first = devices[0]
    before = {core for device in done for core in device.cores}
    free = max(before, default=-1) + 1
    many = len(first.cores)
    if first.wide:
        same = sorted({core for device in done if device.kind == first.kind for core in device.cores})
        if len(devices) == 1:
            return {} if list(first.cores) == same else {"cores": list(first.cores)}
        return None
    if not any(device.cores for device in devices):
        return {}
    given = [core for device in devices for core in device.cores]
    if given == list(range(free, free + len(given))) and all(len(device.cores) == many for device in devices):
        return {"cores": many}
    return None


def _device(device: Device, memory: str, cores: dict[str, Any], memories: Sequence[Memory]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": device.kind, "memory": memory}
    if device.readable != default_readable(device.memory):
        found["reads"] = [memories[m].name for m in device.readable]
    if device.description:
        found["model"] = device.description
    if device.speed != default_speed(device.description, device.name):
        found["speed"] = device.speed
    if device.software:
        found["software"] = device.software
    rates = dict(device.rates) | ({"float32": device.flops} if device.flops is not None else {})
    if device.rates:
        found["flops"] = {dtype: rates[dtype] for dtype in DTYPES if dtype in rates}
    elif rates:
        found["flops"] = device.flops
    if device.achieved:
        found["achieved"] = {known.op: _achieved(known) for known in device.achieved}
    if device.configurations:
        found["design"] = {known.name: _design(known) for known in device.configurations}
    said = {field: getattr(device, field) for field in PLAIN}
    return found | {field: given for field, given in said.items() if given != UNSAID[field]} | cores


def _design(known: DeviceDesign) -> dict[str, Any]:
    achieved = {one.op: _achieved(one) for one in known.achieved}
    said = {"ops": known.ops, "load": known.load, "basis": known.basis or None, "achieved": achieved or None}
    return {field: given for field, given in said.items() if given is not None}


def _achieved(known: AchievedRate) -> dict[str, Any]:
    said = {"of_peak": known.of_peak, "watts": known.watts, "basis": known.basis or None}
    return {field: given for field, given in said.items() if given is not None}


# Links --------------------------------------------------------------------------------------------------------------------


class Figures(NamedTuple):
    """What links have in common that are written as one."""

    latency: float
    bandwidth: float
    shared: tuple[str, ...]
    name: str
    one_way: bool


def _links(parts: Parts, topology: Topology, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Entry]:
    """Yield the links, with those that have the same figures together."""
    ways = {(wire.source, wire.target): wire for wire in (*_direct(parts), *topology.wires)}
    alike: dict[Figures, dict[tuple[str, str], None]] = {}
    for (a, b), wire in ways.items():
        back = ways.get((b, a))
        both = back is not None and back[2:] == wire[2:]
        kept = alike.setdefault(Figures(*wire[2:], one_way=not both), {})
        if not both or (b, a) not in kept:
            kept[a, b] = None
    for figures, pairs in alike.items():
        for found in _stars(list(pairs), groups, one_way=figures.one_way):
            yield "link", found | _figures(figures, user=found["from"] == "user")


def _figures(figures: Figures, *, user: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"bandwidth": figures.bandwidth, "latency": figures.latency}
    if figures.shared:
        found["shared"] = _one(figures.shared, {})
    if figures.one_way and not user:
        found["one_way"] = True
    if figures.name:
        found["name"] = figures.name
    return found


def _direct(parts: Parts) -> Iterator[Wire]:
    """Yield the direct links by name, without those that a file need not mention."""
    given = {pair: link for pair, link in parts.links.items() if USER not in pair}
    implied = user_links(given, parts.memories)
    for (source, target), link in parts.links.items():
        if link != implied.get((source, target)):
            names = parts.memories[source].name, parts.memories[target].name
            yield Wire(*names, link.latency, link.bandwidth, link.shared, link.name)


def _stars(
    pairs: list[tuple[str, str]], groups: Mapping[str, tuple[str, ...]], *, one_way: bool
) -> Iterator[dict[str, Any]]:
    """Yield the ends of links that together stand for all pairs: all with all, pair by pair, or one with many."""
    for ends, joined in _patterns(groups, len(pairs)):
        there = {*pairs} | (set() if one_way else {(b, a) for a, b in pairs})
        wanted = joined | ({(b, a) for a, b in joined} if one_way and ends["from"] == ends["to"] else set())
        if wanted <= there:
            yield ends
            both = wanted | {(b, a) for a, b in wanted} if not one_way else wanted
            pairs = [pair for pair in pairs if pair not in both]
    degree = Counter(end for pair in pairs for end in pair)
    star: dict[str, list[str]] = {}
    for pair in pairs:
        a, b = pair if one_way or degree[pair[0]] >= degree[pair[1]] else pair[::-1]
        star.setdefault(a, []).append(b)
    for centre, around in star.items():
        yield {"from": centre, "to": _one(around, groups)}


def _patterns(
    groups: Mapping[str, tuple[str, ...]], most: int
) -> Iterator[tuple[dict[str, Any], set[tuple[str, str]]]]:
    """Yield what groups can be joined to with at most so many links: each to itself, and to others pair by pair."""
    for stem, members in groups.items():
        if len(members) * (len(members) - 1) // 2 <= most:
            yield {"from": stem, "to": stem}, {(a, b) for i, a in enumerate(members) for b in members[i + 1 :]}
    for stem, members in groups.items():
        for other, ends in groups.items():
            each = len(ends) // len(members)
            if other != stem and each * len(members) == len(ends):
                pairs = {(members[i // each], end) for i, end in enumerate(ends)}
                yield {"from": stem, "to": other, "pairwise": True}, pairs


def _one(names: Sequence[str], groups: Mapping[str, tuple[str, ...]]) -> Any:
    """Return the names as the file has them: groups and single names, as a list if there are several."""
    left, found = dict.fromkeys(names), []
    for stem, members in groups.items():
        if left.keys() >= set(members):
            found.append(stem)
            left = {name: None for name in left if name not in members}
    found = [*left, *found]
    return found[0] if len(found) == 1 else found
