"""Postboxes joined by hand: whatever order packets and parts take, messages arrive, or everybody is told."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from coexec.cluster.actions import MovePart, PutPacket, TransferOver
from coexec.cluster.calls import Calls
from coexec.cluster.packet import HEADER, Packet, PacketKind, encode
from coexec.cluster.postbox import Postbox
from coexec.cluster.transport import Transfer
from coexec.errors import ClusterError, RankAborted, RankLost, RanksDiverge, RemoteFailure, RuntimeClosed

INSIDE = 200  # bytes that fit into a packet


@dataclass
class World:
    """Postboxes, and what is on its way between them."""

    size: int
    seed: int = 0
    boxes: list[Postbox] = field(init=False)
    packets: dict[tuple[int, int], deque[bytes]] = field(default_factory=dict)
    moves: dict[tuple[int, int], tuple[deque[MovePart], deque[MovePart]]] = field(default_factory=dict)
    over: dict[int, BaseException | None] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    parts: list[int] = field(default_factory=list)  # bytes of each that moved
    kept: list[Transfer] = field(default_factory=list)  # so that no id comes again

    def __post_init__(self) -> None:
        self.boxes = [Postbox(rank, self.size, HEADER + INSIDE, limit=64) for rank in range(self.size)]
        self.random = random.Random(self.seed)

    def post(self, rank: int, transfer: Transfer) -> Transfer:
        self.kept.append(transfer)
        self.boxes[rank].post(transfer)
        self.act(rank)
        return transfer

    def act(self, rank: int) -> None:
        box = self.boxes[rank]
        actions, box.actions = box.actions, deque()
        for action in actions:
            match action:
                case PutPacket(to, packet):
                    self.packets.setdefault((rank, to), deque()).append(packet)
                case MovePart():
                    way = (rank, action.peer) if action.side == "send" else (action.peer, rank)
                    self.moves.setdefault(way, (deque(), deque()))[action.side == "receive"].append(action)
                case TransferOver(transfer, error):
                    assert id(transfer) not in self.over, "a transfer is over once"
                    self.over[id(transfer)] = error

    def step(self) -> bool:
        """Let one thing happen, chosen at random; False if nothing can."""
        can: list[tuple[Any, tuple[int, int]]] = [
            (self.deliver, way) for way, queue in self.packets.items() if queue and way[1] not in self.silent
        ]
        can += [(self.move, way) for way, (out, into) in self.moves.items() if out and into]
        if not can:
            return False
        what, way = self.random.choice(sorted(can, key=lambda entry: (entry[0].__name__, entry[1])))
        what(*way)
        return True

    def deliver(self, source: int, target: int) -> None:
        self.boxes[target].arrived(source, self.packets[source, target].popleft())
        self.act(target)

    def move(self, source: int, target: int) -> None:
        out, into = (queue.popleft() for queue in self.moves[source, target])
        assert out.buffer.nbytes == into.buffer.nbytes, "both sides move the same parts"
        into.buffer[...] = out.buffer
        self.parts.append(out.buffer.nbytes)
        for rank, move in ((source, out), (target, into)):
            self.boxes[rank].moved(move)
            self.act(rank)

    def run(self) -> None:
        while self.step():
            pass


def sending(peer: int, key: int, data: Any, stamp: int = 0) -> Transfer:
    return Transfer("send", peer, key, data, data.nbytes, stamp)


def receiving(peer: int, key: int, data: Any, stamp: int = 0) -> Transfer:
    return Transfer("receive", peer, key, data, data.nbytes, stamp)


def failing(peer: int, key: int, nbytes: int) -> Transfer:
    return Transfer("send", peer, key, "it broke", nbytes)


@dataclass
class Traffic:
    """Random messages between all ranks, in random order."""

    world: World
    posts: list[tuple[int, Transfer, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.world.random
        for number in range(12):
            source, target = chance.sample(range(self.world.size), 2)
            shape = (chance.choice([0, 1, 5, 30]), chance.choice([1, 2, 7]))
            view = np.s_[:, ::2] if chance.random() < 0.5 else np.s_[:]
            data = np.arange(float(shape[0] * shape[1])).reshape(shape)[view] + 1000 * number
            rows, columns = data.shape
            into = np.zeros((rows, columns)) if chance.random() < 0.5 else np.zeros((rows, 2 * columns))[:, ::2]
            breaks = chance.random() < 0.2
            send = failing(target, number, data.nbytes) if breaks else sending(target, number, data)
            self.posts += [
                (source, send, None),
                (target, receiving(source, number, into), "broken" if breaks else data),
            ]
        chance.shuffle(self.posts)

    def run(self, upset: Any = None) -> None:
        """Post everything while things happen; let `upset()` happen somewhere in between."""
        when = self.world.random.randrange(len(self.posts)) if upset else -1
        for number, (rank, transfer, _) in enumerate(self.posts):
            if number == when:
                upset()
            self.world.post(rank, transfer)
            for _ in range(self.world.random.randrange(4)):
                self.world.step()
        self.world.run()


@pytest.mark.parametrize("seed", range(150))
def test_messages_arrive_in_any_order_of_packets_and_parts(seed: int) -> None:
    world = World(2 + seed % 3, seed)
    traffic = Traffic(world)
    traffic.run()
    for _, transfer, expected in traffic.posts:
        error = world.over[id(transfer)]
        if isinstance(expected, str):
            assert isinstance(error, RemoteFailure) and "it broke" in str(error)
            assert not transfer.data.any()
        else:
            assert error is None
            assert expected is None or np.array_equal(transfer.data, expected)
    for box in world.boxes:
        assert not (box._sends or box._receives or box._ready or box._came or box._refused or any(box._flows.values()))


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_every_transfer_ends(seed: int) -> None:
    world = World(2 + seed % 3, seed)
    traffic = Traffic(world)
    victim = world.random.randrange(world.size)

    def upset() -> None:
        other = (victim + 1) % world.size
        if seed % 3 == 0:
            world.silent.add(victim)
            world.boxes[other].lose(victim, "its process is gone")
        elif seed % 3 == 1:
            world.boxes[victim].abort("enough")
        else:
            world.boxes[victim].arrived(other, b"GET / HTTP/1.1\r\n" * 9)
        for rank in range(world.size):
            world.act(rank)

    traffic.run(upset)
    named = {0: (RankLost, "is gone"), 1: (RankAborted, "enough"), 2: (ClusterError, "no message of coexec")}
    for rank, transfer, expected in traffic.posts:
        if rank in world.silent:
            continue
        error = world.over[id(transfer)]
        if error is None:
            assert expected is None or np.array_equal(transfer.data, expected), "what is over without an error is right"
        elif not isinstance(error, RemoteFailure):
            kind, words = named[seed % 3]
            assert isinstance(error, kind)
            assert words in str(error)
            assert f"rank {victim if seed % 3 < 2 else (victim + 1) % world.size}" in str(error)


def test_a_message_that_nobody_awaits_waits_at_its_sender() -> None:
    world = World(2)
    data = np.arange(100.0)
    send = world.post(0, sending(1, 5, data))
    world.run()
    assert id(send) not in world.over and not world.moves
    receive = world.post(1, receiving(0, 5, into := np.zeros(100)))
    world.run()
    assert world.over[id(send)] is None and world.over[id(receive)] is None
    assert np.array_equal(into, data)


def test_a_receive_that_was_posted_ahead_needs_no_answer() -> None:
    world = World(2)
    world.post(1, receiving(0, 5, into := np.zeros(100)))
    world.run()
    world.post(0, sending(1, 5, np.ones(100)))
    assert len(world.packets[0, 1]) == 1
    world.run()
    assert into.all()
    assert len(world.moves[0, 1][0]) == 0 and not world.packets[1, 0]


@pytest.mark.parametrize(("sends", "awaits"), [(3, 4), (3, 100), (100, 3), (100, 101)])
@pytest.mark.parametrize("first", ["send", "receive"])
def test_sizes_that_differ_end_it_for_all(sends: int, awaits: int, first: str) -> None:
    world = World(3)
    posts = [(0, sending(1, 9, np.ones(sends))), (1, receiving(0, 9, np.zeros(awaits)))]
    for rank, transfer in posts if first == "send" else posts[::-1]:
        world.post(rank, transfer)
        world.run()
    for rank in range(3):
        words = str(world.boxes[rank].broken)
        assert isinstance(world.boxes[rank].broken, RanksDiverge)
        assert f"{8 * sends:,}" in words and f"{8 * awaits:,}" in words and "key 9" in words


def test_stamps_that_differ_end_it_for_all() -> None:
    world = World(2)
    world.post(0, sending(1, 9, np.ones(2), stamp=0xAB))
    world.post(1, receiving(0, 9, np.ones(2), stamp=0xCD))
    world.run()
    for box in world.boxes:
        assert isinstance(box.broken, RanksDiverge)
        assert "0xab" in str(box.broken) and "0xcd" in str(box.broken) and "same program" in str(box.broken)


@pytest.mark.parametrize("first", ["send", "receive"])
@pytest.mark.parametrize("elements", [2, 100], ids=["inside a packet", "in parts"])
@pytest.mark.parametrize("explained", [False, True])
def test_whoever_diverges_all_transfers_are_over(explained: bool, elements: int, first: str) -> None:
    """Also the one that found the difference, and while this rank waits for the others to say where they parted."""
    world = World(2)
    for box in world.boxes if explained else ():
        calls = Calls()
        calls.note(f"call of rank {box.rank}", "app.py:1")
        box.explains = calls
    sends = (0, sending(1, 9, np.ones(elements), stamp=0xAB))
    receives = (1, receiving(0, 9, np.ones(elements), stamp=0xCD))
    for rank, transfer in (sends, receives) if first == "send" else (receives, sends):
        world.post(rank, transfer)
        world.run()
    for rank, box in enumerate(world.boxes):
        if box.doubt is not None and box.broken is None:
            box.fail(box.doubt)
            world.act(rank)
    assert all(isinstance(box.broken, RanksDiverge) for box in world.boxes)
    open_still = [t for t in (sends[1], receives[1]) if id(t) not in world.over]
    assert open_still == []


def test_what_nobody_asked_for_is_an_error_and_not_a_write() -> None:
    world = World(2)
    world.boxes[1].arrived(0, encode(Packet(PacketKind.FLOW, 0, 4, 80)))
    assert "nobody asked for" in str(world.boxes[1].broken)
    world = World(2)
    for _ in range(2):
        world.boxes[1].arrived(0, encode(Packet(PacketKind.MESSAGE, 0, 4, 1, body=b"x")))
    assert "two messages with key 4" in str(world.boxes[1].broken)


def test_a_rank_that_left_takes_and_sends_nothing_more() -> None:
    world = World(2)
    waits = world.post(0, receiving(1, 1, np.zeros(3)))
    own = world.post(1, receiving(0, 2, np.zeros(3)))
    world.boxes[1].leave()
    world.act(1)
    world.run()
    assert isinstance(world.over[id(own)], RuntimeClosed)
    assert isinstance(world.over[id(waits)], RankLost)
    late = world.post(0, sending(1, 3, np.zeros(50)))
    assert isinstance(world.over[id(late)], RankLost)
    assert world.boxes[0].gone == {1} and not world.boxes[0].broken
    world.boxes[0].lose(1, "its process has ended")
    assert not world.boxes[0].broken, "who said goodbye may go"


def test_what_was_sent_before_a_goodbye_can_still_be_taken() -> None:
    world = World(2)
    world.post(0, sending(1, 1, np.full(3, 7.0)))
    world.boxes[0].leave()
    world.act(0)
    world.run()
    world.post(1, receiving(0, 1, into := np.zeros(3)))
    assert (into == 7).all()


def test_no_rank_ends_before_all_know_that_all_have_ended() -> None:
    world = World(3)
    for rank in range(3):
        assert not world.boxes[rank].part()
        world.boxes[rank].leave()
        world.act(rank)
    world.run()
    assert not world.boxes[0].part()
    world.act(0)
    world.run()
    assert [world.boxes[rank].part() for rank in range(3)] == [False, False, False]
    for rank in range(3):
        world.act(rank)
    world.run()
    assert world.boxes[1].part()
    world.boxes[2].lose(0, "its process has ended")
    assert world.boxes[2].part() and world.boxes[2].broken is None


@pytest.mark.parametrize("first", ["send", "receive"])
@pytest.mark.parametrize(("out", "into", "parts"), [(1, 1, 2), (1, 2, 15), (2, 1, 15), (2, 2, 15)])
def test_what_is_packed_on_no_side_travels_in_larger_parts(out: int, into: int, parts: int, first: str) -> None:
    world = World(2)
    data, space = np.arange(120.0 * out)[::out], np.zeros(120 * into)[::into]
    posts = [(0, sending(1, 1, data)), (1, receiving(0, 1, space))]
    for rank, transfer in posts if first == "send" else posts[::-1]:
        world.post(rank, transfer)
    world.run()
    assert (space == data).all() and len(world.parts) == parts  # of 64 bytes, or of eight times as many
