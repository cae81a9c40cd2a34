"""A plan of a step on some devices: divisible calls are cut, the others go where they are done first.

Before: cuts.py, estimate.py.  After: choose.py.  Knows no period: whoever wants it estimates what this returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...machine.platform import Platform
from ..designs import Designs
from .cuts import StepPart, StepParts, best_alone, whole
from .estimate import Emulation, Overheads
from .profile import CallProfile, StepCall, StepProfile


def placed(
    step: StepProfile,
    devices: Sequence[str],
    platform: Platform,
    overheads: Overheads,
    cut: Callable[[CallProfile], StepParts],
) -> list[StepParts]:
    """Return a plan on some devices: divisible calls cut by `cut`, the others one by one where they are done first.

    Calls are placed as in a turn that found all data in place, the second of two. Devices that can be configured may hold any
    design at the beginning, and the best is taken: to load it is worth nothing for one call, and much for all turns.
    """
    plan: list[StepParts | None] = []
    for call in step.calls:
        profile = call.profile
        if profile.host:
            plan.append((StepPart("host", profile.box),))
        elif profile.axis is not None and len(devices) > 1 and best_alone(profile, devices)[0] > overheads.wake:
            plan.append(cut(profile))
        elif len(able := [d for d in devices if d in profile.devices]) < 2:
            plan.append(whole(call, devices[0]) if not able else (StepPart(able[0], profile.box),))
        else:
            plan.append(None)
    if None not in plan:
        return [parts for parts in plan if parts is not None]
    beginnings = Designs(platform).combinations(devices)
    found = [_one_by_one(step, devices, plan, Emulation(platform, overheads, None, held)) for held in beginnings]
    return min(found, key=lambda ended: ended[0])[1]


def _one_by_one(
    step: StepProfile, devices: Sequence[str], plan: Sequence[StepParts | None], emulation: Emulation
) -> tuple[float, list[StepParts]]:
    """Return the end of the second of two turns, and its plan: calls that have no place get one, one after the other."""
    for number in range(2):
        chosen: list[StepParts] = []
        for call, parts in zip(step.calls, plan, strict=True):
            chosen.append(parts or (_first_done(emulation, call, devices, number),))
            for _ in emulation.call(call, chosen[-1], number):
                pass
    return emulation.over().end, chosen


def _first_done(emulation: Emulation, call: StepCall, devices: Sequence[str], number: int) -> StepPart:
    """Return all of a call on the device that would be done with it first."""
    able = [device for device in devices if device in call.profile.devices]
    return StepPart(min(able, key=lambda device: emulation.finish(call, device, number)), call.profile.box)
