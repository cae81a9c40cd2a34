from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings, strategies as st

from coexec.plan.adapt import adapt
from coexec.plan.divide import divide
from coexec.plan.offer import Division, Offer, finish_times
from tests.plan.offers import exhaustive, platforms


def planned(offers: list[Offer], rows: int, **options: object) -> Division:
    return adapt(offers, rows, divide(offers, rows), **options)  # type: ignore[arg-type]


@settings(max_examples=400)
@given(platforms(links=False), st.integers(0, 14))
def test_few_rows_without_a_shared_link_are_divided_as_well_as_by_exhaustive_search(
    offers: list[Offer], rows: int
) -> None:
    found = planned(offers, rows)
    best = exhaustive(offers, rows)
    if best < inf:
        assert found.seconds == pytest.approx(best, rel=1e-9)


@settings(max_examples=200)
@given(platforms(), st.integers(0, 14))
def test_few_rows_on_a_shared_link_are_divided_as_well_as_by_exhaustive_search(offers: list[Offer], rows: int) -> None:
    found = planned(offers, rows)
    best = exhaustive(offers, rows)
    if best < inf:
        assert found.seconds == pytest.approx(best, rel=1e-9)


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
