"""gloo carries packets and parts between processes: torch.distributed's, over TCP, with or without torch's own launcher.

Before: cluster/carrier.py.  After: cluster/opening.py.  The only module here that imports torch, and only when asked to.

gloo says that something has moved only to who waits for it, and its waits cost nothing. So for each other rank there are
threads that wait: one that sends and one that takes packets, and, once there is a large message, the same for parts.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from ctypes import py_object, pythonapi
from queue import SimpleQueue
from time import monotonic
from typing import Any

from ..errors import ClusterError
from .actions import MovePart
from .carrier import Events
from .packet import Packet, PacketKind, decode

ROOM = 1024
"""Bytes of a packet; all have this size, since both sides of a message of gloo have one."""
PACKETS, PARTS = 0, 1  # tags
NEVER = dt.timedelta(days=365)
"""After what time gloo gives up: who is lost is found out in other ways, and a kernel may take long."""


FAREWELL = 1.0
"""Seconds to wait, after a failure, for the last word of ranks that are still there."""


def load() -> Any:
    """Import torch.distributed. Raise ClusterError, naming the extra, if that cannot be done."""
    try:
        import torch.distributed

        if torch.distributed.is_available() and torch.distributed.is_gloo_available():
            return torch.distributed
    except ImportError as error:
        raise ClusterError(f"gloo cannot be loaded ({error}); pip install 'coexec[torch]' brings it") from error
    raise ClusterError("this build of torch has no gloo; pip install 'coexec[torch]' brings one that has")


class GlooCarrier:
    """The ranks that meet in a store of torch.distributed: a file that all can write, or a port of one host."""

    room = ROOM
    polls = False
    shared = True
    ends_together = False

    def __init__(self, rank: int, size: int, store: Callable[[Any], Any], *, interface: str = "") -> None:
        """`store(torch.distributed)` opens the store; `interface` is the network interface to use, "lo" on one machine."""
        self.rank, self.size = rank, size
        self._store, self._interface = store, interface
        self._group: Any = None
        self._events: Events | None = None
        self._senders: dict[tuple[str, int], GlooThread] = {}
        self._readers: dict[int, threading.Thread] = {}
        self._lost: set[int] = set()

    def start(self, events: Events) -> None:
        """Meet the other ranks, and listen to each of them."""
        distributed = load()
        self._events = events
        try:
            gloo = distributed.ProcessGroupGloo
            options = gloo._Options()
            options._timeout = NEVER
            named = self._interface
            options._devices = [gloo.create_device(interface=named) if named else gloo.create_default_device()]
            self._group = gloo(self._store(distributed), self.rank, self.size, options)
        except RuntimeError as error:
            raise ClusterError(f"rank {self.rank} cannot meet the {self.size - 1} others: {_line(error)}") from error
        for other in range(self.size):
            if other != self.rank:
                reader = threading.Thread(target=self._read, args=(other,), name=f"coexec-gloo-{other}", daemon=True)
                self._readers[other] = reader
                reader.start()

    def put(self, to: int, packet: bytes) -> None:
        """Write a packet."""
        from torch import frombuffer, uint8

        padded = bytearray(ROOM)
        padded[: len(packet)] = packet
        self._worker("packets", to).give(frombuffer(padded, dtype=uint8), None)

    def move(self, move: MovePart) -> None:
        """Begin to move a part."""
        import torch

        buffer = move.buffer if move.buffer.flags.writeable else move.buffer.copy()  # torch has no read-only tensors
        kind = "parts out" if move.side == "send" else "parts in"
        self._worker(kind, move.peer).give(torch.from_numpy(buffer), move)

    def poll(self) -> bool:
        """Nothing happens here that nobody was told."""
        return False

    def lose(self, rank: int) -> None:
        """Note that a rank is gone: threads that wait for it are left alone."""
        self._lost.add(rank)

    def flushed(self) -> bool:
        """Tell whether every packet has left, but for those to ranks that are gone."""
        senders = list(self._senders.items())
        return all(worker.idle for (kind, to), worker in senders if kind == "packets" and to not in self._lost)

    def stop(self, *, clean: bool) -> None:
        """End the threads; those that wait for a rank that is gone are left alone."""
        for worker in self._senders.values():
            worker.end()
        deadline = monotonic() + (NEVER.total_seconds() if clean else FAREWELL)
        threads = [*self._readers.items(), *[(peer, worker.thread) for (_, peer), worker in self._senders.items()]]
        for peer, thread in threads:
            if peer not in self._lost:
                thread.join(max(0.0, deadline - monotonic()))
        if not clean:
            pythonapi.Py_IncRef(py_object(self._group))  # its end would wake threads that wait, in a process that ends

    def _worker(self, kind: str, peer: int) -> GlooThread:
        found = self._senders.get((kind, peer))
        if found is None:
            assert self._events is not None
            call = self._group.recv if kind == "parts in" else self._group.send
            tag = PACKETS if kind == "packets" else PARTS
            found = self._senders[kind, peer] = GlooThread(call, peer, tag, self._events)
        return found

    def _read(self, source: int) -> None:
        """Take the packets of one rank, until nothing follows or it cannot be reached."""
        from torch import empty, uint8

        assert self._events is not None
        while True:
            packet = empty(ROOM, dtype=uint8)
            try:
                self._group.recv([packet], source, PACKETS).wait()
            except RuntimeError as error:
                self._events.lost(source, _line(error))
                return
            data = packet.numpy().tobytes()
            self._events.arrived(source, data)
            if _is_last(data, source):
                return


class GlooThread:
    """A thread that waits for one message of gloo after another, with one rank, one way."""

    def __init__(self, call: Callable[..., Any], peer: int, tag: int, events: Events) -> None:
        self._call, self._peer, self._tag, self._events = call, peer, tag, events
        self._queue: SimpleQueue[tuple[Any, MovePart | None] | None] = SimpleQueue()
        self._given = self._done = 0
        self.thread = threading.Thread(target=self._run, name=f"coexec-gloo-{peer}", daemon=True)
        self.thread.start()

    @property
    def idle(self) -> bool:
        """Whether everything it was given has left."""
        return self._given == self._done

    def give(self, tensor: Any, move: MovePart | None) -> None:
        """Let it send, or fill, a tensor."""
        self._given += 1
        self._queue.put((tensor, move))

    def end(self) -> None:
        """Let it end after what it was given."""
        self._queue.put(None)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            tensor, move = entry
            try:
                self._call([tensor], self._peer, self._tag).wait()
            except RuntimeError as error:
                self._done = self._given
                self._events.lost(self._peer, _line(error))
                return
            self._done += 1
            if move is not None:
                self._events.moved(move)


def _is_last(data: bytes, source: int) -> bool:
    try:
        packet: Packet = decode(data, source)
    except ValueError:
        return True
    return packet.kind is PacketKind.DONE


def _line(error: BaseException) -> str:
    """Return the first sentence of what gloo says, without the place in its own source."""
    words = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if words.startswith("["):
        words = words.partition("] ")[2] or words
    return words.partition(". This is typically")[0]
