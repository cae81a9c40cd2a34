from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings, strategies as st

from coexec.plan.division.bisection import divide
from coexec.plan.division.offers import Curve, Division, Offer, finish_times
from coexec.plan.division.whole_rows import ALIGN, adapt, along_the_axis, choose, every_division, in_rows
from tests.plan.offers import exhaustive, keeps_the_rules, platforms, seconds_of


def planned(offers: list[Offer], rows: int, **options: object) -> Division:
    return adapt(offers, rows, divide(offers, rows), **options)  # type: ignore[arg-type]


def compare_with_exhaustive_search(offers: list[Offer], rows: int) -> None:
    best = exhaustive(offers, rows)
    if best < inf:
        found = planned(offers, rows)
        assert best * (1 - 1e-9) <= found.seconds <= best * (1 + ALIGN)
        shares = in_rows(offers, rows, divide(offers, rows))
        before = seconds_of(offers, shares) if keeps_the_rules(offers, shares) else inf
        assert min(before, *found.single.values()) == pytest.approx(best, rel=1e-9)


@settings(max_examples=400)
@given(platforms(links=False), st.integers(0, 14))
def test_few_rows_without_a_shared_link_are_divided_as_well_as_by_exhaustive_search(
    offers: list[Offer], rows: int
) -> None:
    compare_with_exhaustive_search(offers, rows)


@settings(max_examples=200)
@given(platforms(), st.integers(0, 14))
def test_few_rows_on_a_shared_link_are_divided_as_well_as_by_exhaustive_search(offers: list[Offer], rows: int) -> None:
    compare_with_exhaustive_search(offers, rows)


@settings(max_examples=300)
@given(platforms(rows=60, devices=5), st.integers(0, 60))
def test_any_plan_has_all_rows_fits_into_memory_and_is_not_slower_than_one_device(
    offers: list[Offer], rows: int
) -> None:
    found = planned(offers, rows)
    assert found.cuts[0] == 0 and found.cuts[-1] == rows and len(found.cuts) == len(offers) + 1
    assert all(isinstance(cut, int) for cut in found.cuts)
    assert all(0 <= share <= offer.room for offer, share in zip(offers, found.shares, strict=True))
    assert found.seconds <= min(found.single.values())
    assert found.times == tuple(finish_times(offers, found.cuts))
    assert found.seconds == max(t.finish for t in found.times)
    assert found == planned(offers, rows)
    idle = {offer.device for offer, share in zip(offers, found.shares, strict=True) if not share}
    assert set(found.left_out) == (idle if rows else set(found.left_out))


def worth(offers: list[Offer], shares: Sequence[float]) -> float:
    """Return the most that one granule more costs any device, copies ahead of others on a link included."""
    extra = [
        offer.compute.seconds(share + offer.granule)
        - offer.compute.seconds(share)
        + (offer.in_per_row + offer.out_per_row) * offer.granule
        for offer, share in zip(offers, shares, strict=True)
    ]
    return max(extra)


@settings(max_examples=100, deadline=None)
@given(platforms(rows=60, devices=3, links=False), st.integers(40, 60))
def test_many_rows_without_a_shared_link_are_at_most_a_granules_worth_above_the_best(
    offers: list[Offer], rows: int
) -> None:
    """Rounding down leaves less than a granule per device; each of them takes at most one more."""
    best = along_the_axis(offers, rows, inf)
    if best is not None:
        assert planned(offers, rows).seconds <= seconds_of(offers, best) + worth(offers, best) + 1e-9


@settings(max_examples=40, deadline=None)
@given(platforms(rows=30, devices=3), st.integers(18, 30))
def test_many_rows_on_a_shared_link_are_at_most_a_granules_worth_of_everyone_above_the_best(
    offers: list[Offer], rows: int
) -> None:
    """What one device takes more also holds up those behind it on the link."""
    best = every_division(offers, rows, inf)
    if best is not None:
        assert planned(offers, rows).seconds <= seconds_of(offers, best) + len(offers) * worth(offers, best) + 1e-9


@settings(max_examples=200, deadline=None)
@given(platforms(rows=60, devices=4), st.integers(1, 60))
def test_shares_keep_to_granules_and_limits_where_any_division_does(offers: list[Offer], rows: int) -> None:
    found = planned(offers, rows)
    alone = sum(share > 0 for share in found.shares) == 1
    roomy = all(offer.most is None for offer in offers)
    assert alone or not roomy or keeps_the_rules(offers, found.shares)


