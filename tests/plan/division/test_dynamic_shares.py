"""Rows handed out on demand: each exactly once, in granules, to whoever asks, whatever the order of asking."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from coexec.plan.division.dynamic_shares import DynamicShares, Stock

POLICIES = ("dynamic", "auto")


@st.composite
def stocks(draw: st.DrawFn) -> list[Stock]:
    """Draw the shares of a plan: contiguous, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, 500), min_size=1, max_size=4)))
    rates = st.floats(1e-3, 1e9)
    return [
        Stock(f"d{i}", lo, hi, draw(rates), draw(st.integers(1, 8))) for i, (lo, hi) in enumerate(pairwise([0, *cuts]))
    ]


def drain(shares: DynamicShares, order: st.DataObject, devices: list[str]) -> list[tuple[str, int, int]]:
    """Let devices ask in a drawn order; one that gets nothing never asks again."""
    taken, asking = [], list(devices)
    while asking:
        device = order.draw(st.sampled_from(asking))
        rows = shares.take(device)
        if rows is None:
            asking.remove(device)
        else:
            assert rows[0] < rows[1]
            taken.append((device, *rows))
            shares.measured(device, rows[1] - rows[0], order.draw(st.sampled_from([0.0, 1e-6, 1.0])))
    return taken


@given(st.sampled_from(POLICIES), stocks(), st.floats(0.001, 0.25), st.data())
def test_every_row_is_handed_out_exactly_once(policy, plan, least, order) -> None:
    shares = DynamicShares(plan, policy=policy, least=least, worth=1e-3)
    rows = plan[-1].hi
    assert shares.rows == rows
    taken = drain(shares, order, [stock.device for stock in plan])
    pieces = sorted((lo, hi) for _, lo, hi in taken)
    assert shares.rows == 0, "who has rows of his own takes them, so nothing is left in the end"
    assert [p[0] for p in pieces] == [0, *(p[1] for p in pieces[:-1])] if pieces else rows == 0
    assert not pieces or pieces[-1][1] == rows


@given(st.sampled_from(POLICIES), stocks(), st.floats(0.001, 0.25), st.data())
def test_pieces_are_whole_granules_but_for_the_last_of_a_run(policy, plan, least, order) -> None:
    granule = {stock.device: stock.granule for stock in plan}
    ends = {stock.hi for stock in plan} | {0}
    shares = DynamicShares(plan, policy=policy, least=least, worth=1e-3)
    for device, lo, hi in drain(shares, order, list(granule)):
        whole = (hi - lo) % granule[device] == 0
        if hi - lo >= granule[device] and policy == "dynamic":
            assert whole or hi in ends
    assert shares.take(plan[0].device) is None


@given(st.sampled_from(POLICIES), stocks(), st.floats(0.001, 0.25))
def test_the_number_of_pieces_is_bounded(policy, plan, least) -> None:
    """A device that asks alone is served until nothing is left, in pieces that shrink by a factor."""
    shares = DynamicShares(plan, policy=policy, least=least, worth=1e-3)
    count = 0
    while any(shares.take(stock.device) for stock in plan):
        count += 1
    assert count <= plan[-1].hi


@given(st.sampled_from(POLICIES), stocks(), st.floats(0.001, 0.25), st.data())
def test_what_a_lost_device_has_not_taken_goes_to_the_others(policy, plan, least, order) -> None:
    shares = DynamicShares(plan, policy=policy, least=least, worth=1e-3)
    names = [stock.device for stock in plan]
    early = [(d, rows) for d in names if (rows := shares.take(d)) is not None]
    lost = order.draw(st.sampled_from(names))
    others = shares.leave(lost)
    assert others == [name for name in names if name != lost]
    late = drain(shares, order, names)
    assert lost not in {device for device, *_ in late}
    left = shares.rows
    assert left == 0 or not others
    rest = shares.rest()
    assert shares.rows == 0 and sum(hi - lo for lo, hi in rest) == left
    every = sorted([rows for _, rows in early] + [(lo, hi) for _, lo, hi in late] + rest)
    assert sum(hi - lo for lo, hi in every) == plan[-1].hi
    assert all(a[1] <= b[0] for a, b in pairwise(every))


