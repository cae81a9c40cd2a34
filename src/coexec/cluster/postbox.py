"""What a rank does about its messages, as a state machine: calls, packets and moved parts in, actions out.

Before: cluster/packet.py, actions.py, transport.py.  After: cluster/endpoint.py.  No thread, no clock, no library.

Small messages travel inside a packet. A large one is announced; its contents follow once the receiver has said that it is
ready, which it did long before if it posted the receive ahead. So no rank ever holds contents that nobody asked for, and
sizes are compared before anything is written. Contents go one message at a time between two ranks, in parts, in the order
that packets announced them: both sides post the same parts in the same order.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..errors import ClusterError, RankAborted, RankLost, RanksDiverge, RanksHang, RemoteFailure, RuntimeClosed
from .actions import PART, WHOLE_PARTS, Action, Counted, Explains, Flow, Heard, MovePart, PutPacket, TransferOver
from .packet import FOLLOWS, HEADER, INSIDE, LATER, WHOLE, BadPacket, Packet, PacketKind, decode, encode, note, text
from .parts import in_place, packed, unpack
from .transport import Side, Transfer


class Postbox:
    """All messages of one rank. `actions` is what is to be done, in order; whoever does it empties the list."""

    def __init__(self, rank: int, size: int, room: int, limit: int = PART) -> None:
        self.rank, self.size = rank, size
        self.inside = room - HEADER  # bytes that fit into a packet
        self._limit = limit  # bytes of a part
        self.hosts = [""] * size
        self.actions: deque[Action] = deque()
        self.broken: BaseException | None = None
        self.closed = False
        self.gone: set[int] = set()  # ranks that said goodbye
        self._done: set[int] = set()  # and know that all have
        self._parted = False
        self._sends: dict[tuple[int, int], Transfer] = {}  # announced, and not ready
        self._receives: dict[tuple[int, int], Transfer] = {}  # posted, and not begun
        self._ready: dict[tuple[int, int], Packet] = {}  # receivers that wait for a send
        self._refused: set[tuple[int, int]] = (
            set()
        )  # failures were sent, whose receivers have yet to say that they are ready
        self._came: dict[tuple[int, int], Packet] = {}  # messages that nobody has posted yet
        self._flows: dict[tuple[Side, int], deque[Flow]] = {}
        self._kept: list[Any] = []  # a library may still write into these, for all we know
        self._sent = self._taken = self._finished = 0
        self.explains: Explains | None = None
        self.doubt: RanksDiverge | None = None  # found here; the others are asked where they parted from this rank

    # Calls ------------------------------------------------------------------------------------------------------------

    def post(self, transfer: Transfer) -> None:
        """Begin with a transfer."""
        refusal = self._refusal(transfer)
        if refusal is not None:
            self._over(transfer, refusal)
        elif transfer.side == "receive":
            self._receive(transfer)
        elif isinstance(transfer.data, str):
            self._refuse(transfer)
        else:
            self._send(transfer)

    def _refusal(self, transfer: Transfer) -> BaseException | None:
        if self.broken is not None:
            return self.broken
        if self.closed:
            return RuntimeClosed(f"the {transfer} comes after the transport was closed")
        if transfer.peer in self.gone and not (
            transfer.side == "receive" and (transfer.peer, transfer.key) in self._came
        ):
            return self._ended(transfer)
        return None

    def _send(self, transfer: Transfer) -> None:
        at = (transfer.peer, transfer.key)
        if transfer.nbytes <= self.inside:
            self._put(transfer.peer, PacketKind.MESSAGE, transfer, body=packed(transfer.data).tobytes())
            self._over(transfer)
        elif (ready := self._ready.pop(at, None)) is not None:
            self._sends[at] = transfer  # until both sides agree: whoever gives up lets it be over
            if self._agree(transfer, ready):
                del self._sends[at]
                flow = WHOLE if _whole(transfer, ready) else FOLLOWS
                self._put(transfer.peer, PacketKind.MESSAGE, transfer, flow=flow)
                self._flow(transfer, flow)
        else:
            self._sends[at] = transfer
            self._put(transfer.peer, PacketKind.MESSAGE, transfer, flow=LATER)

    def _refuse(self, transfer: Transfer) -> None:
        at = (transfer.peer, transfer.key)
        if transfer.nbytes > self.inside and self._ready.pop(at, None) is None:
            self._refused.add(at)
        self._put(transfer.peer, PacketKind.FAILED, transfer, body=note(transfer.data, self.inside))
        self._over(transfer)

    def _receive(self, transfer: Transfer) -> None:
        at = (transfer.peer, transfer.key)
        self._receives[at] = transfer
        if transfer.nbytes > self.inside:
            self._put(transfer.peer, PacketKind.READY, transfer, flow=WHOLE if in_place(transfer.data) else INSIDE)
        if (packet := self._came.pop(at, None)) is not None:
            self._match(transfer, packet)

    def lose(self, rank: int, reason: str, *, tell: bool = True) -> None:
        """Note that a rank is gone. One that had said goodbye may go."""
        if rank in self.gone or self.broken is not None:
            self._done.add(rank)
        if rank in self.gone or self.broken is not None:
            return
        if tell:
            self._put_all(PacketKind.LOST, reason, key=rank)  # to that rank as well: it may be back one day
        self._done.add(rank)
        self._break(RankLost(f"{self.name(rank)} is gone: {reason}", rank, self.hosts[rank]))

    def abort(self, reason: str) -> None:
        """Give up, and tell everybody."""
        if self.broken is None:
            self._put_all(PacketKind.ABORT, reason)
            self._break(RankAborted(f"{self.name(self.rank)} gave up: {reason}", self.rank, self.hosts[self.rank]))

    def fail(self, error: BaseException) -> None:
        """Give up because of an error found here, and tell everybody its text."""
        if self.broken is None:
            kind = PacketKind.HANG if isinstance(error, RanksHang) else PacketKind.ABORT
            self._put_all(PacketKind.DIVERGE if isinstance(error, RanksDiverge) else kind, str(error))
            self._break(error)

    def tell(self, to: int, topic: int, words: str) -> None:
        """Write a note, if it can still be read."""
        if to == self.rank:
            self.actions.append(Heard(to, topic, words))
        elif self.broken is None and to not in self.gone:
            packet = Packet(PacketKind.NOTE, self.rank, topic, body=note(words, self.inside))
            self.actions.append(PutPacket(to, encode(packet)))

    def counted(self) -> Counted:
        """Return how far this rank's messages are."""
        return Counted(self._sent, self._taken, self._finished, self.flowing)

    def leave(self) -> None:
        """Say goodbye to everybody; what this rank still awaits will not come."""
        if self.closed:
            return
        self.closed = True
        for transfer in list(self._receives.values()):
            self._over(transfer, RuntimeClosed(f"the transport was closed before the {transfer} was over"))
        self._receives.clear()
        self._put_all(PacketKind.GOODBYE if self.broken is None else PacketKind.DONE, "")

    @property
    def flowing(self) -> bool:
        """Whether contents of a large message are on their way, one way or the other."""
        return any(self._flows.values())

    @property
    def sending(self) -> bool:
        """Whether a send of this rank is not over."""
        return bool(self._sends) or any(flows for (side, _), flows in self._flows.items() if side == "send")

    def part(self) -> bool:
        """Tell whether this rank may end: all have said goodbye, and know that all have.

        So nobody's process ends before its goodbye has arrived, and whoever sees it end knows what that means.
        """
        if self.closed and len(self.gone) == self.size - 1 and not self.flowing and not self._parted:
            self._parted = True
            self._put_all(PacketKind.DONE, "")
        return self._parted and len(self._done) == self.size - 1

    @property
    def all_done(self) -> bool:
        """Whether no other rank has anything more to say: each has ended, or closed its transport."""
        return len(self._done - {self.rank}) == self.size - 1

    # What arrives -----------------------------------------------------------------------------------------------------

    def arrived(self, source: int, data: bytes) -> None:
        """Take a packet."""
        try:
            packet = decode(data, source)
        except BadPacket as error:
            self.fail(ClusterError(f"{self.name(source)} wrote what is no message of coexec: {error}"))
            return
        if self.broken is not None:
            if packet.kind is PacketKind.DONE:
                self._done.add(source)
            return
        if packet.kind is PacketKind.NOTE:
            self.actions.append(Heard(source, packet.key, text(packet.body)))
            return
        self._taken += 1
        at = (source, packet.key)
        if packet.kind in (PacketKind.MESSAGE, PacketKind.FAILED):
            transfer = self._receives.get(at)
            if transfer is not None:
                self._match(transfer, packet)
            elif at in self._came:
                self.fail(RanksDiverge(f"{self.name(source)} sent two messages with key {packet.key}"))
            elif not self.closed:
                self._came[at] = packet
        elif packet.kind is PacketKind.READY:
            self._other_side_ready(at, packet)
        elif packet.kind is PacketKind.FLOW:
            self._contents_follow(at, packet.flow)
        else:
            self._news(packet)

    def _news(self, packet: Packet) -> None:
        source = packet.source
        if packet.kind is PacketKind.ABORT:
            words = f"{self.name(source)} gave up: {text(packet.body)}"
            self._break(RankAborted(words, source, self.hosts[source]))
        elif packet.kind is PacketKind.DIVERGE:
            words = self._explained(source, text(packet.body))
            if self.doubt is None:
                self._put_all(PacketKind.DIVERGE, words)
            self._break(RanksDiverge(words, source, self.hosts[source]))
        elif packet.kind is PacketKind.HANG:
            self._break(RanksHang(text(packet.body)))
        elif packet.kind is PacketKind.LOST:
            if packet.key < self.size:
                self.lose(packet.key, f"{text(packet.body)} (says rank {source})", tell=False)
        elif packet.kind is PacketKind.DONE:
            self._done.add(source)
        else:
            self.gone.add(source)
            for transfers in (self._sends, self._receives):
                for at in [at for at in transfers if at[0] == source]:
                    transfer = transfers.pop(at)
                    self._over(transfer, self._ended(transfer))

    def _match(self, transfer: Transfer, packet: Packet) -> None:
        at = (transfer.peer, transfer.key)
        if not self._agree(transfer, packet) or packet.flow == LATER:
            return  # an announced one stays posted until its contents follow
        del self._receives[at]
        if packet.kind is PacketKind.FAILED:
            words = f"{self.name(transfer.peer)} has nothing to send: {text(packet.body)}"
            self._over(transfer, RemoteFailure(words, transfer.peer, self.hosts[transfer.peer]))
        elif packet.flow in (FOLLOWS, WHOLE):
            self._flow(transfer, packet.flow)
        else:
            if transfer.nbytes:
                unpack(packet.body, transfer.data)
            self._over(transfer)

    def _other_side_ready(self, at: tuple[int, int], packet: Packet) -> None:
        transfer = self._sends.get(at)
        if at in self._refused:
            self._refused.remove(at)
        elif transfer is None:
            if not self.closed:
                self._ready[at] = packet
        elif self._agree(transfer, packet):
            del self._sends[at]
            flow = WHOLE if _whole(transfer, packet) else FOLLOWS
            self._put(transfer.peer, PacketKind.FLOW, transfer, flow=flow)
            self._flow(transfer, flow)

    def _contents_follow(self, at: tuple[int, int], flow: int) -> None:
        transfer = self._receives.pop(at, None)
        if transfer is None:
            if not self.closed:
                self.fail(ClusterError(f"{self.name(at[0])} sends contents with key {at[1]} that nobody asked for"))
            return
        self._flow(transfer, flow)

    def moved(self, move: MovePart) -> None:
        """Note that a part has moved."""
        flow = move.flow
        flow.under_way -= 1
        if self.broken is not None:
            return
        if move.side == "receive" and not in_place(move.part):
            unpack(move.buffer, move.part)
        self._advance((move.side, move.peer))

    # Contents ---------------------------------------------------------------------------------------------------------

    def _flow(self, transfer: Transfer, flow: int) -> None:
        way = (transfer.side, transfer.peer)
        limit = self._limit * WHOLE_PARTS if flow == WHOLE else self._limit
        self._flows.setdefault(way, deque()).append(Flow(transfer, limit))
        self._advance(way)

    def _advance(self, way: tuple[Side, int]) -> None:
        flows = self._flows[way]
        while flows:
            flow = flows[0]
            while (move := flow.next()) is not None:
                self.actions.append(move)
            if not flow.over:
                return
            flows.popleft()
            self._over(flow.transfer)

    # Agreement and the end --------------------------------------------------------------------------------------------

    def _agree(self, transfer: Transfer, packet: Packet) -> bool:
        """Tell whether both sides mean the same message; if not, it is the end for all ranks."""
        if transfer.nbytes == packet.nbytes and transfer.stamp == packet.stamp:
            return True
        here, there = self.name(self.rank), self.name(transfer.peer)
        if transfer.nbytes != packet.nbytes:
            verbs = ("sends", "awaits") if transfer.side == "send" else ("awaits", "sends")
            what = f"{here} {verbs[0]} {transfer.nbytes:,} bytes with key {transfer.key}, {there} {verbs[1]} {packet.nbytes:,}"
        else:
            what = (
                f"{here} and {there} are at different calls of the program "
                f"(stamps {transfer.stamp:#x} and {packet.stamp:#x} with key {transfer.key})"
            )
        remedy = "every rank must run the same program and see the same calls in the same order"
        self.diverge(f"{what}; {remedy}")
        return False

    def diverge(self, what: str) -> None:
        """Note that ranks do not agree, and tell everybody what this rank's program did last; it is the end for all.

        Whoever is told answers with the call at which the two parted. `fail` with the `doubt` if nobody answers.
        """
        told = self.explains.told(self.inside - len(what.encode()) - 1) if self.explains is not None else ""
        if not told:
            self.fail(RanksDiverge(what))
        elif self.doubt is None and self.broken is None:
            self.doubt = RanksDiverge(f"{what}\n{told}")  # the others answer where they parted from this rank
            self._put_all(PacketKind.DIVERGE, str(self.doubt))

    def _explained(self, source: int, words: str) -> str:
        """Return what another rank says of a difference, with where the two parted instead of what it did."""
        what, _, told = words.partition("\n")
        if self.explains is None or not told:
            return words
        return f"{what}; {self.explains.parted(told, self.name(self.rank), self.name(source)) or told}"

    def name(self, rank: int) -> str:
        """Return how errors call a rank."""
        return f"rank {rank} on {self.hosts[rank]}" if self.hosts[rank] else f"rank {rank}"

    def _ended(self, transfer: Transfer) -> RankLost:
        words = "it was to take" if transfer.side == "send" else "it was to send"
        return RankLost(
            f"{self.name(transfer.peer)} has ended, and {words} {transfer.nbytes:,} bytes with key {transfer.key}",
            transfer.peer,
            self.hosts[transfer.peer],
        )

    def _break(self, error: BaseException) -> None:
        self.broken = error
        flowing = [flow.transfer for flows in self._flows.values() for flow in flows]
        self._kept += [flow for flows in self._flows.values() for flow in flows]
        for transfer in (*self._sends.values(), *self._receives.values(), *flowing):
            self._over(transfer, error)
        for table in (self._sends, self._receives, self._flows, self._ready, self._came, self._refused):
            table.clear()

    def _over(self, transfer: Transfer, error: BaseException | None = None) -> None:
        self._finished += 1
        self.actions.append(TransferOver(transfer, error))

    def _put(self, to: int, kind: PacketKind, transfer: Transfer, *, flow: int = INSIDE, body: bytes = b"") -> None:
        packet = Packet(kind, self.rank, transfer.key, transfer.nbytes, transfer.stamp, flow, body)
        self._sent += 1
        self.actions.append(PutPacket(to, encode(packet)))

    def _put_all(self, kind: PacketKind, words: str, key: int = 0) -> None:
        packet = encode(Packet(kind, self.rank, key, body=note(words, self.inside)))
        for rank in range(self.size):
            if rank != self.rank:
                self._sent += 1
                self.actions.append(PutPacket(rank, packet))


def _whole(transfer: Transfer, ready: Packet) -> bool:
    """Tell whether the bytes of a message lie together both here and where the receiver is `ready`."""
    return ready.flow == WHOLE and in_place(transfer.data)
