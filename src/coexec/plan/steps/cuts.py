"""One set of cuts for all arrays of a step, balanced for all of its calls together.

Before: profile.py.  After: planner.py, estimate.py.  Knows shares and rows; no copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import accumulate
from math import lcm
from typing import NamedTuple

from ...geometry import Box
from ...machine.platform import Platform
from ...predict.features import part_of
from .profile import CallProfile, StepCall, StepProfile
from .slices import Work

ROUNDS = 2  # times that shares are corrected by what models say of the parts: they are not quite linear
COARSE = 16  # granules per device: of more, the nearest one is off by 3 %, and arrays of a step had better be cut alike
UNLIKE = 0.98  # of what the last device takes: more is no reason to cut arrays of a step in unlike ways
LEAST = 1e-3  # of a step: a device that would get less gets nothing


class StepPart(NamedTuple):
    """What one device does of a call."""

    device: str
    box: Box


StepParts = tuple[StepPart, ...]


def shares(step: StepProfile, devices: Sequence[str], platform: Platform) -> Work[dict[str, float] | None]:
    """Return which part of each divisible call each device gets, so that all are busy for as long.

    None if nothing is known of the speed of one of them.
    """
    calls = [call.profile for call in step.calls if call.profile.axis is not None and not call.profile.host]
    rates: dict[str, float] = {}
    for device in devices:
        total = 0.0
        for call in calls:
            if device in call.devices:
                assert call.whole is not None
                seconds = call.seconds(device, call.whole, together=len(devices) > 1)
                if seconds is None:
                    return None
                total += seconds
                yield 0.0
        rates[device] = 1.0 / total if total > 0.0 else 0.0
    found = _normal(rates)
    for _ in range(ROUNDS if len(devices) > 1 and calls else 0):
        busy = dict.fromkeys(devices, 0.0)
        for call in calls:
            for device, seconds in part_seconds(call, divided(call, found), platform):
                if device in busy:  # or it does this call for devices that cannot
                    busy[device] += seconds
            yield 0.0
        if not any(busy.values()):
            break
        busy = _alike(busy, rates)
        found = _normal({d: share / busy[d] if busy[d] else 0.0 for d, share in found.items()})
    return found


def _alike(busy: Mapping[str, float], rates: Mapping[str, float]) -> dict[str, float]:
    """Return seconds that are the same for devices that are as fast: among these, which has one row more tells nothing."""
    of: dict[float, list[float]] = {}
    for device, seconds in busy.items():
        of.setdefault(rates[device], []).append(seconds)
    return {device: sum(of[rates[device]]) / len(of[rates[device]]) for device in busy}


def _normal(rates: Mapping[str, float]) -> dict[str, float]:
    total = sum(rates.values())
    if not total:
        return {device: 1.0 / len(rates) for device in rates}
    least = min(LEAST * total, max(rates.values()) / 2)  # of many devices each has little
    kept = {device: rate / total if rate > least else 0.0 for device, rate in rates.items()}
    left = sum(kept.values())
    return {device: rate / left for device, rate in kept.items()}


def divided(call: CallProfile, parts: Mapping[str, float]) -> StepParts:
    """Return a divisible call cut by shares, among those who can run it; one part if nothing is left to divide."""
    able = [(device, share) for device, share in parts.items() if device in call.devices and share > 0.0]
    assert call.axis is not None
    if not able:
        able = [(next(iter(call.devices)), 1.0)]
    total = sum(share for _, share in able)
    ends: list[int] = []
    sum_ = 0.0
    for number, (device, share) in enumerate(able):
        sum_ += share / total
        last = number == len(able) - 1
        ends.append(call.rows if last else _cut(call, sum_ * call.rows, device, able[number + 1][0]))
    ends = _balanced(call, {device: share / total for device, share in able}, ends)
    found: list[StepPart] = []
    low = 0
    for (device, _), high in zip(able, ends, strict=True):
        if high > low:
            found.append(StepPart(device, part_of(call.box, call.axis, low, high)))
            low = high
    return tuple(found)


def _balanced(call: CallProfile, able: Mapping[str, float], ends: Sequence[int]) -> list[int]:
    """Return cuts that let the last device be done sooner, if there are such; else those that are given.

    Cuts at the nearest granule keep arrays of unlike lengths cut alike. Where a call has few granules, one more of them may be much
    for a slow device: each goes to whoever is done with it first.
    """
    granule, parts = _granule(call, *able), list(able.values())
    if call.rows < 2 * granule * len(parts):  # what devices like is too coarse for as many of them
        granule = call.granule
    many = call.rows // granule
    if many > COARSE * len(parts) or many < 1:
        return list(ends)
    counts = [0] * len(parts)
    queue = [(1.0 / share, number) for number, share in enumerate(parts)]
    heapify(queue)
    for _ in range(many):
        _, number = queue[0]
        counts[number] += 1
        heapreplace(queue, ((counts[number] + 1) / parts[number], number))
    cuts = list(accumulate([count * granule for count in counts]))
    cuts[-1] = call.rows
    return cuts if _last(parts, cuts) < UNLIKE * _last(parts, ends) else list(ends)


def _last(parts: Sequence[float], ends: Sequence[int]) -> float:
    """Return when the last device is done, in rows over share."""
    return max([(high - low) / share for share, low, high in zip(parts, [0, *ends], ends, strict=False)])


def _cut(call: CallProfile, row: float, *devices: str) -> int:
    """Return the row nearest to `row` at which a call may be cut between two devices, as both of them like it."""
    granule = _granule(call, *devices)
    return min(call.rows, round(row / granule) * granule)


def _granule(call: CallProfile, *devices: str) -> int:
    """Return of how many rows parts of a call are, as these devices like it."""
    granule = lcm(call.granule, *[max(1, call.devices[device].device.granule) for device in devices])
    return call.granule if granule * 2 > call.rows else granule


def part_seconds(call: CallProfile, parts: StepParts, platform: Platform) -> list[tuple[str, float]]:
    """Return the predicted seconds of each part beside the others: parts that share a memory share its bandwidth."""
    return [(device, seconds) for device, seconds, _ in beside(call, parts, platform)]


def beside(call: CallProfile, parts: StepParts, platform: Platform) -> list[tuple[str, float, float]]:
    """Return the predicted seconds of each part beside the others, and by itself.

    If those that share a memory ask for more than there is, each is slowed down by the same factor, until the first of them is done.
    """
    together = len(parts) > 1
    found: list[tuple[str, float, float]] = []
    sharing: dict[int, list[tuple[float, int, float]]] = {}  # by memory: seconds alone, which part, bytes per second
    for device, box in parts:
        touched = call.whole if box == call.box and call.whole is not None else call.part(box)
        seconds = call.seconds(device, touched, together=together)
        found.append((device, seconds or 0.0, seconds or 0.0))
        if seconds:
            asked = touched.work.size / seconds
            sharing.setdefault(call.devices[device].memory, []).append((seconds, len(found) - 1, asked))
    for memory, mine in sharing.items() if together else ():
        bandwidth = platform.memories[memory].bandwidth
        if bandwidth and len(mine) > 1:
            for number, seconds in _crowded(mine, bandwidth):
                device, _, alone = found[number]
                found[number] = device, seconds, alone
    return found


def _crowded(parts: Sequence[tuple[float, int, float]], bandwidth: float) -> list[tuple[int, float]]:
    """Return when each part is done that shares a memory with the others."""
    asked, now, before = sum([ask for _, _, ask in parts]), 0.0, 0.0
    done = []
    for seconds, number, ask in sorted(parts):
        now += (seconds - before) * max(1.0, asked / bandwidth)
        before, asked = seconds, asked - ask
        done.append((number, now))
    return done


def best_alone(call: CallProfile, devices: Sequence[str]) -> tuple[float, str]:
    """Return who of these does all of a call soonest, and in how many seconds."""
    assert call.whole is not None
    known = [(s, d) for d in devices if d in call.devices and (s := call.seconds(d, call.whole, together=False))]
    return min(known, default=(0.0, next(iter(call.devices))))


def whole(call: StepCall, device: str) -> StepParts:
    """Return all of a call on one device; on whoever does it soonest, if that device cannot run it."""
    profile = call.profile
    if profile.host:
        device = "host"
    elif device not in profile.devices:
        device = best_alone(profile, list(profile.devices))[1]
    return (StepPart(device, profile.box),)


def foreign(step: StepProfile, devices: Sequence[str]) -> bool:
    """Tell whether some call of a step runs on none of these devices."""
    return any(is_foreign(call, devices) for call in step.calls)


def is_foreign(call: StepCall, devices: Sequence[str]) -> bool:
    """Tell whether a call runs on none of these devices: another one does it for them."""
    return not call.profile.host and not any(device in call.profile.devices for device in devices)
