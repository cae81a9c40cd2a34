"""How long a step takes under a plan, from numbers alone: parts on devices, copies on links, and what coexec itself costs.

Before: profile.py, cuts.py, machine/.  After: planner.py.  Knows no scheduler and no instruction; a part is one number.

The step is gone through three times, from where the data is now. The first time pays for the way there; the difference
between the later ones is the period. Devices and links are each free from some moment on, and what a part reads is there
when whoever made it is done and the copy is over. The program's own thread submits call after call, and waits where it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...geometry import Box, RegionMap, bounding, covers, overlaps
from ...machine.platform import HOST, USER, Device, Link, Platform
from ..designs import Designs
from .cuts import StepParts, beside
from .profile import CallProfile, StepCall, StepProfile, Touched


class LinkWays:
    """The ways between the memories of a platform."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._known: dict[tuple[int, int], list[tuple[Link, object]]] = {}

    def of(self, mask: int, memory: int) -> list[tuple[Link, object]]:
        """Return the links over which data comes from one of these memories (as bits): a direct one, or two by way of the host.

        Beside each is what it shares with others: a wire that carries one thing at a time.
        """
        found = self._known.get((mask, memory))
        if found is None:
            direct = self._from(mask, memory)
            if direct:
                links = [max(direct, key=lambda link: (link.bandwidth, -link.latency))]
            else:
                into = self._platform.link(HOST, memory)
                links = [*self._from(mask, HOST)[:1], *([into] if into is not None else [])]
            found = self._known[mask, memory] = [(link, self._wire(link)) for link in links]
        return found

    def _from(self, mask: int, memory: int) -> list[Link]:
        sources = [source for source in range(len(self._platform.memories)) if mask >> source & 1]
        return [link for source in sources if (link := self._platform.link(source, memory)) is not None]

    def _wire(self, link: Link) -> object:
        limited = [name for name in link.shared if self._platform.limit(name) is not None]
        return limited[0] if limited else (max(link.source, HOST), link.target)


SMALL = 1 << 10  # bytes of partial results
TURNS = 3  # the way there, and two whose difference is the period
MANY = 32  # parts of a call from which on the last of them counts for all that wait for one
NOBODY: Mapping[str, float] = {}
EVERYWHERE = -1
"""All memories."""

Where = Callable[[int], Sequence[tuple[Box, int]] | None]
"""Tells where the parts of an array are now: boxes and memories as bits; None if nobody knows the array."""


class Overheads(NamedTuple):
    """Seconds that coexec itself takes."""

    submission: float = 20e-6  # per call
    instruction: float = 3e-6  # per instruction, on the program's thread
    completion: float = 8e-6  # from the end of an instruction until what waits for it is issued
    wake: float = 30e-6  # until a thread that sleeps goes on
    step: float = 15e-6  # of the host, for an instruction that is no kernel


class PeriodEstimate(NamedTuple):
    """What a plan is estimated to take."""

    period: float  # seconds of one turn, when the turn before ran under the same plan
    transition: float  # seconds that the first turn takes beyond that
    own: float  # seconds of one turn that coexec itself takes, submissions and completions together
    busy: dict[str, float]  # seconds of one turn that each device computes
    instructions: int = 0  # of one turn
    slack: float = (
        0.0  # seconds of one turn for which devices and links wait for coexec itself: they go the way meanwhile
    )


class TurnTimes(NamedTuple):
    """When a turn was over, and what it took of those who did it."""

    end: float
    program: float  # when the program's own thread was
    interpreter: float
    longest: float  # of the busiest device, link or memory
    carried: float  # seconds that links were busy, all together


class Crew(NamedTuple):
    """Devices that share a memory, and what they do of a call: neighbouring parts, which count as one."""

    device: str  # one of them
    memory: int
    touched: Touched
    seconds: float  # of the slowest
    alone: float  # seconds of the slowest if no other used its memory meanwhile
    parts: int
    launches: int
    drawn: float = 0.0  # of the memory's rate that nobody uses while all but one wait to be woken, having drawn apart


class WrittenBox(NamedTuple):
    """What a crew has written."""

    box: Box
    end: float
    device: str
    parts: int