def test_dynamic_pieces_are_a_fair_part_of_what_is_left() -> None:
    shares = DynamicShares([Stock("a", 0, 500, 3.0), Stock("b", 500, 1000, 1.0)], policy="dynamic", least=0.001)
    assert shares.take("a") == (0, 150), "a fifth of the 750 rows that are its due: its speed is only predicted"
    assert shares.take("b") == (150, 150 + int(850 * 0.25 * 0.2))
    shares.measured("a", 150, 50.0)
    left = shares.rows
    rows = shares.take("a")
    assert rows is not None and rows[1] - rows[0] == int(left * 0.75 * 0.5), "half of its due"
    sizes = [piece[1] - piece[0] for piece in iter(lambda: shares.take("a"), None)]
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)


def test_auto_begins_with_the_plan_and_lets_the_quick_help_the_slow() -> None:
    shares = DynamicShares([Stock("a", 0, 100, 1.0), Stock("b", 100, 900, 8.0)], policy="auto", least=0.05)
    own = []
    while (rows := shares.take("a")) is not None and rows[1] <= 100:
        own.append(rows)
    assert own[0] == (0, 20) and own[-1][1] == 100
    assert rows is not None and rows[1] == 900, "then from the end of what the other has left"
    assert rows[1] - rows[0] < 200, "no more than its due"


def test_a_measured_speed_counts_from_the_next_piece_on() -> None:
    shares = DynamicShares([Stock("a", 0, 500, 1.0), Stock("b", 500, 1000, 1.0)], policy="dynamic", least=0.001)
    assert shares.take("a") == (0, 100)
    shares.measured("a", 100, 100 / 9)
    assert shares.take("a") == (100, 100 + int(900 * 0.45))
    shares.measured("a", 100, 0.0)  # nothing was measured
    assert shares.take("b") is not None


def test_no_piece_is_shorter_than_the_least() -> None:
    shares = DynamicShares([Stock("a", 0, 900, 9.0), Stock("b", 900, 1000, 1.0)], policy="auto", least=0.1)
    sizes: dict[str, list[int]] = {"a": [], "b": []}
    while any(taken := [(d, rows) for d in sizes if (rows := shares.take(d)) is not None]):
        for device, rows in taken:
            sizes[device].append(rows[1] - rows[0])
    assert min(sizes["a"]) >= 90 and min(sizes["b"]) >= 10, "a tenth of the time is 90 rows for one, 10 for the other"


@pytest.mark.parametrize("policy", POLICIES)
def test_one_row_is_one_piece(policy) -> None:
    shares = DynamicShares([Stock("a", 0, 1, 1.0, 64), Stock("b", 1, 1, 1.0)], policy=policy, least=0.1)
    assert shares.take("a") == (0, 1) and shares.take("a") is None and shares.take("b") is None


def test_pieces_grow_while_they_are_too_short_to_tell_the_speed() -> None:
    """Each takes as long as a launch, 50 us; by their rate alone the next ones would be as small again."""
    plan = [Stock("a", 0, 90_000, 1e-3), Stock("b", 90_000, 100_000, 1e9)]
    shares = DynamicShares(plan, policy="auto", least=0.01, worth=160e-6)
    count = 0
    while (rows := shares.take("a")) is not None:
        shares.measured("a", rows[1] - rows[0], 50e-6 + (rows[1] - rows[0]) * 1e-9)
        count += 1
    assert count < 40


def test_a_quick_device_takes_the_last_rows_of_a_slow_one() -> None:
    shares = DynamicShares([Stock("a", 0, 1000, 1.0), Stock("b", 1000, 1000, 1e6)], policy="auto", least=0.25)
    assert shares.take("a") == (0, 1)
    rows = shares.take("b")
    assert rows is not None and rows[1] == 1000, "though all that is left is less than its least piece"
