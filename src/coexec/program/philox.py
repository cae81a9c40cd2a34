"""Random numbers by counting: element i of a draw is the i-th output of a Philox stream, whoever asks for it.

Before: nothing.  After: program/chunk.py, ops/random.py.  Knows boxes of an index space, no device.

The stream is NumPy's own Philox4x64, which jumps to any element at once: its key is (seed, stream and draw), its counter
the element's place in the flattened index space. So the numbers do not depend on how the index space is divided.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..errors import ArgumentError

BLOCK = 1 << 15
"""Elements computed at a time: a few temporaries of so many doubles stay in a core's second cache."""
WASTE = 4
"""A box that is no run in memory is cut out of the run around it if that is at most so many times longer."""
LANES = 4
"""Numbers that Philox makes per count."""
MASK = (1 << 64) - 1
DRAWS = 1 << 20
"""Draws of one stream; further ones would meet the next stream."""
Data = np.ndarray[Any, Any]
Fill = Callable[[int, Data], None]  # fill(first, out): the numbers of elements first, first + 1, ... of a draw


def steps_of(space: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many numbers lie from one element of an index space to the next, along each axis."""
    return tuple(prod(space[axis + 1 :]) for axis in range(len(space)))


class ChunkRandom:
    """Random arrays of a chunk's shape. The same elements get the same numbers however the task is divided."""

    def __init__(
        self, seed: int, lo: tuple[int, ...], hi: tuple[int, ...], space: tuple[int, ...], stream: int = 0
    ) -> None:
        self._lo = lo
        self._shape = tuple(high - low for low, high in zip(lo, hi, strict=True))
        self._steps = steps_of(space)
        self._seed = (seed ^ seed >> 64) & MASK
        self._stream = stream
        self._draw = 0

    def bits(self, out: Data | None = None) -> Data:
        """Return one uint64 of random bits per element."""
        source = self._source()

        def fill(first: int, flat: Data) -> None:
            flat[...] = _jump(source, first).random_raw(first % LANES + flat.size)[first % LANES :]

        return self._filled(fill, np.uint64, out)

    def random(self, dtype: Any = float, out: Data | None = None) -> Data:
        """Return uniform numbers in [0, 1)."""
        source, dtype = self._source(), np.dtype(dtype)
        if dtype == np.float64:
            return self._filled(lambda first, flat: _uniform(source, first, flat), dtype, out)
        if dtype.kind != "f" or dtype.itemsize > 8:
            raise ArgumentError(f"random({dtype}) is not possible; use float16, float32 or float64")
        levels = 2.0 ** (np.finfo(dtype).nmant + 1)  # fewer bits, lest a number close to 1 be rounded up to it

        def fill(first: int, flat: Data) -> None:
            numbers = np.empty(flat.size)
            _uniform(source, first, numbers)
            np.floor(np.multiply(numbers, levels, out=numbers), out=numbers)
            np.multiply(numbers, 1 / levels, out=flat, casting="same_kind")

        return self._filled(fill, dtype, out)

    def uniform(self, low: float = 0.0, high: float = 1.0, out: Data | None = None) -> Data:
        """Return uniform numbers in [low, high)."""
        source = self._source()

        def fill(first: int, flat: Data) -> None:
            _uniform(source, first, flat)
            flat *= high - low
            flat += low

        return self._filled(fill, float, out)

    def normal(self, mean: float = 0.0, deviation: float = 1.0, out: Data | None = None) -> Data:
        """Return normally distributed numbers (Box-Muller: elements 2j and 2j + 1 share two uniform numbers)."""
        source = self._source()

        def fill(first: int, flat: Data) -> None:
            _normal(source, first, flat)
            flat *= deviation
            flat += mean

        return self._filled(fill, float, out)

    def exponential(self, scale: float = 1.0, out: Data | None = None) -> Data:
        """Return exponentially distributed numbers with the given mean."""
        source = self._source()

        def fill(first: int, flat: Data) -> None:
            _uniform(source, first, flat)
            np.log1p(np.negative(flat, out=flat), out=flat)
            flat *= -scale

        return self._filled(fill, float, out)

    def integers(self, low: int, high: int, out: Data | None = None) -> Data:
        """Return integers in [low, high)."""
        if high <= low:
            raise ArgumentError(f"integers({low}, {high}) is an empty range")
        count = high - low
        if count > 1 << 64:
            raise ArgumentError(f"integers({low}, {high}) has more than 2**64 values")
        source = self._source()
        second = self._source()  # 64 more bits, or large ranges would favour some values

        def fill(first: int, flat: Data) -> None:
            skip = first % LANES
            bits = _jump(source, first).random_raw(skip + flat.size)[skip:]
            if count < 1 << 64:
                more = _jump(second, first).random_raw(skip + flat.size)[skip:] if count > 1 << 32 else None
                bits = _scaled(bits, more, count)
            flat[...] = (bits + np.uint64(low & MASK)).astype(flat.dtype)

        return self._filled(fill, np.int64, out)

    def _source(self) -> tuple[int, int]:
        """Return the key of the next draw."""
        self._draw += 1
        if self._draw >= DRAWS:
            raise ArgumentError(f"one generator gives {DRAWS - 1} draws; ask chunk.rng for another, with another seed")
        return self._seed, (self._stream * DRAWS + self._draw) & MASK

    def _filled(self, fill: Fill, dtype: Any, out: Data | None) -> Data:
        out = np.empty(self._shape, dtype) if out is None else out
        if out.shape != self._shape:
            raise ArgumentError(f"out has shape {out.shape}, the chunk {self._shape}")
        if out.size:
            first = sum(low * step for low, step in zip(self._lo, self._steps, strict=True))
            _fill_box(fill, first, out, self._steps)
        return out


def _fill_box(fill: Fill, first: int, out: Data, steps: tuple[int, ...]) -> None:
    """Fill the numbers of a box: as one run, cut out of a run that is not much longer, or part by part."""
    last = first + sum((extent - 1) * step for extent, step in zip(out.shape, steps, strict=True))
    length = last + 1 - first
    if length == out.size and out.flags.c_contiguous:
        _in_blocks(fill, first, out.reshape(-1))
    elif length <= max(WASTE * out.size, LANES * BLOCK // 32):
        run = np.empty(length, out.dtype)
        _in_blocks(fill, first, run)
        out[...] = np.lib.stride_tricks.as_strided(run, out.shape, [step * run.itemsize for step in steps])
    else:
        for index in range(out.shape[0]):
            _fill_box(fill, first + index * steps[0], out[index, ...], steps[1:])


def draw_box(kind: str, key: tuple[int, int], first: int, steps: tuple[int, ...], shape: tuple[int, ...]) -> Data:
    """Return the numbers of a box of a draw: "uniform" from 0 to 1, or "normal"."""
    out = np.empty(shape)

    def uniform(start: int, flat: Data) -> None:
        _uniform(key, start, flat)

    def normal(start: int, flat: Data) -> None:
        _normal(key, start, flat)

    if out.size:
        _fill_box(uniform if kind == "uniform" else normal, first, out, steps)
    return out


def _in_blocks(fill: Fill, first: int, flat: Data) -> None:
    for start in range(0, flat.size, BLOCK):
        fill(first + start, flat[start : start + BLOCK])


def _jump(key: tuple[int, int], first: int) -> np.random.Philox:
    """Return the generator of a draw, ready to make the numbers from the last multiple of LANES before `first` on."""
    return np.random.Philox(key=np.array(key, np.uint64), counter=first // LANES)


def _uniform(key: tuple[int, int], first: int, out: Data) -> None:
    """Fill uniform doubles in [0, 1)."""
    generator = np.random.Generator(_jump(key, first))
    if first % LANES:
        generator.random(first % LANES)
    generator.random(out=out)


def _normal(key: tuple[int, int], first: int, out: Data) -> None:
    """Fill normal doubles with mean 0 and deviation 1."""
    odd = first % 2
    numbers = np.empty(odd + out.size + (odd + out.size) % 2)
    _uniform(key, first - odd, numbers)
    _box_muller(numbers)
    out[...] = numbers[odd : odd + out.size]


def _box_muller(numbers: Data) -> None:
    """Turn pairs of uniform numbers into pairs of normal ones, in place.

    Sine and cosine come from the tangent of half the angle: one quick call of NumPy instead of two slow ones.
    """
    radius, half = numbers[::2].copy(), numbers[1::2] - 0.5
    np.sqrt(np.multiply(np.log1p(np.negative(radius, out=radius), out=radius), -2.0, out=radius), out=radius)
    np.tan(np.multiply(half, np.pi, out=half), out=half)
    square = half * half
    np.divide(radius, 1.0 + square, out=radius)
    np.multiply(np.subtract(1.0, square, out=square), radius, out=numbers[::2])
    np.multiply(np.multiply(half, 2.0, out=half), radius, out=numbers[1::2])


def _scaled(bits: Data, more: Data | None, count: int) -> Data:
    """Return floor(fraction * count) for 64-bit fractions, or 128-bit ones if there are `more` bits."""
    product = _high(bits, count)
    if more is None:
        return product
    with np.errstate(over="ignore"):
        low = bits * np.uint64(count)
        carried = low + _high(more, count)
    return np.add(product, carried < low)


def _high(bits: Data, count: int) -> Data:
    """Return the upper 64 bits of 128-bit products."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    upper, lower = np.uint64(count >> 32), np.uint64(count & 0xFFFFFFFF)
    middle = (bits >> half) * lower + ((bits & low) * lower >> half)
    found: Data = middle >> half
    if upper:
        other = (bits & low) * upper + (middle & low)
        found = found + (bits >> half) * upper + (other >> half)
    return found
