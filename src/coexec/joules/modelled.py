"""What devices drew, from how long they computed and from the watts that their platform states.

Before: backend/base.py's Ran, machine/platform.py.  After: joules/meter.py, stream/statistics.py.  Measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..backend.base import Ran
from ..driver import Driver
from ..graph.configure import Configure
from ..graph.instruction import Launch
from ..machine.platform import Device, Platform

MODELLED = "modelled from the platform's watts; copies are not counted"
NO_WATTS = "unknown: the platform states no watts"


DevicesNow = Callable[[str], Device | None]


def devices_now(driver: Driver) -> DevicesNow:
    """Return what says what a device is now: in a simulation, with its design."""
    simulation = driver.parts.simulation
    known = {device.name: device for device in driver.platform.devices}
    return known.get if simulation is None else lambda name: simulation.device(name) if name in known else None


class BusyDevices:
    """Seconds that devices computed since the beginning, by device and kernel."""

    def __init__(self, begun: float, devices: DevicesNow | None = None) -> None:
        """Begin at `begun`. `devices` says what a device is now: with another design an operation draws other watts."""
        self.begun = begun
        self._devices = devices
        self._as: dict[str, Device] = {}  # what devices are since they loaded a design, as far as records have come
        self.joules: dict[tuple[str, str], float] = {}  # as far as it is known what devices are
        self.seconds: dict[tuple[str, str], float] = {}
        self.ops: dict[str, str] = {}  # the operation of each kernel, as platforms call it

    def ran(self, records: Sequence[Ran]) -> None:
        """Take what ran."""
        for record in records:
            if isinstance(record.instruction.step, Configure):
                self._as[record.device] = record.instruction.step.configured
            if isinstance(record.instruction.step, Launch) and record.stop > self.begun:
                task = record.instruction.task
                key = (record.device, task.name if task is not None else "")
                seconds = record.stop - max(record.start, self.begun)
                self.seconds[key] = self.seconds.get(key, 0.0) + seconds
                if task is not None and task.kernel is not None:
                    self.ops[task.name] = task.kernel.op or task.name
                device = self._devices(record.device) if self._devices is not None else None
                device = self._as.get(record.device, device)
                if device is not None:
                    watts = device.watts_for(self.ops.get(key[1], key[1])) or 0.0
                    self.joules[key] = self.joules.get(key, 0.0) + seconds * watts

    def on(self, device: str) -> float:
        """Return the seconds that a device computed."""
        return sum([seconds for (name, _), seconds in self.seconds.items() if name == device])

    def active_joules(self, device: Device, names: Collection[str] | None = None) -> float:
        """Return what a device that states watts drew while it computed, all kernels or some of them."""
        if self._devices is not None:
            drawn = self.joules.items()
            return sum(
                [joules for (where, name), joules in drawn if where == device.name and (names is None or name in names)]
            )
        watts = device.watts or 0.0
        return sum(
            [
                seconds * (device.watts_for(self.ops.get(name, name)) or watts)
                for (where, name), seconds in self.seconds.items()
                if where == device.name and (names is None or name in names)
            ]
        )

    @property
    def total(self) -> float:
        """Seconds that all devices computed."""
        return sum(self.seconds.values())


def modelled(platform: Platform, busy: BusyDevices, wall: float) -> dict[str, float]:
    """Return the joules of each device that states watts: what it computed by operation, the rest of `wall` waiting.

    A wide device is the same silicon as the narrow ones beside it, which wait when it computes and draw that already.
    """
    found = {}
    for device in platform.devices:
        if device.watts is not None:
            computing = busy.on(device.name)
            idle = 0.0 if device.wide else device.idle_watts or 0.0
            once = min(1.0, wall / computing) if computing else 1.0  # kernels that ran at once draw what one does
            found[device.name] = busy.active_joules(device) * once + idle * max(0.0, wall - computing)
    return found
