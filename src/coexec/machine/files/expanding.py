"""Make a platform of the tables of its file: count = 4 becomes four devices, nodes = 32 as many nodes.

Before: machine/files/reading.py, machine/topology.py.  After: machine/files/loading.py.  What does not fit together is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...errors import unknown_name
from ..parts import HOST, USER, Device, Link, Memory
from ..topology import Bus, Network, Parts, Switch, Topology, Wire
from .reached import achieved_rate, device_design
from .reading import FileTable, SourceText, Tables
from .schema import MOST_DEVICES

RESERVED = ("user", "network")
"""Names that have a meaning of their own."""
MOST_PAIRS = 1 << 16
"""Links that one entry may stand for."""


class Group(NamedTuple):
    """What one entry with a count stands for."""

    entry: FileTable
    members: tuple[str, ...]


def expand(tables: Tables, source: SourceText) -> Parts:
    """Return the parts of the platform; raise PlatformError where entries contradict each other."""
    top = tables[""][0]
    places = LinkEnds(tables)
    devices = _devices(tables["device"], places)
    if not devices:
        raise source.error((), "device", "is missing: a platform needs at least one [[device]]")
    buses = {entry["name"]: entry for entry in tables["bus"]}
    _unique([Group(entry, (entry["name"],)) for entry in tables["bus"]])
    direct, wires = _connections(tables["link"], places, buses)
    nodes = top.get("nodes", 1)
    topology = Topology(
        tuple(memory.name for memory in places.memories),
        tuple(Switch(name, group.entry.get("peers", True)) for group in places.switches for name in group.members),
        tuple(sorted(wires)),
        tuple(Bus(name, entry["bandwidth"]) for name, entry in buses.items()),
        tuple(name for group in places.cards for name in group.members),
        _network(tables["network"], top, places),
        nodes,
    )
    links = _links(direct, places)
    _reachable(devices, places, topology, links)
    name = top.get("name", "")
    parts = Parts(devices, places.memories, links, None if topology.plain else topology, name, top.get("about", ""))
    return _repeated(parts, top) if nodes > 1 else parts


class LinkEnds:
    """Everything that a link may end at: memories, switches and network cards."""

    def __init__(self, tables: Tables) -> None:
        stores = [_group(entry) for entry in tables["memory"]]
        self.switches = [_group(entry) for entry in tables["switch"]]
        self.cards = [_group(entry) for entry in tables["nic"]]
        _unique([*stores, *self.switches, *self.cards])
        self.memories = self._memories(stores, tables)
        self.id = {memory.name: i for i, memory in enumerate(self.memories)}
        self.groups: dict[str, tuple[str, ...]] = {"user": ("user",)}
        for group in (*stores, *self.switches, *self.cards):
            self.groups[group.entry["name"]] = group.members
            self.groups |= {member: (member,) for member in group.members}
        self.devices: dict[str, tuple[FileTable, str]] = {}  # where each device is described, and its memory

    @staticmethod
    def _memories(stores: Sequence[Group], tables: Tables) -> tuple[Memory, ...]:
        made = {}
        for entry, members in stores:
            for name in members:
                usual = default_memory(name)
                made[name] = Memory(
                    name,
                    entry.get("capacity"),
                    entry.get("paged", usual.paged),
                    entry.get("strict", usual.strict),
                    entry.get("largest"),
                    entry.get("bandwidth"),
                )
        if "host" not in made:
            source = tables[""][0].source
            raise source.error((), "memory", 'a platform needs a [[memory]] with name = "host", without count')
        return (Memory("user"), made.pop("host"), *made.values())

    def members(self, entry: FileTable, field: str) -> list[str]:
        """Return what the names in a field stand for."""
        found: list[str] = []
        for name in entry[field]:
            if name not in self.groups:
                error = str(unknown_name("memory, switch or nic", name, list(self.groups)))
                if name in self.devices:
                    error = f"{name!r} is a device; its memory is called {self.devices[name][1]!r}"
                raise entry.error(field, error)
            found += self.groups[name]
        return list(dict.fromkeys(found))


def default_memory(name: str) -> Memory:
    """Return what a memory is taken to be where nothing is said."""
    return Memory("host", paged=True, strict=False) if name == "host" else Memory(name)


def _group(entry: FileTable) -> Group:
    """Return the names that an entry stands for: its own, or name:0 and so on if it has a count."""
    name, count = entry["name"], entry.get("count")
    if name in RESERVED:
        raise entry.error("name", f"{name!r} is taken: it has a meaning of its own")
    if count is None:
        return Group(entry, (name,))
    if ":" in name:
        raise entry.error("name", f"with count = {count} the name must have no colon: it becomes {name}:0 and so on")
    return Group(entry, tuple(f"{name}:{i}" for i in range(count)))


def _unique(groups: Sequence[Group]) -> None:
    seen: set[str] = set()
    for entry, members in groups:
        for name in {*members, entry["name"]}:
            if name in seen:
                raise entry.error("name", f"{name!r} is the name of something else in this file")
        seen |= {*members, entry["name"]}


# Devices ------------------------------------------------------------------------------------------------------------------


def _devices(entries: Sequence[FileTable], places: LinkEnds) -> tuple[Device, ...]:
    groups = [_group(entry) for entry in entries]
    _unique(groups)
    devices: list[Device] = []
    free = 0  # the first core that nobody has
    for entry, members in groups:
        memories = _memories_of(entry, members, places)
        for name, memory in zip(members, memories, strict=True):
            cores = _cores(entry, free, devices)
            free = max(free, *(core + 1 for core in cores)) if cores else free
            devices.append(_device(entry, name, places.id[memory], cores, places))
            places.devices[name] = entry, memory
    return _told_apart(devices, places)


def _told_apart(devices: Sequence[Device], places: LinkEnds) -> tuple[Device, ...]:
    """Give devices of one name but unlike figures speed classes of their own, where the file says nothing about that."""
    classes: dict[str, dict[tuple[Any, ...], str]] = {}
    found = list(devices)
    for number, device in enumerate(devices):
        if "speed" not in places.devices[device.name][0].values:
            memory = places.memories[device.memory].bandwidth
            known = classes.setdefault(device.speed, {})
            rates = (device.flops, device.rates, device.achieved, device.configurations)
            figures = (device.kind, rates, device.bandwidth, memory, len(device.cores))
            speed = known.setdefault(figures, f"{device.speed} #{len(known) + 1}" if known else device.speed)
            found[number] = replace(device, speed=speed)
    return tuple(found)


def _memories_of(entry: FileTable, members: tuple[str, ...], places: LinkEnds) -> list[str]:
    """Return the memory of each device: one for all, one each, or one for every few."""
    wanted = entry["memory"]
    found = [name for name in places.groups.get(wanted, ()) if name in places.id and name != "user"]
    if not found:
        known = [name for name, group in places.groups.items() if group[0] in places.id and name != "user"]
        raise entry.error("memory", str(unknown_name("memory", wanted, known)))
    if len(members) % len(found):
        raise entry.error(
            "memory", f"{len(members)} devices cannot share the {len(found)} memories {wanted!r} evenly; change a count"
        )
    each = len(members) // len(found)
    return [found[i // each] for i in range(len(members))]


def _cores(entry: FileTable, free: int, devices: Sequence[Device]) -> tuple[int, ...]:
    """Return a device's cores: those named, or as many as it asks for, from the first free one on."""
    cores = entry.get("cores", ())
    if isinstance(cores, int):
        return tuple(range(free, free + cores))
    if not cores and entry.get("wide"):
        return tuple(sorted({core for device in devices if device.kind == entry["kind"] for core in device.cores}))
    return tuple(cores)


