"""What a body may ask about the part it computes: its place, and random numbers that do not depend on the division.

Before: geometry/, program/mapper.py.  After: backend/.  Knows no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..geometry import Box

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


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

    def rng(self, seed: int) -> ChunkRandom:
        """Return counter-based random numbers: element i's depend on (seed, draw, i) only."""
        return ChunkRandom(seed, self.lo, self.hi, self._space.shape)


class ChunkRandom:
    """Random arrays of a chunk's shape. The same elements get the same numbers however the task is divided."""

    def __init__(self, seed: int, lo: tuple[int, ...], hi: tuple[int, ...], space: tuple[int, ...]) -> None:
        flat: np.ndarray[Any, Any] = np.zeros((), np.uint64)
        for low, high, extent in zip(lo, hi, space, strict=True):
            flat = flat[..., None] * np.uint64(extent) + np.arange(low, high, dtype=np.uint64)
        self._flat = flat
        self._seed = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        self._draw = 0

    def bits(self) -> np.ndarray[Any, Any]:
        """Return one uint64 of random bits per element."""
        self._draw += 1
        with np.errstate(over="ignore"):
            stream = _mix(_mix(self._seed + _GOLDEN) ^ np.uint64(self._draw))
            return np.asarray(_mix(_mix(self._flat * _GOLDEN + stream) ^ stream))

    def random(self, dtype: Any = float) -> np.ndarray[Any, Any]:
        """Return uniform numbers in [0, 1)."""
        return ((self.bits() >> np.uint64(11)) * (1.0 / (1 << 53))).astype(dtype, copy=False)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> np.ndarray[Any, Any]:
        """Return uniform numbers in [low, high)."""
        return low + (high - low) * self.random()

    def normal(self, mean: float = 0.0, deviation: float = 1.0) -> np.ndarray[Any, Any]:
        """Return normally distributed numbers (Box-Muller)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.random()))
        return np.asarray(mean + deviation * radius * np.cos(2.0 * np.pi * self.random()))

    def integers(self, low: int, high: int) -> np.ndarray[Any, Any]:
        """Return integers in [low, high)."""
        if high <= low:
            raise ArgumentError(f"integers({low}, {high}) is an empty range")
        return low + (self.bits() % np.uint64(high - low)).astype(np.int64)


def _mix(x: Any) -> Any:
    """Return the bits of `x` mixed so that neighbours are unrelated (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * _MIX_A
        x = (x ^ (x >> np.uint64(27))) * _MIX_B
        return x ^ (x >> np.uint64(31))
