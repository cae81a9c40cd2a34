from __future__ import annotations

from math import nan

import pytest
from hypothesis import assume, given, settings, strategies as st

from coexec.errors import PlanError
from coexec.plan.division.bisection import divide, ordered
from coexec.plan.division.milp import divide_under_cap
from coexec.plan.division.offers import Curve, Offer, Times, finish_times
from coexec.plan.division.whole_rows import adapt
from tests.plan.offers import exhaustive, platforms, seconds_of, tight_system

QUICK = Offer("quick", Curve.line(1.0))


def test_a_device_copies_computes_and_copies_back() -> None:
    offer = Offer("gpu", Curve.line(2.0, 1.0), fixed_in=3.0, in_per_row=0.5, out_per_row=0.25, fixed_out=0.5)
    assert finish_times([offer], (0, 4)) == [Times(0.0, 5.0, 14.0, 15.5)]


def test_an_unused_device_costs_nothing() -> None:
    offer = Offer("gpu", Curve.line(2.0, 1.0), fixed_in=3.0, wait=9.0, fixed_out=1.0, link="bus")
    other = Offer("xpu", Curve.line(1.0), in_per_row=1.0, link="bus", priority=1)
    assert finish_times([offer, other], (0, 0, 2)) == [Times(0, 0, 0, 0), Times(0.0, 2.0, 4.0, 4.0)]


def test_rows_that_are_there_are_not_copied() -> None:
    offer = Offer("gpu", Curve.line(1.0), in_per_row=10.0, there=(2, 6))
    assert [offer.input_seconds(*piece) for piece in ((0, 2), (2, 6), (3, 5), (0, 4), (5, 9), (0, 9), (6, 9))] == [
        20.0,
        0.0,
        0.0,
        20.0,
        30.0,
        50.0,
        30.0,
    ]


def test_copies_on_one_link_follow_each_other_by_priority_and_on_two_do_not() -> None:
    first = Offer("a", Curve.line(1.0), in_per_row=2.0, link="bus", priority=1)
    second = Offer("b", Curve.line(1.0), in_per_row=3.0, link="bus", priority=0)
    assert [t.input_start for t in finish_times([first, second], (0, 1, 2))] == [3.0, 0.0]
    assert [t.input_start for t in finish_times([first, second._replace(link="other")], (0, 1, 2))] == [0.0, 0.0]


def test_who_has_nothing_to_copy_does_not_wait_for_the_link() -> None:
    busy = Offer("a", Curve.line(1.0), in_per_row=5.0, link="bus")
    ready = Offer("b", Curve.line(1.0), in_per_row=5.0, there=(1, 3), link="bus", priority=1)
    assert finish_times([busy, ready], (0, 1, 3))[1] == Times(0.0, 0.0, 2.0, 2.0)


def test_a_busy_device_copies_before_it_computes() -> None:
    offer = Offer("gpu", Curve.line(1.0), fixed_in=2.0, wait=5.0)
    assert finish_times([offer], (0, 3)) == [Times(0.0, 2.0, 8.0, 8.0)]


def test_equal_devices_get_equal_shares() -> None:
    found = divide([QUICK._replace(device=name) for name in "abcd"], 100)
    assert found.shares == pytest.approx([25.0] * 4) and found.seconds == pytest.approx(25.0)
    assert found.single == dict.fromkeys("abcd", 100.0) and found.left_out == {}


def test_a_device_that_could_not_begin_in_time_is_left_out_and_says_why() -> None:
    found = divide([QUICK, Offer("slow", Curve.line(1.0, 50.0))], 10)
    assert found.shares == (10.0, 0.0)
    assert "one row would take it 5.1e+04 ms" in found.left_out["slow"]


def test_data_that_is_there_draws_the_cut() -> None:
    left = Offer("left", Curve.line(1.0), in_per_row=3.0, there=(0, 70))
    right = Offer("right", Curve.line(1.0), in_per_row=3.0, there=(70, 100))
    assert divide([left, right], 100).cuts == pytest.approx((0, 62.0, 100))


def test_a_slow_device_on_the_link_of_a_fast_one_is_left_out_and_the_reason_names_the_link() -> None:
    slow = Offer("slow", Curve.line(0.1), in_per_row=10.0, link="bus", priority=0)
    fast = Offer("fast", Curve.line(0.5), in_per_row=0.5, link="bus", priority=1)
    found = divide([slow, fast], 100)
    assert found.shares == (0.0, 100.0)
    assert found.left_out == {"slow": "its copies would hold up the others on link bus"}
    assert adapt([slow, fast], 100, found).left_out == found.left_out


