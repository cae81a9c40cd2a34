"""What a library must do for a transport: carry small packets and large parts between ranks, and say what happened.

Before: cluster/postbox.py.  After: cluster/loopback.py, mpi.py and gloo.py, which do it; cluster/endpoint.py, which asks.
"""

from __future__ import annotations

from typing import Protocol

from .actions import MovePart


class Events(Protocol):
    """Where a carrier says what happened; from any thread. What comes from one rank keeps its order."""

    def arrived(self, source: int, packet: bytes) -> None:
        """Take a packet of another rank."""

    def moved(self, move: MovePart) -> None:
        """Note that a part has moved."""

    def lost(self, rank: int, reason: str) -> None:
        """Note that a rank cannot be reached any more."""


class Carrier(Protocol):
    """One library. All methods are called on the thread of one endpoint, `start` first, but for what is `shared`."""

    rank: int
    """This rank; known once it was started."""
    size: int
    """The number of ranks; likewise."""
    room: int
    """Bytes that a packet may have."""
    polls: bool
    """Whether somebody must call `poll` for anything to happen."""
    shared: bool
    """Whether `put` and `move` may be called on any thread, by one at a time, once it was started."""
    ends_together: bool
    """Whether a rank that ends after a failure ends the others, too: their launcher kills them."""

    def start(self, events: Events) -> None:
        """Connect to the other ranks. Raise ClusterError if that cannot be done."""

    def put(self, to: int, packet: bytes) -> None:
        """Write a packet. Never waits for another rank; packets to one rank arrive in order."""

    def move(self, move: MovePart) -> None:
        """Begin to move a part. Never waits. Both ranks move the parts between them in the same order."""

    def poll(self) -> bool:
        """Look what has happened, and say it; False if nothing has. Never waits."""

    def lose(self, rank: int) -> None:
        """Note that a rank is gone: whatever is on its way to it or from it is waited for no more."""

    def flushed(self) -> bool:
        """Tell whether every packet has left."""

    def stop(self, *, clean: bool) -> None:
        """Let go of the library; `clean` if all ranks have said goodbye, and come here together."""
