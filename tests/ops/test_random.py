"""Random numbers: the same bits for every division, and the distributions that their names promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError
from coexec.ops import random
from coexec.program.philox import ChunkRandom
from tests.devices import TWO
from tests.ops.forced import DEVICES, divided

DRAWS: list[Any] = [
    lambda g: g.bits(),
    lambda g: g.random(),
    lambda g: g.random(np.float32),
    lambda g: g.uniform(-2, 5),
    lambda g: g.normal(3, 2),
    lambda g: g.exponential(2),
    lambda g: g.integers(-5, 1000),
    lambda g: g.integers(0, 10**18),
]


def chi_square(counts):
    """Return how many standard deviations the chi-square statistic of equally likely counts is off."""
    expected = counts.sum() / counts.size
    return (((counts - expected) ** 2 / expected).sum() - (counts.size - 1)) / np.sqrt(2 * (counts.size - 1))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.data())
@settings(max_examples=40)
def test_any_box_has_the_numbers_of_the_whole(space, choice) -> None:
    whole = ChunkRandom(9, (0,) * len(space), tuple(space), tuple(space), 4)
    lo = tuple(choice.draw(st.integers(0, n - 1)) for n in space)
    hi = tuple(choice.draw(st.integers(low + 1, n)) for low, n in zip(lo, space, strict=True))
    part = ChunkRandom(9, lo, hi, tuple(space), 4)
    box = tuple(slice(low, high) for low, high in zip(lo, hi, strict=True))
    for draw in DRAWS:
        np.testing.assert_array_equal(draw(whole)[box], draw(part))


@pytest.mark.parametrize("draw", range(len(DRAWS)))
def test_large_boxes_and_narrow_ones_too(draw) -> None:
    space = (70, 3001)
    whole = DRAWS[draw](ChunkRandom(1, (0, 0), space, space))
    for lo, hi in [((13, 0), (64, 3001)), ((0, 2999), (70, 3001)), ((5, 7), (6, 2500)), ((0, 1000), (70, 2999))]:
        part = DRAWS[draw](ChunkRandom(1, lo, hi, space))
        np.testing.assert_array_equal(whole[lo[0] : hi[0], lo[1] : hi[1]], part)


def test_bits_do_not_depend_on_devices_or_shares() -> None:
    seen = set()
    openers: list[Any] = [lambda: cx.Runtime("cpu:0"), lambda: cx.Runtime("cpu")]
    openers += [lambda d=d: divided(d, tiny=False) for d in DEVICES]
    for opened in openers:
        with opened():
            generator = random.Generator(42)
            made = [
                generator.random((300, 70)),
                generator.normal(size=50_001),
                generator.integers(6, size=(3, 7000)),
                generator.random(1001, np.float32),
                generator.exponential(2, (5, 5, 5)),
                generator.uniform(-1, 1),
            ]
            seen.add(b"".join(np.asarray(array).tobytes() for array in made))
    assert len(seen) == 1


def test_equal_seeds_repeat_and_unequal_ones_or_calls_do_not() -> None:
    random.seed(5)
    first, second = np.asarray(random.random(100)), np.asarray(random.random(100))
    random.seed(5)
    assert np.array_equal(first, np.asarray(random.random(100)))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.asarray(random.Generator(6).random(100)))
    assert random.Generator().seed != random.Generator().seed
    assert np.array_equal(
        np.asarray(random.Generator(7).normal(size=9)), np.asarray(random.Generator(7).normal(size=9))
    )
    for function in (random.uniform, random.normal, random.exponential):
        assert function(size=3).shape == (3,)
    assert random.integers(3, size=4).shape == (4,) and random.random().shape == ()


N = 400_000


@pytest.fixture(scope="module")
def generator():
    with cx.Runtime(TWO):
        yield random.Generator(2024)


def test_uniform_numbers_fill_the_interval_evenly(generator) -> None:
    for dtype in (np.float32, np.float64):
        u = np.asarray(generator.random(N, dtype))
        assert u.dtype == dtype and u.min() >= 0 and u.max() < 1
        assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / N) and abs(u.var() - 1 / 12) < 1e-3
        assert abs(chi_square(np.histogram(u, 256, (0, 1))[0])) < 5
        assert abs(chi_square(np.histogram2d(u[::2], u[1::2], 32, [[0, 1], [0, 1]])[0].ravel())) < 5
    shifted = np.asarray(generator.uniform(-3, 7, N))
    assert shifted.min() >= -3 and shifted.max() < 7 and abs(shifted.mean() - 2) < 0.05


def test_normal_numbers_have_the_moments_of_the_normal_distribution(generator) -> None:
    z = np.asarray(generator.normal(1, 2, N))
    z = (z - 1) / 2
    assert abs(z.mean()) < 5 / np.sqrt(N) and abs(z.var() - 1) < 5 * np.sqrt(2 / N)
    assert abs((z**3).mean()) < 5 * np.sqrt(15 / N) and abs((z**4).mean() - 3) < 5 * np.sqrt(96 / N)
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 5 / np.sqrt(N / 2)  # both of a pair come from the same numbers
    inside = [0.682689492, 0.954499736, 0.997300204]
    for k, share in enumerate(inside, start=1):
        assert abs((np.abs(z) < k).mean() - share) < 5 * np.sqrt(share * (1 - share) / N)


def test_exponential_numbers_and_integers_have_their_distributions(generator) -> None:
    e = np.asarray(generator.exponential(3, N))
    assert e.min() >= 0 and abs(e.mean() - 3) < 5 * 3 / np.sqrt(N) and abs(e.var() - 9) < 0.3
    for low, high in [(0, 7), (-3, 250), (0, 1000)]:
        i = np.asarray(generator.integers(low, high, N))
        assert i.dtype == np.int64 and i.min() == low and i.max() == high - 1
        assert abs(chi_square(np.bincount(i - low, minlength=high - low))) < 5
    wide = np.asarray(generator.integers(0, 3 << 61, N))
    assert abs(chi_square(np.histogram(wide.astype(float), 64, (0, float(3 << 61)))[0])) < 5
    everything = np.asarray(generator.integers(-(2**63), 2**63, 1000))
    assert (everything < 0).any() and (everything > 0).any()
    assert np.asarray(generator.integers(0, 255, 50, dtype=np.uint8, endpoint=True)).dtype == np.uint8


def test_calls_and_seeds_are_not_correlated(generator) -> None:
    streams = [np.asarray(generator.random(N // 8)) for _ in range(4)]
    streams += [np.asarray(random.Generator(seed).random(N // 8)) for seed in (2025, 2026)]
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 5 / np.sqrt(N // 8)


def test_what_cannot_be_drawn_is_refused_at_the_call() -> None:
    for call in (
        lambda: random.Generator(-1),
        lambda: random.Generator("seven"),  # type: ignore[arg-type]
        lambda: random.random(3, np.int32),
        lambda: random.integers(5, 5, 3),
        lambda: random.integers(0, 300, 3, dtype=np.uint8),
        lambda: random.normal(0, -1, 3),
        lambda: random.exponential(-1, 3),
        lambda: ChunkRandom(1, (0,), (3,), (3,)).random(out=np.empty(4)),
        lambda: ChunkRandom(1, (0,), (3,), (3,)).integers(0, 2**65),
    ):
        with pytest.raises(ArgumentError):
            call()
