"""The index of boxes against looking at all of them, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.geometry import Box, cut, meeting, overlaps, shelved
from coexec.geometry.box_index import BoxIndex
from coexec.geometry.shelf import FEW, Shelf
from tests.geometry.brute import boxes

filed = st.integers(1, 3).flatmap(
    lambda ndim: st.tuples(
        st.lists(boxes(ndim).filter(lambda box: not box.empty), max_size=30, unique=True),
        boxes(ndim),
        st.integers(0, ndim - 1),
        st.integers(0, 4),
    )
)


@given(filed, st.data())
def test_the_index_finds_every_box_that_overlaps(case, data):
    every, asked, axis, shortest = case
    index = BoxIndex(axis, shortest)
    for box in every:
        index.add(box)
    gone = data.draw(st.sets(st.sampled_from(every))) if every else set()
    for box in gone:
        index.remove(box)
    kept = [box for box in every if box not in gone]
    near = index.near(asked)
    if near is not None:
        assert set(near) <= set(kept)
        assert {box for box in kept if overlaps(box, asked)} <= set(near)


@given(filed, st.data())
def test_a_shelf_gives_what_a_dictionary_gives(case, data):
    every, asked, _, _ = case
    plain: dict[Box, int] = {}
    shelf: Shelf[int] = Shelf({})
    for number, box in enumerate(every):
        plain[box] = shelf[box] = number
        if data.draw(st.booleans()):
            shelf[box] = plain[box] = -number  # known already: filed once
        if data.draw(st.integers(0, 4)) == 0:
            del plain[box], shelf[box]
    assert shelf == plain
    if not asked.empty:
        assert dict(meeting(shelf, asked)) == {box: value for box, value in plain.items() if overlaps(box, asked)}


@pytest.mark.parametrize("rows", [1, 64])
def test_what_is_near_a_row_does_not_grow_with_the_index(rows):
    """Rows of any height are found by where they lie, with those that a halo reaches."""
    for parts in (64, 512):
        strips = cut(Box((0, 0), (rows * parts, 100)), 0, parts)
        shelf = shelved(dict.fromkeys(strips, 0))
        assert len(strips) > FEW and isinstance(shelf, Shelf)
        for strip in strips:
            around = Box((strip[0][0] - 1, 0), (strip[1][0] + 1, 100))
            assert len(list(shelf.near(around))) <= 6
