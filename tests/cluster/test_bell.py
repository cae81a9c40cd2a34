"""What wakes the thread of a transport: nobody rings in vain, and who cannot be reached is left alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

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


def test_a_ring_counts_once(bell: Bell) -> None:
    bell.ring()
    bell.ring()
    bell.rest(None)
    bell.rest(0.0)  # nothing is left of them: it ends because its time is over
    sleeper = Sleeper(bell)
    bell.ring()
    assert sleeper.woken()


def test_without_a_ring_a_rest_ends_after_its_time(bell: Bell) -> None:
    bell.rest(0.0)
    bell.rest(1e-3)


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


def test_a_closed_bell_may_be_rung_and_closed_again(bell: Bell) -> None:
    bell.close()
    bell.close()
    bell.ring()
    bell.rest(None)
    bell.ring_at(3)
