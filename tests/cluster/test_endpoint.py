"""The thread of a transport: it rests while nothing happens, and what goes wrong on it is everybody's to know."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from coexec.cluster.actions import MovePart
from coexec.cluster.carrier import Events
from coexec.cluster.endpoint import BRISK, LEAST, LONGEST, Endpoint, pause
from coexec.cluster.loopback import Loop, LoopbackCarrier, loopback
from coexec.cluster.packet import Packet, PacketKind, encode
from coexec.cluster.postbox import Postbox
from coexec.errors import ArgumentError, ClusterError, InvariantError, RankLost, RuntimeClosed
from coexec.testing import on_ranks

LOOK = 20e-6  # s; what one look at a library takes


class Broken(LoopbackCarrier):
    """A library that fails."""

    def __init__(self, loop: Loop, rank: int, how: str) -> None:
        super().__init__(loop, rank)
        self.how = how

    def start(self, events: Events) -> None:
        if self.how == "start":
            raise ClusterError("there is no library")
        super().start(events)

    def put(self, to: int, packet: bytes) -> None:
        if self.how == "put":
            raise OSError("the cable is cut")
        super().put(to, packet)

    def move(self, move: MovePart) -> None:
        if self.how == "move":
            raise OSError("the cable is cut")
        super().move(move)


@pytest.mark.parametrize(("waits", "free"), [(0.05, False), (1.0, False), (60.0, False), (0.5, True), (60.0, True)])
def test_a_rank_that_waits_uses_less_than_five_percent_of_a_core(waits: float, free: bool) -> None:
    idle, used = 0.0, 0.0
    while idle < waits:
        rest = pause(idle, free=free)
        used += LOOK
        idle += LOOK + rest
    assert used < 0.05 * waits


def test_a_wait_is_noticed_soon_after_its_end() -> None:
    for waited in (1e-5, 1e-4, 1e-3, 1e-2):  # s
        assert pause(waited) <= 0.2 * waited
    assert pause(0.0) == 0.0 and pause(3600.0) == LONGEST


def test_a_rank_that_waits_for_messages_alone_looks_without_a_pause_for_a_while() -> None:
    assert pause(BRISK / 2, free=True) == 0.0 < pause(BRISK / 2)
    assert pause(2 * BRISK, free=True) == pause(2 * BRISK) > 0.0


def test_where_other_programs_want_the_core_a_rank_sleeps_between_looks() -> None:
    assert pause(0.0, crowded=True) == pause(BRISK / 100, free=True, crowded=True) == LEAST
    assert pause(BRISK / 2, free=True, crowded=True) == pause(BRISK / 2) > LEAST
    assert pause(3600.0, crowded=True) == LONGEST


def test_a_library_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ClusterError, match="there is no library"):
        Endpoint(Broken(Loop(1), 0, "start"))


@pytest.mark.parametrize("how", ["put", "move"])
def test_a_library_that_fails_fails_every_transfer(how: str) -> None:
    loop = Loop(2)
    ends: dict[int, Endpoint] = {}

    def make(rank: int) -> None:
        ends[rank] = Endpoint(Broken(loop, rank, how if rank == 0 else ""))

    makers = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    ends[1].receive(0, 1, np.zeros(500))
    open_ones = [ends[0].receive(1, 2, np.zeros(5)), ends[0].send(1, 1, np.zeros(500))]  # the first puts nothing
    for transfer in open_ones:
        with pytest.raises(InvariantError, match="thread of the transport failed") as caught:
            transfer.wait(60)
        assert "cable is cut" in str(caught.value.__cause__)
    with pytest.raises(InvariantError):
        ends[0].send(1, 3, np.zeros(1))
    with pytest.raises(InvariantError):
        ends[0].close()
    if how == "move":
        with pytest.raises(ClusterError, match="rank 0 gave up"):
            ends[1].close()


class Launched(LoopbackCarrier):
    """A library whose launcher kills all ranks when one ends."""

    ends_together = True


def test_a_rank_whose_end_would_end_the_others_waits_for_their_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coexec.cluster.endpoint.LAST_WORDS", 600.0)
    loop, happened = Loop(2), list[str]()

    def program(rank: int) -> None:
        end = Endpoint(Launched(loop, rank))
        if rank == 0:
            end.abort("the disk is full")
        else:
            with pytest.raises(ClusterError, match="the disk is full"):
                end.receive(0, 1, np.zeros(1)).wait(60)
            happened.append("rank 1 says why it ends")
        with pytest.raises(ClusterError):
            end.close()
        happened.append("a rank ends")

    threads = [threading.Thread(target=program, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert happened == ["rank 1 says why it ends", "a rank ends", "a rank ends"]


def test_a_rank_that_vanished_has_no_last_words() -> None:
    for broken_before in (False, True):
        box = Postbox(0, 3, 4096)
        if broken_before:
            box.abort("the disk is full")
        box.lose(1, "it was seen to vanish")
        assert not box.all_done
        box.arrived(2, encode(Packet(PacketKind.DONE, 2, 0)))
        assert box.all_done


def test_a_callback_that_raises_is_not_lost() -> None:
    def then(transfer: object) -> None:
        raise ZeroDivisionError("in the callback")

    first, second = loopback(2)
    first.send(1, 1, np.zeros(1), then=then)
    with pytest.raises(InvariantError) as caught:
        first.close()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ClusterError, match="rank 0 gave up"):
        second.receive(0, 7, np.zeros(1)).wait(60)


def test_a_key_is_used_once_at_a_time() -> None:
    first, second = loopback(2)
    into = np.zeros(3)
    waiting = first.receive(1, 4, into)
    with pytest.raises(ArgumentError, match="key 4 comes while another one with that key is open"):
        first.receive(1, 4, into)
    second.send(0, 4, np.ones(3)).wait()
    assert waiting.wait(60)
    second.send(0, 4, np.full(3, 2.0)).wait()
    assert first.receive(1, 4, into).wait(60)
    assert (into == 2).all()
    on_ranks([first, second], lambda end: end.close())


def test_a_rank_that_does_not_close_is_named() -> None:
    first, second = loopback(2)
    first.name_hosts(["east", "west"])
    with pytest.raises(RankLost, match=r"rank 1 on west did not close within 0\.01 s"):
        first.close(timeout=0.01)
    with pytest.raises(ClusterError, match="did not close"):
        second.close()


def test_a_closed_transport_refuses_what_comes_later() -> None:
    ends = loopback(2)
    waiting = ends[0].receive(1, 4, np.zeros(3))
    on_ranks(ends, lambda end: end.close())
    with pytest.raises((RuntimeClosed, RankLost)):
        waiting.wait()
    with pytest.raises(RuntimeClosed, match="after the transport was closed"):
        ends[0].send(1, 4, np.zeros(3))


def test_a_transfer_that_is_not_over_says_so() -> None:
    first, second = loopback(2)
    waiting = first.receive(1, 4, np.zeros(3))
    assert waiting.wait(0.001) is False
    assert repr(waiting) == "receive of 24 bytes from rank 1 with key 4"
    second.send(0, 4, np.zeros(3))
    assert waiting.wait(60) and waiting.wait(60)
    on_ranks([first, second], lambda end: end.close())
