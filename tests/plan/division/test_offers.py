from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given, strategies as st

from coexec.errors import PlanError
from coexec.plan.division.offers import Curve, sizes
from tests.plan.offers import curves


def test_a_curve_is_exact_at_its_points_and_straight_between_and_beyond_them() -> None:
    curve = Curve([0, 2, 10], [1.0, 2.0, 10.0])
    assert [curve.seconds(rows) for rows in (0, 1, 2, 6, 10, 12)] == [1.0, 1.5, 2.0, 6.0, 10.0, 12.0]
    assert [curve.rows_within(s) for s in (1.0, 1.5, 2.0, 6.0, 10.0, 12.0)] == [0.0, 1.0, 2.0, 6.0, 10.0, 12.0]


def test_no_rows_are_done_before_the_launch() -> None:
    assert Curve.line(2.0, 5.0).rows_within(4.9) == 0.0
    assert Curve.line(2.0, 5.0).rows_within(-1.0) == 0.0


def test_a_level_stretch_is_taken_whole() -> None:
    curve = Curve([0, 1, 5, 6], [1.0, 2.0, 2.0, 3.0])
    assert curve.rows_within(2.0) == 5
    assert Curve([0, 1], [3.0, 3.0]).rows_within(3.0) == inf


@given(curves(), st.floats(0, 50))
def test_rows_within_the_seconds_of_some_rows_are_those_rows(curve: Curve, rows: float) -> None:
    assert curve.rows_within(curve.seconds(rows)) == pytest.approx(rows, abs=1e-9)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=12), st.integers(1, 10**6))
def test_any_samples_make_a_curve_that_never_falls(values: list[float], rows: int) -> None:
    curve = Curve.through([(size, values[size % len(values)]) for size in sizes(rows, 12)])
    grid = [curve.seconds(rows * i / 50) for i in range(60)]
    assert all(a <= b + 1e-9 for a, b in pairwise(grid))
    assert curve.xs[0] == 0


def test_samples_are_about_a_dozen_at_equal_ratios_with_both_ends() -> None:
    found = sizes(4096, 12)
    assert found[0] == 1 and found[-1] == 4096 and 9 <= len(found) <= 12
    assert sizes(1, 12) == [1] and sizes(2, 12) == [1, 2] and sizes(0, 12) == [1]


def test_a_sampled_line_is_the_line() -> None:
    curve = Curve.through([(rows, 3.0 + 0.5 * rows) for rows in sizes(1000, 12)])
    assert curve.seconds(0) == pytest.approx(3.0) and curve.seconds(777) == pytest.approx(391.5)
    assert curve.convex


def test_a_curve_with_a_cheaper_end_is_not_convex() -> None:
    assert Curve([0, 1, 2], [0.0, 1.0, 3.0]).convex
    assert not Curve([0, 1, 2], [0.0, 2.0, 3.0]).convex


def test_what_is_added_per_row_is_added_everywhere() -> None:
    curve = Curve([0, 2, 4], [1.0, 2.0, 8.0])
    assert curve.plus(0.5).seconds(3) == pytest.approx(curve.seconds(3) + 1.5)
    assert curve.plus(0.0) is curve


@pytest.mark.parametrize(
    ("xs", "ys", "words"),
    [
        ([0], [1.0], "two or more points"),
        ([1, 2], [1.0, 2.0], "start at 0"),
        ([0, 2, 2], [1.0, 2.0, 3.0], "rise"),
        ([0, 1], [2.0, 1.0], "never fall"),
        ([0, 1], [-1.0, 1.0], "not negative"),
        ([0, 1], [0.0, inf], "finite"),
        ([0, 1, 2], [0.0, nan, 1.0], "finite"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(xs: list[float], ys: list[float], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Curve(xs, ys)


def test_equal_curves_are_equal() -> None:
    assert Curve.line(1.0, 2.0) == Curve.line(1.0, 2.0) != Curve.line(1.0, 3.0)
    assert len({Curve.line(1.0, 2.0), Curve.line(1.0, 2.0)}) == 1
    assert repr(Curve.line(1.0)) == "Curve([0, 1], [0.0, 1.0])"
