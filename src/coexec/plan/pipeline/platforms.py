"""A platform as a pipeline sees it: devices that are alike form a class, with the ways between classes.

Before: machine/platform.py, plan/pipeline/workload.py.  After: what plans streams.  Asks the platform, measures nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from ...errors import ConfigError
from ...machine.parts import HOST as HOST_MEMORY, Device, usable
from ...machine.platform import Platform
from .system import HOST, DeviceClass, Hop, Port, StreamSystem
from .workload import StreamWork

CORES = "cores"
"""The budget of a processor's cores, each by itself or all at once."""


class Classes(NamedTuple):
    """A system, and the devices of each of its classes by name.

    Devices that can be configured are a class for each design, all of one budget: they have one design at a time.
    """

    system: StreamSystem
    members: dict[str, tuple[str, ...]]
    designs: dict[str, str]  # of the classes that stand for devices with a design


def classes_of(platform: Platform, devices: Sequence[str] | None = None) -> Classes:
    """Return the platform's devices, or those named, as classes. Devices in the host's memory have nothing to copy."""
    chosen = [platform.device(name) for name in devices] if devices is not None else list(platform.devices)
    if not chosen:
        raise ConfigError("no devices: a pipeline needs at least one")
    alike: dict[Any, list[Device]] = {}
    for device in chosen:
        alike.setdefault(_key(platform, device), []).append(device)
    named: dict[str, list[Device]] = {}
    classes: list[DeviceClass] = []
    designs: dict[str, str] = {}
    cores = [device for device in chosen if _is_core(device)]
    for members in [_spread(platform, members) for members in alike.values()]:
        name = _name(chosen, members)
        plain = _class(platform, name, members, cores)
        for design in members[0].configurations:
            as_such = f"{name} as {design.name}"
            named[as_such], designs[as_such] = members, design.name
            classes.append(replace(plain, name=as_such, budget=name, load=design.load))
        if not members[0].configurations:
            named[name] = members
            classes.append(plain)
    hops = {}
    for name, members in named.items():
        for other, targets in named.items():
            hop = _hop(platform, [(a, b) for a in members for b in targets if a is not b])
            if hop is not None:
                hops[name, other] = hop
        for pair, ends in (((HOST, name), [(None, d) for d in members]), ((name, HOST), [(d, None) for d in members])):
            way = _hop(platform, ends)
            if way is None:
                raise ConfigError(f"there is no way between the host and {members[0].name!r}, so no items can go there")
            hops[pair] = way
    members_of = {name: tuple([device.name for device in found]) for name, found in named.items()}
    ports = {
        name: tuple([Port(_limited(platform, d, into=True), _limited(platform, d, into=False)) for d in members])
        for name, members in named.items()
    }
    ports = {name: found for name, found in ports.items() if any(port.into or port.out for port in found)}
    limits = {
        part: _limit(platform, part) for found in ports.values() for port in found for part in port.into | port.out
    }
    return Classes(StreamSystem(tuple(classes), hops, ports, limits), members_of, designs)


def _key(platform: Platform, device: Device) -> tuple[Any, ...]:
    """Return what devices of one class have in common."""
    into, out = (_link(platform, *ends) for ends in ((None, device), (device, None)))
    figures = (device.flops, device.rates, device.bandwidth, device.launch, device.watts, device.idle_watts)
    ways = tuple(None if hop is None else (hop.latency, hop.bandwidth) for hop in (into, out))
    alike = device.speed or device.description  # where measurements are shared, no name of a core matters
    what = (device.kind, alike, device.wide, len(device.cores), device.ops, device.designs)
    return (*what, device.achieved, device.configurations, *figures, platform.memories[device.memory].capacity, ways)


def _name(chosen: Sequence[Device], members: Sequence[Device]) -> str:
    """Return what all are called before the colon, or the first one's name if others are called so too."""
    stem = members[0].name.partition(":")[0]
    same = [device for device in chosen if device.name.partition(":")[0] == stem]
    return stem if len(same) == len(members) else members[0].name


def _is_core(device: Device) -> bool:
    return device.is_core and device.memory == HOST_MEMORY


def _class(platform: Platform, name: str, members: Sequence[Device], cores: Sequence[Device]) -> DeviceClass:
    one = members[0]
    on_host = one.memory == HOST_MEMORY
    capacity = usable(platform.memories[one.memory].capacity)
    memory = inf if on_host or capacity is None else float(capacity)
    idle, units, budget = one.idle_watts or 0.0, 1, ""
    if cores and on_host and one.abilities.on_numpy:
        budget = CORES
        units = len(cores) if one.wide else 1
        idle = units * (cores[0].idle_watts or 0.0)  # the same silicon waits, whatever it is called
    watts, launch = max(one.watts or 0.0, idle), one.launch or 0.0
    return DeviceClass(name, len(members), watts, idle, memory, budget, units, launch)


