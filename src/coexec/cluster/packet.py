"""What ranks tell each other beside the boxes themselves: small packets with fixed fields and some bytes.

Before: errors.py.  After: cluster/postbox.py.  A packet is checked field by field before anybody believes it.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

MAGIC = b"CXT1"
FIELDS = Struct(
    "<4sHHIIQQQ"
)  # little-endian everywhere: magic, kind, flow, source, bytes of the body, key, nbytes, stamp
HEADER = FIELDS.size


class PacketKind(IntEnum):
    """What a packet says."""

    MESSAGE = 1
    """A message of `nbytes`: its contents are the body if `flow` is 0; if 1 or 3, they follow; if 2, once the receiver is ready."""
    READY = 2
    """The receive of a message too large for a packet was posted; `flow` is 3 if its bytes lie together there."""
    FLOW = 3
    """The contents of an announced message follow now; `flow` is 3 if their bytes lie together on both sides."""
    FAILED = 4
    """There is nothing to send for this key; the body says why."""
    ABORT = 5
    """The sender gives up; the body says why."""
    LOST = 6
    """The rank `key` is gone; the body says why."""
    DIVERGE = 7
    """The sender found that two ranks do not agree; the body says about what."""
    GOODBYE = 8
    """The sender has nothing more to send, and takes nothing more."""
    DONE = 9
    """The sender knows that everybody has said goodbye. Nothing follows."""
    NOTE = 10
    """A few words about something else than messages; `key` says about what."""
    HANG = 11
    """The sender found that all ranks wait for each other; the body says for what."""


INSIDE, FOLLOWS, LATER, WHOLE = range(4)  # where the contents of a message are


class Packet(NamedTuple):
    """One packet."""

    kind: PacketKind
    source: int
    key: int = 0
    nbytes: int = 0
    stamp: int = 0
    flow: int = INSIDE
    body: bytes = b""


class BadPacket(ValueError):
    """Bytes that no rank of coexec writes."""


def encode(packet: Packet) -> bytes:
    """Return a packet as bytes."""
    return (
        FIELDS.pack(
            MAGIC, packet.kind, packet.flow, packet.source, len(packet.body), packet.key, packet.nbytes, packet.stamp
        )
        + packet.body
    )


def decode(data: bytes, source: int) -> Packet:
    """Return the packet that `source` wrote; what is behind it is ignored. Raise BadPacket for anything else."""
    if len(data) < HEADER:
        raise BadPacket(f"{len(data)} bytes, where a packet has {HEADER} at least")
    magic, kind, flow, claimed, length, key, nbytes, stamp = FIELDS.unpack_from(data)
    if magic != MAGIC:
        raise BadPacket(f"it begins with {magic!r}, not with {MAGIC!r}: is another version of coexec running there?")
    if kind not in PacketKind._value2member_map_ or flow > WHOLE:
        raise BadPacket(f"kind {kind} with contents {flow} is unknown")
    if claimed != source:
        raise BadPacket(f"it says that rank {claimed} wrote it")
    if length > len(data) - HEADER:
        raise BadPacket(f"its {length} bytes of contents are cut off after {len(data) - HEADER}")
    if kind == PacketKind.MESSAGE and flow == INSIDE and length != nbytes:
        raise BadPacket(f"it has {length} bytes of a message of {nbytes}")
    return Packet(PacketKind(kind), claimed, key, nbytes, stamp, flow, bytes(data[HEADER : HEADER + length]))


def text(body: bytes) -> str:
    """Return a note as text, whatever bytes it has."""
    return body.decode("utf-8", "replace")


def note(words: str, room: int) -> bytes:
    """Return a text as the body of a packet, cut to `room` bytes at a whole character."""
    found = words.encode("utf-8", "replace")
    if len(found) <= room:
        return found
    return found[:room].decode("utf-8", "ignore").encode()
