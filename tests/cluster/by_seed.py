"""Whole programs on ranks in one thread, by a seed: the product's graphs, message keys and postboxes, and a sea between them.

What happens next is drawn: an instruction of a rank, a packet or part that arrives, a rank that is slow, stops, comes back or
is lost. No clock and no thread decides anything, so a seed repeats a run exactly.

    python -m tests.cluster.by_seed --seeds 20000 [--first 0] [--jobs 2]

runs so many seeds, and prints those that went wrong and how often there was which trouble. Exit code 1 if one went wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, deque
from multiprocessing import Pool
from typing import Any, NamedTuple

import numpy as np

import coexec as cx
from coexec.backend.base import Ran
from coexec.backend.network import NetworkBackend
from coexec.cluster.actions import MovePart, PutPacket, TransferOver
from coexec.cluster.packet import HEADER
from coexec.cluster.postbox import Postbox
from coexec.cluster.transport import Transfer
from coexec.errors import RankLost
from coexec.graph.instruction import Instruction
from coexec.graph.message import Message
from coexec.testing.model_memory import perform
from coexec.testing.ranks import RankGraphs

INSIDE, PART = 40, 48  # bytes that fit into a packet, and that move at once
TROUBLES = ("none", "none", "slow", "stopped", "back", "lost")
"""What happens to one rank; the more common ones more often."""
RARELY = 0.02  # how often a slow rank's turn comes, and how soon others see that one is gone
LONGEST = 200_000  # steps after which a run is taken for endless

Key = tuple[int, int]  # rank, and id of an instruction


class End(NamedTuple):
    """How a run ended: the same for the same seed."""

    trouble: str
    victim: int
    steps: int
    broken: tuple[str, ...]  # why each rank gave up; empty for those that did not
    wrong: tuple[str, ...]  # what must not be


class Line:
    """One rank's way into the sea: the part of a transport that a network backend uses."""

    def __init__(self, sea: Sea, rank: int) -> None:
        self._sea, self._rank = sea, rank

    def send(self, to: int, key: int, data: Any, *, stamp: int = 0, then: Any = None, direct: bool = False) -> Transfer:
        return self._sea.post(self._rank, Transfer("send", to, key, data, data.nbytes, stamp, then), direct=direct)

    def fail(self, to: int, key: int, nbytes: int, reason: str, *, stamp: int = 0, then: Any = None) -> Transfer:
        return self._sea.post(self._rank, Transfer("send", to, key, reason, nbytes, stamp, then), direct=False)

    def receive(
        self, source: int, key: int, into: Any, *, stamp: int = 0, then: Any = None, direct: bool = False
    ) -> Transfer:
        return self._sea.post(
            self._rank, Transfer("receive", source, key, into, into.nbytes, stamp, then), direct=direct
        )


