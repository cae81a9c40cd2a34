"""The devices here as accelerators: a convolution that networks are made of is timed on each of them.

Before: ops/conv2d.py, machine/platform.py.  After: models/model.py.  The one module here that looks at a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from time import perf_counter

import numpy as np

from ..errors import PlanError
from ..machine.platform import Device, Platform
from ..ops.conv2d import conv2d
from ..program import array as arrays

CHANNELS, SIDE, TAPS = 64, 28, 3
"""The convolution that is timed: 58 million operations, a layer of a residual network at half size."""
TIMES = 4
"""It runs so often; the quickest counts, and the first one only warms up."""


def measured_platform(platform: Platform) -> Platform:
    """Return the platform with the operations per second that its narrow devices were seen to do."""
    narrow = narrow_devices(platform)
    best: dict[str, float] = {}
    for device in narrow:
        kind = device.speed or device.name  # devices of one speed are as fast as the fastest of them
        best[kind] = max(best.get(kind, 0.0), measured_rate(platform.name, device))
    return with_rates(platform, {device.name: best[device.speed or device.name] for device in narrow})


def narrow_devices(platform: Platform) -> list[Device]:
    """Return the devices that compute beside each other; raise PlanError if there are none."""
    narrow = [device for device in platform.devices if not device.wide]
    if not narrow:
        raise PlanError(f"platform {platform.name!r} has no device to plan for")
    return narrow


def with_rates(platform: Platform, rates: Mapping[str, float]) -> Platform:
    """Return the platform of the devices whose operations per second are given."""
    known = [
        replace(d, flops=rates[d.name], rates=(), designs=(), achieved=(), configurations=())
        for d in platform.devices
        if d.name in rates
    ]
    return replace(platform, devices=tuple(known), name=platform.name or "this machine")


@lru_cache(maxsize=64)
def measured_rate(platform: str, device: Device) -> float:
    """Return operations per second of a convolution on a device, measured once."""
    del platform
    x = arrays.array(np.ones((1, CHANNELS, SIDE, SIDE), np.float32))
    w = arrays.array(np.ones((CHANNELS, CHANNELS, TAPS, TAPS), np.float32))
    function = conv2d.using(devices=device.name)
    seconds = []
    for _ in range(TIMES):
        begun = perf_counter()
        np.asarray(function(x, w, padding=1)[0, 0, 0, :1])
        seconds.append(perf_counter() - begun)
    return 2.0 * CHANNELS * CHANNELS * TAPS**2 * SIDE**2 / min(seconds[1:])
