"""How fast ranks are: shares follow what all ranks measured, at points that all of them know, and alike on all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.cluster.parting import cut_for, runs_for
from coexec.cluster.speeds import FIRST, GAIN, SPACING, Balance, Paced, as_words, ideal, in_steps, read_words
from coexec.errors import ClusterError
from coexec.geometry import whole
from coexec.graph.task import Task


class Told:
    """What a rank measured, as a test says."""

    def __init__(self, **seconds: float) -> None:
        self.found: Paced = {kind: (10, value) for kind, value in seconds.items()}
        self.forgotten = 0

    def told(self) -> Paced:
        return self.found

    def forget(self) -> None:
        self.forgotten += 1


def balanced(*measured: Told, on: bool = True) -> tuple[Balance, list[tuple[float, ...]]]:
    shared: list[tuple[float, ...]] = []
    return Balance((1 / len(measured),) * len(measured), shared.append, measured, on=on), shared


def look(balance: Balance) -> str:
    return balance.heard([measured.told() for measured in balance.measures])


def test_ranks_of_speed_one_and_three_share_one_to_three_once_it_was_seen_twice() -> None:
    balance, shared = balanced(Told(step=0.3), Told(step=0.1))
    assert (look(balance), shared) == ("", [])
    assert look(balance) == "ranks share work 0.25 : 0.75"
    assert shared == [(0.25, 0.75)]
    assert look(balance) == "" and look(balance) == ""  # it is as good as it gets
    assert [measured.forgotten for measured in balance.measures] == [4, 4]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "second",
    [Told(step=0.11), Told(other=0.9), Told()],
    ids=["hardly unlike", "nothing that both have measured", "nothing at all"],
)
def test_equal_shares_remain_where_nothing_is_to_be_gained_or_known(second: Told) -> None:
    balance, shared = balanced(Told(step=0.1), second)
    assert [look(balance) for _ in range(4)] == [""] * 4
    assert shared == []


def test_a_moment_is_too_short_to_say_anything_and_is_measured_on() -> None:
    first, second = Told(step=0.3e-3), Told(step=0.1e-3)
    balance, shared = balanced(first, second)
    assert [look(balance) for _ in range(3)] == [""] * 3
    assert (shared, first.forgotten) == ([], 0)


def test_equal_parts_are_kept_if_the_options_ask_for_them() -> None:
    balance, shared = balanced(Told(step=0.3), Told(step=0.1), on=False)
    assert not any(balance.due() or balance.watched for _ in range(5000))
    assert [look(balance) for _ in range(3)] == [""] * 3
    assert shared == []


def test_points_are_numbers_of_calls_that_come_less_and_less_often() -> None:
    balance, _ = balanced(Told(), Told())
    points = [number for number in range(1, 4000) if balance.due()]
    assert points == [FIRST << power for power in range(6)] + [2 * SPACING, 3 * SPACING]


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9))
def test_new_shares_take_hardly_longer_than_the_ideal(seconds: list[float]) -> None:
    balance, _ = balanced(*[Told(step=value) for value in seconds])
    look(balance)
    look(balance)
    now = max(share * value for share, value in zip(balance.shares, seconds, strict=True))
    if min(balance.shares) > 1 / 256:  # a rank that is so slow has the least share there is
        assert now <= max(1 + GAIN, 1.5) * ideal(seconds)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=300))
def test_shares_make_up_the_whole_and_nobody_has_none(shares: list[float]) -> None:
    found = in_steps(shares)
    assert sum(round(share * max(256, 4 * len(shares))) for share in found) == max(256, 4 * len(shares))
    assert min(found) > 0


def test_what_ranks_tell_each_other_is_read_as_data() -> None:
    assert read_words(1, as_words({"step (3,)": (2, 0.5)})) == {"step (3,)": (2, 0.5)}
    for words in (b"[", b"[1]", b'{"a": 3}', b'{"a": ["x", 1]}'):
        with pytest.raises(ClusterError, match="rank 1 tells of its speed"):
            read_words(1, words)


# Cuts -------------------------------------------------------------------------------------------------------------------


def task_of(rows: int) -> Task:
    import coexec as cx

    @cx.kernel(split=0, y=cx.update)
    def step(y):
        y += 1

    task = Task(1, "step", step, None)
    task.domain = whole((rows, 3))
    return task


@given(st.integers(1, 500), st.integers(1, 6), st.data())
def test_parts_make_up_the_rows_in_order_and_in_granules(rows: int, granule: int, data: st.DataObject) -> None:
    shares = in_steps(data.draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5)))
    parts = cut_for(task_of(rows), 0, range(len(shares)), shares, granule)
    ends = [box.hi[0] for _, box in parts]
    assert [box.lo[0] for _, box in parts] == [0, *ends[:-1]] and ends[-1] == rows
    assert all(end % granule == 0 for end in ends[:-1])
    for rank, box in parts:
        assert abs(box.hi[0] - box.lo[0] - shares[rank] * rows) <= granule + 1


@given(st.integers(1, 200), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5))
def test_runs_of_blocks_make_up_all_blocks_in_order(number: int, given: list[float]) -> None:
    for shares in (None, in_steps(given)):
        runs = runs_for(number, range(len(given)), shares)
        assert [first for _, first, _ in runs] == [0, *[last for *_, last in runs[:-1]]]
        assert runs[-1][2] == number and all(first < last for _, first, last in runs)