class Sea:
    """All ranks, and what is on its way between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ranks = self.random.randint(2, 6)
        self.trouble = self.random.choice(TROUBLES)
        self.victim = self.random.randrange(self.ranks)
        self.boxes = [Postbox(rank, self.ranks, HEADER + INSIDE, limit=PART) for rank in range(self.ranks)]
        self.packets: dict[Key, deque[bytes]] = {}  # sender and receiver
        self.parts: dict[Key, tuple[deque[MovePart], deque[MovePart]]] = {}
        self.silent: set[int] = set()  # ranks that do nothing
        self.waiting: dict[Key, Instruction] = {}
        self.edges: dict[Key, set[Key]] = {}
        self.issued: set[Key] = set()
        self.failed: dict[Key, BaseException] = {}
        self.backends: list[NetworkBackend] = []
        for rank in range(self.ranks):
            backend = NetworkBackend(Line(self, rank), 1)  # type: ignore[arg-type]
            backend.start(lambda ran, rank=rank: self._ran(rank, ran))  # type: ignore[misc]
            self.backends.append(backend)

    # Programs -----------------------------------------------------------------------------------------------------------

    def program(self) -> list[tuple[Any, list[Any]]]:
        """Draw a program; return what NumPy computes, and the tasks that read it."""
        size, devices = self.random.randint(5, 40), self.random.randint(1, 2)
        g = self.graphs = RankGraphs(self.ranks, devices)
        x, y, expected = np.arange(float(size)), np.zeros(size), 0.0
        a, b, total = g.array(size, data=x), g.array(size, 0.0), g.array((), 0.0)
        on = ["dev:0", f"dev:{devices - 1}"]
        for step in self.random.choices("ssswtur", k=self.random.randint(1, 9)):
            if step == "s":
                g.call("spread", reads=(a, cx.halo(1, border="wrap")), writes=b, body=_spread, on=on)
                near = np.pad(x, 1, mode="wrap")
                y = near[:-2] + 2 * near[1:-1] - near[2:]
                (a, x), (b, y) = (b, y), (a, x)
            elif step == "w":
                g.call("one", updates=a, body=lambda v: np.add(v, 1, out=v), on="dev:0")
                x = x + 1
            elif step == "t":
                g.call("sum", reads=a, reduces=total, over=(size,), body=lambda v, t: np.add(t, v.sum(), out=t), on=on)
                expected += x.sum()
            elif step == "u":
                g.call("all", reads=(a, cx.all), writes=b, body=_first_and_last, on=on)
                y = np.full(size, x[0] - x[-1])
            else:
                g.read(a)
        return [(value, g.read(array)) for array, value in ((a, x), (b, y), (total, np.array(expected)))]

    def load(self) -> None:
        """Take the instructions of all ranks."""
        self.waiting = {(rank, i.id): i for rank, g in enumerate(self.graphs.ranks) for i in g.emitted}
        for (rank, id), i in self.waiting.items():
            before = {(rank, edge) for edge in (*i.needs, *i.after) if edge != id}
            self.edges[rank, id] = {key for key in before if key in self.waiting}

    # What can happen ----------------------------------------------------------------------------------------------------

    def moves(self) -> list[tuple[str, Key]]:
        """Return everything that can happen next."""
        can = [
            ("run", key)
            for key in self.waiting
            if not self.edges[key] and key not in self.issued and self._acts(key[0])
        ]
        can += [("packet", way) for way, queue in self.packets.items() if queue and self._takes(way[1])]
        can += [("part", way) for way, (out, into) in self.parts.items() if out and into and not {*way} & self.silent]
        return can

    def _acts(self, rank: int) -> bool:
        return rank not in self.silent and self.boxes[rank].broken is None

    def _takes(self, rank: int) -> bool:
        return rank not in self.silent

    def do(self, what: str, key: Key) -> None:
        """Let one thing happen."""
        if what == "run":
            self._run(key)
        elif what == "packet":
            self.boxes[key[1]].arrived(key[0], self.packets[key].popleft())
            self.act(key[1])
        else:
            out, into = (queue.popleft() for queue in self.parts[key])
            into.buffer[...] = out.buffer
            for rank, move in zip(key, (out, into), strict=True):
                self.boxes[rank].moved(move)
                self.act(rank)

    def _run(self, key: Key) -> None:
        rank, instruction = key[0], self.waiting[key]
        reason = next((self.failed[rank, need] for need in instruction.needs if (rank, need) in self.failed), None)
        if isinstance(instruction.step, Message):
            self.issued.add(key)
            instruction.failure = reason
            ran = self.backends[rank].issue(instruction, 0)
            if ran is not None:
                self._ran(rank, ran)
            return
        if reason is None:
            perform(instruction)
        self._over(key, reason)

    def _ran(self, rank: int, ran: Ran) -> None:
        if self.boxes[rank].broken is None:
            self._over((rank, ran.instruction.id), ran.error)

    def _over(self, key: Key, error: BaseException | None) -> None:
        if error is not None:
            self.failed[key] = error
        del self.waiting[key]
        for open_edges in self.edges.values():
            open_edges.discard(key)

    def post(self, rank: int, transfer: Transfer, *, direct: bool) -> Transfer:
        """Give a message to a rank's postbox; whoever allows it is told at once of one that is over, or later."""
        self.boxes[rank].post(transfer)
        self.act(rank, transfer if direct and self.random.random() < RARELY else None)
        return transfer

    def act(self, rank: int, here: Transfer | None = None) -> None:
        """Do what a postbox asks for."""
        actions, self.boxes[rank].actions = self.boxes[rank].actions, deque()
        for action in actions:
            match action:
                case PutPacket(to, packet):
                    self.packets.setdefault((rank, to), deque()).append(packet)
                case MovePart():
                    way = (rank, action.peer) if action.side == "send" else (action.peer, rank)
                    self.parts.setdefault(way, (deque(), deque()))[action.side == "receive"].append(action)
                case TransferOver(transfer, error) if transfer is here:
                    transfer.end_at_once(error)
                case TransferOver(transfer, error):
                    transfer.finish(error)

    # Trouble ------------------------------------------------------------------------------------------------------------

    def upset(self) -> None:
        """Let the trouble begin."""
        if self.trouble in ("stopped", "back", "lost"):
            self.silent.add(self.victim)
        if self.trouble == "lost":  # what it had not written in full is gone with it
            for (sender, _), queue in self.packets.items():
                while sender == self.victim and queue and self.random.random() < 0.5:
                    queue.pop()

    def notice(self) -> None:
        """Let a rank see that the victim is gone; a stopped one may come back afterwards."""
        others = [rank for rank in range(self.ranks) if rank != self.victim]
        seer = self.random.choice(others)
        self.boxes[seer].lose(self.victim, "its process has ended")
        self.act(seer)
        if self.trouble == "back":
            self.silent.discard(self.victim)


