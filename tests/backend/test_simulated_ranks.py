"""Several processes in one simulated world: one clock, times of their own, and messages between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.backend.base import Ran
from coexec.backend.simulated import SimulatedBackend, World
from coexec.backend.simulated.durations import Durations
from coexec.errors import BackendError
from coexec.geometry import whole
from coexec.graph.instruction import Allocation, Instruction
from coexec.graph.message import MessageKey, Receive, Send
from coexec.graph.task import Task
from coexec.machine.platform import HOST
from tests.clusters import cluster

SIZE = 1_000_000  # elements of a message
LATENCY = 1e-6 + 2e-6 + 1e-6  # two cards and the network
SECONDS = LATENCY + 8 * SIZE / 10e9


class Pair:
    """Two processes on two nodes, and what they report."""

    def __init__(self, *, execute: bool = False, ranks: int = 2) -> None:
        platform = cluster(ranks)
        self.world = World(platform)
        self.reports: list[Ran] = []
        self.processes = []
        for rank in range(ranks):
            node = platform.node(rank)
            law = Durations(node)
            process = SimulatedBackend(
                node.devices, law=law, platform=node, world=self.world, rank=rank, execute=execute
            )
            process.start(self.reports.append)
            self.processes.append(process)

    def message(self, kind: Any, sender: int, receiver: int, position: int = 0) -> Any:
        task = Task(1, "exchange", None, None)
        task.round = 4
        box = whole((SIZE,))
        allocation = Allocation(1, HOST, 1, box, np.dtype(float))
        process = self.processes[sender if kind is Send else receiver]
        process.allocate(allocation)
        route = MessageKey(sender, receiver, 0, False, position)
        return Instruction(10 * receiver + position + 1, kind(allocation, box, route), task)

    def issue(self, kind: Any, sender: int, receiver: int, position: int = 0) -> Any:
        instruction = self.message(kind, sender, receiver, position)
        self.processes[sender if kind is Send else receiver].issue(instruction, instruction.id)
        return instruction

    def run(self) -> dict[str, tuple[float, float]]:
        while self.processes[0].help():
            pass
        return {f"{ran.instruction.kind} {ran.instruction.id}": (ran.start, ran.stop) for ran in self.reports}


@pytest.mark.parametrize("order", [(Send, Receive), (Receive, Send)])
def test_a_message_begins_when_both_sides_are_there_and_takes_latency_and_bytes(order):
    pair = Pair()
    pair.issue(order[0], 0, 1)
    assert not pair.reports
    pair.processes[0 if order[1] is Send else 1].spend(1e-3)
    pair.issue(order[1], 0, 1)
    assert pair.run() == {
        "send 11": pytest.approx((1e-3, 1e-3 + SECONDS)),
        "receive 11": pytest.approx((1e-3, 1e-3 + SECONDS)),
    }


def test_two_messages_out_of_one_card_share_it():
    pair = Pair(ranks=3)
    for receiver in (1, 2):
        pair.issue(Send, 0, receiver)
        pair.issue(Receive, 0, receiver)
    stops = {stop for _, stop in pair.run().values()}
    assert sorted(stops) == pytest.approx([LATENCY + 2 * 8 * SIZE / 10e9])


def test_messages_both_ways_do_not_share():
    pair = Pair()
    for sender in (0, 1):
        pair.issue(Send, sender, 1 - sender)
        pair.issue(Receive, sender, 1 - sender)
    assert sorted({stop for _, stop in pair.run().values()}) == pytest.approx([SECONDS])


def test_values_arrive_as_they_were_when_they_were_sent():
    pair = Pair(execute=True)
    send, receive = pair.message(Send, 0, 1), pair.message(Receive, 0, 1)
    send.step.allocation.data[...] = np.arange(SIZE)
    pair.processes[0].issue(send, 0)
    pair.processes[1].issue(receive, 0)
    pair.run()
    np.testing.assert_array_equal(receive.step.allocation.data, np.arange(SIZE))


def test_a_failed_send_tells_its_receiver():
    pair = Pair()
    send = pair.message(Send, 0, 1)
    send.failure = ValueError("upstream")
    pair.processes[0].issue(send, 0)
    pair.issue(Receive, 0, 1)
    pair.run()
    assert [ran.error for ran in pair.reports] == [send.failure, send.failure]


def test_a_message_without_another_side_is_an_error_and_no_hang():
    pair = Pair()
    pair.issue(Receive, 0, 1)
    pair.run()
    (ran,) = pair.reports
    assert isinstance(ran.error, BackendError) and "has no other side" in str(ran.error)


def test_time_moves_no_further_than_the_program_that_is_least_far():
    pair = Pair()
    pair.issue(Send, 0, 1)
    pair.issue(Receive, 0, 1)
    pair.processes[0].spend(1.0)
    pair.processes[0].keep_up()
    assert not pair.reports
    pair.processes[1].spend(1.0)
    pair.processes[1].keep_up()
    assert len(pair.reports) == 2 and pair.world.time.now <= 1.0