def _device(entry: FileTable, name: str, memory: int, cores: tuple[int, ...], places: LinkEnds) -> Device:
    watts, idle = entry.get("watts"), entry.get("idle_watts")
    if watts is not None and idle is not None and idle > watts:
        raise entry.error("idle_watts", f"{idle:g} W while it waits is more than {watts:g} W while it computes")
    rates = dict(entry.get("flops", ()))
    peak = rates.get("float32")
    achieved = tuple([achieved_rate(entry, known, peak, idle) for known in entry.get("achieved", ())])
    designs = tuple([device_design(entry, known, peak, idle) for known in entry.get("design", ())])
    readable = _readable(entry, memory, places)
    model = entry.get("model", "")
    plain: dict[str, Any] = {
        field: entry[field]
        for field in (
            "wide", "lanes", "waits_across_lanes", "eager", "software", "bandwidth", "granule", "launch", "concurrent",
            "copies", "clock", "ops", "designs", "load",
        )
        if field in entry.values
    }  # fmt: skip
    if designs:
        every = [op for design in designs for op in design.ops]
        plain["ops"] = tuple(dict.fromkeys([*plain.get("ops", ()), *every]))
    return Device(
        name,
        entry["kind"],
        memory,
        readable,
        entry.get("speed", default_speed(model, name)),
        cores,
        description=model,
        flops=rates.pop("float32", None),
        rates=tuple(rates.items()),
        watts=watts,
        idle_watts=idle,
        achieved=achieved,
        configurations=designs,
        **plain,
    )


