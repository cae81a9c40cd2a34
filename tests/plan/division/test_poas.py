"""The behaviours of the POAS reference, by name: P1 to P10."""

from __future__ import annotations

from math import inf, sqrt

import pytest
from hypothesis import assume, given, settings, strategies as st

from coexec.plan.division.bisection import divide
from coexec.plan.division.milp import divide_under_cap
from coexec.plan.division.offers import Curve, Offer
from coexec.plan.division.whole_rows import adapt
from coexec.predict.model import KernelModel
from coexec.predict.work import Work
from tests.plan.offers import keeps_the_rules, platforms, tight_system, worked_example

SIZE = 30000
SHARES = (0.011007, 0.120072, 0.868921)
SECONDS = 1.19371


def linear_program(offers: list[Offer], rows: int) -> tuple[list[float], float]:
    """Return the fractions and the time by `linprog`: every device is used, in the order of its priority."""
    from scipy.optimize import linprog

    n = len(offers)
    table, right = [], []
    for i, offer in enumerate(offers):
        line = [0.0] * n + [-1.0]
        line[i] = (offer.compute.slopes()[0] + offer.out_per_row) * rows
        fixed = offer.compute.ys[0] + offer.fixed_out
        for j, other in enumerate(offers):
            if j == i or (other.link and other.link == offer.link and other.priority < offer.priority):
                line[j] += other.in_per_row * rows
                fixed += other.fixed_in
        table.append(line)
        right.append(-fixed)
    found = linprog([0.0] * n + [1.0], table, right, [[1.0] * n + [0.0]], [1.0])
    return list(found.x[:n]), float(found.fun)


def test_p1_the_worked_example_comes_out_of_all_four_ways() -> None:
    offers = worked_example()
    bisected, program = divide(offers, SIZE), divide_under_cap(offers, SIZE)
    ways = {
        "bisection": ([share / SIZE for share in bisected.shares], bisected.seconds),
        "milp": ([share / SIZE for share in program.shares], program.seconds),
        "lp": linear_program(offers, SIZE),
        "tight system": tight_system(offers, SIZE),
    }
    for shares, seconds in ways.values():
        assert shares == pytest.approx(SHARES, abs=1e-4)
        assert seconds == pytest.approx(SECONDS, rel=1e-4)


def test_p1_the_worked_example_is_faster_than_its_best_device_by_as_much() -> None:
    found = divide(worked_example(), SIZE)
    assert found.single["xpu"] == pytest.approx(1.351, abs=1e-3)
    assert found.single["xpu"] / found.seconds == pytest.approx(1.132, abs=1e-3)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
def test_p2_the_shares_do_not_depend_on_the_size_of_the_numbers(scale: float) -> None:
    for way in (divide, divide_under_cap):
        found = way(worked_example(scale=scale), SIZE)
        assert [share / SIZE for share in found.shares] == pytest.approx(SHARES, abs=1e-4)
        assert found.seconds == pytest.approx(SECONDS * scale, rel=1e-4)


