"""Lanes: in-order queues, one thread that fills them and one per lane that waits for what was filled in.

Before: base.py.  After: backend.py.  Knows instructions only by their ids; what to enqueue is a function it is given.

`issue` only leaves a note: enqueueing may block in the driver. A lane's thread waits for the oldest instruction,
then reports every one that is over by then, so a burst costs few wake-ups and nothing is reported late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BackendError, CoexecError, RuntimeClosed
from ..base import Finished, Postponed, Ran, describe_failure

if TYPE_CHECKING:
    from ...graph.instruction import Instruction

Enqueue = Callable[[Any, "Instruction", Sequence[Any]], "tuple[list[Any], list[Any]]"]
"""(queue, instruction, events to wait for) -> (events, what must live until they are over)."""
DRIFT = 1e-4
"""How far a device's clock may run from the host's: seconds per second."""


class Failed(NamedTuple):
    """An instruction that could not be enqueued. What is issued behind it must not run, until it is over or redone."""

    instruction: Instruction
    error: BaseException
    reported: threading.Event  # set when the executor knows of it


class Running(NamedTuple):
    """An instruction that was enqueued, or could not be."""

    instruction: Instruction
    lane: int  # as issued; several may share a queue
    issued: float
    events: list[Any]  # kept until they are over: dropping the event of a host copy blocks
    keep: list[Any]
    failed: Failed | None
    behind: Failed | None = None  # what it needs has failed: it did nothing, and is reported after that


class DeviceClock:
    """Maps a device's profiling times to the host's clock."""

    def __init__(self) -> None:
        self._offset = float("inf")
        self._seen = 0.0

    def observe(self, end: float, now: float) -> None:
        """Learn from an event that ended at `end` on the device and was seen over at `now` on the host."""
        self._offset = min(now - end, self._offset + DRIFT * (now - self._seen))
        self._seen = now

    def host(self, seconds: float) -> float:
        """Return the host's time for a device's."""
        return seconds + self._offset


class Lane:
    """One in-order queue with the thread that waits for it."""

    def __init__(self, index: int, queue: Any) -> None:
        self.index = index
        self.queue = queue
        self.inbox: SimpleQueue[Running | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.over = 0.0  # when its latest instruction was over, on the host's clock


class Lanes:
    """The lanes of one device."""

    def __init__(
        self,
        device: str,
        limit: int,
        open_queue: Callable[[], Any],
        enqueue: Enqueue,
        complete: Callable[[Instruction], None],
        finished: Finished,
    ) -> None:
        self._device, self._limit = device, limit
        self._open_queue, self._enqueue, self._complete, self._finished = open_queue, enqueue, complete, finished
        self._inbox: SimpleQueue[tuple[Instruction, int, Sequence[Instruction], float] | None] = SimpleQueue()
        self._lanes: dict[int, Lane] = {}
        self._waiting: dict[int, Instruction] = {}  # issued and not withdrawn; whoever pops one decides its fate
        self._events: dict[int, Any] = {}  # instruction id -> its last event, until it is reported
        self._failed: dict[int, Failed] = {}  # by instruction id, until it is over; the submitting thread's own
        self._clock = DeviceClock()
        self._stop_lock = threading.Lock()
        self._stopped = False
        self._submitter = self._thread(self._submit_all, "submit")

    def _thread(self, target: Callable[..., None], what: str, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=f"coexec-{self._device}-{what}", daemon=True)
        thread.start()
        return thread

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction]) -> None:
        """Queue an instruction. Never blocks."""
        if self._stopped:
            raise RuntimeClosed(f"{self._device} was stopped; {instruction} cannot run")
        self._waiting[instruction.id] = instruction
        self._inbox.put((instruction, lane, waits, perf_counter()))

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that the driver does not have yet."""
        return self._waiting.pop(instruction.id, None) is not None

    def stop(self) -> None:
        """Finish what was issued, then end the threads."""
        with self._stop_lock:
            if not self._stopped:
                self._stopped = True
                self._inbox.put(None)
        _join(self._submitter)
        for lane in self._lanes.values():
            _join(lane.thread)

    def _submit_all(self) -> None:
        """Enqueue whatever is issued, in order, until told to stop."""
        touched: dict[int, Lane] = {}
        while (item := self._inbox.get()) is not None:
            if self._waiting.pop(item[0].id, None) is not None:
                self._submit(*item, touched)
            del item
            if self._inbox.empty():
                self._flush(touched)
        self._flush(touched)
        for lane in self._lanes.values():
            lane.inbox.put(None)

    def _flush(self, touched: dict[int, Lane]) -> None:
        for lane in touched.values():
            try:
                lane.queue.flush()
            except Exception as error:  # noqa: BLE001  the events will tell
                self._excuse(error)
        touched.clear()

    def _submit(
        self,
        instruction: Instruction,
        index: int,
        waits: Sequence[Instruction],
        issued: float,
        touched: dict[int, Lane],
    ) -> None:
        try:
            lane = self._lane(index % self._limit)
        except Exception as error:  # noqa: BLE001  no lane, no order to keep
            self._tell(Ran(instruction, self._device, index, issued, issued, error=self._failure(instruction, error)))
            return
        pending = [event for wait in waits if (event := self._events.get(wait.id)) is not None]
        if pending:  # a queue that others wait for must be on its way
            self._flush(touched)
        behind, spoiled = self._behind(instruction) if self._failed else (None, None)
        events, keep, failure = self._try(lane, instruction, pending, skip=behind is not None)
        touched[lane.index] = lane
        if events:
            self._events[instruction.id] = events[-1]
        failure = failure or instruction.failure or spoiled
        failed = None
        if failure is not None:
            failed = self._failed[instruction.id] = Failed(instruction, failure, threading.Event())
        lane.inbox.put(Running(instruction, index, issued, events, keep, failed, behind))

    def _behind(self, instruction: Instruction) -> tuple[Failed | None, BaseException | None]:
        """Return the failure that an instruction was issued behind, and what that makes of it.

        One that is over tells nothing: the executor has spoiled what needs it, or others have redone it.
        """
        self._failed = {id: f for id, f in self._failed.items() if not f.instruction.over and id != instruction.id}
        for id in instruction.needs:
            if id in self._failed:
                return self._failed[id], self._failed[id].error
        for id in instruction.after:
            if id in self._failed:  # it may be redone elsewhere: what comes after it must not run before that
                return self._failed[id], Postponed()
        return None, None

    def _try(
        self, lane: Lane, instruction: Instruction, pending: list[Any], *, skip: bool
    ) -> tuple[list[Any], list[Any], BaseException | None]:
        """Enqueue an instruction, and a marker for one that needs no command or failed: others may wait for its place."""
        import pyopencl as cl

        events: list[Any] = []
        keep: list[Any] = []
        failure: BaseException | None = None
        try:
            if instruction.failure is None and not skip:
                events, keep = self._enqueue(lane.queue, instruction, pending)
        except Exception as error:  # noqa: BLE001  reported
            failure = self._failure(instruction, error)
        if not events:
            try:
                events = [cl.enqueue_marker(lane.queue, pending)]
            except Exception as error:  # noqa: BLE001  reported
                failure = failure or self._failure(instruction, error)
        return events, keep, failure

    def _lane(self, index: int) -> Lane:
        lane = self._lanes.get(index)
        if lane is None:
            lane = Lane(index, self._open_queue())
            lane.thread = self._thread(self._wait_all, f"lane{index}", lane)
            self._lanes[index] = lane
        return lane

    def _wait_all(self, lane: Lane) -> None:
        """Report the instructions of one lane, in order, until told to stop."""
        while (running := lane.inbox.get()) is not None:
            self._report(lane, running, self._await(running))
            del running  # its events hold host memory, and the next one may be long in coming

    def _await(self, running: Running) -> BaseException | None:
        """Wait until an instruction is over; return its failure."""
        failure = running.failed.error if running.failed is not None else None
        if running.behind is not None:  # its failure is the other's, as the executor has it by then
            running.behind.reported.wait()
            failure = running.instruction.failure or failure
        try:
            for event in running.events[-1:]:
                if event.command_execution_status != 0:  # complete: do not even let go of the interpreter lock
                    event.wait()
            failure = failure or running.instruction.failure
            if failure is None:
                self._complete(running.instruction)
        except Exception as error:  # noqa: BLE001  reported
            failure = failure or self._failure(running.instruction, error)
            if isinstance(failure, BackendError):
                failure.begun = True
        return failure

    def _report(self, lane: Lane, running: Running, failure: BaseException | None) -> None:
        start, stop = self._times(lane, running)
        lane.over = stop
        self._events.pop(running.instruction.id, None)
        self._tell(Ran(running.instruction, self._device, running.lane, start, stop, error=failure))
        if running.failed is not None:
            running.failed.reported.set()

    def _times(self, lane: Lane, running: Running) -> tuple[float, float]:
        """Return when an instruction ran: by the device's clock if it has one, else as the host saw it."""
        now = perf_counter()
        earliest = max(running.issued, lane.over)
        try:
            first, last = running.events[0].profile.start * 1e-9, running.events[-1].profile.end * 1e-9
        except Exception:  # noqa: BLE001  a failed event, or no profiling: drivers differ in how they say so
            return min(earliest, now), now
        self._clock.observe(last, now)
        stop = min(self._clock.host(last), now)
        return min(max(self._clock.host(first), running.issued), stop), stop

    def _failure(self, instruction: Instruction, error: BaseException) -> BaseException:
        """Return `error` as something the user can act on."""
        if isinstance(error, CoexecError):
            return error
        failure = BackendError(f"{self._device} could not run {instruction}: {describe_failure(error)}")
        failure.__cause__ = error
        return failure

    def _tell(self, ran: Ran) -> None:
        try:
            self._finished(ran)
        except Exception as error:  # noqa: BLE001  the listener's fault must not end the lane
            self._excuse(error)

    def _excuse(self, error: BaseException) -> None:
        """Show an error that nobody is there to take, as Python does for threads."""
        kind, value, trace = type(error), error, error.__traceback__
        threading.excepthook(threading.ExceptHookArgs((kind, value, trace, threading.current_thread())))


def _join(thread: threading.Thread | None) -> None:
    """Wait for a thread to end, unless it is the one that asks."""
    if thread is not None and thread is not threading.current_thread():
        thread.join()
