"""What a stream's stages did: how long they computed, waited for items, and waited for the consumer.

Before: backend/base.py's Ran.  After: stream/pipeline.py.  Sums up what ran on the devices of each stage; decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backend.base import Ran
from ..graph.instruction import Launch
from ..joules.meter import EnergyReport
from ..joules.modelled import MODELLED, NO_WATTS, BusyDevices, DevicesNow
from ..machine.platform import Platform
from ..plan.pipeline import PipelinePoint
from .item_session import Route

REMEMBERED = 4096  # instructions whose ends are known, to say when others could begin: more than are under way
GAPS = 256  # pauses of the consumer that are kept until it is known who computed meanwhile


class StageQueues:
    """How long calls wait for their device after everything that they need is there. Seconds by device and kernel."""

    def __init__(self) -> None:
        self.waited: dict[tuple[str, str], float] = {}
        self._ended: dict[int, float] = {}  # instructions, in the order of their records

    def ran(self, records: Sequence[Ran]) -> None:
        """Take what ran."""
        ended = self._ended
        for record in records:
            instruction, task = record.instruction, record.instruction.task
            if isinstance(instruction.step, Launch) and task is not None:
                known = [ended[id] for id in (*instruction.needs, *instruction.after) if id in ended]
                ready = max([task.submitted, *known])
                key = (record.device, task.name)
                self.waited[key] = self.waited.get(key, 0.0) + max(0.0, record.start - ready)
            if record.device:  # what nobody computes, like allocations, keeps nothing waiting
                ended[instruction.id] = record.stop
        while len(ended) > REMEMBERED:
            del ended[next(iter(ended))]


class ConsumerPauses:
    """How long devices had nothing to do because the consumer had not asked for its next result. Seconds by device."""

    def __init__(self) -> None:
        self._gaps: list[tuple[float, float]] = []  # begin and end of each pause
        self._next: dict[str, int] = {}  # of the pauses, by device: the first that is not counted
        self._last: dict[str, float] = {}  # when each device last ended something
        self._blocked: dict[str, float] = {}
        self._before = 0.0  # seconds of all pauses that are not kept any more

    def add(self, begin: float, end: float) -> bool:
        """Take a pause; tell whether so many are kept that they should be settled."""
        if end > begin:
            self._gaps.append((begin, end))
        return len(self._gaps) >= GAPS

    def ran(self, records: Sequence[Ran]) -> None:
        """Take what ran."""
        for record in records:
            if isinstance(record.instruction.step, Launch):
                device = record.device
                if self._gaps:
                    self._count(device, record.start)
                self._last[device] = max(self._last.get(device, record.stop), record.stop)

    def _count(self, device: str, until: float) -> None:
        """Count the pauses of one device that were over by then."""
        at, last = self._next.get(device, 0), self._last.get(device, 0.0)
        blocked = self._blocked.get(device, self._before)
        while at < len(self._gaps) and self._gaps[at][1] <= until:
            begin, end = self._gaps[at]
            blocked += max(0.0, end - max(begin, last))
            at += 1
        self._next[device], self._blocked[device] = at, blocked

    def settle(self) -> None:
        """Count all pauses; everything that ran meanwhile was taken."""
        for device in self._last:
            self._count(device, float("inf"))
        self._before += sum([end - begin for begin, end in self._gaps])
        self._gaps.clear()
        self._next.clear()

    def blocked(self, device: str) -> float:
        """Return the seconds of one device. Everything is settled."""
        return self._blocked.get(device, self._before)


@dataclass
class StreamWatch:
    """Takes what ran while a stream is open. Seconds are those of the runtime's clock."""

    clock: Callable[[], float]
    platform: Platform
    drain: Callable[[], None]  # gives everything that ran to whoever takes it
    begun: float = 0.0
    planned: float | None = None  # when its first plan was there
    ended: float | None = None
    items: int = 0
    again: int = 0
    dropped: int = 0
    failed: int = 0
    devices: DevicesNow | None = None  # what devices are now
    busy: BusyDevices = field(default_factory=lambda: BusyDevices(0.0))
    queues: StageQueues = field(default_factory=StageQueues)
    pauses: ConsumerPauses = field(default_factory=ConsumerPauses)
    _left: float | None = None  # when the consumer got its last result

    def begin(self) -> None:
        """Begin to count."""
        self.begun = self.clock()
        self.busy = BusyDevices(self.begun, self.devices)

    def planned_now(self) -> None:
        """Note that the first plan is there: what ran until now were samples, which are no part of any stage."""
        self.drain()
        self.planned = self.clock()
        self.busy, self.queues, self.pauses = BusyDevices(self.planned, self.devices), StageQueues(), ConsumerPauses()

    def ran(self, records: Sequence[Ran]) -> None:
        """Take what ran."""
        self.busy.ran(records)
        self.queues.ran(records)
        self.pauses.ran(records)

    def over(self) -> None:
        """Count an item that is over."""
        self.items += 1

    def left(self) -> None:
        """Note that the consumer has a result and does something else."""
        self._left = self.clock()

    def asked(self) -> None:
        """Note that the consumer asks for its next result."""
        if self._left is not None and self.pauses.add(self._left, self.clock()):
            self.drain()
            self.pauses.settle()
        self._left = None

    def table(self, point: PipelinePoint, route: Route, in_flight: int, drawn: EnergyReport) -> dict[str, Any]:
        """Return all figures, JSON-ready. Everything that ran was given to this."""
        self.pauses.settle()
        end = self.clock() if self.ended is None else self.ended
        planning = 0.0 if self.planned is None else self.planned - self.begun
        wall = max(end - self.begun - planning, 1e-12)
        return {
            "items": self.items,
            "failed": self.failed,
            "dropped": self.dropped,
            "again": self.again,
            "seconds": wall + planning,
            "planning_s": planning,
            "items_per_s": self.items / wall,
            "in_flight": in_flight,
            "joules_per_item": drawn.joules / self.items if self.items and drawn.joules is not None else None,
            "energy_from": drawn.source,
            "energy_measured": drawn.measured,
            "energy_resolution_s": drawn.resolution_s,
            "predicted_period": point.period,
            "stages": [self._stage(number, route, point, wall) for number in range(len(route.places))],
        }

    def _stage(self, number: int, route: Route, point: PipelinePoint, wall: float) -> dict[str, Any]:
        place = route.places[number]
        busy = sum(self._on(device, number, route, self.busy.seconds) for device in place.devices)
        waited = sum(self._on(device, number, route, self.queues.waited) for device in place.devices)
        share = min(1.0, busy / (wall * len(place.devices)))
        paused = sum(self.pauses.blocked(device) for device in place.devices)
        blocked = min(paused / (wall * len(place.devices)), 1.0 - share)
        joules = self._joules(number, route, wall)
        return {
            "stage": place.label,
            "devices": list(place.devices),
            "kernels": list(point.stages[number].kernels),
            "mode": point.stages[number].mode,
            "busy": share,
            "blocked": blocked,
            "starved": max(0.0, 1.0 - share - blocked),
            "queue": waited / wall,
            "seconds_per_item": busy / (self.items * len(place.devices)) if self.items else None,
            "predicted_compute": point.stages[number].compute,
            "predicted_copies": point.stages[number].transfer,
            "predicted_seconds": point.stages[number].seconds,
            "items_per_s": self.items / wall,
            "joules_per_item": joules / self.items if joules is not None and self.items else None,
            "energy_from": NO_WATTS if joules is None else MODELLED,
        }

    def _on(self, device: str, number: int, route: Route, seconds: Mapping[tuple[str, str], float]) -> float:
        """Return the seconds of one stage on one device; where stages share it, those of the stage's kernels."""
        kernels, alone = self._kernels(number, route), self._stages_on(device, route) == 1
        return sum([s for (where, name), s in seconds.items() if where == device and (alone or name in kernels)])

    def _kernels(self, number: int, route: Route) -> set[str]:
        return {name for name, stage in zip(route.names, route.stages, strict=True) if stage == number}

    def _stages_on(self, device: str, route: Route) -> int:
        return sum(device in place.devices for place in route.places)

    def _joules(self, number: int, route: Route, wall: float) -> float | None:
        """Return what the devices of a stage drew: counters tell no stages apart, so this is always the platform's watts.

        Where stages share a device, each has an equal part of what it draws while it waits.
        """
        total = 0.0
        for name in route.places[number].devices:
            device = self.platform.device(name)
            if device.watts is None:
                return None
            idle = 0.0 if device.wide else (device.idle_watts or 0.0)
            waits = max(0.0, wall - self.busy.on(name)) / self._stages_on(name, route)
            names = None if self._stages_on(name, route) == 1 else self._kernels(number, route)
            total += self.busy.active_joules(device, names) + idle * waits
        return total


def told(stats: Mapping[str, Any]) -> list[str]:
    """Return the stages of a stream as lines of text."""
    lines = [
        f"{stage['stage']} on {', '.join(stage['devices'])}: busy {stage['busy']:.0%}, starved {stage['starved']:.0%}, "
        f"blocked {stage['blocked']:.0%}, {stage['queue']:.2g} waiting"
        for stage in stats["stages"]
    ]
    joules = stats["joules_per_item"]
    drawn = "energy" if joules is None else f"{joules:.4g} J per item"
    return [*lines, f"{drawn}: {stats['energy_from']}"]
