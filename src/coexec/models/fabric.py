"""The accelerators of a platform and the ways between them, as a search over sets of accelerators sees them.

Before: machine/platform.py, models/engines.py.  After: models/tables.py.  Knows sets as numbers of accelerators per class.

Accelerators that can change places without anybody noticing are one class; a set says how many of each class it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import inf
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from ..machine.platform import HOST, Device, Platform
from .designs import designs_of, plain_design
from .engines import Accounts, Amounts, EngineDesign, LoopSizes

MOST = 16
"""Accelerators of a platform that are planned for at once."""
MOST_PERMUTED = 5
"""Classes of a set up to which every order of its ring is looked at."""

Members = tuple[int, ...]  # how many accelerators of each class


class LinkWay(NamedTuple):
    """A way between two accelerators, or from one to the host."""

    per_byte: float  # seconds
    latency: float = 0.0  # seconds

    def then(self, other: LinkWay) -> LinkWay:
        """Return one way after the other: what passes through the host is stored there first."""
        return LinkWay(self.per_byte + other.per_byte, self.latency + other.latency)


NOWHERE = LinkWay(inf, inf)
HERE = LinkWay(0.0)


class Accelerator(NamedTuple):
    """One accelerator: the designs it can be given, its clock in hertz, its memory in bytes, its power in watts.

    `load` are the seconds in which it takes another design; nobody changes designs while a model runs.
    """

    name: str
    designs: tuple[EngineDesign, ...]
    clock: float
    memory: int | None
    watts: float = 0.0
    idle_watts: float = 0.0
    load: float = 0.0

    def drawn(self, design: str) -> float:
        """Return the watts while it works under a design."""
        stated = next((one.watts for one in self.designs if one.name == design), None)
        return self.watts if stated is None else stated


@dataclass(frozen=True)
class Fabric:
    """Accelerators, the way from each to each, and to the host and back."""

    name: str
    accelerators: tuple[Accelerator, ...]
    ways: tuple[tuple[LinkWay, ...], ...]  # from, to
    host: tuple[LinkWay, ...]  # the slower of to and from
    fair: bool = False  # unlike accelerators of a set get parts by their speed, not equal ones

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The accelerators of each class, in the order of their first."""
        found: list[list[int]] = []
        for i in range(len(self.accelerators)):
            for group in found:
                if self._alike(group[0], i):
                    group.append(i)
                    break
            else:
                found.append([i])
        return tuple(map(tuple, found))

    def _alike(self, one: int, other: int) -> bool:
        a, b = self.accelerators[one], self.accelerators[other]
        if a._replace(name="", designs=()) != b._replace(name="", designs=()) or self.host[one] != self.host[other]:
            return False
        figures = [[(d.name, d.figures) for d in x.designs] for x in (a, b)]
        if figures[0] != figures[1] or self.ways[one][other] != self.ways[other][one]:
            return False
        rest = [x for x in range(len(self.accelerators)) if x not in (one, other)]
        return all(self.ways[one][x] == self.ways[other][x] and self.ways[x][one] == self.ways[x][other] for x in rest)

    @cached_property
    def all(self) -> Members:
        """The set of all accelerators."""
        return tuple(len(group) for group in self.classes)

    def sets(self) -> Iterator[Members]:
        """Yield every set with at least one accelerator."""
        for members in product(*(range(n + 1) for n in self.all)):
            if any(members):
                yield members

    def indices(self, members: Members, used: Members | None = None) -> tuple[int, ...]:
        """Return which accelerators a set consists of, if `used` of each class are taken before."""
        taken = used or (0,) * len(members)
        return tuple(i for group, n, m in zip(self.classes, members, taken, strict=True) for i in group[m : m + n])

    def names(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Return the names of accelerators."""
        return tuple(self.accelerators[i].name for i in indices)

    def ring(self, members: Members) -> LinkWay:
        """Return the slowest way that a ring through a set passes, in the best order of its classes."""
        present = [c for c, n in enumerate(members) if n]
        inside = [self._within(c) for c in present if members[c] > 1]
        if len(present) == 1:
            return max(inside, default=HERE)
        orders = permutations(present[1:]) if len(present) <= MOST_PERMUTED else [tuple(present[1:])]
        rings = []
        for order in orders:
            around = (present[0], *order)
            rings.append(max(self._across(a, b) for a, b in zip(around, (*around[1:], around[0]), strict=True)))
        return max([min(rings), *inside])

    def between(self, one: Members, other: Members) -> LinkWay:
        """Return the slowest way between an accelerator of one set and one of another, which share none."""
        return max(
            self._within(a) if a == b else self._across(a, b)
            for a, n in enumerate(one) if n
            for b, m in enumerate(other) if m
        )  # fmt: skip

    def to_host(self, members: Members) -> LinkWay:
        """Return the slowest way between the host and an accelerator of a set."""
        return max(self.host[self.classes[c][0]] for c, n in enumerate(members) if n)

    def _within(self, c: int) -> LinkWay:
        group = self.classes[c]
        return self.ways[group[0]][group[1]] if len(group) > 1 else HERE

    def _across(self, a: int, b: int) -> LinkWay:
        one, other = self.classes[a][0], self.classes[b][0]
        return max(self.ways[one][other], self.ways[other][one])

    def memory(self, members: Members) -> float:
        """Return the bytes of the smallest memory in a set."""
        found = [self.accelerators[i].memory for i in self.indices(members)]
        return min((m for m in found if m is not None), default=inf)

    def designs(self, members: Members) -> tuple[str, ...]:
        """Return the designs that every accelerator of a set can be given."""
        each = [[d.name for d in self.accelerators[i].designs] for i in self.indices(members)]
        return tuple(name for name in each[0] if all(name in names for names in each))

    def seconds(self, members: Members, design: str, loops: LoopSizes, accounts: Accounts) -> Amounts:
        """Return the seconds of equal parts on a set, which are those of its slowest accelerator, or of fair ones."""
        found: list[Amounts] = []
        counts = [n for n in members if n]
        for group, n in zip(self.classes, members, strict=True):
            if n:
                accelerator = self.accelerators[group[0]]
                chosen = next(d for d in accelerator.designs if d.name == design)
                found.append(chosen.seconds(loops, accounts, accelerator.clock))
        if self.fair:
            together = sum(members) / sum(n / one for n, one in zip(counts, found, strict=True))
            return np.asarray(together)
        slowest = found[0]
        for other in found[1:]:
            slowest = slowest * (slowest >= other) + other * (other > slowest)
        return slowest

    def element(self) -> int:
        """Return the bytes of an element: the largest of all designs."""
        return max(d.element for a in self.accelerators for d in a.designs)

    def idle_power(self) -> float:
        """Return the watts of all accelerators while they wait."""
        return sum(a.idle_watts for a in self.accelerators)

    def extra_power(self, members: Members, design: str) -> float:
        """Return the watts that a set needs more while it works under a design."""
        return sum(self.accelerators[i].drawn(design) - self.accelerators[i].idle_watts for i in self.indices(members))


MEASURED = "peak rates"
"""What stands for the design of a device that has none."""


def fabric(platform: Platform, *, every: bool = False) -> Fabric:
    """Return the accelerators of a platform: its devices with designs or rates that are no processors, else all.

    `every` takes all devices whose speed is known.
    """
    chosen = _accelerators(platform, every=every)
    if not chosen:
        raise PlanError(
            f"platform {platform.name!r} has no device whose speed is known; give its devices `flops` or `designs`"
        )
    if len(chosen) > MOST:
        raise PlanError(
            f"platform {platform.name!r} has {len(chosen)} accelerators, and models are planned for {MOST} at most; "
            "take one node of it with platform.node(0)"
        )
    ways = tuple(tuple(_way(platform, a, b) for b in chosen) for a in chosen)
    apart = [(a.name, b.name) for i, a in enumerate(chosen) for j, b in enumerate(chosen) if ways[i][j] == NOWHERE]
    if apart:
        raise PlanError(
            f"there is no way from {apart[0][0]} to {apart[0][1]} on platform {platform.name!r}; add a link"
        )
    host = tuple(max(_link(platform, HOST, d.memory), _link(platform, d.memory, HOST)) for d in chosen)
    return Fabric(platform.name, tuple(_accelerator(platform, d) for d in chosen), ways, host, fair=every)


def _accelerators(platform: Platform, *, every: bool) -> list[Device]:
    known = [d for d in platform.devices if (d.rate("float32") or d.designs) and not d.wide]
    if every:
        return [d for d in known if d.rate("float32")] or known
    return [d for d in known if not d.abilities.on_numpy] or known


def _accelerator(platform: Platform, device: Device) -> Accelerator:
    memory = platform.memories[device.memory].capacity if device.memory != HOST else None
    power = (device.watts or 0.0, device.idle_watts or 0.0)
    if device.designs or device.configurations:
        tables = {known.name for known in device.configurations}
        if device.clock is None and any(name not in tables for name in device.designs):
            raise PlanError(f"{device.name} has designs, which count cycles, and no clock; give it `clock` in hertz")
        load = max([device.load or 0.0, *[known.load for known in device.configurations]])
        return Accelerator(device.name, designs_of(device), device.clock or 1.0, memory, *power, load)
    return Accelerator(device.name, (plain_design(MEASURED, device),), 1.0, memory, *power)


def _way(platform: Platform, one: Device, other: Device) -> LinkWay:
    if one.memory == other.memory:
        return HERE
    direct = _link(platform, one.memory, other.memory)
    over = _link(platform, one.memory, HOST).then(_link(platform, HOST, other.memory))
    return min(direct, over)


def _link(platform: Platform, source: int, target: int) -> LinkWay:
    if source == target:
        return HERE
    link = platform.link(source, target)
    return NOWHERE if link is None else LinkWay(1.0 / link.bandwidth, link.latency)
