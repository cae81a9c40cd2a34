"""The transport contract: how ranks give each other boxes of arrays, whatever carries the bytes.

Before: errors.py.  After: cluster/endpoint.py, which keeps it; cluster/collectives.py, which is built on it.  Knows no
graph, no task and no library.

A message is found by (sender, receiver, key). Both sides know its size beforehand, from what every rank computes alike:
the receiver posts it ahead, and a sender whose size differs is an error on all ranks. Nothing that arrives is executed or
unpickled: a message is bytes for a box that was posted, a note in plain text, or an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

Side = Literal["send", "receive"]
KEYS = 1 << 63
"""A program's keys are below it; those above are the collectives' own."""
_NAPS = threading.Lock()  # guards the making of events, which only those who wait need


class Transfer:
    """One side of one message. `data` must stay as it is until the transfer is over."""

    __slots__ = ("_event", "at_once", "data", "error", "key", "nbytes", "over", "peer", "side", "stamp", "then")

    def __init__(
        self,
        side: Side,
        peer: int,
        key: int,
        data: Any,
        nbytes: int,
        stamp: int = 0,
        then: Callable[[Transfer], None] | None = None,
    ) -> None:
        self.side: Side = side
        self.peer = peer
        self.key = key
        self.data = data  # an ndarray of any strides; in the place of what cannot be sent, the reason
        self.nbytes = nbytes
        self.stamp = stamp
        self.then = then
        self.over = False
        self.at_once = False  # it was over before the call that began it returned, and `then` is not called
        self.error: BaseException | None = None
        self._event: threading.Event | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Let it be over, wake who waits, and call `then`. The transport's own business, once."""
        self.error = error
        with _NAPS:
            self.over = True
            event = self._event
        if event is not None:
            event.set()
        if self.then is not None:
            self.then(self)

    def end_at_once(self, error: BaseException | None) -> None:
        """Let it be over within the call that begins it. The transport's own business."""
        self.error, self.over, self.at_once = error, True, True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, `timeout` seconds at most; raise its error. False if it is not over yet."""
        with _NAPS:
            if not self.over and self._event is None:
                self._event = threading.Event()
            event = None if self.over else self._event
        if event is not None and not event.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True

    def __repr__(self) -> str:
        way = "to" if self.side == "send" else "from"
        return f"{self.side} of {self.nbytes:,} bytes {way} rank {self.peer} with key {self.key}"


class Transport(Protocol):
    """One rank among several. Every method may be called from any thread; none but `close` waits for another rank."""

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def hosts(self) -> Sequence[str]:
        """The host of each rank, as errors name it; empty texts until the ranks have told each other."""

    def send(
        self,
        to: int,
        key: int,
        data: Any,
        *,
        stamp: int = 0,
        then: Callable[[Transfer], None] | None = None,
        direct: bool = False,
    ) -> Transfer:
        """Send an ndarray of any shape and strides. Over once `data` may be changed.

        `stamp` is a number that the receiver must give, too; else the ranks have diverged, and all of them are told.
        `then(transfer)` is called once, from a thread of the transport, without any lock held, never inside this call.
        With `direct` the calling thread, which no signal may interrupt meanwhile, may do what a thread of the transport does
        otherwise. If `transfer.at_once` holds afterwards, it is over, and `then` is not called.
        """

    def fail(
        self,
        to: int,
        key: int,
        nbytes: int,
        reason: str,
        *,
        stamp: int = 0,
        then: Callable[[Transfer], None] | None = None,
    ) -> Transfer:
        """Tell that a message of `nbytes` cannot be sent, and why: its receive fails with RemoteFailure, and it alone."""

    def receive(
        self,
        source: int,
        key: int,
        into: Any,
        *,
        stamp: int = 0,
        then: Callable[[Transfer], None] | None = None,
        direct: bool = False,
    ) -> Transfer:
        """Take a message into an ndarray of any strides, which is written nowhere else. May be posted long before."""

    def collective_keys(self, number: int) -> int:
        """Return the first of so many keys, all above KEYS, that every rank gets for its next collective."""

    def lose(self, rank: int, reason: str) -> None:
        """Note that a rank is gone: all ranks are told, and whatever is open fails with RankLost."""

    def abort(self, reason: str) -> None:
        """Give up: all ranks are told, and whatever is open on any of them fails with RankAborted."""

    def close(self, timeout: float | None = None) -> None:
        """End together with the other ranks; what they still await from this rank fails at once. Idempotent.

        Waits for this rank's own sends and until the others close, too; RankLost if that takes over `timeout` seconds.
        """
