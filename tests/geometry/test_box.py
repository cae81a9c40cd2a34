"""Boxes against boolean masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coexec.geometry import Box, bounding, covers, cut, overlap, overlaps, subtract, whole
from tests.geometry.brute import boxes, count, mask, per_ndim, several


@given(several(1))
def test_shape_volume_and_emptiness_are_those_of_the_array(given_boxes):
    (box,) = given_boxes
    points = mask(box.ndim, box)
    assert box.volume == points.sum() == np.prod(box.shape)
    assert box.empty == (not points.any())
    assert np.zeros(box.shape).ndim == box.ndim


@given(several(2))
def test_overlap_is_the_common_points(given_boxes):
    a, b = given_boxes
    both = mask(a.ndim, a) & mask(b.ndim, b)
    common = overlap(a, b)
    assert overlaps(a, b) == both.any() == (common is not None)
    if common is not None:
        assert isinstance(common, Box)
        assert (mask(a.ndim, common) == both).all() and common.volume == both.sum()


@given(several(2))
def test_covers_means_that_no_point_is_outside(given_boxes):
    a, b = given_boxes
    assert covers(a, b) == (not (mask(b.ndim, b) & ~mask(a.ndim, a)).any())
    assert covers(a, a)


@given(several(2))
def test_subtract_leaves_each_remaining_point_in_exactly_one_box(given_boxes):
    a, b = given_boxes
    left = subtract(a, b)
    assert (count(a.ndim, left) == (mask(a.ndim, a) & ~mask(b.ndim, b))).all()
    assert [part.lo for part in left] == sorted(part.lo for part in left)
    if not overlaps(a, b) and not a.empty:
        assert left == [a]


@given(per_ndim(lambda ndim: st.lists(boxes(ndim), min_size=1, max_size=4)))
def test_bounding_is_the_smallest_box_around_all(given_boxes):
    hull = bounding(given_boxes)
    assert all(covers(hull, box) for box in given_boxes)
    points = np.argwhere(mask(hull.ndim, *given_boxes))
    if len(points):
        assert hull == Box(tuple(points.min(axis=0).tolist()), tuple((points.max(axis=0) + 1).tolist()))


def test_bounding_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        bounding([])


@given(several(1, empty=False), st.integers(0, 2), st.integers(1, 9), st.integers(1, 4))
def test_a_cut_is_even_aligned_complete_and_never_empty(given_boxes, axis, parts, granule):
    (box,) = given_boxes
    if axis >= box.ndim:
        return
    found = cut(box, axis, parts, granule)
    assert (count(box.ndim, found) == mask(box.ndim, box)).all()
    sizes = [part.shape[axis] for part in found]
    assert max(sizes) - min(sizes) <= granule
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert all((part.lo[axis] - box.lo[axis]) % granule == 0 for part in found)
    assert len(found) == min(parts, -(-box.shape[axis] // granule))


def test_cutting_gives_the_bigger_parts_first_and_fewer_if_there_are_not_enough():
    assert [part.shape for part in cut(whole((10, 2)), 0, 4)] == [(3, 2), (3, 2), (2, 2), (2, 2)]
    assert [part.shape for part in cut(whole((2,)), 0, 4)] == [(1,), (1,)]
    assert [part.shape for part in cut(whole((9,)), 0, 2, granule=4)] == [(4,), (5,)]
    assert cut(whole((0, 3)), 0, 4) == []
    assert cut(whole((0, 3)), 1, 4) == []


def test_a_box_without_axes_is_one_point():
    point = Box((), ())
    assert (point.ndim, point.shape, point.volume, point.empty) == (0, (), 1, False)
    assert overlap(point, point) == point and overlaps(point, point) and covers(point, point)
    assert subtract(point, point) == [] and point.slices(()) == () and whole(()) == point


@given(several(1), st.integers(-5, 5), st.integers(0, 3), st.integers(0, 3))
def test_translate_and_grow_move_the_corners(given_boxes, offset, below, above):
    (box,) = given_boxes
    n = box.ndim
    assert box.translate((offset,) * n).translate((-offset,) * n) == box
    grown = box.grow((below,) * n, (above,) * n)
    assert covers(grown, box) and grown.translate((below,) * n).lo == box.lo
    if not box.empty:
        assert grown.shape == tuple(extent + below + above for extent in box.shape)


def test_slices_are_relative_to_an_origin():
    array = np.arange(20).reshape(4, 5)
    assert (array[Box((11, 22), (13, 24)).slices((10, 20))] == [[7, 8], [12, 13]]).all()


def test_a_box_prints_like_slices():
    assert repr(Box((0, 2), (5, 7))) == "[0:5, 2:7]"
    assert repr(Box((), ())) == "[]"
