"""Which design each device will have when what is planned is over, and what it costs to give it another one.

Before: machine/parts.py.  After: plan/policies.py, plan/steps/estimate.py, schedule/plan.py.  Knows no clock. A device that cannot
be configured costs nothing, here or to whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING

from ..graph.task import Task
from ..machine.platform import Platform

if TYPE_CHECKING:
    from ..graph.command import Chunk
    from .policies import Loads


MOST_COMBINATIONS = 16  # that are looked at for one plan: each costs two turns of an estimate


class Designs:
    """The designs of devices, after everything that they were given."""

    def __init__(self, platform: Platform, held: Mapping[str, str] | None = None) -> None:
        self._devices = {device.name: device for device in platform.devices if device.configurations}
        self.held: dict[str, str] = dict(held or {})
        self._loading: dict[tuple[int, str], float] = {}  # task and device -> seconds that are still to come
        self.some = bool(self._devices)  # some device can be configured

    def combinations(self, devices: Sequence[str]) -> list[dict[str, str]]:
        """Return what some devices may hold: nothing, then each combination of their designs, as far as those are few."""
        able = [self._devices[name] for name in devices if name in self._devices]
        ways = product(*[[design.name for design in device.configurations] for device in able])
        names = [device.name for device in able]
        return [{}, *[dict(zip(names, way, strict=True)) for way in islice(ways, MOST_COMBINATIONS) if way]]

    def op(self, task: Task) -> str:
        """Return the operation that a call needs a design for; "" if no device has designs."""
        kernel = task.kernel
        return "" if not self._devices or kernel is None else kernel.op or kernel.name

    def loading(self, device: str, op: str) -> float:
        """Return the seconds until a device can begin with an operation: those of the design that it must load, if any."""
        known = self._devices.get(device)
        design = known.design_for(op, self.held.get(device, "")) if known is not None and op else None
        return 0.0 if design is None or design.name == self.held.get(device) else design.load

    def of(self, task: Task) -> dict[str, float]:
        """Return the seconds until each device can begin with a call, of those that must load a design for it."""
        op = self.op(task)
        return {device: seconds for device in self._devices if (seconds := self.loading(device, op))}

    def take(self, device: str, op: str) -> float:
        """Give a device an operation; return the seconds in which it loads what that needs."""
        seconds = self.loading(device, op)
        known = self._devices.get(device)
        design = known.design_for(op, self.held.get(device, "")) if known is not None and op else None
        if design is not None:
            self.held[device] = design.name
        return seconds

    def note(self, loads: Loads, task: Task, chunks: Sequence[Chunk]) -> None:
        """Count the designs that the parts of a task need among what devices have to do."""
        op = self.op(task)
        for device in dict.fromkeys([chunk.device for chunk in chunks]):
            seconds = self.take(device, op)
            if seconds:
                self._loading[task.id, device] = seconds
                loads.delay(device, seconds, task.id)

    def over(self, loads: Loads, task: int, device: str) -> None:
        """Note that a device has loaded what it needed for a task."""
        seconds = self._loading.pop((task, device), 0.0)
        if seconds:
            loads.delay(device, -seconds, 0)
