"""Lanes of a torch device: streams, events between them, and what the host does once the device is done.

Before: backend/threaded_lanes.py, whose threads these are; driver.py.  After: backend.py, which says what to run.

Where torch calls return when their work is done (the CPU), the submitting thread reports at once and there is no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BackendError
from ..base import Finished, Postponed, Ran, describe_failure
from ..threaded_lanes import QueueLane, ThreadedLanes
from .driver import Driver

if TYPE_CHECKING:
    from ...graph.instruction import Instruction


class Launched(NamedTuple):
    """An instruction that the device has begun."""

    start: float
    then: Callable[[], None] | None = None  # what the host does once the device is done
    waited: float = 0.0


class Running:
    """An instruction between its issue and its report."""

    def __init__(self, instruction: Instruction, lane: int, start: float) -> None:
        self.instruction, self.lane = instruction, lane
        self.launched = Launched(start)
        self.error: BaseException | None = None
        self.event: Any = None
        self.waits: list[Running] = []  # on other lanes; the device keeps their order, and so do reports
        self.reported = threading.Event()


class Lanes(ThreadedLanes):
    """The lanes of one torch device."""

    def __init__(
        self,
        name: str,
        limit: int,
        driver: Driver,
        prepare: Callable[[], None],
        run: Callable[[Instruction], Launched],
        finished: Finished,
    ) -> None:
        super().__init__(name, limit, finished)
        self._driver, self._set_up, self._run = driver, prepare, run
        self._running: dict[int, Running] = {}
        self._lock = threading.Lock()  # of changes to `_running`
        self._begin()

    def _prepare(self) -> None:
        self._set_up()

    def _open(self) -> Any:
        return self._driver.open_stream()

    def _submit(self, instruction: Instruction, index: int, waits: Sequence[Instruction], issued: float) -> None:
        del issued  # the device's thread begins at once what it takes
        running = Running(instruction, index, perf_counter())
        lane = QueueLane(-1, None)  # if none can be opened, this thread reports the failure
        try:
            lane = self._lane(index)
            running.error = instruction.failure or self._failure_before(running)
            if running.error is None:
                running.waits = [self._running[wait.id] for wait in waits if wait.id in self._running]
                with self._driver.on(lane.queue):
                    for wait in running.waits:
                        self._driver.order(lane.queue, wait.event)
                    running.launched = self._run(instruction)
            running.event = self._driver.record(lane.queue)
        except BaseException as error:  # noqa: BLE001 - reported, never lost
            running.error = error
        if self._driver.asynchronous and self._lanes.get(lane.index) is lane:
            with self._lock:
                self._running[instruction.id] = running
            self._hand_over(lane, running)
        else:
            self._wait_for(lane, running)

    def _failure_before(self, running: Running) -> BaseException | None:
        """Return the failure that an instruction was issued behind; it is reported after that one.

        One that is over tells nothing: the executor has spoiled what needs it, or others have redone it.
        """
        for ids, spoils in ((running.instruction.needs, True), (running.instruction.after, False)):
            for id in ids if self._running else ():
                before = self._running.get(id)
                if before is not None and before.error is not None and not before.instruction.over:
                    running.waits = [before]
                    # What it only comes after may be redone elsewhere: it must not run before that.
                    return before.error if spoils else Postponed()
        return None

    def _wait_for(self, lane: QueueLane, running: Running) -> None:
        """Wait for the device, do what remains on the host, and report."""
        instruction, launched = running.instruction, running.launched
        try:
            if running.event is not None:
                self._finish(running)
            for wait in running.waits:
                wait.reported.wait()
            running.error = instruction.failure or running.error  # a failure before it explains its own
            if running.error is None and launched.then is not None:
                launched.then()
        except BaseException as error:  # noqa: BLE001 - reported, never lost
            running.error = running.error or error
        start, stop = max(launched.start, lane.over), perf_counter()
        lane.over = stop
        try:
            self._tell(Ran(instruction, self._device, running.lane, start, stop, launched.waited, running.error))
        finally:
            with self._lock:  # it may have been put back, and be here again
                if self._running.get(instruction.id) is running:
                    del self._running[instruction.id]
            running.reported.set()

    def _finish(self, running: Running) -> None:
        """Wait for the device; its failure is a BackendError, whatever torch calls it."""
        try:
            self._driver.finish(running.event)
        except Exception as error:
            failure = BackendError(f"{self._device} failed in {running.instruction}: {describe_failure(error)}")
            failure.begun = True
            raise failure from error
