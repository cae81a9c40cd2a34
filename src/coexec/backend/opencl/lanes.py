"""Lanes of an OpenCL device: in-order command queues, events between them, and the times that events have.

Before: backend/threaded_lanes.py, whose threads these are.  After: backend.py, which says what to enqueue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BackendError, CoexecError
from ..base import Finished, Postponed, Ran, describe_failure
from ..threaded_lanes import QueueLane, ThreadedLanes, excuse

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


class Lanes(ThreadedLanes):
    """The lanes of one OpenCL device."""

    def __init__(
        self,
        device: str,
        limit: int,
        open_queue: Callable[[], Any],
        enqueue: Enqueue,
        complete: Callable[[Instruction], None],
        finished: Finished,
    ) -> None:
        super().__init__(device, limit, finished)
        self._open_queue, self._enqueue, self._complete = open_queue, enqueue, complete
        self._touched: dict[int, QueueLane] = {}  # lanes whose queues have commands that the device was not told of
        self._events: dict[int, Any] = {}  # instruction id -> its last event, until it is reported
        self._failed: dict[int, Failed] = {}  # by instruction id, until it is over; the submitting thread's own
        self._clock = DeviceClock()
        self._begin()

    def _open(self) -> Any:
        return self._open_queue()

    def _settle(self) -> None:
        """Tell the device of the commands that its queues have."""
        for lane in self._touched.values():
            try:
                lane.queue.flush()
            except Exception as error:  # noqa: BLE001  the events will tell
                excuse(error)
        self._touched.clear()

    def _submit(self, instruction: Instruction, index: int, waits: Sequence[Instruction], issued: float) -> None:
        try:
            lane = self._lane(index)
        except Exception as error:  # noqa: BLE001  no lane, no order to keep
            self._tell(Ran(instruction, self._device, index, issued, issued, error=self._failure(instruction, error)))
            return
        pending = [event for wait in waits if (event := self._events.get(wait.id)) is not None]
        if pending:  # a queue that others wait for must be on its way
            self._settle()
        behind, spoiled = self._behind(instruction) if self._failed else (None, None)
        events, keep, failure = self._try(lane, instruction, pending, skip=behind is not None)
        self._touched[lane.index] = lane
        if events:
            self._events[instruction.id] = events[-1]
        failure = failure or instruction.failure or spoiled
        failed = None
        if failure is not None:
            failed = self._failed[instruction.id] = Failed(instruction, failure, threading.Event())
        self._hand_over(lane, Running(instruction, index, issued, events, keep, failed, behind))

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
        self, lane: QueueLane, instruction: Instruction, pending: list[Any], *, skip: bool
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

    def _wait_for(self, lane: QueueLane, running: Running) -> None:
        self._report(lane, running, self._await(running))

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

    def _report(self, lane: QueueLane, running: Running, failure: BaseException | None) -> None:
        start, stop = self._times(lane, running)
        lane.over = stop
        self._events.pop(running.instruction.id, None)
        self._tell(Ran(running.instruction, self._device, running.lane, start, stop, error=failure))
        if running.failed is not None:
            running.failed.reported.set()

    def _times(self, lane: QueueLane, running: Running) -> tuple[float, float]:
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
