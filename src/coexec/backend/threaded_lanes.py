"""Lanes that threads serve: one thread gives instructions to a driver, and one per lane waits for what its queue was given.

Before: base.py.  After: opencl/, torch/.  Knows instructions by their ids only, and no driver.

1. `issue` leaves a note and returns: a driver may block when it is given work.
2. The submitting thread takes notes in order of issue. Who takes an id out of `_waiting` decides: this thread gives the
   instruction to the driver, or `withdraw` has taken it back.
3. A lane's thread waits for the oldest instruction of its queue, and reports it to the executor.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InvariantError, RuntimeClosed
from .base import Finished, Ran

if TYPE_CHECKING:
    from ..graph.instruction import Allocation, Instruction
    from ..graph.task import Task

Note = tuple["Instruction", int, Sequence["Instruction"], float]
"""An instruction, its lane, what it waits for on other lanes, and when it was issued."""


class QueueLane:
    """One in-order queue of a driver, and the thread that waits for it."""

    def __init__(self, index: int, queue: Any) -> None:
        self.index = index
        self.queue = queue
        self.inbox: SimpleQueue[Any] = SimpleQueue()  # what was given to the queue; None at the end
        self.thread: threading.Thread | None = None
        self.over = 0.0  # when its latest instruction was over, on the host's clock


class ThreadedLanes(ABC):
    """The lanes of one device. A driver's own class says what the steps are."""

    def __init__(self, device: str, limit: int, finished: Finished) -> None:
        """Begin; `limit` is the number of queues, which lanes beyond it share. `_begin` starts the first thread."""
        self._device, self._limit, self._finished = device, limit, finished
        self._inbox: SimpleQueue[Note | None] = SimpleQueue()
        self._waiting: dict[int, None] = {}  # issued, and neither begun nor withdrawn
        self._lanes: dict[int, QueueLane] = {}
        self._stop_lock = threading.Lock()
        self._stopped = False
        self._submitter: threading.Thread | None = None

    def _begin(self) -> None:
        self._submitter = self._thread(self._submit_all, "submit")

    # What a driver's own class says ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:  # noqa: B027  most drivers need nothing
        """Set up the submitting thread."""

    @abstractmethod
    def _submit(self, instruction: Instruction, index: int, waits: Sequence[Instruction], issued: float) -> None:
        """Give an instruction to the driver."""

    def _settle(self) -> None:  # noqa: B027  most drivers begin at once
        """Let the driver begin what it was given: no other instruction is waiting."""

    @abstractmethod
    def _open(self) -> Any:
        """Return a new queue of the driver."""

    @abstractmethod
    def _wait_for(self, lane: QueueLane, running: Any) -> None:
        """Wait until an instruction is over, and report it."""

    # For the executor -----------------------------------------------------------------------------------------------------

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction]) -> None:
        """Queue an instruction. Never blocks."""
        if self._stopped:
            raise RuntimeClosed(f"{self._device} was stopped; {instruction} cannot run")
        self._waiting[instruction.id] = None
        self._inbox.put((instruction, lane, waits, perf_counter()))

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that the driver does not have yet."""
        return self._waiting.pop(instruction.id, self) is None

    def stop(self) -> None:
        """Finish what was issued, then end the threads."""
        with self._stop_lock:
            if not self._stopped:
                self._stopped = True
                self._inbox.put(None)
        _join(self._submitter)  # before it ends, it may open lanes
        for lane in list(self._lanes.values()):
            _join(lane.thread)

    # Threads --------------------------------------------------------------------------------------------------------------

    def _thread(self, target: Callable[..., None], what: str, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=f"coexec-{self._device}-{what}", daemon=True)
        thread.start()
        return thread

    def _submit_all(self) -> None:
        """Give whatever is issued to the driver, in order, until told to stop."""
        self._prepare()
        while (note := self._inbox.get()) is not None:
            if self._waiting.pop(note[0].id, self) is None:
                self._submit(*note)
            del note  # its arrays may be dropped while nothing else comes
            if self._inbox.empty():
                self._settle()
        self._settle()
        for lane in self._lanes.values():
            lane.inbox.put(None)

    def _lane(self, index: int) -> QueueLane:
        """Return the lane of that number, with a queue of the driver; several may share one."""
        number = index % self._limit
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = QueueLane(number, self._open())
        return lane

    def _hand_over(self, lane: QueueLane, running: Any) -> None:
        """Let the lane's thread wait for an instruction that its queue has."""
        if lane.thread is None:
            lane.thread = self._thread(self._wait_all, f"lane{lane.index}", lane)
        lane.inbox.put(running)

    def _wait_all(self, lane: QueueLane) -> None:
        """Report the instructions of one lane, in order, until told to stop."""
        while (running := lane.inbox.get()) is not None:
            self._wait_for(lane, running)
            del running  # it holds memory of the host, and the next one may be long in coming

    def _tell(self, ran: Ran) -> None:
        """Report what ran."""
        try:
            self._finished(ran)
        except Exception as error:  # noqa: BLE001  the listener's fault must not end the lane
            excuse(error)


def excuse(error: BaseException) -> None:
    """Show an error that nobody is there to take, as Python does for threads."""
    kind, value, trace = type(error), error, error.__traceback__
    threading.excepthook(threading.ExceptHookArgs((kind, value, trace, threading.current_thread())))


def _join(thread: threading.Thread | None) -> None:
    """Wait for a thread to end, unless it is the one that asks."""
    if thread is not None and thread is not threading.current_thread():
        thread.join()


class DeviceStorage(Protocol):
    """Where a device's allocations live."""

    def allocate(self, allocation: Allocation) -> None:
        """Set `allocation.data`."""

    def release(self, allocation: Allocation) -> None:
        """Give the memory back."""


class OnLanes:
    """A backend whose own threads do everything: instructions go to its lanes, memory to its storage. `start` sets `_lanes`."""

    helps = False

    def __init__(self, name: str, storage: DeviceStorage) -> None:
        self._name = name
        self._storage = storage
        self._lanes: ThreadedLanes | None = None

    def _check_not_started(self) -> None:
        if self._lanes is not None:
            raise InvariantError(f"{self._name} was started twice")

    def clock(self) -> float:
        return perf_counter()

    def allocate(self, allocation: Allocation) -> None:
        self._storage.allocate(allocation)

    def release(self, allocation: Allocation) -> None:
        self._storage.release(allocation)

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        if self._lanes is None:
            raise InvariantError(f"{instruction} was issued before {self._name} was started")
        self._lanes.issue(instruction, lane, waits)

    def withdraw(self, instruction: Instruction) -> bool:
        return self._lanes is not None and self._lanes.withdraw(instruction)

    def help(self, waiting_for: Task | None = None) -> bool:
        return False

    def left(self, *, idle: bool) -> None:
        """Do nothing: no thread but its own works here."""

    def stop(self) -> None:
        if self._lanes is not None:
            self._lanes.stop()
