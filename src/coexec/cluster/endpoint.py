"""A transport: the postbox of one rank, one carrier, and the thread on which both go on while the program computes.

Before: cluster/postbox.py, carrier.py.  After: cluster/opening.py.  Knows no library.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from ..errors import ArgumentError, InvariantError, RankLost, RuntimeClosed
from .actions import PART, Action, Counted, Explains, Heard, MovePart, PutPacket, TransferOver
from .bell import Bell
from .carrier import Carrier
from .pauses import LONGEST, Pauses
from .postbox import Postbox
from .transport import KEYS, Transfer

FAREWELL = 1.0
"""Seconds that a rank that gives up takes to tell the others."""
LAST_WORDS = 3.0
"""Seconds that a rank whose end ends the others leaves them to say what they know: on a busy machine a traceback takes one."""
LOOK = "look"
"""What the thread is told if the postbox has nothing to do, but something else has changed."""
Then = Callable[[Transfer], None]
Hears = Callable[[int, int, str], None]
"""Takes what another rank told: who, about what, and the words."""


class Endpoint:
    """One rank's end of a carrier. Keeps the contract of transport.py's Transport."""

    def __init__(self, carrier: Carrier, *, part: int = PART) -> None:
        self._carrier = carrier
        self._part = part
        self._box = Postbox(0, 1, 0)  # stands in until the carrier knows its rank
        self._bell = Bell(outside=carrier.polls)
        self._turn = threading.Lock()  # guards the postbox and the carrier: who has it lets messages go on
        self._news: deque[Action] = deque()  # what the thread is to tell others
        self._lock = threading.Lock()  # guards what follows
        self._todo: deque[tuple[str, tuple[Any, ...]]] = deque()  # methods of the postbox, and their arguments
        self._open: set[tuple[str, int, int]] = set()
        self._next_key = KEYS
        self._closing = False
        self._failure: BaseException | None = None  # of our own thread
        self._failed_in_call: BaseException | None = None  # what went wrong on another thread, on its way to ours
        self._opened = threading.Event()
        self._told = threading.Event()  # everybody was told that nothing works any more
        self._ended = threading.Event()
        self._deadline = float("inf")  # until when a broken transport may take to tell the others
        self.pauses = Pauses()
        self._held_up = False  # packets have not left yet whose receivers were rung at
        self._left = 0.0  # when this rank said that it has no more to say
        self._doubted = float("inf")  # until when others may say where they parted from this rank
        self._hears: Hears | None = None
        self._unheard: list[Heard] = []  # what came before anybody listened
        self._when_broken: Callable[[BaseException], None] | None = None
        self._thread = threading.Thread(target=self._run, name="coexec-transport", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._box.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._box.size

    @property
    def hosts(self) -> Sequence[str]:
        """The host of each rank; empty texts until the ranks have told each other."""
        return self._box.hosts

    @property
    def broken(self) -> BaseException | None:
        """Why nothing works any more."""
        return self._failure or self._box.broken

    @property
    def bell(self) -> str:
        """Where ranks of the same machine ring when they have sent something; empty if they need not."""
        return self._bell.address

    def know_bells(self, bells: Mapping[int, str]) -> None:
        """Ring at these bells, by rank, of ranks of the same machine."""
        self._bell.know(bells)

    def name_hosts(self, hosts: Sequence[str]) -> None:
        """Let errors name the host of each rank."""
        self._box.hosts[:] = hosts

    def send(
        self, to: int, key: int, data: Any, *, stamp: int = 0, then: Then | None = None, direct: bool = False
    ) -> Transfer:
        """Send an ndarray of any shape and strides."""
        _check(data, "send")
        return self._post(Transfer("send", to, key, data, data.nbytes, stamp, then), direct=direct)

    def fail(
        self, to: int, key: int, nbytes: int, reason: str, *, stamp: int = 0, then: Then | None = None
    ) -> Transfer:
        """Tell that a message of `nbytes` cannot be sent, and why."""
        return self._post(Transfer("send", to, key, str(reason), nbytes, stamp, then))

    def receive(
        self, source: int, key: int, into: Any, *, stamp: int = 0, then: Then | None = None, direct: bool = False
    ) -> Transfer:
        """Take a message into an ndarray of any strides."""
        _check(into, "receive")
        if not into.flags.writeable:
            raise ArgumentError(f"cannot receive into a read-only array of shape {into.shape}")
        return self._post(Transfer("receive", source, key, into, into.nbytes, stamp, then), direct=direct)

    def collective_keys(self, number: int) -> int:
        """Return the first of so many keys that every rank gets for its next collective."""
        with self._lock:
            first = self._next_key if self._next_key + number <= 2 * KEYS else KEYS
            self._next_key = first + number
        return first

    def tell(self, to: int, topic: int, words: str) -> None:
        """Tell a rank a few words, which it hears whenever it comes to it; nothing is answered."""
        self._do("tell", to, topic, words)

    def listen(self, hears: Hears, explains: Explains, when_broken: Callable[[BaseException], None]) -> None:
        """Say who hears what other ranks tell, who explains differences, and who is told that nothing works any more.

        All of them are called on the transport's thread.
        """
        self._box.explains = explains
        self._hears, self._when_broken = hears, when_broken
        self._do(LOOK)

    def diverge(self, what: str) -> None:
        """Give up because ranks do not agree about something."""
        self._do("diverge", what)

    def give_up(self, error: BaseException) -> None:
        """Give up because of an error; all ranks are told its text."""
        self._do("fail", error)

    def counted(self) -> Counted:
        """Return how far this rank's messages are. Exact while nothing happens."""
        return self._box.counted()

    def lose(self, rank: int, reason: str) -> None:
        """Note that a rank is gone; all ranks are told."""
        self._do("lose", rank, str(reason))

    def abort(self, reason: str) -> None:
        """Give up; all ranks are told."""
        self._do("abort", str(reason))
        self._told.wait(FAREWELL)

    def close(self, timeout: float | None = None) -> None:
        """End together with the other ranks."""
        with self._lock:
            first, self._closing = not self._closing, True
        self._do(LOOK)
        if not self._ended.wait(timeout):
            silent = [rank for rank in range(self.size) if rank != self.rank and rank not in self._box.gone]
            names = ", ".join(map(self._box.name, silent)) or self._box.name(self.rank)
            self._do("fail", RankLost(f"{names} did not close within {timeout:g} s", silent[0] if silent else None))
            self._ended.wait()
        if first and self.broken is not None:
            raise self.broken

    # The carrier's news, from any thread ---------------------------------------------------------------------------------

    def arrived(self, source: int, packet: bytes) -> None:
        """Take a packet of another rank."""
        self._do("arrived", source, packet)

    def moved(self, move: MovePart) -> None:
        """Note that a part has moved."""
        self._do("moved", move)

    def lost(self, rank: int, reason: str) -> None:
        """Note that a rank cannot be reached any more."""
        self._do("lose", rank, reason)

    def _do(self, method: str, *arguments: Any) -> None:
        with self._lock:
            self._todo.append((method, arguments))
        self._bell.ring()

    def _post(self, transfer: Transfer, *, direct: bool = False) -> Transfer:
        peer, key = transfer.peer, transfer.key
        if not 0 <= peer < self.size or peer == self.rank:
            raise ArgumentError(f"rank {self.rank} of {self.size} cannot {transfer.side} with rank {peer}")
        if not 0 <= key < 2 * KEYS or not 0 <= transfer.stamp < 2 * KEYS:
            raise ArgumentError(f"key {key} and stamp {transfer.stamp} must lie between 0 and 2**64")
        at = (transfer.side, peer, key)
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._closing:
                raise RuntimeClosed(f"the {transfer} comes after the transport was closed")
            if at in self._open:
                raise ArgumentError(f"the {transfer} comes while another one with that key is open")
            self._open.add(at)
            self._todo.append(("post", (transfer,)))
        if not direct or not self._carrier.shared or not self._begin_here(transfer):
            self._bell.ring()
        return transfer

    def _begin_here(self, transfer: Transfer) -> bool:
        """Begin with a transfer on the calling thread; False if our own thread has the turn, or has something left to do."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._failure is not None:
                return False
            self._drain()
            self._carry_out(transfer)
            busy = self._carrier.polls and (self._box.flowing or not self._carrier.flushed())
            done = not (busy or self._news or self._todo)
        except BaseException as error:
            self._failed_in_call = error  # what a library cannot do is no error of this call
            if not isinstance(error, Exception):
                raise
            return False
        finally:
            self._turn.release()
        return done

    # The thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._carrier.start(self)
            self._box = Postbox(self._carrier.rank, self._carrier.size, self._carrier.room, self._part)
        except BaseException as error:  # noqa: BLE001 - whoever opens it gets it
            self._failure = error
            self._ended.set()
            return
        finally:
            self._opened.set()
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - ours, or a `then`'s: nobody may wait in vain
            self._give_up(error)
        finally:
            self._told.set()
            try:
                self._carrier.stop(clean=self.broken is None)
            finally:
                self._bell.close()
                self._ended.set()

    def _serve(self) -> None:
        polls = self._carrier.polls
        while True:
            with self._turn:
                if self._failed_in_call is not None:
                    raise self._failed_in_call
                ends = self._may_end()
                busy = not ends and (self._work() | (polls and self._carrier.poll()))
                rung, flowing = polls and self._rung(), self._box.flowing
            self._tell()
            if ends:
                return
            self._rest(self.pauses.next(busy=busy, rung=rung, flowing=flowing) if polls else None)

    def _rung(self) -> bool:
        """Tell whether nothing can happen without a ring: all others ring, and nothing of this rank's is on its way."""
        if not self._carrier.flushed():
            self._held_up = True
            return False
        if self._held_up:  # whoever was rung at before these packets left may have found nothing
            self._held_up = False
            self._bell.ring_at_all()
        return self._bell.reach == self.size - 1 and not self._box.flowing

    def _work(self) -> bool:
        if not self._todo:
            return False
        self._drain()
        self._carry_out()
        return True

    def _drain(self) -> None:
        while self._todo:
            method, arguments = self._todo.popleft()
            if method != LOOK:
                getattr(self._box, method)(*arguments)

    def _rest(self, seconds: float | None) -> None:
        """Wait until there is something to do, or it is time to look again."""
        if seconds == 0.0:
            self.pauses.give_way()
            return
        if seconds is None and (self._closing or self._box.broken is not None or self._box.doubt is not None):
            seconds = LONGEST  # no carrier tells when its last packet has left
        if not self._todo:
            self._bell.rest(seconds)

    def _may_end(self) -> bool:
        """Tell whether this rank may go; say goodbye as soon as nothing of its own is under way."""
        box, now = self._box, monotonic()
        if box.doubt is not None and box.broken is None:
            self._doubted = min(self._doubted, now + FAREWELL)
            if now >= self._doubted:
                box.fail(box.doubt)
                self._carry_out()
        if self._closing and not box.closed and not self._todo and (box.broken is not None or not box.sending):
            box.leave()
            self._carry_out()
            self._left = now
            self._deadline = now + FAREWELL
        if box.broken is not None:
            self._deadline = min(self._deadline, now + FAREWELL)
            if self._carrier.flushed() or now >= self._deadline:
                self._told.set()
                return box.closed and (
                    box.all_done or not self._carrier.ends_together or now >= self._left + LAST_WORDS
                )
            return False
        over = box.part()
        self._carry_out()
        return over and not self._todo and self._carrier.flushed()

    def _carry_out(self, here: Transfer | None = None) -> None:
        """Let packets and parts go; whom it concerns is told of all else later, but `here` whoever posts it, and waits for it."""
        actions = self._box.actions
        while actions:
            match action := actions.popleft():
                case PutPacket(to, packet):
                    self._carrier.put(to, packet)
                    self._bell.ring_at(to)
                case MovePart():
                    self._carrier.move(action)
                    self._bell.ring_at(action.peer)
                case TransferOver(transfer, error) if transfer is here:
                    self._forget(transfer)
                    transfer.end_at_once(error)
                case _:
                    self._news.append(action)
        broken = self._box.broken
        if isinstance(broken, RankLost) and broken.rank is not None:
            self._carrier.lose(broken.rank)

    def _forget(self, transfer: Transfer) -> None:
        with self._lock:
            self._open.discard((transfer.side, transfer.peer, transfer.key))

    def _tell(self) -> None:
        """Tell whom it concerns what is over, and what other ranks have told. Without the turn: they may post more."""
        while self._news:
            match action := self._news.popleft():
                case TransferOver(transfer, error):
                    self._forget(transfer)
                    transfer.finish(error)
                case Heard():
                    self._unheard.append(action)
        if self._hears is not None and self._unheard:
            heard, self._unheard = self._unheard, []
            for source, topic, words in heard:
                self._hears(source, topic, words)
        broken = self._box.broken
        if broken is not None and self._when_broken is not None:
            tell, self._when_broken = self._when_broken, None
            tell(broken)

    def _give_up(self, error: BaseException) -> None:
        """Let everything fail that is open."""
        failure = InvariantError("the thread of the transport failed, and everything that was open with it")
        failure.__cause__ = error
        with self._turn:
            with self._lock:
                self._failure = failure
                left = [arguments[0] for method, arguments in self._todo if method == "post"]
            self._box.fail(failure)
            actions = [*self._news, *self._box.actions]
            left += [action.transfer for action in actions if isinstance(action, TransferOver)]
            for action in actions:
                if isinstance(action, PutPacket):
                    with suppress(Exception):
                        self._carrier.put(action.to, action.packet)
        for transfer in left:
            with suppress(Exception):
                transfer.finish(failure)


def _check(data: Any, side: str) -> None:
    if not isinstance(data, np.ndarray):
        raise ArgumentError(f"cannot {side} a {type(data).__name__}; give an ndarray")
    if data.dtype.hasobject:
        raise ArgumentError(f"cannot {side} Python objects (an array of type {data.dtype}): only plain bytes travel")
