"""Ranks as threads of one process: packets and parts handed over in memory. For tests, and programs that try things out.

Before: cluster/carrier.py, endpoint.py.  After: tests, testing/transports.py.  The other carriers' only difference is the library.
"""

from __future__ import annotations

import threading
from collections import deque

from ..errors import ConfigError
from .actions import PART, MovePart
from .carrier import Events
from .endpoint import Endpoint

ROOM = 1024
"""Bytes of a packet, as few as with other libraries, so that tests see large messages soon."""


class LoopbackRanks:
    """What joins the ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.events: dict[int, Events] = {}
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, int], tuple[deque[MovePart], deque[MovePart]]] = {}
        self.everybody = threading.Barrier(size)

    def meet(self, move: MovePart, sender: int, receiver: int) -> None:
        """Hand a part over once both sides are there."""
        with self._lock:
            both = self._waiting.setdefault((sender, receiver), (deque(), deque()))
            both[move.side == "receive"].append(move)
            if not all(both):
                return
            out, into = (moves.popleft() for moves in both)
            into.buffer[...] = out.buffer
        self.events[sender].moved(out)
        self.events[receiver].moved(into)


class LoopbackCarrier:
    """One rank of a loop."""

    room = ROOM
    polls = False
    shared = True
    ends_together = False

    def __init__(self, loop: LoopbackRanks, rank: int) -> None:
        self.rank, self.size = rank, loop.size
        self._loop = loop

    def start(self, events: Events) -> None:
        """Join the others."""
        self._loop.events[self.rank] = events
        self._loop.everybody.wait()

    def put(self, to: int, packet: bytes) -> None:
        """Write a packet."""
        self._loop.events[to].arrived(self.rank, packet)

    def move(self, move: MovePart) -> None:
        """Begin to move a part."""
        self._loop.meet(move, *((self.rank, move.peer) if move.side == "send" else (move.peer, self.rank)))

    def poll(self) -> bool:
        """Nothing happens here that nobody was told."""
        return False

    def lose(self, rank: int) -> None:
        """Nothing is ever on its way."""

    def flushed(self) -> bool:
        """Packets arrive at once."""
        return True

    def stop(self, *, clean: bool) -> None:
        """There is nothing to let go of."""


def loopback(size: int, *, part: int = PART) -> list[Endpoint]:
    """Return the transports of so many ranks of this process, by rank. `part` is how many bytes travel at once."""
    if size < 1:
        raise ConfigError(f"{size} ranks cannot do anything; 1 is the least")
    loop = LoopbackRanks(size)
    found: list[Endpoint | None] = [None] * size

    def make(rank: int) -> None:
        found[rank] = Endpoint(LoopbackCarrier(loop, rank), part=part)

    makers = [threading.Thread(target=make, args=(rank,)) for rank in range(size)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    return [endpoint for endpoint in found if endpoint is not None]
