"""Undivided calls go to the rank that would be done first, as all ranks were told what each of them takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from coexec.cluster.earliest import BANDWIDTH, LEAST, MESSAGE, Earliest
from coexec.cluster.speeds import Balance, alone_on_ranks, whole_times
from tests.clusters import cluster
from tests.test_joined import driver, on


def give(earliest: Earliest, seconds: list[float], reads: list[int], writes: list[int], lacking: list[int]) -> int:
    """Let a call be chosen for, and note it."""
    chosen = earliest.choose(seconds, range(len(seconds)), lacking, reads)
    earliest.gave({chosen: seconds[chosen]}, {chosen: lacking[chosen]}, reads, writes)
    return chosen


def test_independent_calls_are_spread_as_ranks_are_fast() -> None:
    earliest = Earliest(2)
    chosen = [give(earliest, [0.3, 0.1], [], [array], [0, 0]) for array in range(40)]
    assert chosen.count(0) == 10 and chosen.count(1) == 30


def test_a_chain_stays_where_its_data_is_unless_another_rank_is_faster_by_more_than_the_way_takes() -> None:
    for seconds, wanted in (([0.1, 0.1], 0), ([0.1, 0.05], 1), ([0.1, 0.0999], 0)):
        earliest = Earliest(2)
        earliest.gave({0: 0.5}, {}, [], [7])
        assert give(earliest, seconds, [7], [7], [0, int(0.02 * BANDWIDTH)]) == wanted


def test_what_the_program_waits_for_is_behind_all_that_comes_later() -> None:
    earliest = Earliest(2)
    earliest.gave({0: 1.0}, {}, [], [7])
    earliest.waited([0, 1], 7)
    assert [give(earliest, [0.1, 0.1], [], [8 + i], [0, 0]) for i in range(4)] == [0, 1, 0, 1]


def test_calls_of_which_nothing_is_known_or_which_are_short_are_not_chosen_for() -> None:
    earliest = Earliest(2)
    assert not earliest.known and earliest.seconds("f") is None
    earliest.told({"f": (1.0, LEAST / 2), "g": (1.0, LEAST)})
    assert [earliest.seconds(kind) for kind in "fg"] == [None, (1.0, LEAST)]


@given(
    free=st.lists(st.floats(0, 10), min_size=1, max_size=5),
    seconds=st.lists(st.floats(1e-3, 10), min_size=5, max_size=5),
    lacking=st.lists(st.integers(0, 10**11), min_size=5, max_size=5),
    there=st.floats(0, 10),
)
def test_nobody_else_would_be_done_sooner(
    free: list[float], seconds: list[float], lacking: list[int], there: float
) -> None:
    ranks = len(free)
    earliest = Earliest(ranks)
    for rank, until in enumerate(free):
        earliest.gave({rank: until}, {}, [], [])
    earliest.gave({}, {}, [], [3])
    earliest._there[3] = there
    chosen = earliest.choose(seconds[:ranks], range(ranks), lacking[:ranks], [3])

    def done(rank: int) -> float:
        way = MESSAGE + lacking[rank] / BANDWIDTH if lacking[rank] else 0.0
        return max(free[rank], there + way) + seconds[rank]

    assert done(chosen) == min(map(done, range(ranks)))


def test_ranks_that_have_not_computed_a_call_are_taken_to_be_as_fast_as_their_shares() -> None:
    assert alone_on_ranks({"f": [None, 0.2, 0.1]}, (0.5, 0.25, 0.25)) == {"f": (0.1, 0.2, 0.1)}


class Said:
    """What a rank says that it measured."""

    def __init__(self, found: dict[str, tuple[int, float]]) -> None:
        self.found = found

    def told(self) -> dict[str, tuple[int, float]]:
        return self.found

    def forget(self) -> None:
        pass


def test_undivided_calls_change_no_shares_and_are_remembered() -> None:
    told: list[Any] = []
    balance = Balance((0.5, 0.5), lambda shares: None, [], predict=told.append)
    first, second = {"f whole": (3, 0.9)}, {"f whole": (3, 0.1), "g whole": (1, 0.2)}
    assert whole_times([first, second]) is None
    assert balance.heard([first, second]) == balance.heard([{}, {}]) == ""
    assert told == [{"f": (0.9, 0.1), "g": (0.2, 0.2)}] * 2
    off = Balance((0.5, 0.5), lambda shares: None, [], on=False, predict=told.append)
    off.heard([first, second])
    assert len(told) == 2


@cx.kernel(x=cx.read, y=cx.write)
def turned(x: Any, y: Any) -> None:
    y[...] = x[::-1] + 1.0


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_agree_about_who_computes_and_nothing_else_changes(ranks: int) -> None:
    data = np.arange(50.0)

    def program(runtime: cx.Runtime) -> Any:
        way = driver(runtime)
        kind = f"{turned.name} (50,) whole"
        way.balance.measures = [Said({kind: (3, 0.2 if cx.rank() else 0.6)})]
        given = [cx.array(data * number) for number in range(10)]
        cx.wait()
        made = [cx.zeros(50) for _ in range(10)]
        for x, y in zip(given, made, strict=True):
            turned(x, y)
        sent = way.network.messages
        return [np.asarray(y) for y in made], sent, way.seat._table.dealing.earliest._free[:]

    found = on(ranks, program)
    for results, _, free in found:
        assert free == found[0][2] and free[1] > 0.0 and free[0] > 0.0
        for number, result in enumerate(results):
            np.testing.assert_array_equal(result, data[::-1] * number + 1.0)


def test_undivided_calls_on_a_slow_node_go_to_the_others() -> None:
    """Node 0's device takes three times as long; the same many calls, before and after ranks were told so."""

    @cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 4e6 * x.size)
    def heavy(x: Any, y: Any) -> None:
        y[...] = x

    scenario = Scenario((Happening.slow("n0/gpu:0", 3.0),))
    with cx.Runtime(platform=cluster(2), ranks=2, scenario=scenario) as runtime:
        xs, ys = [cx.zeros(1 << 15) for _ in range(24)], [cx.zeros(1 << 15) for _ in range(24)]
        marks = [0.0]
        for _ in range(4):
            for x, y in zip(xs, ys, strict=True):
                heavy(x, y)
            cx.wait()
            marks.append(runtime.machine.lanes["host"].now)
            xs, ys = [cx.zeros(1 << 15) for _ in range(24)], [cx.zeros(1 << 15) for _ in range(24)]
    turns = np.diff(marks)
    assert turns[-1] < 0.65 * turns[0]  # one to three instead of halves: 18 of 24 calls on the fast one