@settings(max_examples=100, deadline=None)
@given(platforms(rows=40, devices=3), st.integers(1, 40), st.lists(st.integers(0, 40), max_size=4))
def test_previous_cuts_stay_exactly_when_they_are_nearly_as_good(
    offers: list[Offer], rows: int, cuts: list[int]
) -> None:
    cuts = sorted(cuts)
    fresh, found = planned(offers, rows), planned(offers, rows, sticky=cuts)
    fits = (
        len(cuts) == len(offers) + 1
        and cuts[0] == 0
        and cuts[-1] == rows
        and all(high - low <= offer.room for offer, (low, high) in zip(offers, pairwise(cuts), strict=True))
    )
    good = fits and max(t.finish for t in finish_times(offers, cuts)) <= min(
        fresh.seconds * 1.03, *fresh.single.values()
    )
    assert found.sticky == good
    assert found.cuts == (tuple(cuts) if good else fresh.cuts)


def test_cuts_within_three_percent_stay_and_others_move() -> None:
    offers = [Offer("a", Curve.line(1.0)), Offer("b", Curve.line(1.0))]
    assert planned(offers, 1000, sticky=(0, 510, 1000)).cuts == (0, 510, 1000)
    moved = planned(offers, 1000, sticky=(0, 520, 1000))
    assert list(moved.cuts) == [0, 500, 1000] and not moved.sticky
    assert planned(offers, 1000, sticky=(0, 520, 1000), keep=0.05).sticky
    assert planned(offers, 1000, sticky=(0, 999, 1000), keep=inf).sticky


def test_cuts_of_another_task_or_beyond_memory_do_not_stay() -> None:
    offers = [Offer("a", Curve.line(1.0), most=505), Offer("b", Curve.line(1.0))]
    for cuts in ((0, 500, 900), (0, 1000), (0, 510, 1000)):
        assert not planned(offers, 1000, sticky=cuts, keep=inf).sticky
    assert planned(offers, 1000, sticky=(0, 505, 1000)).sticky


def test_leftovers_go_where_they_cost_least() -> None:
    coarse = Offer("coarse", Curve.line(1.0), granule=64)
    fine = Offer("fine", Curve.line(1.0), granule=1)
    assert list(planned([coarse, fine], 10).shares) == [5, 5]
    assert list(planned([coarse, fine], 10_000).shares) == [4992, 5008]
    assert planned([coarse, fine._replace(granule=64)], 10_000).shares in {(4992, 5008), (5008, 4992)}


def test_a_share_below_the_least_useful_one_goes_to_the_others() -> None:
    offers = [Offer("a", Curve.line(1.0)), Offer("b", Curve.line(1.0)), Offer("slow", Curve.line(50.0), least=100)]
    found = planned(offers, 1000)
    assert list(found.shares) == [500, 500, 0]
    assert found.left_out == {"slow": "its share would be below the least useful one of 100 rows"}


def test_what_is_faster_alone_is_not_divided_and_says_so() -> None:
    offers = [Offer("a", Curve.line(1e-3)), Offer("b", Curve.line(1e-3, 9.5e-3))]
    found = choose(offers, 11, (8, 3), divide(offers, 11))
    assert list(found.cuts) == [0, 11, 11] and found.seconds == pytest.approx(11e-3)
    assert found.left_out == {"b": "alone is faster: a takes 11 ms, divided it would be 12.5 ms"}
    assert planned(offers, 10).left_out == {"b": "one row would take it 10.5 ms, the others are done after 10 ms"}


def test_one_device_does_all_rather_than_break_a_rule() -> None:
    offers = [Offer("a", Curve.line(1.0), least=3), Offer("b", Curve.line(1.0), most=1)]
    found = planned(offers, 2)
    assert list(found.cuts) == [0, 2, 2]
    assert found.left_out == {"b": "a does all: no division keeps to the devices' granules, memory and least shares"}


def test_memory_comes_before_granules() -> None:
    offers = [Offer("a", Curve.line(1.0), granule=4, most=5), Offer("b", Curve.line(1.0), granule=4, most=5)]
    assert list(planned(offers, 10).shares) == [5, 5]
    assert sorted(planned(offers, 9).shares) == [4, 5]


def test_no_rows_are_a_plan_too() -> None:
    found = planned([Offer("a", Curve.line(1.0, 1.0)), Offer("b", Curve.line(1.0, 1.0))], 0)
    assert list(found.cuts) == [0, 0, 0] and found.seconds == 0.0


def test_few_rows_over_many_devices_give_one_each_to_the_fastest() -> None:
    offers = [Offer(f"d{i}", Curve.line(1.0 + i)) for i in range(8)]
    assert planned(offers, 3).shares[3:] == (0,) * 5