def _hop(platform: Platform, pairs: Sequence[tuple[Device | None, Device | None]]) -> Hop | None:
    """Return the way between any two of some devices; None is the host. None if some have no direct way."""
    links = [_link(platform, *pair) for pair in pairs]
    known = [link for link in links if link is not None]
    if not known or len(known) < len(links):
        return None
    common = set.intersection(*(set(link.shared) for link in known)) if len(known) > 1 else set()
    limits = [limit for name in common if (limit := platform.limit(name)) is not None]
    slowest = Hop(max(link.latency for link in known), min(link.bandwidth for link in known))
    return Hop(
        slowest.latency, slowest.bandwidth, min(limits, default=inf), _together(platform, pairs, slowest.bandwidth)
    )


def _together(
    platform: Platform, pairs: Sequence[tuple[Device | None, Device | None]], bandwidth: float
) -> tuple[float, ...]:
    """Return the bytes per second of the ways of the first 1, 2, ... devices from or to the host's memory, if all carry alike.

    () if they share nothing that limits them, and between devices that both have memories of their own.
    """
    for end in (0, 1):
        if all(pair[1 - end] is None or _at_home(pair[1 - end]) for pair in pairs):
            devices = list({d.name: d for pair in pairs if (d := pair[end]) is not None}.values())
            found, users = [], Counter[str]()
            for number, device in enumerate(devices, 1):
                users.update(_shared(platform, device, into=end == 1))
                limits = [
                    number * limit / n for name, n in users.items() if (limit := platform.limit(name)) is not None
                ]
                found.append(min(limits, default=inf))
            return tuple(found) if any(width < n * bandwidth for n, width in enumerate(found, 1)) else ()
    return ()


def _at_home(device: Device | None) -> bool:
    return device is not None and device.memory == HOST_MEMORY


def _shared(platform: Platform, device: Device, *, into: bool) -> set[str]:
    """Return what the way between the host and a device is made of that others may use, too."""
    link = _link(platform, None, device) if into else _link(platform, device, None)
    return set() if link is None else set(link.shared)


def _limited(platform: Platform, device: Device, *, into: bool) -> frozenset[str]:
    """Return those of these that limit what passes."""
    return frozenset([name for name in _shared(platform, device, into=into) if platform.limit(name) is not None])


def _limit(platform: Platform, name: str) -> float:
    limit = platform.limit(name)
    return inf if limit is None else limit


def _spread(platform: Platform, members: Sequence[Device]) -> list[Device]:
    """Return devices in such an order that the first ones share as little as possible of their ways to the host."""
    left, found, users = list(members), [], Counter[str]()
    while left:
        shared = {d.name: _shared(platform, d, into=True) | _shared(platform, d, into=False) for d in left}
        next_one = min(left, key=lambda d: max([users[name] for name in shared[d.name]], default=0))
        users.update(shared[next_one.name])
        found.append(next_one)
        left.remove(next_one)
    return found


class _Hop(NamedTuple):
    """A link as it counts here."""

    latency: float
    bandwidth: float
    shared: tuple[str, ...]


def _link(platform: Platform, source: Device | None, target: Device | None) -> _Hop | None:
    out = HOST_MEMORY if source is None else source.memory
    into = HOST_MEMORY if target is None else target.memory
    if out == into or (target is not None and target.reads(out)):
        return _Hop(0.0, inf, ())
    link = platform.link(out, into)
    return None if link is None else _Hop(link.latency, link.bandwidth, link.shared)


def worthwhile(classes: Classes, work: StreamWork) -> Classes:
    """Return classes without the designs that another one does as well: each would make the search longer.

    One of each device's designs is left, as devices draw idle power whether they are used or not.
    """
    kept: list[str] = []
    for c in classes.system.classes:
        rivals = [name for name in kept if name in classes.designs and classes.members[name] == classes.members[c.name]]
        if c.name not in classes.designs or not any(_as_good(work, name, c, classes) for name in rivals):
            worse = [name for name in rivals if _as_good(work, c.name, classes.system.named(name), classes)]
            kept = [name for name in kept if name not in worse] + [c.name]
    hops = {pair: hop for pair, hop in classes.system.hops.items() if all(end in (*kept, HOST) for end in pair)}
    return Classes(
        replace(classes.system, classes=tuple([c for c in classes.system.classes if c.name in kept]), hops=hops),
        {name: classes.members[name] for name in classes.members if name in kept},
        {name: design for name, design in classes.designs.items() if name in kept},
    )


def _as_good(work: StreamWork, name: str, other: DeviceClass, classes: Classes) -> bool:
    """Tell whether a class does all that another one does, as quickly, with as few watts, and is loaded as soon."""
    one = classes.system.named(name)
    return one.load <= other.load and all(
        all(kernel.on(name, n) <= kernel.on(other.name, n) for n in range(1, other.count + 1))
        and (kernel.on(other.name) == inf or kernel.active_watts(one) <= kernel.active_watts(other))
        for kernel in work.kernels
    )