def default_speed(model: str, name: str) -> str:
    """Return the speed class of a device that names none: its model, else its name without a number."""
    return model or name.partition(":")[0]


def default_readable(memory: int) -> tuple[int, ...]:
    """Return what a device reads in place if it does not say: its memory, and on the host the user's too."""
    return (HOST, USER) if memory == HOST else (memory,)


def _readable(entry: FileTable, memory: int, places: LinkEnds) -> tuple[int, ...]:
    if "reads" not in entry.values:
        return default_readable(memory)
    names = places.members(entry, "reads")
    for name in names:
        if name not in places.id:
            raise entry.error("reads", f"{name!r} is no memory")
    return tuple(places.id[name] for name in names)


# Links --------------------------------------------------------------------------------------------------------------------


def _connections(
    entries: Sequence[FileTable], places: LinkEnds, buses: dict[str, FileTable]
) -> tuple[dict[tuple[str, str], Wire], list[Wire]]:
    """Return links between memories, and wires that have a switch or a network card at one end."""
    direct: dict[tuple[str, str], Wire] = {}
    wires: dict[tuple[str, str], Wire] = {}
    for entry in entries:
        for bus in entry.get("shared", ()):
            if bus not in buses:
                raise entry.error("shared", str(unknown_name("bus", bus, list(buses))))
        for made in _ways(entry, places):
            pair = made.source, made.target
            if pair in direct or pair in wires:
                raise entry.error("to", f"there is a link from {made.source!r} to {made.target!r} already")
            if made.source in places.id and made.target in places.id:
                direct[pair] = made
            else:
                wires[pair] = made
    return direct, list(wires.values())


def _ways(entry: FileTable, places: LinkEnds) -> Iterator[Wire]:
    """Yield each direction of each link that an entry stands for."""
    sources, targets = places.members(entry, "from"), places.members(entry, "to")
    figures = Wire("", "", entry["latency"], entry["bandwidth"], entry.get("shared", ()), entry.get("name", ""))
    one_way = entry.get("one_way", "user" in sources)
    if "user" in targets or ("user" in sources and not one_way):
        raise entry.error("to", "nothing is ever copied to what the user owns")
    pairs = [(a, b) for a, b in _pairs(entry, sources, targets) if a != b]
    if not pairs:
        raise entry.error("to", f"the link from {sources[0]!r} leads nowhere but to itself")
    done: set[tuple[str, str]] = set()
    for a, b in pairs:
        for pair in ((a, b),) if one_way else ((a, b), (b, a)):
            if pair not in done:
                done.add(pair)
                yield figures._replace(source=pair[0], target=pair[1])


