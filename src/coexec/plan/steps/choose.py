"""The plans that a step could have: one per set of devices, estimated from the most promising down, and the best of them.

Before: sets.py, cuts.py, estimate.py, account.py.  After: planner.py.  Goes on for a moment at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from ...geometry import Box, bounding, overlap
from ...machine.platform import HOST, USER, Device, Platform
from .account import WORTH, PlanAccount
from .cuts import StepParts, divided, shares, whole
from .estimate import TURNS, Overheads, Where, estimate, fresh, placed
from .profile import StepProfile
from .sets import device_sets

VISIT = 40e-6  # seconds that going through what devices of one memory do of one call takes, of a server's core
LOOKED_UP = 4  # predictions that take as long
DEAR = 1.0  # times what looks take that they must be able to save
NOT_YET = "what it may save is not worth a look yet"


class Target(NamedTuple):
    """What plans are estimated for."""

    platform: Platform
    overheads: Overheads
    where: Where

    @property
    def memories(self) -> dict[str, int]:
        """The memory of each device."""
        return {device.name: device.memory for device in self.platform.devices}


class Considered(NamedTuple):
    """A set of devices, and what became of it."""

    devices: tuple[str, ...]
    bound: float  # seconds of a turn: no plan on these devices takes less
    account: PlanAccount | None  # None: it was not looked at
    why: str = ""


def considered(
    step: StepProfile,
    machine: Target,
    groups: Sequence[Sequence[Device]],
    present: PlanAccount,
    repetitions: float,
    found: list[Considered],
    off: Mapping[tuple[str, ...], float],
) -> Iterator[int]:
    """Look at sets of devices, and put into `found` what becomes of each: few memories first, and the most promising of these.

    A set is looked at if what it may save in so many repetitions is worth the look. `off` tells how far estimates were off.
    Yields how many visits that took, again and again, so that whoever asks can stop for a moment.
    """
    known = {c.devices: c for c in found if c.account is not None}
    found[:] = known.values()
    others = [c.account for c in found if c.account is not None and c.account is not present]
    best = min([present.costs(repetitions, present=True), *[a.costs(repetitions, present=False) for a in others]])
    rates, brought = Rates(step, groups, machine.platform), Brought(step, machine)
    yield -(-len(step.calls) * len(groups) // LOOKED_UP)
    here, looks = set(present.devices), 0.0
    choices = [
        (len(_memories(devices, machine)), bound(step, devices, machine, rates), bool(here & set(devices)), devices)
        for devices in device_sets(groups)
    ]
    for crews, least, _, devices in sorted(choices):
        if devices in known or (len(devices) == 1 and devices == present.devices):
            continue  # it is the present plan
        look = TURNS * len(step.calls) * crews * VISIT
        if repetitions * least > best:
            found.append(Considered(devices, least, None, "cannot be faster, whatever is moved"))
        elif brought.seconds(devices) + repetitions * least + (looks + look) * DEAR > WORTH * best:
            found.append(Considered(devices, least, None, NOT_YET))
        else:
            looks += look
            account, why = yield from _looked_at(step, devices, machine, off)
            if account is not None:
                account.since = present
                best = min(best, account.costs(repetitions, present=False))
            found.append(Considered(devices, least, account, why))


def _looked_at(
    step: StepProfile, devices: tuple[str, ...], machine: Target, off: Mapping[tuple[str, ...], float]
) -> Generator[int, None, tuple[PlanAccount | None, str]]:
    """Make a plan on some devices, and estimate it; yields visits."""
    made = planned(step, devices, machine)
    if made is None:
        return None, "nothing is known of the speed of one of them"
    plan, parts = made
    if (full := crowded(step, plan, machine.platform)) is not None:
        return None, f"the memory of {full} is too small"
    account = PlanAccount(devices, plan, None, parts, off.get(devices, 1.0))
    for answer in estimate(step, plan, machine.platform, machine.overheads, machine.where):
        yield 1
        account.estimated = answer
    return account, ""


def planned(
    step: StepProfile, devices: Sequence[str], machine: Target
) -> tuple[list[StepParts], dict[str, float]] | None:
    """Return a plan of a step on some devices, and shares; None if nothing is known of one of them, or a call runs on none."""
    for call in step.calls:
        if not call.profile.host and not any(d in call.profile.devices for d in devices):
            return None
    if not is_known(step, devices):
        return None
    if len(devices) == 1:
        return [whole(call, "host" if call.profile.host else devices[0]) for call in step.calls], {devices[0]: 1.0}
    parts = shares(step, devices, machine.platform)
    if parts is None:
        return None
    cut = partial(divided, parts=parts)
    return placed(step, devices, machine.platform, machine.overheads, cut), parts


def is_known(step: StepProfile, devices: Sequence[str]) -> bool:
    """Tell whether something is known of how long these devices take for the calls of a step that they can run."""
    return all(
        call.profile.whole is None
        or device not in call.profile.devices
        or call.profile.seconds(device, call.profile.whole, together=False) is not None
        for call in step.calls
        for device in devices
    )


class Rates:
    """How often per second each device does a call of a step, at its own speed: asked once for devices that are alike."""

    def __init__(self, step: StepProfile, groups: Sequence[Sequence[Device]], platform: Platform) -> None:
        self._calls: list[dict[str, float]] = []
        self._most: list[dict[int, float]] = []  # by memory, which has a bandwidth
        self._memories = {device.name: device.memory for group in groups for device in group}
        limits = {m: b for m in set(self._memories.values()) if (b := platform.memories[m].bandwidth)}
        self.fresh = 0  # arrays that a turn makes
        for call in step.calls:
            profile = call.profile
            self.fresh += fresh(call)
            if profile.host or profile.whole is None:
                continue
            rates: dict[str, float] = {}
            for group in groups:
                seconds = profile.seconds(group[0].name, profile.whole, together=False)
                for device in group if seconds is not None and seconds > 0.0 else ():
                    rates[device.name] = 1.0 / (seconds or inf)
            self._calls.append(rates)
            size = profile.whole.work.size
            self._most.append({memory: limit / size for memory, limit in limits.items()} if size else {})

    def seconds(self, devices: Sequence[str]) -> float:
        """Return seconds in which devices do the calls of a step, all of them all the time, and nothing is moved."""
        total = 0.0
        for rates, most in zip(self._calls, self._most, strict=True):
            by_memory: dict[int, float] = {}
            for device in devices:
                memory = self._memories[device]
                by_memory[memory] = by_memory.get(memory, 0.0) + rates.get(device, 0.0)
            together = sum([min(rate, most.get(memory, inf)) for memory, rate in by_memory.items()])
            total += 1.0 / together if together else 0.0
        return total


class Brought:
    """What a step reads of what is there already, and the least time in which it comes to some devices."""

    def __init__(self, step: StepProfile, machine: Target) -> None:
        self._platform = machine.platform
        self._read: dict[int, int] = {}  # bytes, by the memories that hold them
        self._known: dict[frozenset[int], float] = {}
        seen: set[int] = set()
        for call in step.calls:
            profile = call.profile
            boxes = profile.whole.boxes if profile.whole is not None else ()
            for argument, array, box in zip(profile.arguments, call.arrays, boxes, strict=False):
                if array not in seen and argument.reads and not argument.reduces:
                    for part, mask in machine.where(array) or ():
                        if mask and len(part.lo) == len(box.lo) and (both := overlap(part, box)) is not None:
                            self._read[mask] = self._read.get(mask, 0) + both.volume * argument.itemsize
                seen.add(array)

    def seconds(self, devices: Sequence[str]) -> float:
        """Return seconds that bringing what is missing takes at least, over all links at once."""
        names = set(devices)
        memories = frozenset([device.memory for device in self._platform.devices if device.name in names])
        if memories not in self._known:
            near = sum([1 << memory for memory in memories]) | (1 << USER if HOST in memories else 0)
            missing = sum([nbytes for mask, nbytes in self._read.items() if not mask & near])
            into = [
                max([link.bandwidth for (_, to), link in self._platform.links.items() if to == memory], default=0.0)
                for memory in memories
            ]
            self._known[memories] = missing / sum(into) if sum(into) else 0.0
        return self._known[memories]


def bound(step: StepProfile, devices: Sequence[str], machine: Target, rates: Rates) -> float:
    """Return seconds that a turn takes at least: all devices at their own speed all the time, or what coexec itself costs."""
    costs = machine.overheads
    own = len(step.calls) * (costs.submission + costs.instruction + costs.completion)
    own += rates.fresh * (costs.submission + 2 * costs.instruction)
    if len(devices) > 1 and any(call.profile.axis is not None for call in step.calls):
        own += (len(devices) - 1) * (costs.instruction + costs.completion)
    return max(own, rates.seconds(devices))


def _memories(devices: Sequence[str], machine: Target) -> set[int]:
    names = set(devices)
    return {device.memory for device in machine.platform.devices if device.name in names}


def lower_limit(step: StepProfile, machine: Target) -> float:
    """Return seconds that no plan of a step is faster than: every device at its best, from the first moment."""
    devices = [device for device in machine.platform.devices if not device.wide]
    rates = Rates(step, [[device] for device in devices], machine.platform)
    return max(bound(step, (), machine, rates), rates.seconds([device.name for device in devices]))


def crowded(step: StepProfile, plan: Sequence[StepParts], platform: Platform) -> str | None:
    """Return a memory in which a plan's parts of arrays do not fit together, or None."""
    boxes: dict[tuple[int, int], list[Box]] = {}
    sizes: dict[int, int] = {}
    memories = {device.name: device.memory for device in platform.devices}
    for call, parts in zip(step.calls, plan, strict=True):
        profile = call.profile
        for device, box in parts:
            memory = memories.get(device, HOST)
            if platform.memories[memory].capacity is None or memory == HOST or profile.host:
                continue
            touched = profile.whole if box == profile.box and profile.whole is not None else profile.part(box)
            for argument, array, needed in zip(profile.arguments, call.arrays, touched.boxes, strict=True):
                sizes[array] = argument.itemsize
                boxes.setdefault((memory, array), []).append(needed)
    held: dict[int, int] = {}
    for (memory, array), needed_of in boxes.items():
        held[memory] = held.get(memory, 0) + bounding(needed_of).volume * sizes[array]
    for memory, nbytes in held.items():
        if nbytes > (platform.memories[memory].capacity or inf):
            return platform.memories[memory].name
    return None
