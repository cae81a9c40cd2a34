"""What a step takes at least on some devices, by arithmetic alone; on one device that is about what it takes.

Before: profile.py, estimate.py.  After: choose.py.  Goes through no copies: each class of devices is asked once per call.

A turn takes at least what the devices compute, at their own speed all the time; what coexec itself costs; and, where the
program waits for values or parts exchange what they have, the two one after the other. On one device nothing else happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from ...geometry import Box, Region, covers, overlap
from ...machine.platform import HOST, USER, Device, Link, Platform
from .chain import FIGURES, ChainLink, Launches, TurnChain
from .estimate import Overheads, Where, fresh
from .exchanges import carries, exchanges
from .profile import CallProfile, StepCall, StepProfile
from .slices import Work, done

ROUNDED = 1e-3  # of an array, that half of a call reads beyond its half because rows are not halved exactly
LOOKED_UP = 10  # predictions that take as long as one visit of an estimate


class Target(NamedTuple):
    """What plans are estimated for."""

    platform: Platform
    overheads: Overheads
    where: Where
    by_peaks: bool = False  # kernels that nobody measured take what peak rates say

    @property
    def memories(self) -> dict[str, int]:
        """The memory of each device."""
        return {device.name: device.memory for device in self.platform.devices}


class Figure(NamedTuple):
    """What a step takes at least on some devices."""

    period: float  # seconds of a turn
    own: float  # seconds of one turn that coexec itself takes
    way: float  # seconds in which what is elsewhere comes to these devices
    slack: float  # seconds of one turn for which devices wait for coexec itself

    def costs(self, repetitions: float) -> float:
        """Return the seconds that so many turns take at least, with the way."""
        return max(0.0, self.way - repetitions * self.slack) + repetitions * self.period


class Crowd(NamedTuple):
    """Devices that share a memory: how many of each class."""

    memory: int
    bandwidth: float | None  # bytes per second, of the memory
    members: tuple[tuple[int, int], ...]  # class, number


class DeviceSet(NamedTuple):
    """A set of devices as bounds see it."""

    devices: tuple[str, ...]
    crowds: tuple[Crowd, ...]
    counts: tuple[tuple[int, int], ...]  # class, number
    launch: float  # seconds: the least of theirs; 0: there are cores, whose threads are woken


class CallFigures(NamedTuple):
    """What bounds need to know of calls that cost the same."""

    profile: CallProfile
    rates: list[float]  # how often per second a device of each class does it
    size: float  # bytes that it touches
    fresh: int  # arrays that it makes
    targets: int  # arrays that it reduces into
    divisible: bool
    exchanged: int  # arrays of which each part reads what others wrote, and nobody has read since
    times: int = 1  # that it comes in a turn


class Bounds:
    """Bounds of one step, once it has begun."""

    def __init__(self, step: StepProfile, groups: Sequence[Sequence[Device]], machine: Target) -> None:
        self._step, self._machine, self._costs = step, machine, machine.overheads
        self._first = [group[0] for group in groups]
        self._looping = [device.loops for device in self._first]
        self._away = [device.memory != HOST for device in self._first]
        self._brought = Brought(machine)
        links = [link for link in machine.platform.links.values() if link.source != USER]
        self._latency = min([link.latency for link in links], default=0.0)
        self._kinds: dict[tuple[CallProfile, int, int], int] = {}  # of calls that cost the same, and their numbers
        self._calls: list[CallFigures] = []  # one of each kind
        self._kinds_in_order: list[int] = []  # of which kind each call is
        self._chained = bool(step.reads)  # something waits for the program, or for results that are combined
        self._carried = True  # what parts exchange depends on what they exchanged a turn before

    def begin(self) -> Work[None]:
        """Ask for every call and class of devices, and where the data is."""
        yield from self.look_where()
        step, brought = self._step, exchanges(self._step)
        asked: dict[CallProfile, tuple[list[float], tuple[bool, ...]]] = {}
        for call, news in zip(step.calls, brought, strict=True):
            profile = call.profile
            if profile not in asked:
                asked[profile] = self._asked(profile)
            rates, beyond = asked[profile]
            pairs = zip(beyond, news, strict=False)
            targets = sum([argument.reduces for argument in profile.arguments])
            self._chained |= bool(targets)
            made, exchanged = fresh(call), sum([further and new for further, new in pairs])
            kind = self._kinds.setdefault((profile, made, exchanged), len(self._calls))
            self._kinds_in_order.append(kind)
            if kind < len(self._calls):
                self._calls[kind] = self._calls[kind]._replace(times=self._calls[kind].times + 1)
            else:
                size = profile.whole.work.size if profile.whole is not None else 0.0
                self._calls.append(CallFigures(profile, rates, size, made, targets, bool(beyond), exchanged))
            yield len(self._first) / LOOKED_UP
        self._carried = carries(step, [asked[call.profile][1] for call in step.calls])

    def _asked(self, profile: CallProfile) -> tuple[list[float], tuple[bool, ...]]:
        """Return how often per second each class does a call, and of which arrays a part reads more than its part."""
        if profile.host or profile.whole is None:
            return [0.0] * len(self._first), ()
        seconds = [profile.seconds(device.name, profile.whole, together=False) for device in self._first]
        rates = [1.0 / known if known else 0.0 for known in seconds]
        return rates, tuple([further > ROUNDED for further in profile.beyond()])

    def look_where(self) -> Work[None]:
        """Look where the data is now."""
        brought = Brought(self._machine)
        for call in self._step.calls:
            brought.look(call)
            yield 1 / LOOKED_UP
        self._brought = brought

    def computing(self, chosen: DeviceSet) -> list[float]:
        """Return, for each kind of call, the seconds in which devices do it, all of them all the time, and nothing is moved."""
        found = []
        for call in self._calls:
            rates, together = call.rates, 0.0
            for crowd in chosen.crowds:
                rate = sum([number * rates[kind] for kind, number in crowd.members])
                if (
                    crowd.bandwidth is not None and call.size
                ):  # or caches give more, as one device alone was seen to get
                    alone = max([rates[kind] for kind, _ in crowd.members])
                    rate = min(rate, max(crowd.bandwidth / call.size, alone))
                together += rate
            found.append(1.0 / together if together else 0.0)
        return found

    def of(self, chosen: DeviceSet) -> Work[Figure]:
        """Return what a turn takes at least on some devices, and the way there."""
        yield 3 / FIGURES
        costs, computing = self._costs, self.computing(chosen)
        memories, own, copies = len(chosen.crowds), 0.0, 0
        launches = []
        for call in self._calls:
            count = self._launches(call, chosen)
            yield 1 / FIGURES
            launches.append(count)
            copies += count.copies
            seconds = costs.submission + count.instructions * (costs.instruction + costs.completion)
            own += call.times * (seconds + call.fresh * (costs.submission + 2 * memories * costs.instruction))
        own += len(self._step.reads) * (costs.submission + costs.instruction + costs.completion)
        together = chained = self._together(computing)
        if copies or self._chained or len(chosen.devices) == 1:
            chain = TurnChain(self._step, costs, self._latency, launch=chosen.launch, alone=len(chosen.devices) == 1)
            away = all(crowd.memory != HOST for crowd in chosen.crowds)
            links = self._links(chosen, computing, launches)
            chained = yield from chain.turn(self._kinds_in_order, links, away=away)
        period = max(own, together, chained)
        slack = period - max(together, chained) if period <= own and not self._step.reads else 0.0
        return Figure(period, own, self.way(chosen), slack)

    def least(self, chosen: DeviceSet) -> float:
        """Return seconds that no turn takes less than on these devices or some of them, whatever is moved or exchanged."""
        costs = self._costs
        own = sum([c.times * (1 + c.fresh) for c in self._calls]) * costs.submission
        own += len(self._kinds_in_order) * (costs.instruction + costs.completion)
        return max(own, self._together(self.computing(chosen)))

    def _together(self, computing: Sequence[float]) -> float:
        return sum([call.times * seconds for call, seconds in zip(self._calls, computing, strict=True)])

    def way(self, chosen: DeviceSet) -> float:
        """Return the seconds in which what is elsewhere comes to these devices, to each as much as it does meanwhile."""
        rates = [0.0] * len(self._first)
        for kind, _ in chosen.counts:
            seconds = sum([c.times / c.rates[kind] for c in self._calls if c.divisible and c.rates[kind]])
            rates[kind] = 1.0 / seconds if seconds else 0.0
        by_memory = {c.memory: sum([number * rates[kind] for kind, number in c.members]) for c in chosen.crowds}
        total = sum(by_memory.values())
        return self._brought.seconds({m: rate / total if total else 0.0 for m, rate in by_memory.items()})

    def _launches(self, call: CallFigures, chosen: DeviceSet) -> Launches:
        """Return how many instructions a call takes: a kernel for each part, what they exchange, and what combines results."""
        costs, rates = self._costs, call.rates
        able = [(kind, number) for kind, number in chosen.counts if rates[kind]]
        parts = crowds = 1
        if call.divisible and able and costs.wake * max([rates[kind] for kind, _ in able]) < 1.0:
            parts = sum([number for _, number in able])
            crowds = sum([any(rates[kind] for kind, _ in crowd.members) for crowd in chosen.crowds])
        blocks = call.profile.blocks
        kernels = parts if not blocks or any(self._looping[kind] for kind, _ in able) else max(parts, blocks)
        copies = (2 if self._carried else 1) * (crowds - 1) * call.exchanged
        waiting = self._waiting(call, chosen) if copies and self._carried else 0.0
        if not call.targets:
            return Launches(kernels + copies, kernels, copies, 0.0, waiting)
        away = min(parts, sum([number for kind, number in able if self._away[kind]]))
        combined = 2 * costs.completion + costs.step  # after the last kernel
        if len(chosen.devices) == 1:
            combined += away * (costs.completion + self._latency)
        combining = call.targets * (away + 1 + 3 * (crowds + 1 if away == parts else crowds))
        return Launches(kernels + copies + combining, kernels, copies, combined, waiting)

    def _links(self, chosen: DeviceSet, computing: Sequence[float], launches: Sequence[Launches]) -> list[ChainLink]:
        """Return each kind of call as a turn on these devices goes through it."""
        found = []
        for call, seconds, count in zip(self._calls, computing, launches, strict=True):
            able = [kind for kind, _ in chosen.counts if call.rates[kind]]
            at_once = max([self._first[kind].concurrent for kind in able], default=1)
            found.append(ChainLink(seconds, *self._soonest(call, chosen, seconds), call.fresh, at_once, count))
        return found

    def _soonest(self, call: CallFigures, chosen: DeviceSet, together: float) -> tuple[float, float]:
        """Return the seconds in which a call is done at the earliest, anywhere and by those who have the host's memory alone."""
        rates = call.rates
        able = [(kind, number) for kind, number in chosen.counts if rates[kind]]
        if not able:
            return together, together
        near = [
            number * rates[kind] if call.divisible else rates[kind] for kind, number in able if not self._away[kind]
        ]
        if not call.divisible:
            together = 1.0 / max([rates[kind] for kind, _ in able])
            return together, 1.0 / max(near) if near else inf
        return together, max(together, 1.0 / sum(near)) if near else inf

    def _waiting(self, call: CallFigures, chosen: DeviceSet) -> float:
        """Return which part of the devices, by speed, a delay of what neighbours exchange keeps waiting at least.

        Who is done by the delay earlier than its neighbour waits twice as long, and its neighbour not at all. So the slower
        half of the memories waits for the faster, however parts are cut; all wait only if they are equally fast.
        """
        rates = sorted([sum([n * call.rates[kind] for kind, n in crowd.members]) for crowd in chosen.crowds])
        rates = [rate for rate in rates if rate]
        return 2.0 * sum(rates[: len(rates) // 2]) / sum(rates)


def as_sets(
    found: Sequence[tuple[str, ...]], groups: Sequence[Sequence[Device]], platform: Platform
) -> list[DeviceSet]:
    """Return sets of devices as bounds see them."""
    kinds = {device.name: (number, device) for number, group in enumerate(groups) for device in group}
    made = []
    for devices in found:
        crowds: dict[int, dict[int, int]] = {}
        counts: dict[int, int] = {}
        for name in devices:
            kind, device = kinds[name]
            members = crowds.setdefault(device.memory, {})
            members[kind] = members.get(kind, 0) + 1
            counts[kind] = counts.get(kind, 0) + 1
        together = [Crowd(m, platform.memories[m].bandwidth, tuple(members.items())) for m, members in crowds.items()]
        launch = min([kinds[name][1].launch or 0.0 for name in devices])
        made.append(DeviceSet(devices, tuple(together), tuple(counts.items()), launch))
    return made


class Brought:
    """What a step reads of what is there already, and the least time in which it comes to some devices."""

    def __init__(self, machine: Target) -> None:
        self._platform, self._where = machine.platform, machine.where
        self._read: dict[int, int] = {}  # bytes, by the memories that hold them
        self._known: dict[tuple[tuple[int, float], ...], float] = {}
        self._ways: dict[tuple[int, int], tuple[object, float]] = {}
        self._seen: dict[tuple[int, int], Region] = {}  # by array: what calls touch of it, through one view or several

    def look(self, call: StepCall) -> None:
        """Look where what a call reads is, as far as none before it has written or read it."""
        profile, seen = call.profile, self._seen
        boxes = profile.whole.boxes if profile.whole is not None else ()
        for argument, array, box in zip(profile.arguments, call.arrays, boxes, strict=False):
            key = (array, box.ndim)  # arrays of later turns are guessed by their numbers, which may be those of others
            known = seen.get(key)
            if known is not None and any(covers(touched, box) for touched in known.boxes):
                continue
            new = (box,) if known is None else (Region((box,)) - known).boxes
            if argument.reads and not argument.reduces:
                self._read_from(self._where(array) or (), new, argument.itemsize)
            seen[key] = Region((*(known.boxes if known is not None else ()), *new))

    def _read_from(self, places: Sequence[tuple[Box, int]], boxes: Sequence[Box], itemsize: int) -> None:
        for part, mask in places:
            for box in boxes if mask else ():
                if len(part.lo) == len(box.lo) and (both := overlap(part, box)) is not None:
                    self._read[mask] = self._read.get(mask, 0) + both.volume * itemsize

    def seconds(self, shares: Mapping[int, float]) -> float:
        """Return seconds that bringing what is missing takes at least, over all links at once.

        Each memory needs its share of what is read. With shares of nothing, any of them may hold any of it.
        """
        key = tuple(shares.items())
        if key not in self._known:
            self._known[key] = self._each(shares) if any(shares.values()) else self._any(frozenset(shares))
        return self._known[key]

    def _each(self, shares: Mapping[int, float]) -> float:
        total = sum(self._read.values())
        wires: dict[object, float] = {}
        for memory, share in shares.items():
            near = 1 << memory | (1 << USER if memory == HOST else 0)
            held = sum([nbytes for mask, nbytes in self._read.items() if mask & near])
            missing = share * total - held
            away = [(nbytes, mask) for mask, nbytes in self._read.items() if not mask & near]
            if missing > 0.0 and away:
                wire, rate = self._way(max(away)[1], memory)
                wires[wire] = wires.get(wire, 0.0) + (missing / rate if rate else 0.0)
        return max(wires.values(), default=0.0)

    def _any(self, memories: frozenset[int]) -> float:
        near = sum([1 << memory for memory in memories]) | (1 << USER if HOST in memories else 0)
        found = 0.0
        for mask, nbytes in self._read.items():
            rate = sum(dict([self._way(mask, memory) for memory in memories]).values())
            found += nbytes / rate if rate and not mask & near else 0.0
        return found

    def _way(self, mask: int, memory: int) -> tuple[object, float]:
        """Return the wire over which data comes, and its bytes per second."""
        known = self._ways.get((mask, memory))
        if known is None:
            known = self._ways[mask, memory] = self._found_way(mask, memory)
        return known

    def _found_way(self, mask: int, memory: int) -> tuple[object, float]:
        link, further = self._platform.link(HOST, memory), self._out(mask)
        direct = [self._platform.link(source, memory) for source in range(mask.bit_length()) if mask >> source & 1]
        straight = [known for known in direct if known is not None]
        if straight or mask >> USER & 1 or further is None:
            link, further = max(straight, key=lambda known: known.bandwidth, default=link), None
        if link is None:
            return None, 0.0
        rate = link.bandwidth if further is None else 1.0 / (1.0 / link.bandwidth + 1.0 / further.bandwidth)
        shared = [(name, most) for name in link.shared if (most := self._platform.limit(name)) is not None]
        return (shared[0][0], min(rate, shared[0][1])) if shared else ((link.source, link.target), rate)

    def _out(self, mask: int) -> Link | None:
        """Return the link from one of these memories to the host's."""
        for source in range(mask.bit_length()):
            if mask >> source & 1 and (link := self._platform.link(source, HOST)) is not None:
                return link
        return None


def lower_limit(step: StepProfile, machine: Target) -> float:
    """Return seconds that no plan of a step is faster than: every device at its best, from the first moment."""
    devices = [device for device in machine.platform.devices if not device.wide]
    groups = [[device] for device in devices]
    everything = as_sets([tuple([device.name for device in devices])], groups, machine.platform)[0]
    bounds = Bounds(step, groups, machine)
    done(bounds.begin())
    return bounds.least(everything)
