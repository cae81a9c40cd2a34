"""The algebra of intervals, against sets of integers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from coexec.observe.analysis.intervals import Interval, covered, intersect, length, merge, subtract

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def cells(intervals: list[Interval]) -> set[int]:
    return {i for start, stop in intervals for i in range(int(start), int(stop))}


@given(spans, spans)
def test_the_algebra_is_that_of_sets(a: list[Interval], b: list[Interval]) -> None:
    x, y = merge(a), merge(b)
    assert cells(x) == cells(a)
    assert cells(intersect(x, y)) == cells(a) & cells(b)
    assert cells(subtract(x, y)) == cells(a) - cells(b)
    assert length(x) == len(cells(a))
    assert covered(a, y) == sum(len(cells([i]) & cells(b)) for i in a)


@given(spans, spans)
def test_every_result_is_sorted_disjoint_and_without_empty_parts(a: list[Interval], b: list[Interval]) -> None:
    for found in (merge(a), intersect(merge(a), merge(b)), subtract(merge(a), merge(b))):
        assert all(start < stop for start, stop in found)
        assert all(x[1] <= y[0] for x, y in pairwise(found))


def test_intervals_a_small_gap_apart_become_one_when_asked() -> None:
    assert merge([(0.0, 1.0), (1.05, 2.0)]) == [(0.0, 1.0), (1.05, 2.0)]
    assert merge([(0.0, 1.0), (1.05, 2.0)], gap=0.1) == [(0.0, 2.0)]


@pytest.mark.parametrize("cover", [[], [(5.0, 6.0)]])
def test_nothing_is_covered_outside(cover: list[Interval]) -> None:
    assert covered([(0.0, 1.0), (7.0, 8.0)], cover) == 0.0
