"""How ranks of one machine divide it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.cluster.sharing import LocalRank, Seen, accelerators_of, as_words, cores_of, local_of, read_words
from coexec.machine.cores import available_cores

HERE = Seen("here", (0, 1, 2, 3, 4, 5, 6, 7))


def test_ranks_of_one_machine_have_their_part_of_its_cores() -> None:
    assert [cores_of(rank, [HERE] * 3) for rank in range(3)] == [(0, 1), (2, 3, 4), (5, 6, 7)]
    assert cores_of(0, [HERE, Seen("there", HERE.cores)]) == HERE.cores
    assert [local_of(rank, [HERE, Seen("there", (0,)), HERE]) for rank in (0, 2)] == [LocalRank(0, 2), LocalRank(1, 2)]


def test_a_launchers_binding_is_left_alone() -> None:
    bound = [Seen("here", (0, 1)), Seen("here", (2, 3))]
    assert [cores_of(rank, bound) for rank in range(2)] == [(0, 1), (2, 3)]


def test_more_ranks_than_cores_share_them() -> None:
    small = Seen("here", (4, 5))
    assert [cores_of(rank, [small] * 5) for rank in range(5)] == [(4,), (5,), (4,), (5,), (4,)]


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_core_is_used_once_if_there_are_enough(ranks: int, number: int) -> None:
    told = [Seen("here", tuple(range(number)))] * ranks
    found = [core for rank in range(ranks) for core in cores_of(rank, told)]
    assert sorted(set(found)) == list(range(number))
    assert len(found) == max(ranks, number)


def test_accelerators_are_dealt_in_turn() -> None:
    names = [f"opencl:{number}" for number in range(5)]
    assert accelerators_of(LocalRank(1, 2), names) == ["opencl:1", "opencl:3"]
    assert accelerators_of(LocalRank(3, 4), names[:2]) == ["opencl:1"]
    assert accelerators_of(LocalRank(0, 2), []) == []


@pytest.mark.parametrize("place", ["a machine", ""])
def test_what_a_rank_tells_is_read_as_it_was_told(place: str) -> None:
    assert read_words(as_words(place)) == Seen(place, available_cores())
