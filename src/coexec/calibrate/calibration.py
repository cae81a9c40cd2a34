"""Measure the devices and links of this machine, so that what was never run can be predicted.

Before: calibrate/measuring.py.  After: the package's own namespace, cli/calibrate.py.  Prints nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..machine.platform import Device
from ..predict.learned import Learned
from ..predict.model import KernelModel
from ..runtime import Runtime

if TYPE_CHECKING:
    from .measuring import Progress

CACHED = 8e6  # bytes: smaller arrays may stay in a cache, and say nothing of a memory's bandwidth
SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class CalibratedVariant:
    """What is known of one kernel variant on one kind of device."""

    kernel: str
    variant: str
    speed: str  # the speed class of the device
    devices: tuple[str, ...]
    types: tuple[str, ...]  # of the arrays
    shapes: int  # unlike calls that were measured, in this run or before
    measurements: int
    rmse_seconds: float | None  # of predictions from the other shapes; None with too few of them
    median_error: float | None  # relative


@dataclass(frozen=True, slots=True)
class LinkRate:
    """What is known of the way from one memory to another."""

    source: str
    target: str
    latency_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class PeakRate:
    """The highest rates that were measured of a device."""

    device: str
    flops_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a calibration measured."""

    devices: tuple[str, ...]
    seconds: float
    calls: int
    store: str | None  # the file; None keeps nothing
    models: tuple[CalibratedVariant, ...] = ()
    links: tuple[LinkRate, ...] = ()
    rates: tuple[PeakRate, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)  # what was not measured, and why
    interrupted: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


def calibrate(
    devices: str | None = None,
    *,
    seconds: float = SECONDS,
    kernels: Sequence[tuple[Any, Sequence[Sequence[Any]]]] | None = None,
    ops: Sequence[str] | None = None,
    store: str | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Measure kernels and links on each device alone and on all at once, keep it in the store, and say how well it fits.

    `ops` names ready-made operations (all if neither it nor `kernels` is given); `kernels` are pairs of a kernel of
    yours and a list of calls, each a tuple of arguments with NumPy arrays. `store` is the file to keep measurements in,
    if not the usual one. `progress(fraction, text)` is called before each measurement. After Ctrl-C, what was measured
    is kept, and the report says so.
    """
    from .designs import designs, numbers, own  # late: every operation comes with it
    from .measuring import DesignBudget

    if not 0.0 < seconds < inf:
        raise ArgumentError(f"calibrate(seconds={seconds!r}): give a number of seconds above 0")
    chosen = designs(ops) if ops is not None or kernels is None else []
    chosen += own(kernels or ())
    with Runtime(devices=devices, store=store, diagnostics="off") as runtime:
        measuring = DesignBudget(runtime, seconds, progress or _silent)
        interrupted = False
        try:
            measuring.run(chosen, links=kernels is None)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            numbers.cache_clear()
        learned = runtime.learned
        learned.save()
        rates = peak_rates(runtime.platform.devices, learned)
        if rates:
            learned.store.save_rates(rates)
        platform = runtime.platform
    path = learned.store.path
    return Calibration(
        devices=tuple(device.name for device in platform.devices),
        seconds=measuring.spent,
        calls=measuring.calls,
        store=None if path is None else str(path),
        models=fitted(platform.devices, learned),
        links=tuple(LinkRate(*names, *figures) for names, figures in learned.store.links().items()),
        rates=tuple(
            PeakRate(device.name, *rates[device.speed, device.software])
            for device in platform.devices
            if (device.speed, device.software) in rates
        ),
        left_out=measuring.left_out,
        interrupted=interrupted,
    )


def _silent(fraction: float, text: str) -> None:
    del fraction, text


# What was learnt ------------------------------------------------------------------------------------------------------------


def parts_of(key: str) -> tuple[str, str, str]:
    """Return kernel, variant and speed class from a model's key."""
    kernel, _, variant, speed, _, _ = key.rsplit(" | ", 5)
    return kernel, variant, speed


def fitted(devices: Sequence[Device], learned: Learned) -> tuple[CalibratedVariant, ...]:
    """Return every model with measurements, and how far its predictions lie from them."""
    found = []
    for key, model in learned.models().items():
        kernel, variant, speed = parts_of(key)
        samples = model.samples()
        names = tuple(device.name for device in devices if device.speed == speed)
        if not samples or kernel.startswith("_"):
            continue
        errors = model.errors()
        found.append(
            CalibratedVariant(
                kernel,
                variant,
                speed,
                names,
                tuple(sorted({str(np.dtype(name)) for sample in samples for name in sample.kind.split()})),
                len({sample.key for sample in samples}),
                sum(len(sample.seconds) for sample in samples),
                None if errors is None else errors.rmse_seconds,
                None if errors is None else errors.median_relative,
            )
        )
    return tuple(sorted(found, key=lambda f: (f.kernel, f.devices, f.variant)))


def peak_rates(devices: Sequence[Device], learned: Learned) -> dict[tuple[str, str], tuple[float, float]]:
    """Return (speed class, software) -> the highest operations and bytes per second that a device reached alone."""
    flops: dict[str, float] = {}
    moved: dict[str, float] = {}
    for key, model in learned.models().items():
        kernel, _, speed = parts_of(key)
        if kernel == "matmul_float32":
            flops[speed] = max(flops.get(speed, 0.0), _best(model, model.flops_at))
        elif kernel in ("add", "subtract", "multiply"):
            moved[speed] = max(moved.get(speed, 0.0), _best(model, 0, CACHED))
    found = {}
    for device in devices:
        rates = flops.get(device.speed, 0.0), moved.get(device.speed, 0.0)
        if min(rates) > 0.0:
            found[device.speed, device.software] = rates
    return found


def _best(model: KernelModel, feature: int | None, least: float = 0.0) -> float:
    """Return the highest rate of a feature per second over calls that touch at least so many bytes."""
    if feature is None:
        return 0.0
    rates = [
        sample.features[feature] / sorted(sample.seconds)[len(sample.seconds) // 2]
        for sample in model.samples()
        if not sample.together and sample.features[0] >= least and min(sample.seconds, default=0.0) > 0.0
    ]
    return max(rates, default=0.0)
