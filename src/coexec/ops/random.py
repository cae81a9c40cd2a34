"""cx.random: arrays of random numbers that depend on (seed, call, element) only, whatever the division.

Before: program/philox.py.  After: the package's own namespace.  Knows no device.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..program import array as arrays
from ..program.access import write
from ..program.array import Array
from ..program.kernel import Kernel, kernel

FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


def _random(out: Any, seed: int, call: int, chunk: Any) -> None:
    chunk.rng(seed, call).random(out.dtype, out=out)


def _uniform(out: Any, seed: int, call: int, low: float, high: float, chunk: Any) -> None:
    chunk.rng(seed, call).uniform(low, high, out=out)


def _normal(out: Any, seed: int, call: int, mean: float, deviation: float, chunk: Any) -> None:
    chunk.rng(seed, call).normal(mean, deviation, out=out)


def _exponential(out: Any, seed: int, call: int, scale: float, chunk: Any) -> None:
    chunk.rng(seed, call).exponential(scale, out=out)


def _integers(out: Any, seed: int, call: int, low: int, high: int, chunk: Any) -> None:
    chunk.rng(seed, call).integers(low, high, out=out)


@cache
def _kernel(body: Callable[..., None], ndim: int) -> Kernel:
    return kernel(split=tuple(range(ndim)) or None, out=write, name=f"random{body.__name__}")(body)


class Generator:
    """Makes arrays of random numbers. Equal seeds and equal calls in the same order give equal arrays, anywhere."""

    def __init__(self, seed: int | None = None) -> None:
        given: Any = seed
        if seed is not None and (not isinstance(given, int | np.integer) or given is True or given < 0):
            raise ArgumentError(f"a seed is an integer from 0 on, not {seed!r}")
        self.seed = secrets.randbits(64) if seed is None else int(seed)
        self._calls = 0
        self._lock = threading.Lock()

    def random(self, size: Any = None, dtype: Any = np.float64) -> Array:
        """Return uniform numbers in [0, 1) as a new array of shape `size`, without waiting."""
        if np.dtype(dtype) not in FLOATS:
            raise ArgumentError(f"random(dtype={np.dtype(dtype)}) is not possible; use float16, float32 or float64")
        return self._make(_random, size, dtype)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Array:
        """Return uniform numbers in [low, high) as a new array of shape `size`, without waiting."""
        return self._make(_uniform, size, np.float64, float(low), float(high))

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Any = None) -> Array:
        """Return normally distributed numbers as a new array of shape `size`, without waiting."""
        if scale < 0:
            raise ArgumentError(f"normal(scale={scale}): a deviation is not negative")
        return self._make(_normal, size, np.float64, float(loc), float(scale))

    def exponential(self, scale: float = 1.0, size: Any = None) -> Array:
        """Return exponentially distributed numbers with mean `scale` as a new array, without waiting."""
        if scale < 0:
            raise ArgumentError(f"exponential(scale={scale}): a mean is not negative")
        return self._make(_exponential, size, np.float64, float(scale))

    def integers(
        self, low: int, high: int | None = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Array:
        """Return integers in [low, high), or [0, low) if only one is given, as a new array, without waiting."""
        first, last = (0, int(low)) if high is None else (int(low), int(high))
        last += bool(endpoint)
        limits = np.iinfo(np.dtype(dtype))
        if not (limits.min <= first < last <= limits.max + 1):
            raise ArgumentError(f"integers from {first} to {last - 1} are none, or do not fit into {np.dtype(dtype)}")
        return self._make(_integers, size, dtype, first, last)

    def _make(self, body: Callable[..., None], size: Any, dtype: Any, *options: Any) -> Array:
        out = arrays.empty(() if size is None else size, dtype)
        with self._lock:
            self._calls += 1
            call = self._calls
        _kernel(body, out.ndim)(out, self.seed, call, *options)
        return out

    def __repr__(self) -> str:
        return f"cx.random.Generator(seed={self.seed})"


_default: list[Generator] = []


def default_generator() -> Generator:
    """Return the generator behind the functions of this module; without cx.random.seed its seed is unpredictable."""
    if not _default:
        _default.append(Generator())
    return _default[0]


def seed(value: int) -> None:
    """Begin again: from here on, the functions of this module give what they give after any equal seed."""
    _default[:] = [Generator(value)]


def random(size: Any = None, dtype: Any = np.float64) -> Array:
    """Return uniform numbers in [0, 1) as a new array of shape `size`, without waiting."""
    return default_generator().random(size, dtype)


def uniform(low: float = 0.0, high: float = 1.0, size: Any = None) -> Array:
    """Return uniform numbers in [low, high) as a new array of shape `size`, without waiting."""
    return default_generator().uniform(low, high, size)


def normal(loc: float = 0.0, scale: float = 1.0, size: Any = None) -> Array:
    """Return normally distributed numbers as a new array of shape `size`, without waiting."""
    return default_generator().normal(loc, scale, size)


def exponential(scale: float = 1.0, size: Any = None) -> Array:
    """Return exponentially distributed numbers with mean `scale` as a new array, without waiting."""
    return default_generator().exponential(scale, size)


def integers(
    low: int, high: int | None = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
) -> Array:
    """Return integers in [low, high), or [0, low) if only one is given, as a new array, without waiting."""
    return default_generator().integers(low, high, size, dtype, endpoint)


__all__ = ["Generator", "default_generator", "exponential", "integers", "normal", "random", "seed", "uniform"]
