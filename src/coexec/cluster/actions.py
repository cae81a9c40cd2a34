"""What a postbox asks for, and the contents of one message on their way.

Before: cluster/parts.py, transport.py.  After: cluster/postbox.py, carrier.py, endpoint.py.  No thread, no clock, no library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from .parts import as_bytes, in_place, packed, parts
from .transport import Side, Transfer

PART = 8 << 20
"""Bytes of a part that is packed: one is under way while the next is packed or unpacked."""
WHOLE_PARTS = 8
"""How many of these are one part where nothing is packed: far below the 2 GiB that libraries count in an int."""
WINDOW = 2
"""Parts of one message under way at once: one moves while the next is packed or unpacked."""


class PutPacket(NamedTuple):
    """Write a packet to a rank."""

    to: int
    packet: bytes


class MovePart(NamedTuple):
    """Move bytes: out of `buffer` to a rank, or from it into `buffer`. Reported by `moved`."""

    flow: Flow
    buffer: Any  # one-dimensional, uint8
    part: Any  # where the bytes belong

    @property
    def side(self) -> Side:
        """Which way."""
        return self.flow.transfer.side

    @property
    def peer(self) -> int:
        """The other rank."""
        return self.flow.transfer.peer


class TransferOver(NamedTuple):
    """A transfer is over."""

    transfer: Transfer
    error: BaseException | None


class Heard(NamedTuple):
    """Another rank has told something."""

    source: int
    topic: int
    words: str


Action = PutPacket | MovePart | TransferOver | Heard


class Explains(Protocol):
    """Who knows what this rank's program has done, and can tell where two ranks parted."""

    def told(self, room: int) -> str:
        """Return what the program did last, for another rank to compare."""

    def parted(self, told: str, here: str, there: str) -> str:
        """Say where this rank and another parted, from what that one told."""


class Counted(NamedTuple):
    """How far a rank's messages are."""

    sent: int  # packets, notes apart
    taken: int
    over: int  # transfers
    flowing: bool  # contents of a message are on their way


class Flow:
    """The contents of one message on their way."""

    def __init__(self, transfer: Transfer, limit: int) -> None:
        self.transfer = transfer
        self._left: Iterator[Any] = parts(transfer.data, limit)
        self.under_way = 0
        self.all_posted = False

    def next(self) -> MovePart | None:
        """Return the next part to move, if there is one and the window has room."""
        if self.under_way >= WINDOW:
            return None
        part = next(self._left, None)
        if part is None:
            self.all_posted = True
            return None
        self.under_way += 1
        if self.transfer.side == "send":
            return MovePart(self, packed(part), part)
        return MovePart(self, as_bytes(part) if in_place(part) else np.empty(part.nbytes, np.uint8), part)

    @property
    def over(self) -> bool:
        """Whether everything has moved."""
        return self.all_posted and not self.under_way