def test_the_order_on_a_link_is_chosen_where_it_may_be() -> None:
    slow = Offer("slow", Curve.line(4.0), in_per_row=1.0, link="bus", priority=0)
    fast = Offer("fast", Curve.line(0.5), in_per_row=0.5, link="bus", priority=1)
    better = ordered([slow, fast], 100)
    assert divide(better, 100).seconds < divide([slow, fast], 100).seconds
    assert {offer.device: offer.priority for offer in better} == {"slow": 1, "fast": 0}
    assert ordered([QUICK, slow], 100) == [QUICK, slow]


def test_many_groups_go_the_fastest_first() -> None:
    offers = [Offer(f"d{i}", Curve.line(1.0 + i), in_per_row=0.1, link="bus") for i in (3, 1, 0, 2)]
    assert [offer.priority for offer in ordered(offers, 1000)] == [3, 1, 0, 2]


def test_sixteen_identical_devices_on_one_link_are_as_many_as_help() -> None:
    offers = [Offer(f"d{i}", Curve.line(1.0), fixed_in=5.0, link="bus", group="d", priority=i) for i in range(16)]
    found = divide(offers, 64)
    used = [offer for offer, share in zip(offers, found.shares, strict=True) if share]
    times = {count: divide(offers[:count], 64).seconds for count in range(1, 17)}
    assert found.seconds == pytest.approx(min(times.values())) == pytest.approx(times[len(used)])
    assert len(used) < 16


def test_seven_unlike_devices_on_one_link_are_dropped_one_by_one() -> None:
    offers = [
        Offer(f"d{i}", Curve.line(1.0 + i), fixed_in=2.0 * i, in_per_row=0.3 * i, link="bus", priority=i)
        for i in range(8)
    ]
    found = divide(offers, 100)
    assert found.seconds == pytest.approx(divide_under_cap(offers, 100).seconds, rel=1e-2)
    assert found.seconds <= divide(offers[:3], 100).seconds


def test_nothing_to_do_takes_no_time() -> None:
    assert divide([QUICK, QUICK._replace(device="other")], 0).seconds == 0.0


def test_free_rows_take_no_time() -> None:
    assert divide([Offer("free", Curve.line(0.0))], 7).seconds == 0.0


@pytest.mark.parametrize(
    ("offers", "rows", "words"),
    [
        ([], 4, "over 0 devices"),
        ([QUICK], -1, "-1 rows"),
        ([QUICK._replace(most=3), Offer("b", Curve.line(1.0), most=2)], 6, "quick 3, b 2"),
        ([QUICK._replace(in_per_row=-1.0)], 4, "not negative"),
        ([QUICK._replace(wait=nan)], 4, "finite"),
        ([QUICK._replace(granule=0)], 4, "granule"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_numbers(offers: list[Offer], rows: int, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        divide(offers, rows)


@settings(max_examples=200)
@given(platforms(links=False), st.integers(1, 14))
def test_the_optimum_before_rounding_is_below_every_whole_division(offers: list[Offer], rows: int) -> None:
    assert divide(offers, rows).seconds <= exhaustive(offers, rows) * (1 + 1e-9)


@settings(max_examples=200)
@given(platforms(devices=5, rules=False, straight=True), st.integers(1, 1000))
def test_straight_lines_agree_with_the_closed_form_when_everyone_takes_part(offers: list[Offer], rows: int) -> None:
    offers = [offer._replace(priority=i) for i, offer in enumerate(offers)]
    shares, seconds = tight_system(offers, rows)
    found = divide(offers, rows)
    assume(min(found.shares) > 0)
    assert found.seconds == pytest.approx(seconds, rel=1e-9)
    assert [share / rows for share in found.shares] == pytest.approx(shares, abs=1e-9)


@settings(max_examples=200)
@given(platforms(devices=5, rows=100), st.integers(1, 100))
def test_shares_sum_to_all_rows_within_memory_and_the_times_are_those_of_the_cuts(
    offers: list[Offer], rows: int
) -> None:
    found = divide(offers, rows)
    assert found.cuts[0] == 0 and found.cuts[-1] == rows
    assert all(-1e-9 <= share <= offer.room + 1e-6 for offer, share in zip(offers, found.shares, strict=True))
    assert found.seconds == pytest.approx(seconds_of(offers, found.shares))
    assert found == divide(offers, rows)
