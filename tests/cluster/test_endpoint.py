"""The thread of a transport: it rests while nothing happens, and what goes wrong on it is everybody's to know."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from coexec.cluster.actions import MovePart
from coexec.cluster.carrier import Events
from coexec.cluster.endpoint import Endpoint
from coexec.cluster.loopback import LoopbackCarrier, LoopbackRanks, loopback
from coexec.cluster.packet import Packet, PacketKind, encode
from coexec.cluster.postbox import Postbox
from coexec.errors import ArgumentError, ClusterError, InvariantError, RankLost, RuntimeClosed
from coexec.testing import on_ranks


class Broken(LoopbackCarrier):
    """A library that fails."""

    def __init__(self, loop: LoopbackRanks, rank: int, how: str) -> None:
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


class Slow(LoopbackCarrier):
    """A library that must be looked at on both sides, and whose packets leave late."""

    polls = True

    def __init__(self, loop: LoopbackRanks, rank: int, all: list[Slow]) -> None:
        super().__init__(loop, rank)
        self.all = all  # by rank
        self.kept: list[tuple[int, bytes]] = []
        self.there: list[tuple[int, bytes]] = []
        self.late = threading.Event()
        self.late.set()
        self.looked = threading.Event()  # while packets were kept

    def put(self, to: int, packet: bytes) -> None:
        self.kept.append((to, packet))

    def poll(self) -> bool:
        while self.kept and self.late.is_set():
            to, packet = self.kept.pop(0)
            self.all[to].there.append((self.rank, packet))
        if self.kept:
            self.looked.set()
        happened = bool(self.there)
        while self.there:
            self._loop.events[self.rank].arrived(*self.there.pop(0))
        return happened

    def flushed(self) -> bool:
        return not self.kept


def test_ranks_are_rung_at_once_more_if_packets_leave_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coexec.cluster.pauses.LONGEST", 600.0)  # nobody looks by chance
    loop, ends = LoopbackRanks(2), dict[int, Endpoint]()
    carriers: list[Slow] = []
    carriers += [Slow(loop, rank, carriers) for rank in range(2)]
    makers = [threading.Thread(target=lambda r=r: ends.update({r: Endpoint(carriers[r])})) for r in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    for rank, end in ends.items():
        end.know_bells({1 - rank: ends[1 - rank].bell})
    carriers[0].late.clear()
    arrives = ends[1].receive(0, 1, into := np.zeros(3), direct=True)
    ends[0].send(1, 1, np.ones(3), direct=True)
    assert carriers[0].looked.wait(60)
    carriers[0].late.set()
    assert arrives.wait(60) and into.all()
    monkeypatch.undo()
    on_ranks([ends[0], ends[1]], lambda end: end.close())


def test_a_small_message_leaves_within_a_call_that_allows_it() -> None:
    first, second = loopback(2)
    told: list[object] = []
    sent = first.send(1, 1, np.ones(3), then=told.append, direct=True)
    into = np.zeros(3)
    if sent.at_once:
        assert sent.over and not told
    waiting = second.receive(0, 1, into, then=told.append, direct=True)
    assert waiting.wait(60) and into.all()
    large = first.send(1, 2, np.ones(9000), then=told.append, direct=True)
    assert not large.at_once
    assert second.receive(0, 2, np.zeros(9000), direct=True).wait(60) and large.wait(60)
    on_ranks([first, second], lambda end: end.close())
    assert len(told) == [sent.at_once, waiting.at_once, large.at_once].count(False)


def test_a_library_that_fails_within_a_call_fails_the_transfer_and_not_the_call() -> None:
    loop, ends = LoopbackRanks(2), dict[int, Endpoint]()
    makers = [
        threading.Thread(target=lambda r=r: ends.update({r: Endpoint(Broken(loop, r, "" if r else "put"))}))
        for r in range(2)
    ]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    for transfer in [ends[0].send(1, key, np.zeros(2), direct=True) for key in (1, 2)][:1]:
        with pytest.raises(InvariantError, match="thread of the transport failed"):
            transfer.wait(60)
    with pytest.raises(InvariantError):
        ends[0].close()


def test_a_library_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ClusterError, match="there is no library"):
        Endpoint(Broken(LoopbackRanks(1), 0, "start"))


@pytest.mark.parametrize("how", ["put", "move"])
def test_a_library_that_fails_fails_every_transfer(how: str) -> None:
    loop = LoopbackRanks(2)
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
    loop, happened = LoopbackRanks(2), list[str]()

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
