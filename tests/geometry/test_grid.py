"""Strided sets against the points themselves."""

from __future__ import annotations

from itertools import product

from hypothesis import given, strategies as st

from coexec.geometry import Box, every_point, grid_covers, grids_meet, last_holders, whole
from tests.geometry.brute import boxes, per_ndim

axis_grids = st.none() | st.tuples(st.integers(-9, 12), st.sampled_from([1, 2, 3, 4, 6, -2, -3]))


def grids(ndim):
    return st.none() | st.tuples(*[axis_grids] * ndim)


def points(box, grid):
    """Return the set that a box and a grid stand for, point by point."""
    axes = [
        [x for x in range(low, high) if grid is None or grid[axis] is None or (x - grid[axis][0]) % grid[axis][1] == 0]
        for axis, (low, high) in enumerate(zip(box.lo, box.hi, strict=True))
    ]
    return set(product(*axes))


@given(per_ndim(lambda ndim: st.tuples(boxes(ndim), grids(ndim), grids(ndim))))
def test_grids_meet_where_a_common_point_lies_in_the_box(case):
    box, a, b = case
    assert grids_meet(box, a, b) == bool(points(box, a) & points(box, b)) == grids_meet(box, b, a)


@given(per_ndim(lambda ndim: st.tuples(boxes(ndim), grids(ndim), boxes(ndim), grids(ndim))))
def test_a_strided_set_covers_another_if_it_has_all_its_points(case):
    box_a, grid_a, box_b, grid_b = case
    assert grid_covers(box_a, grid_a, box_b, grid_b) == (points(box_b, grid_b) <= points(box_a, grid_a))
    assert grid_covers(box_a, grid_a, box_a, grid_a)


@given(
    per_ndim(
        lambda ndim: st.tuples(boxes(ndim), grids(ndim), st.lists(st.tuples(boxes(ndim), grids(ndim)), max_size=5))
    )
)
def test_the_last_set_that_holds_a_point_is_found_for_all_points(case):
    box, grid, given_sets = case
    sets = tuple([(other, lattice or every_point(other)) for other, lattice in given_sets])
    held = [points(*entry) for entry in sets]
    wanted = {max((i for i, h in enumerate(held) if point in h), default=-1) for point in points(box, grid)}
    assert last_holders(box, grid, sets) == (wanted or {-1})


def test_where_steps_have_no_small_multiple_in_common_any_set_may_be_the_last():
    box = whole((100_000,))
    sets = ((box, ((0, 101),)), (box, ((0, 103),)), (box, every_point(box)))
    assert last_holders(box, None, sets[2:]) == {0}
    assert last_holders(box, None, sets) == {-1, 0, 1, 2}
    assert last_holders(Box((1,), (101,)), None, sets[:1]) == {-1}


@given(st.integers(-50, 50), st.integers(0, 80), *[st.tuples(st.integers(-99, 99), st.integers(1, 40))] * 2)
def test_long_steps_meet_exactly_where_the_remainders_agree(low, length, a, b):
    box = Box((low,), (low + length,))
    assert grids_meet(box, (a,), (b,)) == bool(points(box, (a,)) & points(box, (b,)))


def test_red_and_black_points_never_meet():
    box = whole((8, 8))
    red, black = ((0, 2), (0, 2)), ((1, 2), (0, 2))
    assert not grids_meet(box, red, black) and grids_meet(box, red, red) and grids_meet(box, red, None)


def test_one_element_lies_on_many_grids():
    assert grid_covers(whole((9,)), ((1, 4),), Box((5,), (6,)), None)
    assert not grid_covers(whole((9,)), ((1, 4),), Box((5,), (7,)), None)
    assert grid_covers(whole((9,)), ((1, 2),), whole((9,)), ((3, 4),))
    assert grid_covers(Box((), ()), (), Box((), ()), None)
