"""Region maps against arrays of values, and how few entries they keep."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.geometry import Box, RegionMap, covers, cut, overlap, overlaps, whole
from coexec.geometry.region_map import LIMIT
from tests.geometry.brute import SIDE, boxes, everything, per_ndim

sets = per_ndim(lambda ndim: st.tuples(st.just(ndim), st.lists(st.tuples(boxes(ndim), st.integers(0, 3)), max_size=12)))


def bands(ndim, axis):
    """Draw boxes that fill the extent on every axis but one."""
    side = st.tuples(st.integers(0, SIDE), st.integers(0, SIDE))
    return side.map(
        lambda edges: Box(
            tuple([edges[0] if i == axis else 0 for i in range(ndim)]),
            tuple([edges[1] if i == axis else SIDE for i in range(ndim)]),
        )
    )


banded = st.tuples(st.integers(1, 3), st.integers(0, 2)).flatmap(
    lambda case: st.tuples(
        st.just(case[0]), st.lists(st.tuples(bands(case[0], case[1] % case[0]), st.integers(0, 3)), max_size=15)
    )
)


def check(table, truth):
    """Compare a map with an array of its values, and its entries with the rules for entries."""
    ndim = truth.ndim
    entries = table.entries()
    seen = np.zeros(truth.shape, int)
    for box, value in entries:
        seen[box.slices((0,) * ndim)] += 1
        assert (truth[box.slices((0,) * ndim)] == value).all()
    assert (seen == 1).all()
    values = set(truth.ravel().tolist())
    assert (table.uniform in values and len(table) == 1) if len(values) == 1 else table.uniform is None
    assert not any(mergeable(a, b) for a in entries for b in entries)


def mergeable(first, second):
    (a, value), (b, other) = first, second
    if a == b or value != other:
        return False
    differ = [axis for axis in range(a.ndim) if (a.lo[axis], a.hi[axis]) != (b.lo[axis], b.hi[axis])]
    return len(differ) == 1 and a.hi[differ[0]] == b.lo[differ[0]]


def play(case):
    ndim, steps = case
    table, truth = RegionMap(everything(ndim), 0), np.zeros((SIDE,) * ndim, int)
    for box, value in steps:
        table.set(box, value)
        truth[box.slices((0,) * ndim)] = value
        check(table, truth)
    return table, truth


@given(sets)
def test_every_point_has_the_value_set_last(case):
    play(case)


@given(banded)
def test_bands_keep_as_few_entries_as_there_are_runs_of_equal_values(case):
    table, truth = play(case)
    if truth.ndim == 1:
        assert len(table) == 1 + np.count_nonzero(np.diff(truth))
    assert len(table) <= SIDE


@given(sets | banded, st.data())
def test_get_covers_the_box_with_disjoint_clamped_parts(case, data):
    table, truth = play(case)
    box = data.draw(boxes(truth.ndim)).grow((data.draw(st.integers(0, 2)),) * truth.ndim, (1,) * truth.ndim)
    found = table.get(box)
    inside = overlap(box, table.extent)
    if inside is None:
        assert found == []
        return
    assert sum(part.volume for part, _ in found) == inside.volume
    for index, (part, value) in enumerate(found):
        assert covers(inside, part) and (truth[part.slices((0,) * truth.ndim)] == value).all()
        assert not any(overlaps(part, other) for other, _ in found[:index])
    assert not any(mergeable(a, b) for a in found for b in found)


@given(sets | banded, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_apply_maps_all_values_and_joins_what_became_equal(case, table_of_values):
    table, truth = play(case)
    table.apply(lambda value: table_of_values[value])
    truth = np.array(table_of_values)[truth]
    check(table, truth)
    table.set(everything(truth.ndim), 9)
    assert table.uniform == 9 and table.entries() == [(table.extent, 9)]


def test_overwriting_everything_leaves_one_entry():
    table = RegionMap(whole((8, 8)), 0)
    table.set(Box((1, 1), (3, 3)), 1)
    assert len(table) > 1
    table.set(Box((-5, -5), (20, 20)), 2)
    assert table.uniform == 2 and table.get(whole((8, 8))) == [(whole((8, 8)), 2)]


@pytest.mark.parametrize("axis", [0, 1])
def test_random_sets_of_some_bands_never_make_more_entries_than_bands(axis):
    choose = random.Random(axis)
    extent = whole((96, 96))
    parts = cut(extent, axis, 12)
    table = RegionMap(extent, 0)
    for _ in range(2_000):
        first, last = sorted(choose.choices(range(12), k=2))
        table.set(Box(parts[first].lo, parts[last].hi), choose.randrange(5))
        assert len(table) <= 12


def test_a_row_wise_ping_pong_stays_bounded():
    extent = whole((64, 32))
    table = RegionMap(extent, 0)
    for step in range(10_000):
        row = step % 64
        table.set(Box((row, 0), (row + 1, 32)), step // 64 % 2)
        assert len(table) <= 3


def test_a_ping_pong_over_half_rows_stays_bounded():
    table = RegionMap(whole((64, 32)), 0)
    for step in range(10_000):
        row, half = step // 2 % 64, step % 2 * 16
        table.set(Box((row, half), (row + 1, half + 16)), step // 128 % 2)
        assert len(table) <= 6


def test_scattered_tiles_stay_bounded_by_the_number_of_tiles():
    choose = random.Random(7)
    extent = whole((48, 48))
    tiles = [tile for rows in cut(extent, 0, 12) for tile in cut(rows, 1, 12)]
    table, truth = RegionMap(extent, 0), np.zeros((48, 48), int)
    longest = 0
    for _ in range(1_500):
        tile, value = choose.choice(tiles), choose.randrange(3)
        table.set(tile, value)
        truth[tile.slices((0, 0))] = value
        longest = max(longest, len(table))
    check(table, truth)
    assert LIMIT < longest <= len(tiles)


def test_tiles_that_became_bands_again_are_found_as_bands():
    extent = whole((9, 9))
    table = RegionMap(extent, 0)
    table.set(Box((4, 4), (5, 5)), 1)
    table.set(Box((3, 0), (6, 9)), 2)
    assert table.entries() == [(Box((0, 0), (3, 9)), 0), (Box((3, 0), (6, 9)), 2), (Box((6, 0), (9, 9)), 0)]


def test_equal_pieces_around_a_pinwheel_become_one():
    table = RegionMap(whole((3, 3)), 0)
    wheel = [Box((0, 0), (1, 2)), Box((0, 2), (2, 3)), Box((2, 1), (3, 3)), Box((1, 0), (3, 1)), Box((1, 1), (2, 2))]
    for value, part in enumerate(wheel):
        table.set(part, value)
    table.apply(lambda _: 7)
    assert table.uniform == 7 and len(table) == 1


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
def test_a_map_of_no_points_has_a_value_but_no_entries(shape):
    table = RegionMap(whole(shape), 1)
    assert table.uniform == 1 and table.get(whole(shape)) == [] and len(table) == 0
    table.set(whole(shape), 2)
    table.apply(lambda value: value + 1)
    assert table.uniform == 3 and table.entries() == []


def test_a_map_of_one_point_without_axes_works():
    table = RegionMap(whole(()), 1)
    table.set(whole(()), 2)
    assert table.get(whole(())) == [(whole(()), 2)] and table.uniform == 2


def test_what_a_map_hands_out_is_the_callers_own():
    table = RegionMap(whole((4,)), 1)
    table.get(whole((4,))).clear()
    table.entries().clear()
    assert table.get(whole((4,))) == [(whole((4,)), 1)] and repr(table) == "{[0:4]: 1}"


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 199), st.integers(1, 40), st.integers(0, 9)), min_size=50, max_size=200))
def test_many_bands_agree_with_an_array(steps):
    table, truth = RegionMap(whole((200,)), 0), np.zeros(200, int)
    for start, length, value in steps:
        table.set(Box((start,), (start + length,)), value)
        truth[start : start + length] = value
    check(table, truth)
    assert len(table) == 1 + np.count_nonzero(np.diff(truth))
