"""Lanes: one thread that runs every instruction of a device in order of issue, and one per stream that waits for it.

Before: driver.py, base.py.  After: backend.py.  Knows instructions only by their ids; what to run is a function.

Where torch calls return when their work is done (the CPU), the first thread reports at once and there is no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BackendError, RuntimeClosed
from ..base import Finished, Postponed, Ran, describe_failure
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


class Lane:
    """A stream, and the thread that waits for it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.inbox: SimpleQueue[Running | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.over = 0.0  # when its last instruction ended


class Lanes:
    """The lanes of one device."""

    def __init__(
        self,
        name: str,
        limit: int,
        driver: Driver,
        prepare: Callable[[], None],
        run: Callable[[Instruction], Launched],
        finished: Finished,
    ) -> None:
        self._name, self._limit, self._driver = name, limit, driver
        self._prepare, self._run, self._finished = prepare, run, finished
        self._inbox: SimpleQueue[tuple[Instruction, int, Sequence[Instruction]] | None] = SimpleQueue()
        self._waiting: dict[int, None] = {}  # issued and not begun; whoever removes an id decides
        self._running: dict[int, Running] = {}
        self._lock = threading.Lock()  # of changes to `_running`
        self._lanes: dict[int, Lane] = {}
        self._stopped = False
        self._thread = self._begin_thread(self._work, "")

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction]) -> None:
        """Leave a note for the thread."""
        if self._stopped:
            raise RuntimeClosed(f"{self._name} was stopped")
        self._waiting[instruction.id] = None
        self._inbox.put((instruction, lane, waits))

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that has not begun."""
        return self._waiting.pop(instruction.id, self) is None

    def stop(self) -> None:
        """Finish what was issued and end every thread."""
        if not self._stopped:
            self._stopped = True
            self._inbox.put(None)
        _join(self._thread)  # before it ends, it may open lanes
        for lane in list(self._lanes.values()):
            _join(lane.thread)

    def _begin_thread(self, target: Callable[..., None], suffix: str, *args: Any) -> threading.Thread:
        name = f"coexec-{self._name}{suffix}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        self._prepare()
        while (item := self._inbox.get()) is not None:
            if self._waiting.pop(item[0].id, self) is None:
                self._launch(*item)
            del item  # its arrays may be dropped while nothing else comes
        for lane in self._lanes.values():
            lane.inbox.put(None)

    def _launch(self, instruction: Instruction, index: int, waits: Sequence[Instruction]) -> None:
        running = Running(instruction, index, perf_counter())
        lane = Lane(None)
        try:
            lane = self._lane(index % self._limit)
            running.error = instruction.failure or self._failure_before(running)
            if running.error is None:
                running.waits = [self._running[wait.id] for wait in waits if wait.id in self._running]
                with self._driver.on(lane.stream):
                    for wait in running.waits:
                        self._driver.order(lane.stream, wait.event)
                    running.launched = self._run(instruction)
            running.event = self._driver.record(lane.stream)
        except BaseException as error:  # noqa: BLE001 - reported, never lost
            running.error = error
        if self._driver.asynchronous:
            with self._lock:
                self._running[instruction.id] = running
            self._await_in_thread(lane, index, running)
        else:
            self._complete(lane, running)

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

    def _lane(self, index: int) -> Lane:
        lane = self._lanes.get(index)
        if lane is None:
            lane = self._lanes[index] = Lane(self._driver.open_stream())
        return lane

    def _await_in_thread(self, lane: Lane, index: int, running: Running) -> None:
        if lane.thread is None:
            lane.thread = self._begin_thread(self._wait_all, f"-lane{index % self._limit}", lane)
        lane.inbox.put(running)

    def _wait_all(self, lane: Lane) -> None:
        while (running := lane.inbox.get()) is not None:
            self._complete(lane, running)
            del running

    def _complete(self, lane: Lane, running: Running) -> None:
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
            self._finished(Ran(instruction, self._name, running.lane, start, stop, launched.waited, running.error))
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
            failure = BackendError(f"{self._name} failed in {running.instruction}: {describe_failure(error)}")
            failure.begun = True
            raise failure from error


def _join(thread: threading.Thread | None) -> None:
    """Wait for a thread to end, unless it is the one that asks."""
    if thread is not None and thread is not threading.current_thread():
        thread.join()
