"""Messages between ranks that are processes: sends and receives are given to a transport, and reported when they are over.

Before: cluster/transport.py, graph/instruction.py.  After: opening.py.  Has no thread: the transport has one.

A receive is posted as soon as its memory is free, which is long before the other side sends, where the program runs ahead.
"""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from ..cluster.transport import Transfer, Transport
from ..errors import InvariantError, RemoteFailure, Reported, TaskFailed
from ..graph.failure import failed_as
from ..graph.instruction import Allocation, Instruction
from ..graph.message import Message, MessageKey, Send
from ..graph.task import Task
from ..program.view import extract
from .base import CallHelper, Finished, Ran

POSITIONS, ARGUMENTS, ROUNDS, RUNTIMES = 16, 10, 28, 8
"""Bits of a key: which message of one way and argument, which argument, which deal, which runtime of the program. With one
for partial results they are 63. Deals and runtimes are counted on from 0 when they are too many: what was sent so long ago
has arrived."""


def message_key(runtime: int, round: int, route: MessageKey) -> int:
    """Return the number that both sides find a message by: of the messages from one rank to another no two have the same."""
    if route.position >> POSITIONS or route.argument >> ARGUMENTS:
        raise InvariantError(
            f"a task has message {route.position} for argument {route.argument} from rank {route.sender} to "
            f"{route.receiver}; {1 << POSITIONS} messages for each of {1 << ARGUMENTS} arguments are the most"
        )
    found = runtime % (1 << RUNTIMES)
    found = found << ROUNDS | round % (1 << ROUNDS)
    found = found << ARGUMENTS | route.argument
    return (found << 1 | route.partial) << POSITIONS | route.position


class NetworkBackend:
    """The lane called "network" of one rank."""

    kind = "network"
    runs_python = False
    helps = False
    devices = ()

    def __init__(self, transport: Transport, runtime: int) -> None:
        """Send over `transport`; `runtime` is the number of the runtime that this is for, the same on all ranks."""
        self._transport = transport
        self._runtime = runtime
        self._finished: Finished | None = None
        self._failures: dict[int, Reported] = {}  # by the round of the call that failed elsewhere
        self.messages = 0  # that were sent
        self.bytes = 0  # that were sent
        self.partials = 0  # messages of these with partial results of reductions
        self.partial_bytes = 0

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        """Begin to accept work."""
        del call_helper
        self._finished = finished

    def clock(self) -> float:
        """Return the time in seconds that records refer to."""
        return time.perf_counter()

    def supports(self, dtype: Any) -> bool:
        """Tell whether elements of `dtype` can be sent: all that arrays may have are plain bytes."""
        del dtype
        return True

    def allocate(self, allocation: Allocation) -> None:
        """Refuse: messages go from host memory to host memory."""
        raise InvariantError(f"the network has no memory for {allocation!r}")

    def release(self, allocation: Allocation) -> None:
        """Do nothing: it has no memory."""

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> Ran | None:
        """Give a message to the transport. Small ones leave at once: no thread has to wake up for them."""
        del waits
        start = time.perf_counter()

        def over(transfer: Transfer) -> None:
            self._finish(self._ran(instruction, lane, start, transfer.error))

        try:
            transfer = self._post(instruction, over)
        except Exception as error:  # noqa: BLE001 - reported, as whatever else goes wrong with it
            late = error  # whoever issues holds a lock, so another thread reports it
            ran = self._ran(instruction, lane, start, late)
            threading.Thread(target=lambda: self._finish(ran), daemon=True).start()
            return None
        return self._ran(instruction, lane, start, transfer.error) if transfer.at_once else None

    def _post(self, instruction: Instruction, over: Any) -> Transfer:
        step, task = instruction.step, instruction.task
        assert isinstance(step, Message)
        key, route, stamp = message_key(self._runtime, task.round, step.route), step.route, task.stamp
        if isinstance(step, Send) and instruction.failure is not None:
            reason = told(instruction.failure, task)
            return self._transport.fail(route.receiver, key, step.nbytes, reason, stamp=stamp, then=over)
        empty = route.grid is not None
        data = np.empty(0, np.uint8) if empty else extract(step.allocation.data, step.allocation.box.lo, step.box, None)
        if isinstance(step, Send):
            self.messages += 1
            self.bytes += step.nbytes
            if route.partial:
                self.partials += 1
                self.partial_bytes += step.nbytes
            return self._transport.send(route.receiver, key, data, stamp=stamp, then=over, direct=True)
        return self._transport.receive(route.sender, key, data, stamp=stamp, then=over, direct=True)

    def _finish(self, ran: Ran) -> None:
        assert self._finished is not None, "whoever issues has started it"
        self._finished(ran)

    def _ran(self, instruction: Instruction, lane: int, start: float, error: BaseException | None) -> Ran:
        if error is None:
            error = instruction.failure
        elif isinstance(error, RemoteFailure):
            error = self.failed_elsewhere(str(error), error)
        return Ran(instruction, "network", lane, start, time.perf_counter(), 0.0, error)

    def failed_elsewhere(self, words: str, cause: BaseException | None = None) -> TaskFailed:
        """Return the failure that another rank told of, as a program sees it there: caught by the same class."""
        _, _, known = words.rpartition("[")
        round, _, name = known.rstrip("]").partition(" ")
        kind = next((found for place in (builtins, errors) if isinstance(found := vars(place).get(name), type)), None)
        plain = kind is not None and issubclass(kind, Exception)
        failure = (failed_as(kind) if plain and kind is not None else TaskFailed)(words)
        failure.told = self._failures.setdefault(int(round), Reported()) if round.isdigit() else Reported()
        failure.__cause__ = cause
        return failure

    def seen_elsewhere(self) -> list[int]:
        """Return the rounds of calls that failed on other ranks, and of which the program knows."""
        return [round for round, told in self._failures.items() if told.yes]

    def withdraw(self, instruction: Instruction) -> bool:
        """Take nothing back: the other side counts on it."""
        del instruction
        return False

    def help(self, waiting_for: Task | None = None) -> bool:
        """Run nothing on the calling thread."""
        del waiting_for
        return False

    def left(self, *, idle: bool) -> None:
        """Do nothing: it never helps."""

    def stop(self) -> None:
        """Do nothing: the transport is the process's, and goes on for other runtimes."""


def told(failure: BaseException, task: Task) -> str:
    """Return a failure in words, which end with the number of the call that failed and the class of its error."""
    first: BaseException = failure
    while (
        isinstance(first, TaskFailed) and first.__cause__ is not None and not isinstance(first.__cause__, RemoteFailure)
    ):
        first = first.__cause__
    if isinstance(first, TaskFailed) and str(first).endswith("]"):
        return str(first).rpartition("has nothing to send: ")[2]  # it came from a third rank
    text = str(failure)
    room = 700  # characters: it must fit into a packet with its end
    text = text if len(text) <= room else f"{text[:room]}..."
    origin = getattr(failure, "round", None) or task.round
    return f"{text} [{origin} {type(first).__name__}]"
