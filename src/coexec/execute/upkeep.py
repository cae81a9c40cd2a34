"""What is lowered beside kernels: host reads, horizons, epochs, and the beginning and end of arrays.

Before: graph/, lower/, execute/executor.py.  After: runtime.py.  Everything here happens under the program's lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ..graph.instruction import Allocation, Instruction
from ..graph.task import Task
from ..graph.task_graph import TaskGraph
from ..lower.lookahead import Lookahead
from ..lower.lowering import Lowering
from ..lower.recipes import Recipes
from ..machine.platform import HOST, USER
from ..program.array import Array, Storage
from .at_once import AtOnce
from .executor import Executor


class Record(Protocol):
    """Where tasks and instructions are recorded."""

    def task(self, task: Task) -> None:
        """Record a task."""

    def fence(self, task: Task, instructions: list[Instruction]) -> None:
        """Record a command without chunks."""

    def instructions(self, instructions: list[Instruction]) -> None:
        """Record instructions of no command."""

    def given(self, allocation: Allocation) -> None:
        """Record an array that is made with its contents."""


class Upkeep:
    """Bounds what is remembered, and hands arrays to the host program."""

    def __init__(
        self,
        graph: TaskGraph,
        lowering: Lowering,
        executor: Executor,
        lookahead: Lookahead,
        record: Record,
        recipes: Recipes,
        at_once: AtOnce | None,
    ) -> None:
        self._at_once = at_once
        self._recipes = recipes
        self._graph = graph
        self._lowering = lowering
        self._executor = executor
        self._lookahead = lookahead
        self._record = record
        self.last: Task | None = None  # the last horizon or epoch
        self.live: WeakValueDictionary[int, Storage] = WeakValueDictionary()
        self.last_array = 0  # the number of the last array that was made
        self.forget: Callable[[int], None] = _nothing  # told of arrays that are gone
        self.dropped: deque[int] = deque()  # arrays whose last handle is gone; finalizers append

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> Any:
        """Register a new array; return the host memory that its first contents are to be copied to, or None."""
        self.last_array += 1
        storage.id = self.last_array
        self._graph.register(storage)
        backing = self._lowering.register(storage, None if data is None else USER if borrowed else HOST)
        self.live[storage.id] = storage
        if backing is None:
            return None
        allocation = backing.allocation
        self._record.given(allocation)
        if borrowed:
            allocation.data = allocation.frozen = data
            return None
        self._executor.allocate(allocation)
        return allocation.data

    def crowded(self, storage: Storage) -> bool:
        """Make room for an array's first contents; tell whether everything so far must be over before they fit."""
        if self._lowering.coherence.budget.accounts[HOST] is None:
            return False
        self.collect()
        self._lookahead.flush()
        late, instructions = self._lowering.make_room(storage)
        self._submit(instructions)
        return late

    def read(self, task: Task, array: Array, deliver: Callable[[Any], None]) -> None:
        """Hand the elements of `array`, as they are now, to `deliver`."""
        task.submitted = time.perf_counter()
        self._graph.add(task)

        def lower() -> list[Instruction]:
            return self._recipes.fence(task, array, deliver, late=self._lookahead.late)

        self._lookahead.fence(array, lambda: self._issue(task, lower), task)

    def epoch(self, name: str) -> tuple[Task, list[Instruction]]:
        """Emit an epoch, which comes after everything so far; return its task, and where its instruction will be."""
        self.collect()
        task = self._mark(name)
        self._graph.passed(task.id)
        emitted: list[Instruction] = []

        def lower() -> list[Instruction]:
            emitted.extend(self._lowering.epoch(task, at_once=False))
            return emitted

        self._lookahead.then(lambda: self._issue(task, lower), task)
        self._lookahead.flush()
        return task, emitted

    @property
    def over(self) -> bool:
        """Whether the last horizon or epoch is over, so that the next may follow."""
        return self.last is None or self.last.finished

    def horizon(self) -> None:
        """Emit a horizon; the mark before it, which is over, stands for everything older."""
        before, failed = self.last, self._executor.engine.failed
        task = self._mark("horizon")
        if before is not None:
            self._graph.passed(before.id)
        self._lookahead.then(lambda: self._issue(task, lambda: self._lowering.horizon(task, failed)), task)
        self._executor.forget_failures(self._lowering.ids)

    def collect(self) -> None:
        """Free arrays whose last handle is gone."""
        while self.dropped:
            gone = self.dropped.popleft()
            if self._at_once is not None:
                self._at_once.dropped(gone)
            self.forget(gone)
            self._lookahead.drop(gone, partial(self._drop, gone))

    def gather(self) -> None:
        """Bring every array to the host, so that it outlives the devices. Nothing may be open."""
        self._submit(self._lowering.gather(list(self.live), self._graph.mark("close")))

    def _mark(self, name: str) -> Task:
        task = self.last = self._graph.mark(name)
        task.submitted = time.perf_counter()
        return task

    def _issue(self, task: Task, lower: Callable[[], list[Instruction]]) -> None:
        begin = time.perf_counter()
        instructions = lower()
        task.let_go()
        task.scheduling = time.perf_counter() - begin
        self._record.task(task)
        self._record.fence(task, instructions)
        self._executor.submit(instructions)
        if task.deal is not None and task.deal.box is None:
            self._executor.elsewhere(task)

    def _drop(self, gone: int) -> None:
        instructions = self._lowering.drop(gone)
        self._submit(instructions)

    def _submit(self, instructions: list[Instruction]) -> None:
        if instructions:
            self._record.instructions(instructions)
            self._executor.submit(instructions)


def _nothing(gone: int) -> None:
    del gone
