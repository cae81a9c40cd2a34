"""One pipeline as plain data: its stages, and what they come to.

Before: nothing.  After: plan/pipeline/judge.py, plan/pipeline/front.py.  Computes nothing but sums.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Mode = Literal["alone", "divided", "in turn"]
"""One device; each item cut over all devices of the group; every n-th item to each of n devices."""
Parts = tuple[tuple[str, int], ...]
"""A group of devices: class and number. More than one class: a mixed group, which shares each item."""
Shape = tuple[tuple[tuple[str, ...], Parts, Mode, int], ...]
"""Where a pipeline places everything, whatever that costs."""


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """Kernels that run one after the other on one group of devices. Stages with one `slot` share the group."""

    kernels: tuple[str, ...]
    group: Parts
    mode: Mode
    slot: int
    shares: tuple[float, ...] = (1.0,)  # of an item, per class of the group
    compute: float = 0.0  # seconds per item
    transfer: float = 0.0  # seconds per item, for what comes in
    memory: tuple[float, ...] = (0.0,)  # bytes on a device of each class: weights, workspace, buffers at both ends

    @property
    def seconds(self) -> float:
        """How long the stage keeps its group busy with each item: copies overlap with kernels."""
        return max(self.compute, self.transfer)

    @property
    def devices(self) -> int:
        """How many devices it has."""
        return sum(n for _, n in self.group)


@dataclass(frozen=True, slots=True)
class PipelinePoint:
    """A pipeline: seconds between two results, joules and latency of an item."""

    stages: tuple[PipelineStage, ...]
    period: float
    active: float  # joules per item that devices draw more than when they wait
    latency: float  # seconds from the host and back, if nobody waits
    idle_watts: float  # of all devices that may be used
    used_watts: float  # idle watts of the devices in use
    result: float = 0.0  # seconds per item until its result is back on the host
    setup: float = 0.0  # seconds, once: designs and weights
    links: float = 0.0  # seconds per item of the busiest thing that ways of several devices share

    @property
    def shape(self) -> Shape:
        """Where it places everything: kernels, group, mode and slot of each stage."""
        return tuple([(stage.kernels, stage.group, stage.mode, stage.slot) for stage in self.stages])

    @property
    def energy(self) -> float:
        """Joules per item, with the idle power of all devices."""
        return self.active + self.idle_watts * self.period

    @property
    def energy_used(self) -> float:
        """Joules per item, with the idle power of those devices only that are in use."""
        return self.active + self.used_watts * self.period

    @property
    def power(self) -> float:
        """Average watts of all devices."""
        return self.energy / self.period if self.period else 0.0

    @property
    def devices(self) -> int:
        """How many devices it uses."""
        return sum({stage.slot: stage.devices for stage in self.stages}.values())

    @property
    def busy(self) -> dict[int, float]:
        """Seconds per item that each group of devices needs, by slot: all its kernels, or all that comes in meanwhile."""
        compute, transfer = dict[int, float](), dict[int, float]()
        for stage in self.stages:
            compute[stage.slot] = compute.get(stage.slot, 0.0) + stage.compute
            transfer[stage.slot] = transfer.get(stage.slot, 0.0) + stage.transfer
        return {slot: max(seconds, transfer[slot]) for slot, seconds in compute.items()}

    @property
    def quickest(self) -> float:
        """The least period that its devices and ways allow, however quickly items come."""
        return max(*self.busy.values(), self.result, self.links)

    @property
    def bottleneck(self) -> int | None:
        """The slot of the group that takes longest; None if the way back to the host, or what ways share, does."""
        slot, seconds = max(self.busy.items(), key=lambda pair: (pair[1], -pair[0]))
        return slot if seconds >= max(self.result, self.links) else None

    def as_dict(self) -> dict[str, Any]:
        """Return the pipeline as JSON-ready data."""
        figures = (
            "period",
            "active",
            "energy",
            "energy_used",
            "latency",
            "power",
            "result",
            "links",
            "setup",
            "bottleneck",
        )
        return {
            **{name: getattr(self, name) for name in figures},
            "stages": [asdict(stage) | {"seconds": stage.seconds} for stage in self.stages],
        }
