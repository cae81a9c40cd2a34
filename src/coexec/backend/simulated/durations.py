"""How long things take on devices that are not here: measured and scaled, by peak rates, or by default; and which of these.

Before: predict/, machine/.  After: backend.py.  Knows no clock: contention is the backend's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...graph.instruction import Copy, Fence, Fill, Instruction, Launch, Reduce
from ...machine.platform import HOST, Device, Platform
from ...predict.features import flops_at
from ...predict.roofline import DevicePeaks
from ...predict.work import Work
from ...program.kernel import Kernel
from .measured import StoredModels

KERNEL = 1e-3
"""Seconds of a kernel of which nothing is known."""
BANDWIDTH = 10e9
"""Bytes per second of a memory of which nothing is known."""
KEPT = 1 << 14  # answers remembered

Seconds = Callable[[Instruction], float]


class Timed(NamedTuple):
    """How long an instruction takes when nobody else uses what it uses."""

    seconds: float
    source: str  # measured, scaled from ..., roofline, default, link, memory, given
    bytes_per_s: float = 0.0  # that it asks of its memory meanwhile
    computing: float = 1.0  # part of its device's rate that it asks for
    waits: float = 0.0  # seconds that it waits for the interpreter lock, per second that it takes
    spread: float = 0.0  # if it varies: half of its times are within this part of `seconds`


class Law(Protocol):
    """Tells how long instructions take."""

    shares: bool
    """Whether transfers take longer beside others."""
    by_peaks: bool
    """Whether kernels that nobody measured take what peak rates say."""

    def timed(self, instruction: Instruction) -> Timed:
        """Return how long an instruction takes, and how that is known."""

    def configure(self, device: Device) -> None:
        """Take what a device reaches from now on, with another design."""


class GivenDurations:
    """Whatever a function says, whatever else is going on."""

    shares = by_peaks = False

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds

    def timed(self, instruction: Instruction) -> Timed:
        """Return what the function says."""
        return Timed(self._seconds(instruction), "given", 0.0, 0.0)

    def configure(self, device: Device) -> None:
        """Do nothing: the function knows no device."""


def fixed_durations(kernel: float = 1.0, copy: float = 0.5) -> Seconds:
    """Return a clock law: kernels and copies take fixed seconds, everything else none."""

    def seconds(instruction: Instruction) -> float:
        step = instruction.step
        if isinstance(step, Launch):
            return step.predicted if step.predicted is not None else kernel
        return copy if isinstance(step, Copy) else 0.0

    return seconds


class Durations:
    """Durations on the devices of a platform."""

    shares = by_peaks = True

    def __init__(
        self,
        platform: Platform,
        measured: StoredModels | None = None,
        *,
        vary: bool = False,
        host: Device | None = None,
    ) -> None:
        """Know durations on `platform` from its rates and from what was `measured`, which may `vary` as it did then.

        `host` is the processor that does the host's own work, if the program is not given it as a device.
        """
        self._vary = vary
        self._platform = platform
        self._measured = measured
        self._devices = {device.name: device for device in platform.devices}
        self._devices["host"] = host or processor(platform) or Device("host", "cpu", HOST)
        self._classes = {name: _speed_class(device, platform) for name, device in self._devices.items()}
        self._known: dict[Any, Timed] = {}
        self._bandwidths: dict[int, float] = {}

    def configure(self, device: Device) -> None:
        """Take what a device reaches from now on, with another design."""
        self._devices[device.name] = device
        self._classes[device.name] = _speed_class(device, self._platform)

    def seconds(self, instruction: Instruction) -> tuple[float, str]:
        """Return how many seconds an instruction takes when nothing else is going on, and how that is known."""
        found = self.timed(instruction)
        return found.seconds, found.source

    def timed(self, instruction: Instruction) -> Timed:
        """Return how long an instruction takes, and how that is known."""
        step = instruction.step
        if isinstance(step, Launch):
            return self._kernel(instruction.task, step)
        if isinstance(step, Copy):
            return self._copy(step)
        if isinstance(step, Fill):
            return Timed(step.nbytes / self._bandwidth(step.allocation.memory), "memory")
        if isinstance(step, Reduce | Fence):
            binding = step.partials if isinstance(step, Reduce) else step.binding
            nbytes = binding.box.volume * np.dtype(binding.dtype).itemsize if binding.dtype is not None else 0
            return Timed(2.0 * nbytes / self._bandwidth(HOST), "memory")  # each element is read and written
        return Timed(0.0, "default")

    def _copy(self, copy: Copy) -> Timed:
        source, target = copy.source.memory, copy.target.memory
        link = self._platform.link(source, target) if source != target else None
        if link is None:  # within one memory: every byte is read and written
            return Timed(2.0 * copy.nbytes / self._bandwidth(target), "memory")
        return Timed(link.seconds(copy.nbytes), "link")

    def _bandwidth(self, memory: int) -> float:
        known = self._bandwidths.get(memory)
        if known is None:
            here = [d.bandwidth or 0.0 for d in self._platform.devices if d.memory == memory]
            known = self._platform.memories[memory].bandwidth or max(here, default=0.0) or BANDWIDTH
            self._bandwidths[memory] = known
        return known

    # Kernels --------------------------------------------------------------------------------------------------------

    def _kernel(self, task: Any, step: Launch) -> Timed:
        work: Work | None = step.work
        kernel = task.kernel if task is not None else None
        if work is None or kernel is None:
            return Timed(KERNEL, "default")
        speed = self._classes[step.device]
        how = step.model.how if step.model is not None else ""
        key = (kernel.serial, step.body.name, how, speed, work.features, work.kind, step.together)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[key] = self._find(kernel, step, work, self._devices[step.device])
        return known

    def _find(self, kernel: Kernel, step: Launch, work: Work, device: Device) -> Timed:
        flops = work.flops(flops_at(kernel))
        memory = self._platform.memories[device.memory].bandwidth
        peak = DevicePeaks(device, memory, op=kernel.op or kernel.name).of(work.kind)
        if self._measured is not None:
            found = self._measured.find(kernel, step, work, device, lambda other: peak.ratio(other, flops, work.size))
            if found is not None:
                seconds, source, waits, spread = found
                asks = work.size / seconds if seconds and source != "measured" else 0.0  # else it is measured with it
                return Timed(seconds, source, asks, 1.0, waits, spread if self._vary else 0.0)
        computing, moving = peak.terms(flops, work.size)
        least = max(computing, moving)
        if not least:
            return Timed(KERNEL, "default")
        return Timed(least, "roofline", work.size / least if moving else 0.0, computing / least)


def _speed_class(device: Device, platform: Platform) -> tuple[Any, ...]:
    """Return what the durations of a device depend on: devices that are alike share answers."""
    memory = platform.memories[device.memory].bandwidth
    return (
        device.speed,
        device.software,
        device.flops,
        device.rates,
        device.achieved,
        device.configurations,
        device.bandwidth,
        memory,
    )


def processor(platform: Platform) -> Device | None:
    """Return what the host's own work runs on: the first CPU, if there is one."""
    return next((d for d in platform.devices if d.abilities.on_numpy and d.memory == HOST), None)