def _pairs(entry: FileTable, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[str, str]]:
    """Return who is joined with whom: each with each, or the first with the first (few) and so on."""
    if entry.get("pairwise"):
        each = len(targets) // len(sources)
        if each * len(sources) != len(targets):
            raise entry.error("pairwise", f"{len(targets)} ends in `to` cannot be dealt to {len(sources)} in `from`")
        return [(sources[i // each], target) for i, target in enumerate(targets)]
    if len(sources) * len(targets) > MOST_PAIRS:
        raise entry.error("to", f"joins {len(sources)} with {len(targets)}; put a [[switch]] between them instead")
    return [(a, b) for a in sources for b in targets]


def _links(direct: dict[tuple[str, str], Wire], places: LinkEnds) -> dict[tuple[int, int], Link]:
    """Return the direct links by memory ids; from the user's memory they lead wherever they do from the host's."""
    given = {}
    for (source, target), made in direct.items():
        pair = places.id[source], places.id[target]
        given[pair] = Link(*pair, made.latency, made.bandwidth, made.shared, made.name)
    return user_links(given, places.memories) | given


def user_links(links: dict[tuple[int, int], Link], memories: Sequence[Memory]) -> dict[tuple[int, int], Link]:
    """Return the links from the user's memory that a file need not mention."""
    made = {(USER, target): replace(link, source=USER) for (source, target), link in links.items() if source == HOST}
    read_and_write = memories[HOST].bandwidth
    made[USER, HOST] = Link(USER, HOST) if read_and_write is None else Link(USER, HOST, bandwidth=read_and_write / 2)
    return made


def _network(entries: Sequence[FileTable], top: FileTable, places: LinkEnds) -> Network | None:
    nodes = top.get("nodes", 1)
    if nodes > 1 and not (entries and places.cards):
        raise top.error("nodes", f"{nodes} nodes need a [network], and a [[nic]] with links to it")
    if not entries:
        return None
    entry = entries[0]
    return Network(entry["latency"], entry["bandwidth"], entry.get("total"))


def _reachable(
    devices: Sequence[Device], places: LinkEnds, topology: Topology, links: dict[tuple[int, int], Link]
) -> None:
    """Raise unless data can come from the host to every device and back, and to every network card."""
    alone = replace(topology, nodes=1)
    for group in places.cards:
        for name in group.members:
            if alone.path("host", name) is None or alone.path(name, "host") is None:
                raise group.entry.error("name", f"no link leads from 'host' to {name!r} and back")
    for device in devices:
        for a, b in ((HOST, device.memory), (device.memory, HOST)):
            if a != b and (a, b) not in links and alone.link(a, b, links) is None:
                one, other = places.memories[a].name, places.memories[b].name
                raise places.devices[device.name][0].error("memory", f"no link leads from {one!r} to {other!r}")


# Nodes --------------------------------------------------------------------------------------------------------------------


def _repeated(parts: Parts, top: FileTable) -> Parts:
    """Return the platform with all its nodes."""
    topology = parts.topology
    assert topology is not None
    if topology.nodes * len(parts.devices) > MOST_DEVICES:
        raise top.error(
            "nodes", f"{topology.nodes} nodes of {len(parts.devices)} devices are more than {MOST_DEVICES} devices"
        )
    memories, devices = [parts.memories[USER]], []
    cores = 1 + max((core for device in parts.devices for core in device.cores), default=-1)
    for node in range(topology.nodes):
        begin = topology.named(node)
        memories += [replace(memory, name=begin + memory.name) for memory in parts.memories[HOST:]]
        devices += [
            replace(
                device,
                name=begin + device.name,
                memory=topology.memory(node, device.memory),
                readable=tuple(topology.memory(node, memory) for memory in device.readable),
                cores=tuple(core + node * cores for core in device.cores),
            )
            for device in parts.devices
        ]
    named = {
        pair: replace(link, shared=tuple(topology.named(0) + bus for bus in link.shared))
        for pair, link in parts.links.items()
    }
    return parts._replace(devices=tuple(devices), memories=tuple(memories), links=named)
