"""Regions against boolean masks."""

from __future__ import annotations

from hypothesis import given, strategies as st

from coexec.geometry import Box, Region, whole
from tests.geometry.brute import boxes, count, mask, per_ndim

regions = per_ndim(lambda ndim: st.lists(boxes(ndim), max_size=5))
pairs = per_ndim(lambda ndim: st.tuples(st.just(ndim), *[st.lists(boxes(ndim), max_size=4)] * 2))
with_box = per_ndim(lambda ndim: st.tuples(st.just(ndim), st.lists(boxes(ndim), max_size=4), boxes(ndim)))


def points(ndim, region):
    found = count(ndim, region.boxes)
    assert found.max(initial=0) <= 1  # disjoint
    return found == 1


@given(pairs)
def test_set_operations_are_those_of_the_points(case):
    ndim, first, second = case
    a, b = Region(first), Region(second)
    of_a, of_b = mask(ndim, *first), mask(ndim, *second)
    assert (points(ndim, a) == of_a).all() and a.volume == of_a.sum() and bool(a) == of_a.any()
    assert (points(ndim, a | b) == (of_a | of_b)).all()
    assert (points(ndim, a & b) == (of_a & of_b)).all()
    assert (points(ndim, a - b) == (of_a & ~of_b)).all()


@given(pairs)
def test_equal_sets_are_equal_regions_whatever_way_they_were_built(case):
    ndim, first, second = case
    a, b = Region(first), Region(second)
    same = [a | b, b | a, Region(first + second), (a - b) | b, (a - b) | (a & b) | (b - a)]
    assert len(set(same)) == 1 and all(region == same[0] for region in same)
    assert (a == b) == (mask(ndim, *first) == mask(ndim, *second)).all()
    cells = [cell for box in first for cell in _points_of(box)]
    assert Region(reversed(cells)) == a
    assert [box.lo for box in a.boxes] == sorted(box.lo for box in a.boxes)


def _points_of(box):
    found = [Box((), ())] if box.ndim == 0 else []
    if box.ndim:
        inner = Box(box.lo[1:], box.hi[1:])
        for x in range(box.lo[0], box.hi[0]):
            found += [Box((x, *rest.lo), (x + 1, *rest.hi)) for rest in _points_of(inner)]
    return found


@given(with_box)
def test_contains_and_overlaps_ask_about_points(case):
    ndim, parts, box = case
    region, inside = Region(parts), mask(ndim, box)
    assert region.contains(box) == (not (inside & ~mask(ndim, *parts)).any())
    assert region.overlaps(box) == (inside & mask(ndim, *parts)).any()


@given(regions)
def test_bounding_holds_the_region_and_is_none_for_nothing(parts):
    region = Region(parts)
    if region.bounding is None:
        assert not region
    else:
        assert Region([region.bounding]) | region == Region([region.bounding])


def test_halves_make_a_whole_and_a_hole_makes_a_frame():
    square, hole = Region([whole((4, 4))]), Region([Box((1, 1), (3, 3))])
    assert Region([Box((0, 0), (4, 2)), Box((0, 2), (4, 4))]) == square
    assert square - hole | hole == square and len((square - hole).boxes) == 4
    assert repr(hole) == "{[1:3, 1:3]}" and square != "square"
