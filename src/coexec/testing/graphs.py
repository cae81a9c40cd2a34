"""Build the three graphs by hand, on an invented machine: real arrays and kernels, no thread and no device.

Before: schedule/.  After: tests.  Drives the scheduler that programs have; the test is the planner, and says which device
gets which chunk.

    g = GraphBuilder(devices=2)
    a, b = g.array(100), g.array(100)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=(a, halo(1)), writes=b, on="all")
    assert g.instructions.of("copy").copied == Region([Box((49,), (100,))])
    g.verify()
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..backend.launch import set_data
from ..errors import InvariantError
from ..geometry import Box, whole
from ..graph.call import describe, describe_read, make_returned
from ..graph.command import Command
from ..graph.instruction import Allocation, Instruction, Join
from ..graph.task import Task
from ..lower.lowering import Lowering
from ..lower.watch import LoweringWatch
from ..machine.platform import HOST, USER, Platform
from ..plan.plan import Plan
from ..plan.policies import Loads
from ..program import session
from ..program.array import Array
from ..program.call import Options
from ..program.fuse import Line
from ..program.host_task import HostTask
from ..program.kernel import Kernel
from ..program.storage import Storage
from ..schedule.copying import copy_scheduler
from ..schedule.events import HELD, Batch, Called, Dropped, Event, Made, Mark, Over, Read, Settle
from ..schedule.scheduler import Scheduler, Settings
from .as_told import AsTold
from .calls import Body, Uses, declare
from .invented import invented_platform
from .queries import InstructionGraph, Selection
from .verify import verify

if TYPE_CHECKING:
    from ..cluster.table import Seat


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
        watch: LoweringWatch | None = None,
        lookahead: str = "none",
        planner: AsTold | None = None,
        seat: Seat | None = None,
    ) -> None:
        self.platform = platform or invented_platform(
            devices, shared=shared, peers=peers, paged=paged, capacity=capacity, host=host
        )
        self.devices = [device.name for device in self.platform.devices]
        self._planner = planner or AsTold()
        self._settings = Settings(lookahead=lookahead, replay=replay, fuse=False)
        self._begin(
            Scheduler(
                Lowering(self.platform, watch),
                self._planner,
                Loads(self.platform),
                _no_chains,
                self._settings,
                version=self._planner,
                seat=seat,
            )
        )
        self.epoch("start")

    def copy(self, arrays: Sequence[Array]) -> tuple[GraphBuilder, list[Array]]:
        """Return a builder whose scheduler is a copy that knows these arrays, and the arrays as it knows them."""
        made = object.__new__(GraphBuilder)
        made.platform, made.devices, made._planner, made._settings = (
            self.platform, self.devices, self._planner, self._settings
        )  # fmt: skip
        copied = copy_scheduler(
            self.scheduler, arrays, made, made._planner, Loads(made.platform), _no_chains, made._settings, made._planner
        )
        made._begin(copied.scheduler)
        made.given, made.filled = list(self.given), set(self.filled)
        made.emitted = list(self.emitted)
        return made, copied.arrays

    def _begin(self, scheduler: Scheduler) -> None:
        """Keep what the scheduler answers from now on."""
        self.scheduler, self.lowering = scheduler, scheduler.lowering
        self.graph, self.recipes, self.lookahead = scheduler.link.graph, scheduler.lower.recipes, scheduler.hold
        self.tasks: list[Task] = []
        self.commands: list[Command] = []
        self.emitted: list[Instruction] = []
        self.batches: list[list[Instruction]] = []  # what each call emitted
        self.given: list[Allocation] = []  # hold values from the beginning
        self.filled: set[int] = set()  # arrays that begin with one value
        self.refused: list[tuple[Task, BaseException]] = []  # tasks that could not be lowered when their turn came
        self.raises = True  # the errors of those
        self.delivered: dict[int, Any] = {}  # what host reads got, by task id, once something ran them
        self._known: tuple[int, InstructionGraph] | None = None

    # Arrays -----------------------------------------------------------------------------------------------------------

    def array(self, shape: Any, value: Any = None, *, data: Any = None, borrowed: bool = False) -> Array:
        """Return a new array of float64: undefined, all `value`, or with the contents of `data` in host memory."""
        made = whole((shape,) if isinstance(shape, int) else tuple(shape))
        storage = Storage(self, made.shape, np.dtype(float), None if value is None else np.float64(value))
        self.adopt(storage, None if data is None else np.asarray(data, float), borrowed=borrowed)
        return Array(storage, storage.box, None)

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""
        memory = None if data is None else USER if borrowed else HOST
        self._send(Made(storage, memory))
        if storage.initial is not None:
            self.filled.add(storage.id)
        if memory is not None:
            allocation = storage.state.complete[memory].allocation
            self.given.append(allocation)
            set_data(allocation, np.array(data))

    def dropped(self, storage_id: int) -> None:
        """Do nothing: a test says when an array is dropped."""

    def drop(self, array: Array) -> list[Instruction]:
        """Drop the last handle of an array; return what has been emitted since."""
        before = len(self.emitted)
        self._send(Dropped(array._storage.id))
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

    def begin_step(self, times: int = 0) -> tuple[int, int]:
        """Begin a step that a program names; plans are as the test says, however many `times` it comes."""
        del times
        return self.recipes.recalled, len(self.tasks)

    def end_step(self, begun: tuple[int, int], *, left: bool = False) -> tuple[bool, str]:
        """End a step; tell whether all of it came from recipes."""
        recalled, tasks = begun
        return not left and self.recipes.recalled - recalled >= len(self.tasks) - tasks, ""

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return what `submit` would do, as data; nothing is known of any time."""
        arrays, scalars = kernel.bind(args, kwargs)
        returned = make_returned(kernel, arrays, scalars, self)
        chosen = options._replace(devices="host" if kernel.host else options.devices or self.devices[0])
        plan = self.scheduler.preview(describe(kernel, [*arrays, *returned], scalars, chosen, self))
        assert plan is not None, "nothing is dealt here"
        return plan

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
        """Go the way of a call through the scheduler."""
        task = describe(kernel, arrays, scalars, options, self)
        self.tasks.append(task)
        self._planner.chunks = chunks
        self._send(Called(task))
        return task

    # The host program -------------------------------------------------------------------------------------------------

    def read(self, array: Array) -> Task:
        """Record a host read. `delivered` has the values once something has run it."""
        task = describe_read(array, self)
        self.tasks.append(task)

        def deliver(values: Any) -> None:
            self.delivered[task.id] = values

        self._send(Read(task, array, deliver))
        return task

    def flush(self) -> None:
        """Lower what lookahead holds back."""
        self._send(Settle(HELD))

    def horizon(self, failed: Collection[int] = ()) -> Task:
        """Pass a horizon, as the runtime does every so many tasks."""
        task = Task(0, "horizon", None, self)
        self._send(Mark(task, failed, horizon=True))
        return task

    def wait(self) -> None:
        """Record a `cx.wait()`."""
        self.epoch()

    def quiet(self) -> bool:
        """Deny it: nothing here runs."""
        return False

    def epoch(self, name: str = "wait", failed: Collection[int] = ()) -> Task:
        """Pass an epoch that takes effect at once, as when `cx.wait()` has returned."""
        task = Task(0, name, None, self)
        self._send(Mark(task, failed))
        self._send(Over(task, failed))
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

    def _send(self, event: Event) -> None:
        """Let the scheduler handle an event, and keep what it answers."""
        try:
            batches = self.scheduler.handle(event)
        except BaseException:
            self._take(self.scheduler.take())
            raise
        self._take(batches)
        for batch in batches:
            if batch.refused is not None and self.raises:
                raise batch.refused.failure.__cause__ or batch.refused.failure

    def _take(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.planned is not None:
                self.commands.append(batch.planned.command)
            if batch.refused is not None and batch.task is not None:  # it stands for what is undefined now
                self.refused.append((batch.task, batch.refused.failure))
                self.emitted.append(Instruction(batch.refused.id, Join(), batch.task, (), (self.emitted[0].id,)))
            if batch.instructions:
                self.batches.append(batch.instructions)
                self.emitted += batch.instructions

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


def _no_chains(kernel: Kernel, args: tuple[Any, ...], context: Context, line: Line) -> Called:
    """Refuse: nothing is held back, so every operation is a task of its own."""
    raise InvariantError(f"{kernel.name} at {line} with {args} in {context} became a chain where nothing is fused")