class Emulation:
    """Goes through a step, crew by crew."""

    def __init__(
        self, platform: Platform, overheads: Overheads, where: Where | None, held: Mapping[str, str] | None = None
    ) -> None:
        """Begin where the data is; without `where`, all of it is everywhere. `held` are designs that devices have."""
        self._platform = platform
        self._costs = overheads
        self._where = where
        self._devices: dict[str, Device] = {d.name: d for d in platform.devices}
        self._designs = Designs(platform, held)  # that devices have, at this point of the step
        self._free: dict[str, float] = {}
        self._links: dict[object, float] = {}  # from when on each is free
        self._ways = LinkWays(platform)
        self._valid: dict[int, RegionMap[int]] = {}
        self._made: dict[int, list[WrittenBox]] = {}  # by array: who wrote what, and until when
        self._seen: dict[int, dict[str, float]] = {}  # by array: who read of it last, and until when
        self._looked: dict[int, dict[str, float]] = {}  # the same, and until when several kernels are known to be over
        self._crews: dict[tuple[CallProfile, int], tuple[StepParts, list[Crew]]] = {}  # of plans that were looked at
        self.program = 0.0  # what time it is for the program's thread
        self.end = 0.0
        self.interpreter = 0.0  # seconds, of all threads together
        self._since = 0.0  # of these, since the program waited for the last time
        self._went_on = 0.0  # when it went on then
        self.busy: dict[str, float] = {}
        self._carried: dict[object, float] = {}  # seconds that links were busy
        self._moved: dict[int, float] = {}  # seconds that memories were, by what kernels read and write
        self._copies = 0  # of the call that is gone through
        self._in_step = (
            False  # results that are combined, or seen by the program, keep those together who share a memory
        )
        self.instructions = 0

    # Turns ------------------------------------------------------------------------------------------------------------

    def turn(self, step: StepProfile, plan: Sequence[StepParts], number: int) -> Iterator[None]:
        """Go through a step once; yields after each crew of each call."""
        self.interpreter, self.instructions = 0.0, 0
        self.busy, self._carried, self._moved = {}, {}, {}
        reads = list(step.reads)
        self._in_step = bool(reads) or any(call.profile.reduces for call in step.calls)
        for position, (call, parts) in enumerate(zip(step.calls, plan, strict=True)):
            while reads and reads[0].after <= position:
                self._read(reads[0].array + number * reads[0].renewed, reads.pop(0).nbytes)
            yield from self.call(call, parts, number)
        for awaited in reads:
            self._read(awaited.array + number * awaited.renewed, awaited.nbytes)
        for one, other in step.swapped:
            _swap(self._valid, one, other)
            _swap(self._made, one, other)
            _swap(self._seen, one, other)
            _swap(self._looked, one, other)

    def over(self) -> TurnTimes:
        """Return what the turn took."""
        return TurnTimes(
            max(self.end, self.program),
            self.program,
            self.interpreter,
            max([*self.busy.values(), *self._carried.values(), *self._moved.values()], default=0.0),
            sum(self._carried.values()),
        )

    def call(self, call: StepCall, parts: StepParts, number: int) -> Iterator[None]:
        """Let a call be submitted and computed; yields after each crew."""
        costs, profile = self._costs, call.profile
        arrays = [id + number * new for id, new in zip(call.arrays, call.renewed, strict=True)]
        crews = self._crew(profile, parts)
        memories = {crew.memory for crew in crews}
        instructions = 0
        begin = self.program + costs.submission
        ends: list[tuple[Crew, float]] = []
        self._copies = 0
        for crew in crews:
            own, others, copies = self._inputs(profile, arrays, crew)
            instructions += copies + crew.launches
            others = max(others, begin, self._unread(profile, arrays, crew))
            loading = self._designs.take(crew.device, self._designs.op(profile.task))
            ends.append((crew, self._compute(crew, own, others, loading)))
            bandwidth = self._platform.memories[crew.memory].bandwidth
            if bandwidth and crew.seconds:
                took = min(crew.touched.work.size / bandwidth, crew.seconds)  # less where caches give more
                self._moved[crew.memory] = self._moved.get(crew.memory, 0.0) + took
            yield
        self._write(profile, arrays, ends)
        if profile.reduces:
            instructions += self._reduce(profile, arrays, ends, memories)
        self.instructions += instructions
        # A new array is allocated and, by a submission of its own, freed; nobody waits for the completion of either.
        made = fresh(call) * (costs.submission + 2 * len(memories) * costs.instruction)
        self.program += costs.submission + instructions * costs.instruction + made
        spent = costs.submission + instructions * (costs.instruction + costs.completion) + made
        self.interpreter, self._since = self.interpreter + spent, self._since + spent

    def _crew(self, call: CallProfile, parts: StepParts) -> list[Crew]:
        """Return the parts of a call, those that share a memory as one; looked at once per plan."""
        key = (call, id(parts))
        known = self._crews.get(key)
        if known is not None and known[0] is parts:
            return known[1]
        seconds = [(p.device, 0.0, 0.0) for p in parts] if call.host else beside(call, parts, self._platform)
        found: dict[int, list[int]] = {}
        for number, part in enumerate(parts):
            found.setdefault(self._memory(part.device), []).append(number)
        crews = []
        for memory, mine in found.items():
            box = bounding([parts[number].box for number in mine])
            touched = call.whole if box == call.box and call.whole is not None else call.part(box)
            launches = sum([call.launches(parts[number].device, parts[number].box) for number in mine])
            longest = max([seconds[number][1] for number in mine])
            alone = max([seconds[number][2] for number in mine])
            drawn = 0.0
            if alone < longest and not self._devices[parts[mine[0]].device].launch and any(call.beyond()):
                drawn = max(0.0, 1.0 - longest / (alone * len(mine)))
            crews.append(Crew(parts[mine[0]].device, memory, touched, longest, alone, len(mine), launches, drawn))
        self._crews[key] = (parts, crews)
        return crews

    def finish(self, call: StepCall, device: str, number: int) -> float:
        """Return when a device would be done with all of a call; changes nothing."""
        profile = call.profile
        arrays = [id + number * new for id, new in zip(call.arrays, call.renewed, strict=True)]
        memory = self._memory(device)
        assert profile.whole is not None
        ready = self.program + self._costs.submission
        for argument, array, box in zip(profile.arguments, arrays, profile.whole.boxes, strict=True):
            if argument.reads and not argument.reduces:
                made = self._ready(array, box)
                for part, mask in self._valid_of(array, argument.extent).get(box):
                    if _lacks(mask, memory):
                        for link, _ in self._ways.of(mask, memory):
                            made += link.seconds(part.volume * argument.itemsize)
                ready = max(ready, made)
        took = profile.seconds(device, profile.whole, together=False) or 0.0
        took += self._designs.loading(device, self._designs.op(profile.task))
        return max(ready, self._free.get(device, 0.0)) + took

    def _memory(self, device: str) -> int:
        return self._devices[device].memory if device in self._devices else HOST

    def _compute(self, crew: Crew, own: float, others: float, loading: float) -> float:
        """Return when a crew is done that has what it made itself at one time, and what `others` made, or ask for, at another.

        Those who share a memory draw apart: while some wait for what others have finished, the rest have more of its bandwidth. So
        a turn takes no longer than the memory does, or than each of them alone with its waits.
        """
        name, device = crew.device, self._devices.get(crew.device)
        free = self._free.get(name, 0.0)
        if device is not None and device.launch:  # what is queued behind others begins with their end
            own, others = own + (device.launch if crew.parts > 1 else 0.0), others + device.launch
        elif device is not None and others > max(free, own):
            others += (
                self._costs.wake
            )  # a core's thread, which sleeps meanwhile; not if it tells itself that it may go on
        ready = max(own, others, free)
        alone = crew.seconds if self._in_step else crew.alone
        end = max(ready + alone, max(free, others) + crew.seconds + crew.drawn * self._costs.wake) + loading
        self._free[name] = end
        self.busy[name] = self.busy.get(name, 0.0) + crew.seconds + loading
        self.end = max(self.end, end)
        return end

    def _inputs(self, call: CallProfile, arrays: Sequence[int], crew: Crew) -> tuple[float, float, int]:
        """Bring what a crew reads; return when what it made itself is there, and what others did, and how many copies that takes."""
        memory, own, others, copies = crew.memory, 0.0, 0.0, 0
        for argument, array, box in zip(call.arguments, arrays, crew.touched.boxes, strict=True):
            if not argument.reads or argument.reduces:
                continue
            valid = self._valid_of(array, argument.extent)
            own = max(own, self._made_by(array, box, crew))
            others = max(others, self._ready(array, box, crew.device))
            for piece, mask in valid.get(box):
                if _lacks(mask, memory):
                    arrived, hops = self._copy(
                        mask, memory, piece.volume * argument.itemsize, self._ready(array, piece)
                    )
                    others, copies = max(others, arrived), copies + hops
                    valid.set(piece, mask | 1 << memory)
        return own, others, copies

    def _made_by(self, array: int, box: Box, crew: Crew) -> float:
        """Return when what a crew itself wrote in a box is known to be over: who is done last goes on first."""
        device = self._devices.get(crew.device)
        queued = device is not None and device.launch is not None and crew.parts == 1  # behind what it waits for
        gap = 0.0 if queued else self._costs.completion * (crew.parts if self._in_step else 1)
        mine = [m.end for m in self._made.get(array, ()) if m.device == crew.device and overlaps(m.box, box)]
        return max(mine, default=-gap) + gap

    def _copy(self, mask: int, memory: int, nbytes: int, ready: float) -> tuple[float, int]:
        way = self._ways.of(mask, memory)
        self._copies += len(way)
        for link, wire in way:
            start = max(ready + self._costs.completion, self._links.get(wire, 0.0))
            took = nbytes / link.bandwidth
            self._links[wire] = start + took
            self._carried[wire] = self._carried.get(wire, 0.0) + took
            ready = start + link.latency + took
        self.end = max(self.end, ready)
        return ready + self._copies * self._costs.completion, len(way)  # one completion is looked at after the other

    def _over(self, crew: Crew, end: float) -> float:
        """Return when all kernels of a crew but the last are known to be over; one for each part is known without."""
        device = self._devices.get(crew.device)
        at_once = crew.parts * (device.concurrent if device is not None else 1)
        return looked_through(end - crew.seconds, end, crew.launches - crew.parts + 1, at_once, self._costs)

    def _unread(self, call: CallProfile, arrays: Sequence[int], crew: Crew) -> float:
        """Return when those of its memory who read what a crew writes over are done: others, and kernels of its own that run side by side."""
        found = 0.0
        for argument, array in zip(call.arguments, arrays, strict=True):
            if argument.writes and not argument.reduces:
                for device, end in self._seen.get(array, NOBODY).items():
                    if device != crew.device and self._memory(device) == crew.memory:
                        found = max(found, end + self._costs.completion)
                    elif device == crew.device:
                        found = max(found, self._looked.get(array, NOBODY).get(device, 0.0))
        return found

    def _write(self, call: CallProfile, arrays: Sequence[int], ends: Sequence[tuple[Crew, float]]) -> None:
        for crew, end in ends:
            for argument, array, box in zip(call.arguments, arrays, crew.touched.boxes, strict=True):
                if argument.reads and not argument.reduces:
                    self._seen.setdefault(array, {})[crew.device] = end
                    if crew.launches > crew.parts:
                        self._looked.setdefault(array, {})[crew.device] = self._over(crew, end)
                if argument.writes and not argument.reduces:
                    self._valid_of(array, argument.extent).set(box, 1 << crew.memory)
                    made = self._made.setdefault(array, [])
                    made[:] = [entry for entry in made if not covers(box, entry.box)]
                    made.append(WrittenBox(box, end, crew.device, crew.parts))

    def _reduce(
        self, call: CallProfile, arrays: Sequence[int], ends: Sequence[tuple[Crew, float]], memories: set[int]
    ) -> int:
        """Combine partial results on the host; return how many instructions that takes."""
        costs, copies, ready = self._costs, 0, 0.0
        for crew, end in ends:
            over = self._over(crew, end)
            if crew.memory != HOST:
                for _ in range(crew.parts):
                    arrived, hops = self._copy(1 << crew.memory, HOST, SMALL, over)
                    ready, copies = max(ready, arrived), copies + hops
            else:
                ready = max(ready, over + costs.completion)
        done, targets = ready + costs.step + costs.completion, 0
        for argument, array in zip(call.arguments, arrays, strict=True):
            if argument.reduces:
                self._valid_of(array, argument.extent).set(argument.box, 1 << HOST)
                self._made[array] = [WrittenBox(argument.extent, done, "host", 1)]
                targets += 1
        self.end = max(self.end, done)
        return targets * (copies + 1 + 3 * len(memories | {HOST}))  # partial results are allocated, filled and freed

    def _read(self, array: int, nbytes: int) -> None:
        """Let the program wait for a value."""
        valid, costs = self._valid.get(array), self._costs
        self.program = max(self.program, self._went_on + self._since)  # what is over was looked at meanwhile
        ready = max([made.end for made in self._made.get(array, ())], default=self.program)
        hops, self._copies = 1, 0
        if valid is not None:
            for _, mask in valid.entries():
                if _lacks(mask, HOST):
                    ready, hops = self._copy(mask, HOST, nbytes, max(ready, self.program + costs.submission))
                    hops += 1
        asked = self.program + costs.submission + hops * costs.instruction
        asleep = ready + costs.completion > asked
        seen = max(asked, ready + costs.completion + costs.wake) if asleep else asked
        self.program = seen + costs.step + costs.completion
        self.interpreter += costs.submission + hops * (costs.instruction + costs.completion)
        self._went_on, self._since = self.program, 0.0
        self.end = max(self.end, self.program)

    # Arrays -----------------------------------------------------------------------------------------------------------

    def _valid_of(self, array: int, extent: Box) -> RegionMap[int]:
        valid = self._valid.get(array)
        if valid is None or valid.extent != extent:
            # The arrays of later turns are guessed by their numbers, and such a number may be that of another array.
            valid = self._valid[array] = RegionMap(extent, EVERYWHERE if self._where is None else 0)
            self._made.pop(array, None)
            self._seen.pop(array, None)
            self._looked.pop(array, None)
            for box, mask in (self._where(array) or ()) if self._where is not None else ():
                if len(box.hi) == len(extent.hi) and all(a <= b for a, b in zip(box.hi, extent.hi, strict=True)):
                    valid.set(box, mask)
        return valid

    def _ready(self, array: int, box: Box, reader: str = "") -> float:
        """Return when the last of those is done who write in a box; whoever asks is not kept waiting by itself."""
        made = self._made.get(array)
        if not made:
            return 0.0
        if len(made) > MANY:
            return max(entry.end for entry in made)
        gap = self._costs.completion * sum([entry.parts for entry in made])
        return max([m.end + gap for m in made if m.device != reader and overlaps(m.box, box)], default=0.0)


