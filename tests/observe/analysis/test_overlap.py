"""CT, TC, CC and TOT: by hand, and against counting every cell of a discretised run."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.observe.analysis.intervals import Interval
from coexec.observe.analysis.overlap import OverlapShares, overlap

spans = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


def cells(interval: Interval) -> set[int]:
    return set(range(int(interval[0]), int(interval[1])))


def joined(transfers: list[Interval]) -> list[set[int]]:
    """Return the maximal runs of cells of one direction: contiguous transfers as one."""
    marked = sorted(set().union(*map(cells, transfers)))
    runs: list[set[int]] = []
    for cell in marked:
        if runs and cell - 1 in runs[-1]:
            runs[-1].add(cell)
        else:
            runs.append({cell})
    return runs


def brute(kernels: list[Interval], transfers: dict[str, list[Interval]]) -> list[float]:
    """Count cells the way the four figures are defined, operation by operation."""
    runs = [cells(k) for k in kernels]
    moves = [move for direction in transfers.values() for move in joined(direction)]
    any_run: set[int] = set().union(*runs)
    any_move: set[int] = set().union(*moves)
    earlier = [len(run & set().union(*runs[:i])) for i, run in enumerate(runs)]
    both = runs + moves
    earlier_any = [len(one & set().union(*both[:i])) for i, one in enumerate(both)]

    def share(part: int, of: list[set[int]]) -> float:
        whole = sum(map(len, of))
        return part / whole if whole else 0.0

    return [
        share(sum(len(run & any_move) for run in runs), runs),
        share(sum(len(move & any_run) for move in moves), moves),
        share(sum(earlier), runs),
        share(sum(earlier_any), both),
    ]


@given(spans, spans, spans)
def test_the_figures_are_those_of_the_definition(
    to: list[Interval], back: list[Interval], kernels: list[Interval]
) -> None:
    transfers = {"to": to, "back": back}
    assert list(overlap(kernels, transfers)) == pytest.approx(brute(kernels, transfers))


@given(spans, spans, st.randoms())
def test_the_order_of_the_kernels_does_not_matter(a: list[Interval], b: list[Interval], chance) -> None:
    shuffled = list(a)
    chance.shuffle(shuffled)
    assert overlap(a, {"x": b}) == pytest.approx(overlap(shuffled, {"x": b}))


def test_a_known_run() -> None:
    # kernels 0-4 and 3-5, one transfer 2-6 in two pieces
    found = overlap([(0, 4), (3, 5)], {"host -> gpu": [(2, 4), (4, 6)]})
    assert found == pytest.approx(OverlapShares(ct=4 / 6, tc=3 / 4, cc=1 / 6, tot=(6 + 4 - 6) / 10))


def test_transfers_of_two_directions_are_not_merged() -> None:
    found = overlap([], {"to": [(0, 2)], "back": [(1, 3)]})
    assert found == pytest.approx(OverlapShares(0, 0, 0, 1 / 4))


def test_a_gap_between_transfers_counts_as_transfer_when_allowed() -> None:
    assert overlap([(0, 10)], {"to": [(0, 1), (1.5, 2)]}).ct == pytest.approx(0.15)
    assert overlap([(0, 10)], {"to": [(0, 1), (1.5, 2)]}, gap=0.5).ct == pytest.approx(0.2)


def test_nothing_ran_means_no_overlap() -> None:
    assert overlap([], {}) == OverlapShares(0, 0, 0, 0)
    assert overlap([(1, 1)], {"to": [(2, 2)]}) == OverlapShares(0, 0, 0, 0)
