"""More or fewer devices of a kind: one more is like the last one, with what serves that one alone.

Before: machine/topology.py.  After: machine/what_if.py.  Knows the parts of one node; reads and writes no file.

A memory of its own, switches that lead to no other device, and the network cards behind those are made anew with it;
what it shares with others (a switch, a bus, the host's memory) it shares with one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from .parts import HOST, Device, Link
from .topology import Parts, Switch, Topology, Wire


def resized(parts: Parts, names: Sequence[str], wanted: int) -> Parts:
    """Return one node with so many devices instead of those called `names`; the last one is the model of new ones."""
    for _ in range(len(names) - wanted):
        parts = _without(parts, names[-1])
        names = names[:-1]
    model = names[-1]
    for _ in range(wanted - len(names)):
        parts = _with_one_more(parts, model)
    return parts


def _with_one_more(parts: Parts, model: str) -> Parts:
    device = next(device for device in parts.devices if device.name == model)
    taken = {d.name for d in parts.devices} | {m.name for m in parts.memories}
    topology = parts.topology or Topology(tuple(memory.name for memory in parts.memories))
    own = _own(parts, topology, device)
    taken |= {switch.name for switch in topology.switches} | set(topology.cards)
    new = {name: _next_name(name, taken) for name in own}
    made = replace(device, name=_next_name(model, taken | set(new.values())) if model not in new else new[model])
    memories, links = parts.memories, dict(parts.links)
    if own:
        memory = memories[device.memory]
        made = _moved(made, device.memory, len(memories))
        links |= _links_of_a_twin(parts, device.memory, len(memories))
        memories = (*memories, replace(memory, name=new[memory.name]))
        topology = replace(
            topology,
            memories=(*topology.memories, new[memory.name]),
            switches=_with_twins(topology.switches, new),
            cards=(*topology.cards, *(new[card] for card in topology.cards if card in new)),
            wires=tuple(sorted((*topology.wires, *_wires_of_twins(topology.wires, new)))),
        )
    at = max(i for i, other in enumerate(parts.devices) if _stem(other.name) == _stem(model) and not other.wide) + 1
    devices = _with_cores([*parts.devices[:at], made, *parts.devices[at:]], device, at)
    kept = None if topology.plain else topology
    return parts._replace(devices=tuple(devices), memories=memories, links=links, topology=kept)


def _own(parts: Parts, topology: Topology, device: Device) -> list[str]:
    """Return what serves a device alone: its memory, switches and network cards; nothing if the memory is shared."""
    if device.memory == HOST or sum(other.memory == device.memory for other in parts.devices) > 1:
        return []
    memory = parts.memories[device.memory].name
    others = {other.name for other in parts.memories[HOST + 1 :]} - {memory}
    near: dict[str, set[str]] = {}
    for wire in topology.wires:
        near.setdefault(wire.source, set()).add(wire.target)
        near.setdefault(wire.target, set()).add(wire.source)
    switches = {switch.name for switch in topology.switches}
    alone = [
        s.name for s in topology.switches if memory in near.get(s.name, ()) and not near[s.name] & (others | switches)
    ]
    cards = [card for card in topology.cards if near.get(card) and near[card] <= set(alone)]
    return [memory, *alone, *cards]


def _with_twins(switches: Sequence[Switch], new: Mapping[str, str]) -> tuple[Switch, ...]:
    return (*switches, *(switch._replace(name=new[switch.name]) for switch in switches if switch.name in new))


def _wires_of_twins(wires: Iterable[Wire], new: Mapping[str, str]) -> list[Wire]:
    touched = [wire for wire in wires if wire.source in new or wire.target in new]
    return [w._replace(source=new.get(w.source, w.source), target=new.get(w.target, w.target)) for w in touched]


def _links_of_a_twin(parts: Parts, memory: int, twin: int) -> dict[tuple[int, int], Link]:
    """Return the direct links of a memory's twin: those that the memory has, and one between both if memories of its kind are linked."""
    made = {}
    stem = _stem(parts.memories[memory].name)
    for (source, target), link in parts.links.items():
        if memory not in (source, target):
            continue
        pair = (twin, target) if source == memory else (source, twin)
        made[pair] = replace(link, source=pair[0], target=pair[1])
        other = target if source == memory else source
        if _stem(parts.memories[other].name) == stem:
            pair = (memory, twin) if source == memory else (twin, memory)
            made[pair] = replace(link, source=pair[0], target=pair[1])
    return made


def _moved(device: Device, old: int, new: int) -> Device:
    return replace(device, memory=new, readable=tuple(new if memory == old else memory for memory in device.readable))


def _with_cores(devices: list[Device], model: Device, at: int) -> list[Device]:
    """Give the new device cores of its own, and the device that has all of them these as well."""
    if not model.cores:
        return devices
    free = 1 + max(core for device in devices for core in device.cores)
    cores = tuple(range(free, free + len(model.cores)))
    devices[at] = replace(devices[at], cores=cores)
    return [_rewired(d, (*d.cores, *cores)) if _has_all(d, model) else d for d in devices]


def _has_all(device: Device, model: Device) -> bool:
    return device.wide and bool(model.cores) and set(model.cores) <= set(device.cores)


def _rewired(device: Device, cores: tuple[int, ...]) -> Device:
    """Return the device of all cores with other cores: it computes and draws in proportion."""
    more = len(cores) / len(device.cores)
    return replace(
        device,
        cores=cores,
        flops=device.flops and device.flops * more,
        rates=tuple((dtype, rate * more) for dtype, rate in device.rates),
        watts=device.watts and device.watts * more,
        idle_watts=device.idle_watts and device.idle_watts * more,
    )


def _without(parts: Parts, name: str) -> Parts:
    """Return the node without a device, and without what served it alone."""
    device = next(device for device in parts.devices if device.name == name)
    topology = parts.topology or Topology(tuple(memory.name for memory in parts.memories))
    gone = set(_own(parts, topology, device))
    kept = [i for i, memory in enumerate(parts.memories) if memory.name not in gone]
    id = {old: new for new, old in enumerate(kept)}
    devices = [
        replace(d, memory=id[d.memory], readable=tuple(id[m] for m in d.readable if m in id))
        for d in parts.devices
        if d.name != name
    ]
    devices = [
        _rewired(d, tuple(core for core in d.cores if core not in device.cores)) if _has_all(d, device) else d
        for d in devices
    ]
    links = {
        (id[a], id[b]): replace(link, source=id[a], target=id[b])
        for (a, b), link in parts.links.items()
        if a in id and b in id
    }
    topology = replace(
        topology,
        memories=tuple(memory for memory in topology.memories if memory not in gone),
        switches=tuple(switch for switch in topology.switches if switch.name not in gone),
        cards=tuple(card for card in topology.cards if card not in gone),
        wires=tuple(wire for wire in topology.wires if wire.source not in gone and wire.target not in gone),
    )
    memories = tuple(parts.memories[i] for i in kept)
    kept_topology = None if topology.plain else topology
    return parts._replace(devices=tuple(devices), memories=memories, links=links, topology=kept_topology)


def _stem(name: str) -> str:
    return name.partition(":")[0]


def _next_name(name: str, taken: Iterable[str]) -> str:
    return next(f"{_stem(name)}:{i}" for i in count(1) if f"{_stem(name)}:{i}" not in set(taken))
