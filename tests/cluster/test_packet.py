"""Packets come back as they were, and whatever else arrives is refused in words."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from coexec.cluster.packet import (
    HEADER,
    INSIDE,
    WHOLE,
    BadPacket,
    Packet,
    PacketKind,
    decode,
    encode,
    note,
    text,
)

numbers = st.integers(0, (1 << 64) - 1)
packets = st.builds(
    Packet,
    st.sampled_from([kind for kind in PacketKind if kind is not PacketKind.MESSAGE]),
    st.integers(0, 5000),
    numbers,
    numbers,
    numbers,
    st.integers(INSIDE, WHOLE),
    st.binary(max_size=50),
)


@given(packets, st.binary(max_size=20))
def test_a_packet_comes_back_as_it_was_whatever_is_behind_it(packet: Packet, behind: bytes) -> None:
    assert decode(encode(packet) + behind, packet.source) == packet


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(BadPacket):
        decode(noise, 1)


@given(packets, st.integers(0, HEADER + 49), st.integers(0, 255))
def test_a_damaged_packet_is_refused_or_another_valid_one(packet: Packet, at: int, value: int) -> None:
    data = bytearray(encode(packet))
    data[at % len(data)] = value
    with suppress(BadPacket):
        assert isinstance(decode(bytes(data), packet.source), Packet)


def test_a_packet_that_lies_about_its_source_or_its_size_is_refused() -> None:
    packet = Packet(PacketKind.MESSAGE, 3, 1, 4, body=b"1234")
    assert decode(encode(packet), 3) == packet
    with pytest.raises(BadPacket, match="says that rank 3 wrote it"):
        decode(encode(packet), 2)
    with pytest.raises(BadPacket, match="4 bytes of a message of 5"):
        decode(encode(packet._replace(nbytes=5)), 3)
    with pytest.raises(BadPacket, match="cut off after 3"):
        decode(encode(packet)[:-1], 3)
    with pytest.raises(BadPacket, match="another version of coexec"):
        decode(b"CXT2" + encode(packet)[4:], 3)


@settings(max_examples=40)
@given(st.text(max_size=40), st.integers(0, 60))
def test_a_note_is_cut_at_a_whole_character(words: str, room: int) -> None:
    body = note(words, room)
    assert len(body) <= room
    assert words.encode("utf-8", "replace").startswith(body)
    assert text(body) == body.decode()
