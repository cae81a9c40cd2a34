"""How the three policies degrade when predictions are wrong: an event simulation of the dynamic shares, exact and without a clock."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest

from coexec.plan.division.bisection import divide
from coexec.plan.division.dynamic_shares import DynamicShares, Stock
from coexec.plan.division.offers import Curve, Division, Offer
from coexec.plan.division.whole_rows import adapt
from coexec.schedule.dynamic_shares import DEPTH, LEAST

ROWS = 100_000
PART = 40e-6  # seconds that each part costs beside its rows
TWO = (4e6, 2e6)  # rows per second: about 17 ms for all
FOUR = (4e6, 3e6, 2e6, 1e6)
ERRORS = (0.0, 0.1, 0.3, 1.0)


def planned(rates: tuple[float, ...], error: float) -> tuple[list[Stock], float]:
    """Return the plan, and the best time there is, if the first device is predicted to be (1 + error) times as fast."""
    believed = (rates[0] * (1.0 + error), *rates[1:])
    found = _divide(believed)
    stocks = [
        Stock(f"d{i}", int(lo), int(hi), rate)
        for i, (rate, lo, hi) in enumerate(zip(believed, found.cuts, found.cuts[1:], strict=False))
    ]
    return stocks, _divide(rates).seconds


def _divide(rates: tuple[float, ...]) -> Division:
    offers = [Offer(f"d{i}", Curve.line(1.0 / rate, PART)) for i, rate in enumerate(rates)]
    return adapt(offers, ROWS, divide(offers, ROWS))


def static(rates: tuple[float, ...], stocks: list[Stock]) -> float:
    return max(PART + (s.hi - s.lo) / rate for s, rate in zip(stocks, rates, strict=True) if s.hi > s.lo)


def on_demand(rates: tuple[float, ...], stocks: list[Stock], policy: str) -> float:
    """Play what schedule/dynamic_shares.py does: each device has DEPTH parts, and gets another when it has finished one."""
    shares = DynamicShares(stocks, policy=policy, least=LEAST)
    speed = {stock.device: rate for stock, rate in zip(stocks, rates, strict=True)}
    free = dict.fromkeys(speed, 0.0)
    events: list[tuple[float, int, str, int]] = []

    def give(device: str, now: float) -> None:
        rows = shares.take(device)
        if rows is not None:
            count = rows[1] - rows[0]
            free[device] = max(free[device], now) + PART + count / speed[device]
            heappush(events, (free[device], len(events), device, count))

    for _ in range(DEPTH):
        for stock in stocks:
            give(stock.device, 0.0)
    last = 0.0
    while events:
        last, _, device, count = heappop(events)
        shares.measured(device, count, PART + count / speed[device])
        give(device, last)
    assert shares.rows == 0
    return last


def over_the_best(rates: tuple[float, ...], error: float) -> dict[str, float]:
    """Return each policy's time over the best one."""
    stocks, best = planned(rates, error)
    times = {"static": static(rates, stocks)}
    times |= {policy: on_demand(rates, stocks, policy) for policy in ("dynamic", "auto")}
    return {policy: seconds / best for policy, seconds in times.items()}


def worst(rates: tuple[float, ...], error: float) -> dict[str, float]:
    """Return the same, for the worse of believing a device too fast and too slow by `error`."""
    both = (over_the_best(rates, error), over_the_best(rates, 1.0 / (1.0 + error) - 1.0))
    return {policy: max(found[policy] for found in both) for policy in both[0]}


@pytest.mark.parametrize("rates", [TWO, FOUR], ids=["two", "four"])
def test_with_true_predictions_the_static_plan_is_the_best(rates) -> None:
    found = worst(rates, 0.0)
    assert found["static"] == pytest.approx(1.0, abs=1e-3)
    assert found["static"] < found["auto"] < 1.05 and found["static"] < found["dynamic"] < 1.05


@pytest.mark.parametrize("rates", [TWO, FOUR], ids=["two", "four"])
def test_a_static_plan_pays_for_every_error_and_the_others_hardly(rates) -> None:
    sweep = [worst(rates, error) for error in ERRORS]
    static_times = [found["static"] for found in sweep]
    assert static_times == sorted(static_times), "the larger the error, the longer it takes"
    assert static_times[-1] > 1.3
    for found in sweep:
        assert found["auto"] < 1.06 and found["dynamic"] < 1.06


@pytest.mark.parametrize("rates", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize("error", [0.1, 0.3, 1.0])
def test_from_ten_per_cent_on_handing_out_is_better_than_a_static_plan(rates, error) -> None:
    found = worst(rates, error)
    assert found["auto"] < found["static"] and found["dynamic"] < found["static"]


def test_a_device_believed_a_hundred_times_too_fast_is_relieved() -> None:
    found = over_the_best(TWO, 99.0)
    assert found["static"] > 1.4 and found["dynamic"] < 1.1 and found["auto"] < 1.15
