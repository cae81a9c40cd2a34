"""Hand-written host code for two cores: two pinned threads, a fixed schedule, and a signal for each crossing dependency.

Before: schedule.py, ways.py.  After: harness.py.  Knows no coexec: threads, queues and NumPy bodies.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Any

import numpy as np

from .program import Arrays, DagProgram, KernelCall, dependencies
from .schedule import Schedule
from .ways import Values, copies


class ThreadCrew:
    """Threads that each run their share of an iteration whenever asked to."""

    def __init__(self) -> None:
        self._inboxes: list[SimpleQueue[bool]] = []
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, share: Any, core: int | None) -> None:
        """Add a thread, kept on a core, that calls `share` once per iteration."""
        inbox: SimpleQueue[bool] = SimpleQueue()
        thread = threading.Thread(target=self._work, args=(inbox, share, core), daemon=True)
        self._inboxes.append(inbox)
        self._threads.append(thread)
        thread.start()

    def _work(self, inbox: SimpleQueue[bool], share: Any, core: int | None) -> None:
        if core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})
        while inbox.get():
            error: BaseException | None = None
            try:
                share()
            except BaseException as caught:  # noqa: BLE001 - raised where the program waits
                error = caught
            self._done.put(error)

    def run(self) -> None:
        """Let every thread run its share once, and wait for all."""
        for inbox in self._inboxes:
            inbox.put(True)
        errors = [self._done.get() for _ in self._inboxes]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """End the threads."""
        for inbox in self._inboxes:
            inbox.put(False)
        for thread in self._threads:
            thread.join()


class StepSignals:
    """One signal per dependency between steps of different threads; it may carry what the waiting side needs."""

    def __init__(self, program: DagProgram, schedule: Schedule) -> None:
        place = [schedule.place[step.label] for step in program.steps]
        crossing = [
            (parent, number)
            for number, parents in enumerate(dependencies(program.steps))
            for parent in parents
            if place[parent] != place[number]
        ]
        queues: dict[tuple[int, int], SimpleQueue[Any]] = {edge: SimpleQueue() for edge in crossing}
        self._before = {n: [queue for edge, queue in queues.items() if edge[1] == n] for n in range(len(place))}
        self._behind = {n: [queue for edge, queue in queues.items() if edge[0] == n] for n in range(len(place))}

    def wait(self, number: int) -> list[Any]:
        """Block until all that step `number` waits for is over; return what the signals carry."""
        return [queue.get() for queue in self._before[number]]

    def send(self, number: int, what: Any = None) -> None:
        """Say that step `number` is over, or will be when `what` is."""
        for queue in self._behind[number]:
            queue.put(what)

    def crosses(self, number: int) -> bool:
        """Tell whether another thread waits for step `number`."""
        return bool(self._behind[number])


def run_step(program: DagProgram, number: int, arrays: Arrays) -> None:
    """Run one step in NumPy."""
    step = program.steps[number]
    if isinstance(step, KernelCall):
        step.kernel.function(*step.bind(arrays))
    else:
        arrays[step.array][...] = step.value


class TwoThreads:
    """Two threads on two cores."""

    def __init__(self, program: DagProgram, schedule: Schedule, cores: tuple[int, ...]) -> None:
        self.program = program
        self.arrays = copies(program)
        self._signals = StepSignals(program, schedule)
        self._crew = ThreadCrew()
        for numbers, core in zip(schedule.order.values(), cores, strict=True):
            self._crew.add(lambda numbers=numbers: self._share(numbers), core)

    def _share(self, numbers: list[int]) -> None:
        for number in numbers:
            self._signals.wait(number)
            run_step(self.program, number, self.arrays)
            self._signals.send(number)

    def prepare(self) -> None:
        for name in self.program.rewritten:
            np.copyto(self.arrays[name], self.program.arrays[name])

    def run(self) -> Values:
        self._crew.run()
        return [float(self.arrays[name][index]) for name, index in self.program.reads]

    def results(self) -> Arrays:
        return {name: self.arrays[name] for name in self.program.results}

    def close(self) -> None:
        self._crew.close()
        self.arrays.clear()
