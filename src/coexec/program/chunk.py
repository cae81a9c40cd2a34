"""What a body may ask about the part it computes: its place, and random numbers that do not depend on the division.

Before: geometry/, program/mapper.py.  After: backend/.  Knows no device.
"""

from __future__ import annotations

from ..errors import ArgumentError
from ..geometry import Box
from .philox import ChunkRandom, steps_of


class ChunkInfo:
    """The chunk a body is computing: `lo`, `hi`, `shape` in the index space, and whether it is the `whole`."""

    __slots__ = ("_parts", "_space", "hi", "lo", "shape", "whole")

    def __init__(self, box: Box, space: Box, parts: dict[str, Box]) -> None:
        self.lo, self.hi = box.lo, box.hi
        self.shape = box.shape
        self.whole = box == space
        self._space = space
        self._parts = parts  # per array: the box it was given, in its own coordinates

    def at(self, name: str) -> tuple[slice, ...]:
        """Return the slices of this chunk inside the box that array `name` was given."""
        if name not in self._parts:
            raise ArgumentError(f"{name!r} is not an array of this kernel (arrays: {', '.join(self._parts)})")
        box = self._parts[name]
        n = min(len(self.lo), box.ndim)
        return tuple(slice(self.lo[a] - box.lo[a], self.hi[a] - box.lo[a]) for a in range(n))

    @property
    def steps(self) -> tuple[int, ...]:
        """How many elements of the index space lie from one point to the next, along each axis."""
        return steps_of(self._space.shape)

    @property
    def first(self) -> int:
        """The number of the chunk's first point among all points of the index space."""
        places = zip(self.lo, self._space.lo, self.steps, strict=True)
        return sum((low - start) * step for low, start, step in places)

    def rng(self, seed: int, stream: int = 0) -> ChunkRandom:
        """Return counter-based random numbers: element i's depend on (seed, stream, draw, i) only."""
        first = self._space.lo
        lo = tuple(low - start for low, start in zip(self.lo, first, strict=True))
        hi = tuple(high - start for high, start in zip(self.hi, first, strict=True))
        return ChunkRandom(seed, lo, hi, self._space.shape, stream)