def _spread(u: Any, out: Any) -> None:
    out[...] = u[:-2] + 2 * u[1:-1] - u[2:]


def _first_and_last(u: Any, out: Any) -> None:
    out[...] = u[0] - u[-1]


def sail(seed: int) -> End:
    """Run the program of a seed, and judge how it ended."""
    sea = Sea(seed)
    reads = sea.program()
    sea.load()
    begins = sea.random.randrange(1 + 2 * len(sea.waiting))
    noticed = sea.trouble in ("none", "slow")
    steps = 0
    while steps < LONGEST:
        steps += 1
        if steps == begins:
            sea.upset()
        can = sea.moves()
        if sea.trouble == "slow" and sea.random.random() > RARELY:
            can = [entry for entry in can if entry[1][0] != sea.victim] or can
        gone = steps >= begins and not noticed
        if gone and (not can or sea.random.random() < RARELY):
            sea.notice()
            noticed = True
        elif can:
            sea.do(*can[sea.random.randrange(len(can))])
        elif noticed:
            break
    return End(
        sea.trouble, sea.victim, steps, tuple([_why(box) for box in sea.boxes]), tuple(_wrong(sea, reads, steps))
    )


def _why(box: Postbox) -> str:
    return "" if box.broken is None else f"{type(box.broken).__name__}: {box.broken}"


def _wrong(sea: Sea, reads: list[tuple[Any, list[Any]]], steps: int) -> list[str]:
    """Return what must not be: endless runs, ranks that hang, other values than NumPy's, errors that name nobody."""
    found = ["it never ends"] if steps >= LONGEST else []
    calm = sea.trouble in ("none", "slow")
    for rank in range(sea.ranks):
        broken = sea.boxes[rank].broken
        left = [i for (of, _), i in sea.waiting.items() if of == rank]
        if broken is None and left and rank not in sea.silent:
            found.append(f"rank {rank} hangs before {left[:3]}")
        if broken is not None and (calm or not isinstance(broken, RankLost) or broken.rank != sea.victim):
            found.append(f"rank {rank} gave up, since {broken!r}")
        for value, tasks in reads:
            got = sea.graphs.ranks[rank].delivered.get(tasks[rank].id)
            if got is not None and not np.array_equal(got, value):
                found.append(f"rank {rank} read {got}, not {value}")
            if got is None and calm:
                found.append(f"rank {rank} read nothing")
    return found


def main() -> int:
    """Run the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.by_seed", description="Random programs on ranks.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    troubles: Counter[str] = Counter()
    bad = 0
    with Pool(given.jobs) as pool:
        for seed, end in zip(seeds, pool.imap(sail, seeds, chunksize=20), strict=True):
            troubles[end.trouble] += 1
            if end.wrong:
                bad += 1
                sys.stdout.write(f"--first {seed} --seeds 1: {end.trouble}: {'; '.join(end.wrong)}\n")
                sys.stdout.flush()  # a long run may be broken off
    sys.stdout.write(", ".join(f"{trouble} {times}" for trouble, times in sorted(troubles.items())) + "\n")
    sys.stdout.write(f"{len(seeds)} seeds, {bad} bad\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
