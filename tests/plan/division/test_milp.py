from __future__ import annotations

from math import inf

import pytest
from hypothesis import example, given, settings, strategies as st

from coexec.errors import PlanError
from coexec.plan.division.bisection import divide
from coexec.plan.division.milp import divide_under_cap
from coexec.plan.division.offers import Curve, Offer, joules
from tests.plan.offers import platforms

HUNGRY = Offer("hungry", Curve.line(1.0), watts=100.0, idle_watts=10.0)
FRUGAL = Offer("frugal", Curve.line(4.0), watts=5.0, idle_watts=1.0)


@settings(max_examples=40, deadline=None)
@given(platforms(devices=4, rules=False, straight=True), st.integers(1, 1000))
def test_straight_lines_on_any_links_agree_with_bisection(offers: list[Offer], rows: int) -> None:
    assert divide_under_cap(offers, rows).seconds == pytest.approx(divide(offers, rows).seconds, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(platforms(devices=3, links=False), st.integers(1, 14))
def test_any_curves_limits_waits_and_data_already_there_agree_with_bisection(offers: list[Offer], rows: int) -> None:
    offers = [offer._replace(least=1) for offer in offers]
    assert divide_under_cap(offers, rows).seconds == pytest.approx(divide(offers, rows).seconds, rel=1e-4)


LOST_BY_PRESOLVE = [
    Offer("d0", Curve([0, 1], [0.125, 0.25]), most=3),
    Offer("d1", Curve([0, 1], [0.125, 5.125]), out_per_row=3.875, fixed_out=2.5),
    Offer("d2", Curve([0, 1, 2, 4, 5], [0.625, 3.5, 6.625, 6.875, 10]), in_per_row=0.25, fixed_out=4.875),
]


@settings(max_examples=40, deadline=None)
@given(platforms(devices=3), st.integers(1, 14))
@example(LOST_BY_PRESOLVE, 6)
def test_on_a_shared_link_no_optimum_is_above_what_bisection_finds(offers: list[Offer], rows: int) -> None:
    offers = [offer._replace(least=1, there=(0, 0)) for offer in offers]
    assert divide_under_cap(offers, rows).seconds <= divide(offers, rows).seconds * (1 + 1e-6)


def test_a_tighter_cap_moves_work_to_the_frugal_device_and_takes_longer() -> None:
    offers = [HUNGRY, FRUGAL]
    free = divide_under_cap(offers, 100)
    spent = joules(offers, free.times)
    capped = divide_under_cap(offers, 100, spent * 0.8)
    assert joules(offers, capped.times) == pytest.approx(spent * 0.8, rel=1e-6)
    assert capped.seconds > free.seconds and capped.shares[1] > free.shares[1]


def test_a_cap_that_nothing_meets_is_refused() -> None:
    with pytest.raises(PlanError, match="needs at most 10 J; raise the cap"):
        divide_under_cap([HUNGRY, FRUGAL], 100, 10.0)


def test_a_device_that_idles_at_more_power_than_it_works_with_is_refused() -> None:
    with pytest.raises(PlanError, match="watts"):
        divide_under_cap([HUNGRY._replace(idle_watts=200.0)], 100, 1000.0)


def test_least_shares_are_kept() -> None:
    offers = [HUNGRY, FRUGAL._replace(least=30)]
    assert divide_under_cap(offers, 100).shares == pytest.approx((100.0, 0.0))
    assert divide_under_cap([HUNGRY, FRUGAL._replace(least=10)], 100).shares == pytest.approx((80.0, 20.0))


def test_no_rows_and_no_cap_are_no_trouble() -> None:
    assert divide_under_cap([HUNGRY], 0, inf).seconds == 0.0
