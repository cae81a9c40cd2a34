"""Memories, devices and links: what a platform is made of, as plain data.

Before: errors.py, machine/abilities.py.  After: machine/topology.py, machine/platform.py.  Knows nothing of how a device is driven.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import unknown_name
from .abilities import Abilities, abilities_of

USER = 0
"""Memory id of what the user owns: borrowed arrays. coexec reads it and never writes it."""
HOST = 1
"""Memory id of the host memory that coexec owns."""

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex128", "complex64",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip
"""Types for which a device may state a rate."""
REAL = {"complex128": "float64", "complex64": "float32"}
"""Operations on complex numbers are counted as operations on their real parts."""
SINGLE_WILL_DO = frozenset(DTYPES) - {"float64"}
"""Types whose operations are taken to run at the rate of single precision where no rate of their own is stated."""


class AchievedRate(NamedTuple):
    """What a device reaches in one operation: its peaks do not tell."""

    op: str  # as kernels call it: matmul, spmm
    of_peak: float  # part of the peak operations per second of the type that is computed with
    watts: float | None = None  # while it does that; None = as whatever else it does
    basis: str = ""  # where the figures come from


class DeviceDesign(NamedTuple):
    """What a device can be configured as. It has one design at a time, and does nothing but that design's operations."""

    name: str
    ops: tuple[str, ...]  # operations that it does
    achieved: tuple[AchievedRate, ...] = ()  # what it reaches in some of them; in others what the device's peaks allow
    load: float = 0.0  # seconds until a device that is configured so can begin
    basis: str = ""  # where the figures come from

    def part(self, op: str) -> float:
        """Return the part of the device's peak that one of its operations reaches."""
        return max([known.of_peak for known in self.achieved if known.op == op], default=1.0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Something that holds allocations. Its index in the platform is its id."""

    name: str
    capacity: int | None = None  # bytes; None = not limited by coexec
    paged: bool = False  # pages appear on first touch, so allocating a whole array costs nothing
    strict: bool = True  # allocations are kept within the capacity; False: it is known, and the system's business
    largest: int | None = None  # bytes of one allocation; None = as many as there are
    bandwidth: float | None = None  # bytes per second that all devices get from it together


def usable(capacity: int | None) -> int | None:
    """Return the part of a device's memory that coexec plans with: a sixteenth is left to its driver."""
    return None if capacity is None else capacity - capacity // 16


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs kernels, as the planner and the lowering see it."""

    name: str  # "cpu:0", "cpu:all", "opencl:0"; on the fourth node "n3/gpu:0"
    kind: str  # the backend's name (cpu, opencl, simulated, null), or what the machine has: cpu, gpu, fpga, npu
    memory: int  # where it writes
    readable: tuple[int, ...] = ()  # memories it reads in place, the native one first
    speed: str = ""  # devices with the same speed class share measurements
    cores: tuple[int, ...] = ()  # CPU cores it occupies while it runs
    wide: bool = False  # all cores at once; excludes the narrow devices
    lanes: int = 64  # how many in-order lanes may be open at once
    waits_across_lanes: bool = False  # can order one lane behind another without the host
    eager: bool = True  # a lane has one server, so an instruction may be queued behind an unfinished one
    description: str = ""
    software: str = ""  # driver and library versions: measurements hold for these only
    flops: float | None = None  # peak operations per second in single precision, from device data
    bandwidth: float | None = None  # peak bytes per second from its own memory, from device data
    granule: int = 1  # rows of a share are multiples of this, as far as possible
    watts: float | None = None  # while it computes
    idle_watts: float | None = None  # while it waits
    rates: tuple[tuple[str, float], ...] = ()  # peak operations per second of types other than float32
    launch: float | None = None  # seconds from handing over a kernel until it runs
    concurrent: int = 1  # kernels that it runs at once
    copies: int | None = None  # copies that it makes at once in each direction; None = as many as it is asked for
    clock: float | None = None  # hertz; designs count cycles
    ops: tuple[str, ...] = ()  # operations it can do; empty = all
    designs: tuple[str, ...] = ()  # designs that it can be configured with
    load: float | None = None  # seconds in which it takes another design
    achieved: tuple[AchievedRate, ...] = ()  # operations whose speed or watts are known better than by its peaks
    configurations: tuple[DeviceDesign, ...] = ()  # designs of which more than the name is known

    @property
    def abilities(self) -> Abilities:
        """What it can do, as a device of its kind."""
        return abilities_of(self.kind)

    @property
    def is_core(self) -> bool:
        """Whether it is one core, which any thread can stand in for; all cores at once are none."""
        return self.abilities.on_numpy and not self.wide

    @property
    def loops(self) -> bool:
        """Whether it computes the pieces of a chunk one after the other by itself, with nobody handing them over."""
        return self.abilities.loops

    def reads(self, memory: int) -> bool:
        """Tell whether kernels on this device read `memory` in place."""
        return memory == self.memory or memory in self.readable

    def rate(self, dtype: str) -> float | None:
        """Return the peak operations per second on `dtype`; where only single precision is known, that.

        None if nothing is known, or if the device states rates by type and this one is not to be had from them. A
        processor computes with everything.
        """
        dtype, stated = REAL.get(dtype, dtype), dict(self.rates)
        if dtype in stated:
            return stated[dtype]
        return self.flops if not stated or self.abilities.on_numpy or dtype in SINGLE_WILL_DO else None

    def reaches(self, op: str) -> AchievedRate | None:
        """Return what it reaches in an operation, if that is known: with the design that is quickest in it."""
        stated = [known for known in self.achieved if known.op == op]
        if not stated:
            stated = [known for design in self.configurations for known in design.achieved if known.op == op]
        return max(stated, key=lambda known: known.of_peak, default=None)

    def design(self, name: str) -> DeviceDesign:
        """Return one of its designs."""
        for known in self.configurations:
            if known.name == name:
                return known
        raise unknown_name(f"design of {self.name}", name, [known.name for known in self.configurations])

    def design_for(self, op: str, held: str = "") -> DeviceDesign | None:
        """Return the design that an operation runs under: the one held if that does it, else the quickest in it.

        Of equals the one that is loaded soonest. None if no design is needed for it.
        """
        able = [known for known in self.configurations if op in known.ops]
        for known in able:
            if known.name == held:
                return known
        return min(able, key=lambda known: (-known.part(op), known.load), default=None)

    def under(self, name: str) -> Device:
        """Return the device as it is with one of its designs: its operations reach what that design does."""
        design = self.design(name)
        others = [known for known in self.achieved if known.op not in design.ops]
        return replace(self, achieved=(*design.achieved, *others))

    def watts_for(self, op: str) -> float | None:
        """Return the watts that it draws while it does an operation; None if it states none."""
        known = self.reaches(op)
        return self.watts if known is None or known.watts is None or self.watts is None else known.watts

    def computes(self, dtype: str) -> bool:
        """Tell whether the device can compute with `dtype`: all can that state no rates by type."""
        return not self.rates or self.abilities.on_numpy or self.rate(dtype) is not None

    @property
    def types(self) -> tuple[str, ...]:
        """The types for which it states a rate."""
        return (*(["float32"] if self.flops is not None else []), *[dtype for dtype, _ in self.rates])

    def does(self, op: str) -> bool:
        """Tell whether the device can do the operation called `op`."""
        return not self.ops or op in self.ops


@dataclass(frozen=True, slots=True)
class Link:
    """A way to copy from one memory to another. Two copies over one link share its bandwidth."""

    source: int
    target: int
    latency: float = 5e-6  # seconds
    bandwidth: float = 8e9  # bytes per second
    shared: tuple[str, ...] = ()  # what it passes through together with other links, the narrowest first
    name: str = ""  # what it is made of: "pcie"

    def seconds(self, nbytes: int) -> float:
        """Return the predicted time to move `nbytes` when nobody else does."""
        return self.latency + nbytes / self.bandwidth

    @property
    def bus(self) -> str:
        """What it most likely waits for: links with the same bus are taken to carry one transfer at a time."""
        return self.shared[0] if self.shared else ""
