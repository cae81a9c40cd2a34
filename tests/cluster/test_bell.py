"""What wakes the thread of a transport: nobody rings in vain, and who cannot be reached is left alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from coexec.cluster import bell as bell_module
from coexec.cluster.bell import MOST, Bell

LONG = 60.0  # s; who is not woken rests so long, and the test fails


@pytest.fixture(params=[True, False], ids=["outside", "inside"])
def bell(request: pytest.FixtureRequest) -> Iterator[Bell]:
    made = Bell(outside=request.param)
    yield made
    made.close()


class Sleeper:
    """A thread that rests once; `begun` once it is about to."""

    def __init__(self, bell: Bell) -> None:
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(bell,), daemon=True)
        self.thread.start()
        assert self.begun.wait(LONG)

    def _run(self, bell: Bell) -> None:
        self.begun.set()
        bell.rest(None)

    def woken(self) -> bool:
        self.thread.join(LONG)
        return not self.thread.is_alive()


def test_a_ring_wakes_whoever_rests_before_it_or_after(bell: Bell) -> None:
    sleeper = Sleeper(bell)
    bell.ring()
    assert sleeper.woken()


class Waits:
    """Stands where a bell waits, and keeps for how many seconds it was asked to."""

    def __init__(self, bell: Bell, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[float | None] = []
        self._bell, self._patch = bell, patch
        self._readable = bell_module._readable
        patch.setattr(bell_module, "_readable", self._listens)
        if bell._socket is None:
            patch.setattr(bell, "_nap", self)

    def _listens(self, of: socket.socket, seconds: float | None) -> bool:
        self.asked.append(seconds)
        return self._readable(of, 0.0)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the place of the lock on which a bell without a socket sleeps."""
        if blocking:
            self.asked.append(None if timeout < 0 else timeout)
        return False

    def locked(self) -> bool:
        """Say that nobody was woken yet."""
        return True

    def release(self) -> None:
        """Wake nobody: nobody sleeps."""


def test_a_ring_counts_once(bell: Bell, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(bell, monkeypatch)
    bell.ring()
    bell.ring()
    bell.rest(LONG)
    assert waits.asked == []  # two rings end one rest, which does not wait at all
    bell.rest(LONG)
    assert waits.asked == [LONG]  # nothing is left of them
    bell.ring()
    bell.rest(LONG)
    assert waits.asked == [LONG]


def test_a_rest_waits_as_long_as_it_is_asked_to_and_for_ever_if_it_is_not(
    bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(bell, monkeypatch)
    for seconds in (0.0, 1e-3, LONG, None):
        bell.rest(seconds)
    assert waits.asked == [0.0, 1e-3, LONG, None]


def test_after_a_rest_that_nobody_ended_a_ring_wakes_as_before(bell: Bell) -> None:
    bell.rest(1e-3)
    sleeper = Sleeper(bell)
    bell.ring()
    assert sleeper.woken()


def test_other_processes_ring_by_the_address_alone() -> None:
    here, there = Bell(outside=True), Bell(outside=True)
    if not here.address:
        pytest.skip("only Linux has sockets with names and no files")
    assert here.address != there.address
    there.know({0: here.address, 1: ""})
    there.ring_at(1)  # has none within reach
    sleeper = Sleeper(here)
    for _ in range(2 * MOST + 1000):  # more than any system keeps
        there.ring_at(0)
    assert sleeper.woken()
    here.close()
    there.ring_at(0)  # nobody is there any more: it is not tried again
    there.ring_at(0)
    there.close()


def test_a_closed_bell_is_silent_and_may_be_rung_and_closed_again(bell: Bell) -> None:
    bell.know({3: bell.address})
    bell.close()
    bell.close()
    assert bell._socket is None and not bell._others  # who rings at others now reaches nobody
    bell.ring()
    bell.ring_at(3)
    sleeper = Sleeper(bell)  # the ring before ends this rest
    assert sleeper.woken()


def test_a_bell_says_how_many_are_within_reach_and_rings_at_all_of_them() -> None:
    bells = [Bell(outside=True) for _ in range(3)]
    if bells[0]._socket is None:
        return  # there are none on this system
    bells[0].know({1: bells[1].address, 2: bells[2].address})
    sleepers = [Sleeper(bell) for bell in bells[1:]]
    assert bells[0].reach == 2
    bells[0].ring_at_all()
    assert all(sleeper.woken() for sleeper in sleepers)
    bells[1].close()
    bells[0].ring_at_all()
    assert bells[0].reach == 1
    for bell in bells:
        bell.close()
