from __future__ import annotations

import random
from functools import partial

from coexec.geometry import Box, RegionMap
from coexec.lower import validity_cache as module
from coexec.lower.validity_cache import ValidityCache

EXTENT = Box((0, 0), (12, 12))


def random_changes(seed: int, count: int) -> list[tuple[Box, int]]:
    rng = random.Random(seed)
    pool = []
    for _ in range(6):
        lo = (rng.randrange(12), rng.randrange(12))
        pool.append((Box(lo, (rng.randrange(lo[0], 12) + 1, rng.randrange(lo[1], 12) + 1)), rng.randrange(4)))
    return [rng.choice(pool) for _ in range(count)]


def test_a_remembered_change_leaves_exactly_what_making_it_would_leave():
    known = ValidityCache()
    for seed in range(20):
        remembering: RegionMap[int] = RegionMap(EXTENT, 0)
        plain: RegionMap[int] = RegionMap(EXTENT, 0)
        for box, value in random_changes(seed, 60):
            known.change(remembering, (box, value), partial(remembering.set, box, value))
            plain.set(box, value)
            assert remembering.entries() == plain.entries()
            assert remembering.uniform == plain.uniform
            assert remembering.get(Box((2, 3), (9, 8))) == plain.get(Box((2, 3), (9, 8)))


def test_maps_that_hold_the_same_have_the_same_pattern_until_something_is_set():
    known = ValidityCache()
    one: RegionMap[int] = RegionMap(EXTENT, 0)
    two: RegionMap[int] = RegionMap(EXTENT, 0)
    band = Box((0, 0), (4, 12))
    one.set(band, 1)
    assert known.pattern(one) is not known.pattern(two)
    two.set(band, 1)
    assert known.pattern(one) is known.pattern(two)
    assert not known.pattern(one).complete
    one.set(EXTENT, 3)
    assert known.pattern(one).complete


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST", 50)
    known = ValidityCache()
    for row in range(500):
        rows: RegionMap[int] = RegionMap(Box((0,), (1000,)), 0)
        known.change(rows, row, partial(rows.set, Box((row,), (row + 1,)), 1))
        known.learn(rows, "what", row, 1)
        assert len(known._patterns) + len(known._answers) <= 50
    assert known.answer(rows, "what") == 499
