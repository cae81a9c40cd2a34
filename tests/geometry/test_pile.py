"""A pile of boxes against looking at all of them, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from coexec.geometry import Box, RegionMap, cut, overlaps, whole
from coexec.geometry.pile import Pile
from coexec.geometry.region_map import FEW, _with
from tests.geometry.brute import boxes, everything

sets = st.integers(1, 3).flatmap(
    lambda ndim: st.tuples(st.just(ndim), st.lists(st.tuples(boxes(ndim), st.integers(0, 2)), min_size=1, max_size=25))
)


@given(sets, st.data())
def test_a_pile_has_the_entries_that_scanning_gives_in_their_order(case, data):
    ndim, steps = case
    listed = [(everything(ndim), 0)]
    pile = Pile(listed)
    for box, value in steps:
        if not box.empty:
            listed = _with(listed, box, value)
            pile.set(box, value)
            assert pile.entries() == listed and len(pile) == len(listed)
    if data.draw(st.booleans()):
        pile = Pile(listed)  # filed along another axis, perhaps
    asked = data.draw(boxes(ndim))
    assert pile.meeting(asked) == [(box, value) for box, value in listed if overlaps(box, asked)]
    assert pile.one_value() == (len({value for _, value in listed}) == 1)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 63), st.booleans(), st.integers(0, 3)), max_size=30), st.integers(0, 1))
def test_a_map_of_many_strips_agrees_with_a_list_of_them(steps, axis):
    """The strips leave a rim alone, as stencils do, so that they are no bands."""
    extent = whole((642, 642))
    strips = cut(Box((1, 1), (641, 641)), axis, 64)
    table, listed = RegionMap(extent, -1), [(extent, -1)]
    for value, strip in enumerate(strips):
        table.set(strip, value)
        listed = _with(listed, strip, value)
    assert len(table) > FEW
    for number, edge, value in steps:
        strip = strips[number]
        part = cut(strip, axis, 10)[0] if edge else strip
        table.set(part, value)
        listed = _with(listed, part, value)
        assert sorted(table.entries()) == sorted(listed)
        assert table.get(part) == [(part, value)] and table.uniform is None


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_looked_at_does_not_grow_with_the_pile(axis, monkeypatch):
    looked = []

    def counted(a: Box, b: Box) -> bool:
        looked.append(a)
        return overlaps(a, b)

    monkeypatch.setattr("coexec.geometry.pile.overlaps", counted)
    for parts in (64, 512):
        strips = cut(Box((1, 1), (4097, 4097)), axis, parts)
        pile = Pile([(strip, i) for i, strip in enumerate(strips)])
        looked.clear()
        for strip in strips:
            pile.set(cut(strip, axis, 8)[0], -1)
        assert len(looked) <= 6 * parts
