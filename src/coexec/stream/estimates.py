"""From a function's calls to the numbers that pipelines are planned with: seconds of each call on each class of devices.

Before: stream/recording.py, predict/ through the runtime's own previews.  After: stream/planning.py.  Searches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from ..errors import PlanError
from ..geometry import Box
from ..graph.call import describe
from ..plan.pipeline import StreamKernel, StreamWork
from ..predict.features import flops_at, work_of_part
from ..predict.roofline import DevicePeaks
from ..program.array import Array
from ..program.call import Options
from ..runtime import Runtime
from .item import driver_of
from .item_session import CallSeen
from .recording import RecordedItem

MOST_DIVIDED = 8  # devices that one item is divided over: beyond, halos and launches outweigh
HOST_BYTES_PER_SECOND = (
    5e9  # that one thread of the host reads and writes: an order of magnitude, as nobody has timed it
)
Members = Mapping[str, tuple[str, ...]]


class Estimated(NamedTuple):
    """What is predicted of a function's calls."""

    work: StreamWork
    spread: float  # the largest relative spread of what counts
    unknown: tuple[tuple[str, str], ...]  # calls and classes of which nothing is known
    sources: frozenset[str]  # where predictions come from


def estimate(runtime: Runtime, recorded: RecordedItem, members: Members, designs: Mapping[str, str]) -> Estimated:
    """Return the calls of a function as work for pipelines, with what the models say of each class of devices.

    `designs` are those of the classes that stand for devices with a design: what these take is what their platform says.
    """
    kernels, unknown, spread = [], [], 0.0
    sources: set[str] = set()
    for number, call in enumerate(recorded.calls):
        if call.kernel.host:
            continue
        seconds: dict[str, list[float]] = {}
        instead: dict[str, list[float]] = {}  # where the host would compute it
        for name, devices in members.items():
            if name in designs:
                planned = _designed(runtime, call, devices, designs[name])
                if planned:
                    seconds[name] = planned
                    sources.add("roofline")
                continue
            asked = _alone(runtime, call, devices[0])
            if asked is None:
                continue
            one, uncertain, source = asked
            if source == "host":
                instead[name] = [sum(array.nbytes for array in call.arrays) / HOST_BYTES_PER_SECOND]
                continue
            if one is None:
                unknown.append((recorded.names[number], name))
                continue
            spread = max(spread, uncertain)
            sources.add(source)
            seconds[name] = [one, *_divided(runtime, call, devices)]
        if not seconds and not any(kernel == recorded.names[number] for kernel, _ in unknown):
            seconds = instead  # no device can: wherever it is placed, the host computes it
        kernels.append(
            StreamKernel(
                recorded.names[number],
                seconds,
                replicable=not recorded.stateful[number],
                weights=recorded.weights[number],
                watts=_watts(runtime, call, members, designs),
            )
        )
    if not kernels:
        raise PlanError("the function calls host tasks only, so there is nothing to place on devices")
    known = {kernel.name for kernel in kernels}
    values = [value for value in recorded.values if value.source is None or value.source in known]
    return Estimated(StreamWork(tuple(kernels), tuple(values)), spread, tuple(unknown), frozenset(sources))


def _watts(runtime: Runtime, call: CallSeen, members: Members, designs: Mapping[str, str]) -> dict[str, float]:
    """Return the watts of devices that compute a call, by class, where they differ from those of other calls."""
    found = {}
    for name, devices in members.items():
        device = runtime.platform.device(devices[0])
        if name in designs:
            device = device.under(designs[name])
        watts = device.watts_for(call.kernel.op or call.kernel.name)
        if watts is not None and watts != device.watts:
            found[name] = watts
    return found


def _designed(runtime: Runtime, call: CallSeen, devices: Sequence[str], design: str) -> list[float]:
    """Return the seconds of a call on 1, 2, ... devices with a design, as their peaks allow; none if it cannot run there."""
    platform = runtime.platform
    device = platform.device(devices[0])
    op = call.kernel.op or call.kernel.name
    if op not in device.design(design).ops:
        return []
    peaks = DevicePeaks(device.under(design), platform.memories[device.memory].bandwidth, op=op)
    at, driver = flops_at(call.kernel), driver_of(runtime)
    task = describe(call.kernel, list(call.arrays), dict(call.scalars), call.options, driver.owner)
    found: list[float] = []
    for count in range(1, min(len(devices), MOST_DIVIDED) + 1):
        if count > 1 and (not call.kernel.split or call.options.devices is not None):
            break
        options = Options(devices[0], split=False) if count == 1 else Options(",".join(devices[:count]))
        try:
            plan = driver.preview(call.kernel, _inputs(call), dict(call.scalars), options)
        except PlanError:
            break
        if plan is None or (count > 1 and len(plan.shares) < count):
            break
        took: dict[str, float] = {}
        for part in plan.parts:
            work = work_of_part(task, Box(part.lo, part.hi))
            least = peaks.of(work.kind).seconds(work.features[at] if at is not None else None, work.size)
            if least is None:
                return found
            took[part.device] = took.get(part.device, 0.0) + least
        found.append(max(took.values()))
    return found


def _inputs(call: CallSeen) -> list[Array]:
    """Return the arrays that a call was given, without those that it returned."""
    return [array for param, array in zip(call.kernel.array_params, call.arrays, strict=False) if param.position >= 0]


def _alone(runtime: Runtime, call: CallSeen, device: str) -> tuple[float | None, float, str] | None:
    """Return seconds (None: unknown), spread and source of a call on one device; None if it cannot run there."""
    options = Options(device, split=False)
    try:
        plan = driver_of(runtime).preview(call.kernel, _inputs(call), dict(call.scalars), options)
    except PlanError:
        return None
    if plan is None:
        return None
    took = [part.compute_s for part in plan.parts]
    if any(part.device == "host" for part in plan.parts):
        return None, 1.0, "host"
    if any(seconds is None for seconds in took):
        return None, 1.0, "unknown"
    total = sum(seconds for seconds in took if seconds is not None)
    return total, plan.spread, plan.parts[0].source


def _divided(runtime: Runtime, call: CallSeen, devices: Sequence[str]) -> list[float]:
    """Return the seconds of a call divided over 2, 3, ... devices, as far as the planner would divide it."""
    found: list[float] = []
    if not call.kernel.split or call.options.devices is not None:
        return found
    for count in range(2, min(len(devices), MOST_DIVIDED) + 1):
        options = Options(",".join(devices[:count]))
        try:
            plan = driver_of(runtime).preview(call.kernel, _inputs(call), dict(call.scalars), options)
        except PlanError:
            break
        if plan is None or len(plan.shares) < count:
            break
        per_device: dict[str, float] = {}
        for part in plan.parts:
            per_device[part.device] = per_device.get(part.device, 0.0) + (
                inf if part.compute_s is None else part.compute_s
            )
        slowest = max(per_device.values())
        if not isfinite(slowest):
            break
        found.append(slowest)
    return found
