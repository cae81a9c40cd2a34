"""Processes that end or stay stopped are noticed by their neighbours, and others are left in peace."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from coexec.cluster.neighbours import STOPPED, Neighbours, Person, _born, myself, state


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.send_signal(signal.SIGCONT)
        process.kill()


def person(process: subprocess.Popen[bytes]) -> Person:
    return Person(myself().place, process.pid, _born(process.pid))


def test_a_process_that_ends_is_noticed(child: subprocess.Popen[bytes]) -> None:
    lost: SimpleQueue[tuple[int, str]] = SimpleQueue()
    watch = Neighbours({3: person(child)}, lambda rank, why: lost.put((rank, why)))
    child.kill()
    assert lost.get(timeout=60) == (3, f"its process {child.pid} has ended")
    watch.close()
    watch.close()


def test_a_process_that_had_ended_before_is_noticed(child: subprocess.Popen[bytes]) -> None:
    lost: SimpleQueue[tuple[int, str]] = SimpleQueue()
    people = {1: Person(myself().place, child.pid, "another time"), 2: Person(myself().place, 2**22 + 5, "1")}
    watch = Neighbours(people, lambda rank, why: lost.put((rank, why)))
    assert {lost.get(timeout=60)[0], lost.get(timeout=60)[0]} == {1, 2}
    watch.close()
    assert lost.empty()


def test_a_process_counts_as_lost_once_it_was_found_stopped_several_times_in_a_row(
    child: subprocess.Popen[bytes],
) -> None:
    lost: list[tuple[int, str]] = []
    watch = Neighbours({3: person(child)}, lambda rank, why: lost.append((rank, why)))
    watch.close()  # so that only this test looks
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert state(child.pid) == "T"
    for _ in range(STOPPED - 1):
        watch.look(3)
    child.send_signal(signal.SIGCONT)
    os.waitpid(child.pid, os.WCONTINUED)
    watch.look(3)
    assert lost == []
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    for _ in range(STOPPED + 3):
        watch.look(3)
    assert lost == [(3, f"its process {child.pid} has been stopped for 4 s")]


def test_this_process_knows_itself() -> None:
    assert myself().pid == os.getpid() and myself().born and myself().place
    assert state(os.getpid()) in {"R", "S"}
    assert state(2**22 + 5) == ""
