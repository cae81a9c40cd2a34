"""The devices of a pipeline as numbers: classes of alike devices, what they draw, and how fast data moves between them.

Before: errors.py.  After: plan/pipeline/workload.py, plan/pipeline/judge.py.  Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isclose, isnan
from typing import NamedTuple

from ...errors import ConfigError, unknown_name

HOST = "host"
"""Where items come from and results go to, in the names of links."""

HIDDEN = 0.5
"""Part of the latency of copies in turn that others make use of if they share a link: between all of it and nothing, as it falls out."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices that are alike. Classes that share silicon name one `budget`, on which each device draws `units`.

    Cores and `cpu:all`: budget "cores", one unit each and as many as there are cores. An FPGA under two designs: two
    classes of one unit, one budget.
    """

    name: str
    count: int
    watts: float = 0.0  # of one device while it computes
    idle_watts: float = 0.0  # of one device while it waits
    memory: float = inf  # bytes of one device
    budget: str = ""  # "" = the class's own
    units: int = 1
    handover: float = 0.0  # seconds that a stage adds to each item, whatever it computes
    load: float = 0.0  # seconds, once, before a stage can begin: an FPGA's design

    def __post_init__(self) -> None:
        """Refuse figures that no device can have."""
        if not self.name or self.name == HOST:
            raise ConfigError(f"a class of devices is called {self.name!r}; give it a name other than {HOST!r}")
        for what, least in (("count", 1), ("units", 1)):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"class {self.name!r}: {what}={value!r}; give a whole number from {least}")
        for what in ("watts", "idle_watts", "handover", "load"):
            if not 0.0 <= getattr(self, what) < inf:
                raise ConfigError(f"class {self.name!r}: {what}={getattr(self, what)!r}; give a number from 0")
        if not self.memory >= 0.0:
            raise ConfigError(f"class {self.name!r}: memory={self.memory!r}; give bytes, or leave it away")
        if self.watts < self.idle_watts:
            raise ConfigError(
                f"class {self.name!r} draws {self.watts:g} W while it computes and {self.idle_watts:g} W while it waits; "
                "the first includes the second"
            )

    @property
    def active_watts(self) -> float:
        """What a device draws more while it computes than while it waits."""
        return self.watts - self.idle_watts


@dataclass(frozen=True, slots=True)
class Hop:
    """A way from one device to another, or to and from the host."""

    latency: float = 0.0  # seconds
    bandwidth: float = inf  # bytes per second between two devices
    total: float = inf  # bytes per second of all such ways together, if they share something
    together: tuple[
        float, ...
    ] = ()  # bytes per second of the first 1, 2, ... ways if all carry alike; () = they share nothing

    def __post_init__(self) -> None:
        """Refuse ways on which nothing arrives."""
        if (
            not 0.0 <= self.latency < inf
            or isnan(self.bandwidth + self.total)
            or min(self.bandwidth, self.total) <= 0.0
        ):
            raise ConfigError(f"{self}: give a latency from 0 seconds, and bytes per second above 0")

    def per_byte(self, ways: int) -> float:
        """Return the seconds per byte when `ways` of them carry data at once."""
        together = self.together[min(ways, len(self.together)) - 1] if self.together else inf
        return 1.0 / min(self.bandwidth * ways, self.total, together)

    def busy(self, ways: int, *, turns: bool, copies: int = 1) -> tuple[float, float]:
        """Return for how long an item keeps `ways` of them busy, as seconds and seconds per byte.

        Each carries its part of an item, in so many `copies`; in turn each carries whole items, and has as many times longer for one.
        Where they share something that limits them, one copy waits for its first byte while others go on, unless they begin together.
        """
        per_byte = self.per_byte(ways)
        if not turns:
            return copies * self.latency, per_byte
        hidden = HIDDEN if per_byte * self.bandwidth * ways > 1.0 else 0.0
        return (1.0 - hidden) * copies * self.latency / ways, per_byte


class WayEnd(NamedTuple):
    """Who sends or receives items: devices of a class, each a part of every item, or in turn."""

    name: str
    count: int = 1  # type: ignore[assignment]  # of devices; tuples count values, nobody asks these to
    turns: bool = False

    @property
    def parts(self) -> int:
        """In how many parts an item is there."""
        return 1 if self.turns else self.count


class Port(NamedTuple):
    """What the ways between the host and a device are made of that others may use too, by name."""

    into: frozenset[str]
    out: frozenset[str]


@dataclass(frozen=True)
class StreamSystem:
    """All classes of devices that a pipeline may use, and the ways between them.

    `hops` are keyed by the names of two classes, or "host" and a class. Every class needs one from and one to the host;
    where two classes (or two groups of one class) have none, data goes through the host. Within a group nothing moves.
    """

    classes: tuple[DeviceClass, ...]
    hops: Mapping[tuple[str, str], Hop] = field(default_factory=dict)
    ports: Mapping[str, tuple[Port, ...]] = field(default_factory=dict)  # of the devices of each class, in order
    limits: Mapping[str, float] = field(default_factory=dict)  # bytes per second of everything that ports name

    def __post_init__(self) -> None:
        """Check that everything fits together."""
        object.__setattr__(self, "classes", tuple(self.classes))
        names = [c.name for c in self.classes]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"classes {names}: a system needs at least one class, and each a name of its own")
        for pair in self.hops:
            for name in pair:
                if name not in (*names, HOST):
                    raise unknown_name("class of devices", name, [*names, HOST])
        for name in names:
            for pair in ((HOST, name), (name, HOST)):
                if pair not in self.hops:
                    raise ConfigError(f"nothing is said of the way from {pair[0]!r} to {pair[1]!r}; add hops[{pair}]")
        for budget in self.budgets:
            per_unit = [c.idle_watts / c.units for c in self.classes if (c.budget or c.name) == budget]
            if not all(isclose(watts, per_unit[0], rel_tol=1e-9, abs_tol=1e-9) for watts in per_unit):
                raise ConfigError(
                    f"classes of budget {budget!r} are the same silicon, but draw {per_unit} W per unit while they wait; "
                    "give all the same idle_watts per unit"
                )

    def named(self, name: str) -> DeviceClass:
        """Return the class of that name."""
        for c in self.classes:
            if c.name == name:
                return c
        raise unknown_name("class of devices", name, [c.name for c in self.classes])

    @property
    def budgets(self) -> dict[str, int]:
        """How many units there are of each budget: as many as its largest class takes in all."""
        found: dict[str, int] = {}
        for c in self.classes:
            key = c.budget or c.name
            found[key] = max(found.get(key, 0), c.count * c.units)
        return found

    @property
    def idle_watts(self) -> float:
        """What all devices draw while they wait."""
        per_unit = {c.budget or c.name: c.idle_watts / c.units for c in self.classes}
        return sum(units * per_unit[budget] for budget, units in self.budgets.items())

    def way(self, source: str, target: str) -> tuple[Hop, ...]:
        """Return the hops from one class to another: one, or two through the host."""
        direct = self.hops.get((source, target))
        if direct is not None:
            return (direct,)
        return self.hops[source, HOST], self.hops[HOST, target]

    def busy(self, source: WayEnd, target: WayEnd) -> list[tuple[float, float]]:
        """Return what an item keeps busy on its way from one group to another, as seconds and seconds per byte.

        Each device sends one thing and receives one thing at a time. On a way through the host the next item leaves while this one
        arrives, so that the longer half counts, where `moved` has both.
        """
        ends = [end for end in (source, target) if not self.at_home(end.name)]
        direct = self.hops.get((source.name, target.name)) if HOST not in (source.name, target.name) else None
        found = []
        if source in ends:
            hop = direct or self.hops[source.name, HOST]
            copies = 1 if direct is None else -(-target.parts // source.parts)
            found.append(hop.busy(source.count, turns=source.turns, copies=copies))
        if target in ends:
            hop = direct or self.hops[HOST, target.name]
            copies = 1 if direct is None else -(-source.parts // target.parts)
            found.append(hop.busy(target.count, turns=target.turns, copies=copies))
        return found or [(0.0, 0.0)]

    def at_home(self, name: str) -> bool:
        """Tell whether a class works in the host's own memory, so that nothing is copied from there and back."""
        return name == HOST or all(
            hop.latency == 0.0 and hop.per_byte(1) == 0.0 for hop in (self.hops[HOST, name], self.hops[name, HOST])
        )

    def through_host(self, source: str, target: str) -> bool:
        """Tell whether data between two places comes from, goes to or passes the host's memory."""
        return self.at_home(source) or self.at_home(target) or (source, target) not in self.hops

    def moved(self, source: tuple[str, int], target: tuple[str, int]) -> tuple[float, float]:
        """Return latency and seconds per byte from so many devices of a class to so many of another.

        As many ways carry data as the smaller side has devices; the host has as many as the other side.
        """
        if source[0] == HOST or target[0] == HOST:
            hop = self.hops[source[0], target[0]]
            return hop.latency, hop.per_byte(source[1] if target[0] == HOST else target[1])
        hops = self.way(source[0], target[0])
        if len(hops) == 1:
            return hops[0].latency, hops[0].per_byte(min(source[1], target[1]))
        out, into = hops
        return out.latency + into.latency, out.per_byte(source[1]) + into.per_byte(target[1])
