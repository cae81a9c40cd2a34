"""What a pipeline computes for each item, as numbers: kernels with their seconds, and the values that flow between them.

Before: plan/pipeline/system.py.  After: plan/pipeline/downsets.py, plan/pipeline/judge.py.  Knows no array and no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from ...errors import ArgumentError, PlanError, ShapeError, unknown_name
from .system import DeviceClass

Times = float | Sequence[float]


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """A kernel of the function that is applied to each item.

    `seconds` by class of devices: one number for one device, or a list for an item that is divided over 1, 2, 3, ...
    devices, as measured. Without measurements nothing is divided, and a class that is missing cannot run the kernel.
    """

    name: str
    seconds: Mapping[str, Times]
    replicable: bool = True  # no state from item to item: copies of it may take items in turn
    weights: float = 0.0  # bytes of constants, on each device that runs it
    workspace: float = 0.0  # bytes that it needs besides, for one item
    watts: Mapping[str, float] = field(
        default_factory=dict
    )  # of a device that computes it, where not as its class says

    def __post_init__(self) -> None:
        """Check the figures and keep them as tuples."""
        kept = {}
        for name, given in self.seconds.items():
            times = tuple(float(t) for t in given) if isinstance(given, Sequence) else (float(given),)
            if not times or not all(t >= 0.0 for t in times):
                raise ArgumentError(f"kernel {self.name!r} takes {given!r} s on {name!r}; give seconds from 0")
            kept[name] = times
        object.__setattr__(self, "seconds", kept)
        for what in ("weights", "workspace"):
            if not 0.0 <= getattr(self, what) < inf:
                raise ArgumentError(f"kernel {self.name!r}: {what}={getattr(self, what)!r}; give bytes from 0")

    def active_watts(self, c: DeviceClass) -> float:
        """Return what a device of a class draws more while it computes this than while it waits."""
        return max(0.0, self.watts.get(c.name, c.watts) - c.idle_watts)

    def on(self, name: str, devices: int = 1) -> float:
        """Return the seconds of one item divided over so many devices of a class; inf where it cannot be."""
        times: Any = self.seconds.get(name, ())
        return float(times[devices - 1]) if devices <= len(times) else inf


@dataclass(frozen=True, slots=True)
class StreamValue:
    """A value that belongs to an item: from the host or from a kernel, to kernels, and to the host if it is a result."""

    bytes: float
    source: str | None = None  # a kernel; None = it comes with the item
    readers: tuple[str, ...] = ()
    result: bool = False


@dataclass(frozen=True)
class StreamWork:
    """The kernels of one item and the values between them, without circles."""

    kernels: tuple[StreamKernel, ...]
    values: tuple[StreamValue, ...]
    pace: float = 0.0  # seconds from one item to the next that whoever feeds them takes, whatever the devices do
    after: tuple[int, ...] = field(init=False, default=())  # per kernel, those that come directly before it, as bits
    _flow: tuple[tuple[float, int, int, bool], ...] = field(
        init=False, default=(), repr=False
    )  # values, kernels as bits

    def __post_init__(self) -> None:
        """Find what comes before what, and refuse what does not fit together."""
        object.__setattr__(self, "kernels", tuple(self.kernels))
        object.__setattr__(self, "values", tuple(self.values))
        position = {kernel.name: i for i, kernel in enumerate(self.kernels)}
        if not position or len(position) < len(self.kernels):
            names = [kernel.name for kernel in self.kernels]
            raise ArgumentError(f"kernels {names}: a workload needs at least one kernel, and each a name of its own")
        if not 0.0 <= self.pace < inf:
            raise ArgumentError(f"pace={self.pace!r}; give the seconds between two items, from 0")
        after = [0] * len(self.kernels)
        for value in self.values:
            for name in (*value.readers, *([value.source] if value.source is not None else [])):
                if name not in position:
                    raise unknown_name("kernel", name, list(position))
            if not (isfinite(value.bytes) and value.bytes >= 0.0):
                raise ArgumentError(f"{value}: give its bytes, from 0")
            if value.source is not None:
                for name in value.readers:
                    after[position[name]] |= 1 << position[value.source]
        object.__setattr__(self, "after", tuple(after))
        flow = []
        for value in self.values:
            source = 0 if value.source is None else 1 << position[value.source]
            flow.append((value.bytes, source, sum(1 << position[n] for n in set(value.readers)), value.result))
        object.__setattr__(self, "_flow", tuple(flow))
        self._check_circles()

    def _check_circles(self) -> None:
        done, everything = 0, (1 << len(self.kernels)) - 1
        while ready := [i for i, before in enumerate(self.after) if not done >> i & 1 and not before & ~done]:
            done |= sum(1 << i for i in ready)
        if done != everything:
            stuck = [kernel.name for i, kernel in enumerate(self.kernels) if not done >> i & 1]
            raise PlanError(f"kernels {stuck} wait for each other; a kernel's input cannot depend on its output")

    @classmethod
    def chain(cls, kernels: Sequence[StreamKernel], cuts: Sequence[float]) -> StreamWork:
        """Return kernels one after the other; `cuts` are the bytes before the first, between each two, after the last."""
        if len(cuts) != len(kernels) + 1:
            raise ShapeError(f"{len(kernels)} kernels have {len(kernels) + 1} cuts; got the bytes of {len(cuts)}")
        names: list[str | None] = [None, *(kernel.name for kernel in kernels)]
        values = [
            StreamValue(cut, source, () if i == len(kernels) else (kernels[i].name,), result=i == len(kernels))
            for i, (cut, source) in enumerate(zip(cuts, names, strict=True))
        ]
        return cls(tuple(kernels), tuple(values))

    def alive(self, done: int) -> float:
        """Return the bytes that travel with an item when the kernels in `done` (as bits) are over."""
        return sum(
            [size for size, source, readers, result in self._flow if not source & ~done and (result or readers & ~done)]
        )
