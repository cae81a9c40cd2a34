from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.errors import PlanError
from coexec.plan.division.bisection import divide
from coexec.plan.division.grid_division import bands, together
from coexec.plan.division.offers import Curve, Offer
from tests.plan.offers import platforms


def test_bands_are_neighbours_of_about_equal_speed() -> None:
    offers = [Offer(f"d{i}", Curve.line(1 / speed)) for i, speed in enumerate((4.0, 1.0, 1.0, 2.0))]
    assert [[offer.device for offer in band.offers] for band in bands(offers, 2)] == [["d0"], ["d1", "d2", "d3"]]
    assert [len(band.offers) for band in bands(offers, 4)] == [1, 1, 1, 1]
    assert [band.offers for band in bands(offers, 1)] == [tuple(offers)]


def test_a_band_does_in_a_time_what_its_devices_do() -> None:
    offers = [Offer("a", Curve.line(1.0, 5.0)), Offer("b", Curve.line(2.0), fixed_in=1.0, in_per_row=1.0)]
    curve = together(offers)
    assert [curve.rows_within(t) for t in (1.0, 4.0, 5.0, 8.0, 100.0)] == pytest.approx(
        [0.0, 1.0, 4 / 3, 16 / 3, 128.0]
    )


@given(platforms(devices=4, links=False, rules=False), st.integers(1, 100))
def test_a_band_takes_as_long_as_its_devices_divided_among_themselves(offers: list[Offer], rows: int) -> None:
    assert together(offers).seconds(rows) == pytest.approx(divide(offers, rows).seconds, rel=1e-9)


def test_devices_to_which_more_rows_cost_nothing_take_as_long_for_any_number() -> None:
    level = Curve((0, 10, 20), (3.0, 5.0, 5.0))
    assert [together([Offer("a", Curve.line(0.0, 2.0))]).seconds(rows) for rows in (0, 1, 1000)] == [2.0, 2.0, 2.0]
    offers = [Offer("a", level), Offer("b", Curve.line(1.0))]
    assert [together(offers).seconds(rows) for rows in (0, 8, 1000)] == pytest.approx([0.0, 3 + 5 / 6, 5.0])


def test_a_slow_neighbourhood_still_leaves_a_device_for_every_band() -> None:
    offers = [Offer(f"d{i}", Curve.line(1 / speed)) for i, speed in enumerate((1.0, 1.0, 100.0))]
    assert [len(band.offers) for band in bands(offers, 3)] == [1, 1, 1]
    assert [len(band.offers) for band in bands(offers, 2)] == [2, 1]


@pytest.mark.parametrize("count", [0, 3])
def test_more_bands_than_devices_are_refused(count: int) -> None:
    with pytest.raises(PlanError, match=f"2 devices cannot form {count} bands"):
        bands([Offer("a", Curve.line(1.0)), Offer("b", Curve.line(1.0))], count)
