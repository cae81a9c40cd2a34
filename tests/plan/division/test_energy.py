from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import PlanError
from coexec.plan.division.bisection import divide
from coexec.plan.division.energy import least_energy, under_cap
from coexec.plan.division.offers import Curve, Offer, finish_times, joules
from coexec.plan.division.whole_rows import adapt
from tests.plan.offers import keeps_the_rules, legal_divisions, platforms

HUNGRY = Offer("hungry", Curve.line(1.0), watts=100.0, idle_watts=0.0)
FRUGAL = Offer("frugal", Curve.line(4.0), watts=5.0, idle_watts=0.0)
powers = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5)), min_size=3, max_size=3)


def energies(offers: list[Offer], rows: int) -> list[tuple[float, float]]:
    """Return (seconds, joules) of every legal division."""
    found = []
    for shares in legal_divisions(offers, rows):
        times = finish_times(offers, (0, *accumulate(shares)))
        found.append((max(t.finish for t in times), joules(offers, times)))
    return found


def with_power(offers: list[Offer], watts: list[tuple[int, int]]) -> list[Offer]:
    return [
        offer._replace(watts=float(work + idle), idle_watts=float(idle), link="", least=1, most=None)
        for offer, (work, idle) in zip(offers, watts, strict=False)
    ]


def test_without_a_deadline_the_frugal_device_does_everything() -> None:
    found = least_energy([HUNGRY, FRUGAL], 100)
    assert list(found.shares) == [0, 100] and joules([HUNGRY, FRUGAL], found.times) == 2000.0


def test_with_a_deadline_the_hungry_one_does_as_little_as_it_takes() -> None:
    found = least_energy([HUNGRY, FRUGAL], 100, deadline=200.0)
    assert list(found.shares) == [50, 50] and found.seconds == 200.0


def test_an_idle_machine_that_burns_much_makes_haste() -> None:
    found = least_energy([HUNGRY, FRUGAL._replace(idle_watts=4.9), Offer("idle", Curve.line(1e9), idle_watts=1e3)], 100)
    assert found.seconds == pytest.approx(80.0)


def test_a_deadline_that_nothing_meets_is_refused_with_the_fastest_time() -> None:
    with pytest.raises(PlanError, match="the fastest takes 80 s"):
        least_energy([HUNGRY, FRUGAL], 100, deadline=79.0)


def test_a_cap_is_kept_in_whole_rows() -> None:
    offers = [HUNGRY._replace(granule=8), FRUGAL._replace(granule=4)]
    free = adapt(offers, 100, divide(offers, 100))
    cap = joules(offers, free.times) * 0.7
    found = under_cap(offers, 100, cap)
    assert joules(offers, found.times) <= cap and sum(found.shares) == 100 and keeps_the_rules(offers, found.shares)
    assert found.seconds > free.seconds


def test_a_cap_that_only_fractions_of_granules_meet_is_refused() -> None:
    offers = [HUNGRY._replace(most=40, granule=40), FRUGAL._replace(most=75, granule=75)]
    with pytest.raises(PlanError, match="raise the cap"):
        under_cap(offers, 100, 2900.0)


@settings(max_examples=100, deadline=None)
@given(platforms(rows=10, links=False), powers, st.integers(1, 10), st.integers(100, 300))
def test_few_rows_take_the_least_energy_of_every_division(
    offers: list[Offer], watts: list[tuple[int, int]], rows: int, percent: int
) -> None:
    offers = with_power(offers, watts)
    deadline = adapt(offers, rows, divide(offers, rows)).seconds * percent / 100
    found = least_energy(offers, rows, deadline=deadline)
    best = min(energy for seconds, energy in energies(offers, rows) if seconds <= deadline)
    assert found.seconds <= deadline and sum(found.shares) == rows
    assert joules(offers, found.times) == pytest.approx(best, rel=1e-9)


def test_many_rows_take_about_the_least_energy_of_every_division() -> None:
    offers = [HUNGRY._replace(idle_watts=8.0), FRUGAL._replace(idle_watts=2.0, compute=Curve.line(4.0, 30.0))]
    for deadline in (250.0, 300.0, 500.0, 900.0):
        best = min(energy for seconds, energy in energies(offers, 200) if seconds <= deadline)
        found = least_energy(offers, 200, deadline=deadline)
        assert joules(offers, found.times) == pytest.approx(best, rel=1e-9)


def test_many_devices_take_no_more_energy_than_the_fastest_division() -> None:
    offers = [Offer(f"d{i}", Curve.line(1.0 + i, 2.0), watts=60.0 / (1 + i), idle_watts=1.0) for i in range(6)]
    fastest = adapt(offers, 300, divide(offers, 300))
    found = least_energy(offers, 300, deadline=2 * fastest.seconds)
    assert joules(offers, found.times) < joules(offers, fastest.times) and found.seconds <= 2 * fastest.seconds
