"""Ranks as real processes, over MPI and gloo: the contract, and what the others see when one of them ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from coexec.cluster.ending import EXIT_CODE
from coexec.cluster.sharing import Seen, cores_of
from coexec.machine.cores import available_cores
from tests.cli.commands import child
from tests.cluster.processes import PROGRAM, Ended, needs_mpi, over_gloo, over_mpi

slow = pytest.mark.slow

WORDS = {
    "kill": ("rank 1 on", "is gone"),
    "_exit": ("rank 1 on", "is gone"),
    "exit": ("rank 1 on", "has ended", "80 bytes with key 5"),
    "raise": ("rank 1 on", "ZeroDivisionError: the last rank cannot divide"),
}


def cores(rank: int) -> int:
    """Return how many cores each of two ranks has of this machine."""
    return len(cores_of(rank, [Seen("here", available_cores())] * 2))


@needs_mpi
def test_a_program_with_arrays_runs_on_ranks_over_mpi(tmp_path: Path) -> None:
    ended = over_mpi(2, tmp_path, "arrays")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [
        f"computed by rank {rank} of 2 with {cores(rank)} cores" for rank in range(2)
    ]


def test_a_program_with_arrays_runs_on_ranks_over_gloo(tmp_path: Path) -> None:
    for rank, ended in enumerate(over_gloo(2, tmp_path, "arrays")):
        assert (ended.code, ended.out) == (0, f"computed by rank {rank} of 2 with {cores(rank)} cores\n"), ended.err


def test_ranks_compute_a_model_and_do_not_plan_it_each_for_itself(tmp_path: Path) -> None:
    ended = over_gloo(2, tmp_path, "models")
    for one in ended:
        assert one.code == 0, one.err
        assert one.out.startswith("computed with plan ")
    assert len({one.out for one in ended}) == 1, "each rank has a plan of its own"


@slow
@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_mpi_keeps_the_contract(size: int, tmp_path: Path) -> None:
    ended = over_mpi(size, tmp_path, "contract")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [f"kept by rank {rank} of {size}, named" for rank in range(size)]


@needs_mpi
def test_a_rank_of_mpi_ends_by_itself_after_a_transport_failed_and_another_was_closed(tmp_path: Path) -> None:
    """An end without MPI_Finalize has mpiexec kill the ranks that are still at work."""
    ended = over_mpi(2, tmp_path, "recovered")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [f"rank {rank} ends by itself" for rank in range(2)]


@slow
def test_gloo_keeps_the_contract(tmp_path: Path) -> None:
    size = 3
    for rank, ended in enumerate(over_gloo(size, tmp_path, "contract")):
        assert (ended.code, ended.out) == (0, f"kept by rank {rank} of {size}, named\n"), ended.err


@slow
@pytest.mark.parametrize("how", ["kill", "exit", "raise"])
def test_over_gloo_the_others_are_told_who_ended_and_why(how: str, tmp_path: Path) -> None:
    first, last = over_gloo(2, tmp_path, "lost", how)
    assert first.code == EXIT_CODE, first.err
    assert all(word in first.err for word in WORDS[how]), first.err
    assert last.code == (-9 if how == "kill" else EXIT_CODE), last.err


@slow
@needs_mpi
@pytest.mark.parametrize("how", list(WORDS))
def test_over_mpi_a_rank_that_ends_ends_the_others(how: str, tmp_path: Path) -> None:
    ended = over_mpi(3, tmp_path, "lost", how)
    assert ended.code != 0
    if how in ("exit", "raise"):  # else mpiexec may be faster than the ranks
        assert all(word in ended.err.replace("rank 2", "rank 1") for word in WORDS[how]), ended.err


# Programs with arrays ---------------------------------------------------------------------------------------------------

TROUBLES = {
    "kill": ("rank 1 on", "is gone", "has ended; called at", "rank_program.py"),
    "_exit": ("rank 1 on", "is gone"),
    "exit": ("rank 1 on", "has ended"),
    "stop": ("rank 1 on", "has been stopped for 4 s; called at", "rank_program.py"),
    "raise": ("rank 1 on", "ZeroDivisionError: the last rank cannot divide; called at"),
    "diverge": ("they part at call 12", "calls add(", "a=1.0", "a=2.0", "rank_program.py"),
    "unequal": ("rank_program.py:", "was given other contents on", "cx.array(x, root=0)"),
    "hang": ("all ranks wait for each other", "its last calls", "where its program is"),
}
"""What the last of two ranks does, and what the other one says."""


def check_trouble(how: str, ended: Ended) -> None:
    assert ended.code != 0
    if how not in ("kill", "_exit"):  # mpiexec may end the others before they say anything
        assert all(word in ended.err for word in TROUBLES[how]), ended.err


@needs_mpi
@pytest.mark.parametrize("how", ["unequal", "raise"])
def test_over_mpi_a_program_ends_with_the_reason(how: str, tmp_path: Path) -> None:
    check_trouble(how, over_mpi(2, tmp_path, "troubled", how))


@slow
@needs_mpi
@pytest.mark.parametrize("how", [how for how in TROUBLES if how not in ("unequal", "raise")])
def test_over_mpi_a_program_ends_with_the_reason_whatever_happens(how: str, tmp_path: Path) -> None:
    check_trouble(how, over_mpi(2, tmp_path, "troubled", how))


@slow
@pytest.mark.parametrize("how", [how for how in TROUBLES if how != "stop"])
def test_over_gloo_a_program_ends_with_the_reason(how: str, tmp_path: Path) -> None:
    first, last = over_gloo(2, tmp_path, "troubled", how)
    assert first.code == EXIT_CODE, first.err
    assert all(word in first.err for word in TROUBLES[how]), first.err
    assert last.code == {"kill": -9, "_exit": 3}.get(how, EXIT_CODE), last.err


@slow
@needs_mpi
def test_a_program_goes_on_from_its_checkpoint_after_a_rank_was_lost(tmp_path: Path) -> None:
    ended = child(tmp_path, "run", "-n", "2", "--restart", "3", PROGRAM, "restarted", tmp_path / "kept")
    assert ended.code == 0, ended.err
    assert ended.err.count("a rank was lost") == 2
    begun = [line for line in ended.out.splitlines() if line.startswith("rank 0 begins")]
    assert begun == [f"rank 0 begins at step {step}" for step in range(3)]
    assert "rank 0 is done" in ended.out
