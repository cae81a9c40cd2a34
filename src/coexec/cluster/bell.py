"""What wakes the thread of a transport: this process's own calls, and ranks of the same machine that have sent something.

Before: nothing.  After: cluster/endpoint.py.  A bell carries nothing but that it rang, so who rings without need does no harm.

A library that must be looked at tells nobody that a message has come. Looking often costs a core, looking rarely costs
time. Ranks of one machine therefore ring: a datagram without contents, to a socket without a port. Between machines, and
where there are no such sockets, the thread looks now and then.
"""

from __future__ import annotations

import secrets
import select
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

MOST = 64
"""Rings that are taken at once: a system keeps 10 to 512 of them."""


class Bell:
    """Wakes one thread. `ring` may be called from any thread, `rest` by one."""

    def __init__(self, *, outside: bool) -> None:
        """`outside` says whether other processes shall be able to ring."""
        self._guard = threading.Lock()  # no Condition: an interrupt in one of its methods would leave it locked
        self._nap = threading.Lock()  # locked but for the moment in which the thread is woken
        self._nap.acquire()
        self._rung = False
        self._resting = False
        self._socket = _listen() if outside else None
        self.address = "" if self._socket is None else str(self._socket.getsockname()[1:], "ascii")
        self._others: dict[int, str] = {}

    def know(self, others: Mapping[int, str]) -> None:
        """Learn the addresses of the bells of other ranks, of those that have one within reach."""
        if self._socket is not None:
            self._others = {rank: address for rank, address in others.items() if address}

    @property
    def reach(self) -> int:
        """How many other ranks have a bell within reach: those ring here, too."""
        return len(self._others)

    def ring(self) -> None:
        """Wake the thread, or let its next rest be none."""
        with self._guard:
            if self._rung:
                return
            if (
                self._resting
            ):  # first wake, then note it: an interrupt between the two wakes twice, and never not at all
                if self._socket is not None:
                    _ring(self._socket, self.address)
                elif self._nap.locked():
                    self._nap.release()
            self._rung = True

    def ring_at(self, rank: int) -> None:
        """Wake the thread of another rank, if it has a bell within reach."""
        address = self._others.get(rank)
        if address is not None and self._socket is not None and not _ring(self._socket, address):
            del self._others[rank]  # it looks now and then, as ranks of other machines do

    def ring_at_all(self) -> None:
        """Wake the threads of all ranks that have a bell within reach."""
        for rank in list(self._others):
            self.ring_at(rank)

    def rest(self, seconds: float | None) -> None:
        """Wait until it rings, so many seconds at most."""
        with self._guard:
            if self._rung:
                self._rung = False
                return
            self._resting = True
        if self._socket is None:
            self._nap.acquire(timeout=-1 if seconds is None else seconds)
        elif _readable(self._socket, seconds):
            with suppress(BlockingIOError):
                for _ in range(MOST):
                    self._socket.recv(1)
        with self._guard:
            self._nap.acquire(blocking=False)  # it may have rung when the time was over
            self._resting = self._rung = False

    def close(self) -> None:
        """Let go of the socket. Idempotent."""
        with self._guard:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._others = {}


def _listen() -> socket.socket | None:
    """Return a socket that processes of this machine find by its name; None where there are no such ones."""
    if not sys.platform.startswith("linux"):
        return None  # names without files are Linux's
    with suppress(OSError):
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        found.setblocking(False)
        found.bind(f"\0coexec-{secrets.token_hex(8)}")
        return found
    return None


def _ring(by: socket.socket, address: str) -> bool:
    """Ring; False if nobody is there."""
    try:
        by.sendto(b"", f"\0{address}")
    except BlockingIOError:
        return True  # it has rung often already
    except OSError:
        return False
    return True


def _readable(of: socket.socket, seconds: float | None) -> bool:
    file = of.fileno()
    if file < _LARGEST:
        return bool(select.select([file], [], [], seconds)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


_LARGEST = 1024
"""Files that `select` knows: those below it. It waits for parts of a millisecond, which `poll` does not."""