@given(platforms(devices=4, rules=False, straight=True), st.integers(1, 50), st.integers(2, 10**9))
def test_p2_many_times_the_rows_with_as_much_less_work_each_take_as_long(
    offers: list[Offer], rows: int, times: int
) -> None:
    finer = [
        offer._replace(
            compute=Curve([x * times for x in offer.compute.xs], offer.compute.ys),
            in_per_row=offer.in_per_row / times,
            out_per_row=offer.out_per_row / times,
        )
        for offer in offers
    ]
    coarse, fine = divide(offers, rows), divide(finer, rows * times)
    assert fine.seconds == pytest.approx(coarse.seconds, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(platforms(devices=4, rows=50), st.integers(0, 50))
def test_p3_shares_sum_to_one_none_is_negative_and_whole_rows_sum_to_all(offers: list[Offer], rows: int) -> None:
    division = divide(offers, rows)
    found = adapt(offers, rows, division)
    assert min(division.shares) >= 0 and sum(division.shares) == pytest.approx(rows)
    assert min(found.shares) >= 0 and sum(found.shares) == rows


@settings(max_examples=100, deadline=None)
@given(platforms(devices=4, rows=50), st.integers(0, 50))
def test_p4_every_share_but_at_most_one_is_a_multiple_of_its_granule(offers: list[Offer], rows: int) -> None:
    offers = [offer._replace(most=None, least=1) for offer in offers]
    assert keeps_the_rules(offers, adapt(offers, rows, divide(offers, rows)).shares)


@settings(max_examples=100, deadline=None)
@given(platforms(devices=4, rows=50, links=False), st.integers(1, 50))
def test_p5_whole_rows_take_no_less_than_the_optimum_and_no_more_than_any_single_device(
    offers: list[Offer], rows: int
) -> None:
    division = divide(offers, rows)
    found = adapt(offers, rows, division)
    assert division.seconds * (1 - 1e-9) <= found.seconds <= min(found.single.values())


@settings(max_examples=50, deadline=None)
@given(platforms(devices=4, rows=50, straight=True, rules=False), st.integers(1, 50))
def test_p5_on_shared_links_too(offers: list[Offer], rows: int) -> None:
    found = adapt(offers, rows, divide(offers, rows))
    assert divide_under_cap(offers, rows).seconds * (1 - 1e-6) <= found.seconds <= min(found.single.values())


def test_p6_a_small_matrix_ends_on_one_device_and_the_others_cost_nothing() -> None:
    sizes = (8, 64, 30000)
    plans = [adapt(worked_example(size), size, divide(worked_example(size), size)) for size in sizes]
    assert [sum(share > 0 for share in plan.shares) for plan in plans] == [1, 1, 3]
    for plan in plans[:2]:
        assert plan.seconds == min(plan.single.values())
        assert sum(t.finish > 0 for t in plan.times) == 1 and len(plan.left_out) == 2


@settings(max_examples=200)
@given(platforms(devices=5, rules=False), st.integers(1, 1000))
def test_p7_when_all_are_used_they_finish_together(offers: list[Offer], rows: int) -> None:
    found = divide(offers, rows)
    assume(min(found.shares) > 1e-6)
    assert [t.finish for t in found.times] == pytest.approx([found.seconds] * len(offers), rel=1e-6)


@settings(max_examples=200)
@given(platforms(links=False), st.integers(1, 14), st.integers(0, 2), st.integers(0, 100))
def test_p8_raising_a_bandwidth_never_takes_longer(offers: list[Offer], rows: int, which: int, percent: int) -> None:
    assert divide(faster(offers, which, percent), rows).seconds <= divide(offers, rows).seconds * (1 + 1e-9)


@settings(max_examples=200)
@given(platforms(devices=4, rules=False, straight=True), st.integers(1, 99), st.integers(0, 3), st.integers(0, 100))
def test_p8_nor_on_a_shared_link(offers: list[Offer], rows: int, which: int, percent: int) -> None:
    assert divide(faster(offers, which, percent), rows).seconds <= divide(offers, rows).seconds * (1 + 1e-9)


def faster(offers: list[Offer], which: int, percent: int) -> list[Offer]:
    """Return the offers with one device's copies taking `percent` of the time."""
    which %= len(offers)
    part = percent / 100
    quick = offers[which]._replace(
        fixed_in=offers[which].fixed_in * part,
        in_per_row=offers[which].in_per_row * part,
        out_per_row=offers[which].out_per_row * part,
        fixed_out=offers[which].fixed_out * part,
    )
    return [*offers[:which], quick, *offers[which + 1 :]]


def test_p9_a_memory_limit_binds_and_moves_work_to_the_others() -> None:
    free = worked_example()
    limited = [offer._replace(most=20000 if offer.device == "xpu" else None) for offer in free]
    before, after = divide(free, SIZE), divide(limited, SIZE)
    assert before.shares[2] > 20000 == pytest.approx(after.shares[2])
    assert after.shares[0] > before.shares[0] and after.shares[1] > before.shares[1]
    assert after.seconds > before.seconds
    assert after.seconds == pytest.approx(divide_under_cap(limited, SIZE).seconds, rel=1e-6)
    assert list(adapt(limited, SIZE, after).shares)[2] <= 20000
    assert after.single["xpu"] == inf


def test_p10_the_error_of_predictions_is_reported_as_rmse_and_relative() -> None:
    model = KernelModel()
    measured = [
        (size, 1e-3 + size * 1e-8 * (1 + 0.1 * (-1) ** i)) for i, size in enumerate(range(10**5, 2 * 10**6, 10**5))
    ]
    for size, seconds in measured:
        model.learn(Work((float(size),)), seconds)
    errors = model.errors()
    assert errors is not None and errors.count == len(measured)
    assert 0 < errors.rmse_seconds < sqrt(sum((seconds * 0.2) ** 2 for _, seconds in measured) / len(measured))
    assert 0 < errors.median_relative < 0.2