def _swap(known: dict[int, Any], one: int, other: int) -> None:
    """Let what is known of two arrays change places."""
    first, second = known.pop(one, None), known.pop(other, None)
    known.update({array: what for array, what in ((other, first), (one, second)) if what is not None})


def looked_through(begin: float, end: float, launches: int, at_once: int, costs: Overheads) -> float:
    """Return when all but the last of so many kernels are known to be over, which ran from `begin` to `end`, so many `at_once`.

    One completion is looked at after the other, as soon as the first of them is over.
    """
    if launches < 2:
        return end
    first, last = begin + (end - begin) * min(1.0, at_once / launches), (launches - 1) % at_once  # that end together
    return max(end + last * costs.completion, first + (launches - 1) * costs.completion)


def fresh(call: StepCall) -> int:
    """Return how many arrays a call makes."""
    return sum([bool(new) and a.writes for new, a in zip(call.renewed, call.profile.arguments, strict=True)])


def _lacks(mask: int, memory: int) -> bool:
    """Tell whether a memory must be brought what these memories hold."""
    if mask in (0, EVERYWHERE) or mask >> memory & 1:  # 0: a first value, which is made where it is needed
        return False
    return not (mask >> USER & 1 and memory == HOST)


def estimate(
    step: StepProfile,
    plan: Sequence[StepParts],
    platform: Platform,
    overheads: Overheads,
    where: Where,
) -> Iterator[PeriodEstimate | None]:
    """Estimate a plan; yields None after each crew of each call, so that whoever asks can stop for a moment, and the answer in the end."""
    emulation = Emulation(platform, overheads, where)
    turns: list[TurnTimes] = []
    for number in range(TURNS):
        for _ in emulation.turn(step, plan, number):
            yield None
        turns.append(emulation.over())
        if number and turns[-1].carried == turns[-2].carried:
            break  # nothing was brought but what each turn brings
    last = turns[-1]
    chained = max(last.end - turns[-2].end, last.program - turns[-2].program)
    period = max(last.interpreter, last.longest, chained)
    transition = max(0.0, last.end - len(turns) * period)
    slack = period - max(last.longest, chained) if period <= last.interpreter and not step.reads else 0.0
    yield PeriodEstimate(period, transition, last.interpreter, dict(emulation.busy), emulation.instructions, slack)
