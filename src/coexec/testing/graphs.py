"""Build the three graphs by hand, on an invented machine: real arrays and kernels, no thread and no device.

Before: program/, graph/, lower/.  After: tests.  Knows no planner: the test says which device gets which chunk.

    g = GraphBuilder(devices=2)
    a, b = g.array(100), g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=(a, halo(1)), writes=b, on="all")
    assert g.instructions.of("copy").copied == Region([Box((49,), (100,))])
    g.verify()
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

import numpy as np

from ..backend.launch import set_data
from ..geometry import Box, whole
from ..graph.call import describe, describe_read, make_returned
from ..graph.command import Chunk, Command
from ..graph.instruction import Allocation, Instruction
from ..graph.task import Task
from ..graph.task_graph import TaskGraph
from ..lower.lookahead import Lookahead
from ..lower.lowering import Lowering
from ..lower.recipes import Recipes
from ..lower.touch import Draft
from ..lower.watch import Watch
from ..machine.platform import HOST, USER, Platform
from ..plan.candidate import Share
from ..plan.oversubscribe import cut_again
from ..plan.plan import Part, Plan
from ..plan.split import even
from ..program import session
from ..program.array import Array, Storage
from ..program.call import Options
from ..program.host_task import HostTask
from ..program.kernel import Kernel
from .calls import Body, Uses, declare
from .invented import invented_platform
from .queries import InstructionGraph, Selection
from .verify import verify


class GraphBuilder:
    """A session that records and lowers calls, and runs nothing. `with g:` makes it the current one."""

    closed = False
    checks = True  # of the user's range mappers

    def __init__(
        self,
        devices: int = 1,
        *,
        shared: bool = False,
        peers: bool = True,
        paged: bool = True,
        capacity: int | None = None,
        host: int | None = None,
        platform: Platform | None = None,
        replay: bool = False,
        watch: Watch | None = None,
        lookahead: str = "none",
    ) -> None:
        self.platform = platform or invented_platform(
            devices, shared=shared, peers=peers, paged=paged, capacity=capacity, host=host
        )
        self.devices = [device.name for device in self.platform.devices]
        self.graph = TaskGraph()
        self.lowering = Lowering(self.platform, watch)
        self.recipes = Recipes(self.lowering, on=replay)
        self.lookahead = Lookahead(self.lowering, lookahead)
        self.tasks: list[Task] = []
        self.commands: list[Command] = []
        self.emitted: list[Instruction] = []
        self.batches: list[list[Instruction]] = []  # what each call emitted
        self.given: list[Allocation] = []  # hold values from the beginning
        self.filled: set[int] = set()  # arrays that begin with one value
        self.delivered: dict[int, Any] = {}  # what host reads got, by task id, once something ran them
        self._storages: list[Storage] = []
        self._last_mark = 0
        self._known: tuple[int, InstructionGraph] | None = None
        self.epoch("start")

    # Arrays -----------------------------------------------------------------------------------------------------------

    def array(self, shape: Any, value: Any = None, *, data: Any = None, borrowed: bool = False) -> Array:
        """Return a new array of float64: undefined, all `value`, or with the contents of `data` in host memory."""
        made = whole((shape,) if isinstance(shape, int) else tuple(shape))
        storage = Storage(self, made.shape, np.dtype(float), None if value is None else np.float64(value))
        self.adopt(storage, None if data is None else np.asarray(data, float), borrowed=borrowed)
        return Array(storage, storage.box, None)

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""
        self._storages.append(storage)
        storage.id = len(self._storages)
        self.graph.register(storage)
        backing = self.lowering.register(storage, None if data is None else USER if borrowed else HOST)
        if storage.initial is not None:
            self.filled.add(storage.id)
        if backing is not None:
            self.given.append(backing.allocation)
            set_data(backing.allocation, np.array(data))

    def dropped(self, storage_id: int) -> None:
        """Do nothing: a test says when an array is dropped."""

    def drop(self, array: Array) -> list[Instruction]:
        """Drop the last handle of an array; return what has been emitted since."""
        id, before = array._storage.id, len(self.emitted)
        self.lookahead.drop(id, lambda: self._emit(self.lowering.drop(id)))
        return self.emitted[before:]

    # Calls ------------------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        *,
        reads: Uses = (),
        writes: Uses = (),
        updates: Uses = (),
        reduces: Uses = (),
        over: Any = None,
        on: str | Sequence[str] = "dev:0",
        chunks: Sequence[tuple[str, Box]] | None = None,
        split: int | Sequence[int] = 0,
        oversubscribe: int = 1,
        body: Callable[..., Any] | None = None,
        priority: int = 0,
    ) -> Task:
        """Record one task: a body that touches arrays in the order reads, writes, updates, reduces.

        `on` names a device, several, or "all"; on several the task is divided evenly along axis `split`, or into tiles
        along two. `chunks` says instead exactly who computes what.
        """
        declared, arrays = declare(reads, writes, updates, reduces)
        named = self._named(on)
        kernel = Kernel(
            Body(name, declared, body),
            declared,
            split=split if "," in named or chunks or oversubscribe > 1 else None,
            over=over,
        )
        return self._record(kernel, arrays, {}, Options(named, priority, oversubscribe=oversubscribe), chunks)

    def host_task(
        self,
        name: str,
        *,
        reads: Uses = (),
        writes: Uses = (),
        updates: Uses = (),
        order: Any = "host",
        body: Callable[..., Any] | None = None,
    ) -> Task:
        """Record a host task."""
        declared, arrays = declare(reads, writes, updates, ())
        kernel = HostTask(Body(name, declared, body), declared, order=order)
        return self._record(kernel, arrays, {}, Options("host"), None)

    def fuse(self, operation: Any) -> bool:
        """Hold nothing back: every operation is a task of its own."""
        del operation
        return False

    def submit(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
        chunks: Sequence[tuple[str, Box]] | None = None,
    ) -> Any:
        """Record the call of a real kernel: on the devices that `kernel.using(devices=...)` names, else on the first.

        `chunks` says instead exactly who computes what.
        """
        arrays, scalars = kernel.bind(args, kwargs)
        returned = make_returned(kernel, arrays, scalars, self)
        chosen = "host" if kernel.host else options.devices or self.devices[0]
        task = self._record(kernel, [*arrays, *returned], scalars, options._replace(devices=chosen), chunks)
        if not returned:
            return task
        return returned[0] if kernel.returns.single else returned

    def begin_step(self) -> tuple[int, int]:
        """Begin a step that a program names."""
        return self.recipes.recalled, len(self.tasks)

    def end_step(self, begun: tuple[int, int], *, left: bool = False) -> tuple[bool, str]:
        """End a step; tell whether all of it came from recipes."""
        recalled, tasks = begun
        return not left and self.recipes.recalled - recalled >= len(self.tasks) - tasks, ""

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return what `submit` would do, as data; nothing is known of any time."""
        arrays, scalars = kernel.bind(args, kwargs)
        returned = make_returned(kernel, arrays, scalars, self)
        task = describe(kernel, [*arrays, *returned], scalars, options, self)
        chosen = "host" if kernel.host else options.devices or self.devices[0]
        total = task.box.volume or 1
        parts = tuple(
            Part(chunk.device, kernel.variants[0].name, chunk.box.lo, chunk.box.hi, chunk.box.volume / total)
            for chunk in self._chunks(task, kernel, chosen, None)
        )
        return Plan("kernel", task.name, repr(task.key), task.space, parts, None, why="as the test says")

    def _named(self, on: str | Sequence[str]) -> str:
        names = self.devices if on == "all" else [on] if isinstance(on, str) else on
        return ",".join(names)

    def _record(
        self,
        kernel: Kernel,
        arrays: list[Array],
        scalars: dict[str, Any],
        options: Options,
        chunks: Sequence[tuple[str, Box]] | None,
    ) -> Task:
        """Go the way of a call through the runtime: task graph, command, lowering."""
        task = describe(kernel, arrays, scalars, options, self)
        self.tasks.append(task)
        self._deal(task)
        if self.recipes.on:
            task.shape = self.graph.shapes.of(task)
        self.graph.add(task)
        parts = self._chunks(task, kernel, options.devices or "", chunks)
        if len(parts) > 1 or chunks is not None:
            task.visited = task.box
        command = Command(task.id, task, parts, task.after, "as the test says")
        self.commands.append(command)
        shares = [Share(kernel.variants[0], None, None, None) for chunk in parts]

        def lower(draft: Draft | None = None) -> None:
            self._emit(self.recipes.lower(command, shares, draft, late=self.lookahead.late))

        recalled = None if self.lookahead.holding else self.recipes.recall(command, shares)
        if recalled is not None:
            self._emit(recalled)
        elif self.lookahead.passes(command):
            lower()
        else:
            self.lookahead.command(command, lower)
        return task

    def _deal(self, task: Task) -> None:
        """Do nothing: there is one rank."""

    def _chunks(
        self, task: Task, kernel: Kernel, devices: str, chunks: Sequence[tuple[str, Box]] | None
    ) -> tuple[Chunk, ...]:
        if chunks is not None:
            return tuple(Chunk(device, part, slot) for slot, (device, part) in enumerate(chunks))
        names = devices.split(",")
        parts: tuple[Chunk, ...] = (Chunk(names[0], task.box),)
        if len(names) > 1 and kernel.split:
            parts = even(task.box, kernel.split, names, kernel.granule)
        again = task.options.oversubscribe if task.options is not None else 1
        if again > 1:
            parts = tuple(piece.chunk for piece in cut_again(task, parts, again, lambda _: kernel.granule))
        return parts

    # The host program -------------------------------------------------------------------------------------------------

    def read(self, array: Array) -> Task:
        """Record a host read. `delivered` has the values once something has run it."""
        task = describe_read(array, self)
        self.tasks.append(task)
        self._deal(task)

        def deliver(values: Any) -> None:
            self.delivered[task.id] = values

        self.graph.add(task)
        self.lookahead.fence(
            array, lambda: self._emit(self.recipes.fence(task, array, deliver, late=self.lookahead.late)), task
        )
        return task

    def flush(self) -> None:
        """Lower what lookahead holds back."""
        self.lookahead.flush()

    def horizon(self, failed: Collection[int] = ()) -> Task:
        """Pass a horizon, as the runtime does every so many tasks."""
        task = self.graph.mark("horizon")
        self.graph.passed(self._last_mark)
        self._last_mark = task.id
        self.lookahead.then(lambda: self._emit(self.lowering.horizon(task, failed)), task)
        return task

    def wait(self) -> None:
        """Record a `cx.wait()`."""
        self.epoch()

    def epoch(self, name: str = "wait", failed: Collection[int] = ()) -> Task:
        """Pass an epoch that takes effect at once, as when `cx.wait()` has returned."""
        task = self.graph.mark(name)
        self.graph.passed(task.id)
        self._last_mark = task.id
        self.lookahead.then(lambda: self._emit(self.lowering.epoch(task, failed)), task)
        self.lookahead.flush()
        return task

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Tell whether something has run `task`: nothing here does."""
        del timeout
        return task.finished

    def cancel(self, task: Task) -> bool:
        """Refuse: nothing here runs or will run."""
        del task
        return False

    def __enter__(self) -> Self:
        session.push(self)
        return self

    def __exit__(self, *error: object) -> None:
        session.remove(self)

    def _emit(self, instructions: list[Instruction]) -> list[Instruction]:
        if instructions:
            self.batches.append(instructions)
            self.emitted += instructions
        return instructions

    # Questions --------------------------------------------------------------------------------------------------------

    @property
    def emitted_graph(self) -> InstructionGraph:
        """The instruction graph so far."""
        if self._known is None or self._known[0] != len(self.emitted):
            self._known = len(self.emitted), InstructionGraph(self.emitted)
        return self._known[1]

    @property
    def instructions(self) -> Selection:
        """Every instruction so far."""
        return self.emitted_graph.all

    def of(self, task: Task) -> Selection:
        """Return the instructions of one task."""
        return self.instructions.of(task=task)

    def kernels(self, task: Task) -> Selection:
        """Return the kernels (or the host task) of one task."""
        return self.of(task).of("kernel", "host task")

    def parents(self, task: Task) -> set[str]:
        """Return the names of the tasks that `task` directly comes after, without horizons and epochs."""
        names = {other.id: other.name for other in self.tasks}
        return {names[id] for id in task.after if id in names}

    def frontier(self) -> set[int]:
        """Return the tasks that a later task could directly depend on."""
        trackers = [state.tasks for state in self.lowering.states().values() if state.tasks is not None]
        return set().union(*(tracker.ids() for tracker in trackers)) - {self.graph.horizon}

    def edges(self) -> int:
        """Return the number of edges between tasks."""
        known = {task.id for task in self.tasks}
        return sum(len(known.intersection(task.after)) for task in self.tasks)

    def memory(self, device: str) -> int:
        """Return the id of a device's memory."""
        return self.platform.device(device).memory

    def verify(self) -> None:
        """Raise InvariantError unless the instructions so far are right, in whatever legal order they run."""
        capacities = {id: m.capacity for id, m in enumerate(self.platform.memories) if m.capacity is not None}
        verify(self.emitted, given=self.given, filled=self.filled, capacities=capacities)
