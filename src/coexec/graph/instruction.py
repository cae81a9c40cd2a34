"""The instruction graph's nodes: a closed set of kinds, with edges by id.

Before: graph/command.py.  After: execute/.  Knows allocations, never what a backend puts into them.

`needs` are the instructions whose results this one reads: if one of them failed, this one is cancelled.
`after` are those that must merely be over: they read what this one overwrites, or allocate what it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..geometry import Box, Grid, overlaps

if TYPE_CHECKING:
    import numpy as np

    from .command import Chunk
    from .task import Task


class Allocation:
    """A box of one array, backed in one memory. `data` belongs to the memory's backend."""

    __slots__ = ("array", "box", "data", "dtype", "frozen", "id", "memory", "owner")

    def __init__(self, id: int, memory: int, array: int, box: Box, dtype: np.dtype[Any]) -> None:
        self.id = id
        self.memory = memory
        self.array = array  # the array's id, for records
        self.box = box  # in the array's coordinates; always dense, C order
        self.dtype = dtype
        self.data: Any = None  # set when the alloc instruction runs: an ndarray of box.shape, a cl.Buffer, ...
        self.frozen: Any = None  # the same data, read-only, where the backend has such a thing
        self.owner: Any = None  # the backend's own: what keeps `data` alive, or why there is none

    @property
    def nbytes(self) -> int:
        """Bytes of the whole box."""
        return self.box.volume * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"box {self.box} of array A{self.array} ({self.dtype})"


class Instruction:
    """One step for one lane. Immutable once handed to the engine, but for `failure` and `eager`, which are its own."""

    kind = "instruction"
    completes = False  # its task is over when the last such instruction is
    failure: BaseException | None = None  # set: it must not run, and is reported with this error
    tells = False  # issued even if what it needs has failed, with that failure
    eager = False  # issued behind its predecessors on the same lane, before they were over

    def __init__(
        self, id: int, device: str, task: Task | None, needs: tuple[int, ...], after: tuple[int, ...], priority: int = 0
    ) -> None:
        self.id = id
        self.device = device  # whose lane runs it; "" = the executor itself, at once
        self.task = task
        self.needs = needs
        self.after = after
        self.priority = priority

    @property
    def nbytes(self) -> int:
        """Bytes it allocates or moves."""
        return 0

    def __repr__(self) -> str:
        return f"I{self.id} {self.kind}"


class MemoryInstruction(Instruction):
    """What happens to an allocation as a whole; alloc and free."""

    urgency = 0

    def __init__(self, id: int, device: str, task: Task | None, allocation: Allocation, after: tuple[int, ...]) -> None:
        super().__init__(id, device, task, (), after, self.urgency)
        self.allocation = allocation

    @property
    def nbytes(self) -> int:
        return self.allocation.nbytes


class Alloc(MemoryInstruction):
    """Back an allocation with memory."""

    kind = "alloc"
    urgency = 1


class Free(MemoryInstruction):
    """Give an allocation's memory back."""

    kind = "free"
    urgency = -1


class Fill(Instruction):
    """Set boxes of an allocation to one value."""

    kind = "fill"

    def __init__(
        self,
        id: int,
        device: str,
        task: Task | None,
        allocation: Allocation,
        boxes: tuple[Box, ...],
        value: np.generic,
        after: tuple[int, ...],
    ) -> None:
        super().__init__(id, device, task, (), after, 6)
        self.allocation = allocation
        self.boxes = boxes
        self.value = value

    @property
    def nbytes(self) -> int:
        return sum(box.volume for box in self.boxes) * self.allocation.dtype.itemsize


class Copy(Instruction):
    """Copy boxes of one array from one allocation to another."""

    kind = "copy"

    def __init__(
        self,
        id: int,
        device: str,
        task: Task | None,
        source: Allocation,
        target: Allocation,
        boxes: tuple[Box, ...],
        reason: str,
        needs: tuple[int, ...],
        after: tuple[int, ...],
    ) -> None:
        self.id = id
        self.device = device
        self.task = task
        self.needs = needs
        self.after = after
        self.priority = 6
        self.source = source
        self.target = target
        self.boxes = boxes
        self.reason = reason  # coherence, resize, fence, evict

    @cached_property
    def nbytes(self) -> int:
        return sum([box.volume for box in self.boxes]) * self.target.dtype.itemsize


class Binding(NamedTuple):
    """How one parameter of a body is found in memory."""

    name: str
    allocation: Allocation | None  # None: the mapped box is empty
    box: Box  # base coordinates; a dense hull of the elements the body sees
    cut: Any  # how to cut the parameter out of the hull: program/view.py's Cut, or None for the hull itself
    writes: bool
    pad: Any = None  # how to pad at the array's border: program/padding.py's Pad, or None
    dtype: Any = None  # of the elements
    boxes: tuple[Box, ...] | None = None  # what of the hull is touched, if not all of it; the rest holds anything


def overlapping(a: Binding, b: Binding) -> bool:
    """Tell whether two parameters are found in one memory, inside each other's hulls."""
    return a is not b and a.allocation is not None and a.allocation is b.allocation and overlaps(a.box, b.box)


class Kernel(Instruction):
    """Run one chunk of a task's body on a device."""

    kind = "kernel"
    completes = True
    body: Any  # program/variant.py's Variant
    model: Any  # the predictor that learns from this run
    work: Any  # predict/work.py's Work: what predictions are made from
    predicted: float | None  # seconds, where the planner knows
    together: bool  # other devices compute other parts of the task at the same time
    redone = False  # its device could not run it, and the host did
    scratch: tuple[int, int] | None = None  # the memory and bytes of its temporaries, where that memory is limited
    source = ""  # how a simulation knows how long it takes
    more = False  # further parts of the same chunk follow: it was divided to fit into memory

    def __init__(
        self,
        id: int,
        device: str,
        task: Task,
        chunk: Chunk,
        share: Any,
        bindings: tuple[Binding, ...],
        needs: tuple[int, ...],
        after: tuple[int, ...],
        priority: int = 4,
    ) -> None:
        self.id = id
        self.device = device
        self.task: Task = task
        self.needs = needs
        self.after = after
        self.priority = priority
        self.chunk = chunk
        self.body, self.model, self.work, self.predicted, self.together = share[:5]  # plan/candidate.py's Share
        self.bindings = bindings


class HostTask(Kernel):
    """Run a host task's body. Any thread that waits may run it."""

    kind = "host task"


class Reduce(Instruction):
    """Combine a reduction's partial results, in block order, into its array."""

    kind = "reduce"
    completes = True

    def __init__(
        self,
        id: int,
        device: str,
        task: Task,
        partials: Binding,
        target: Binding,
        operator: Any,
        needs: tuple[int, ...],
        after: tuple[int, ...],
    ) -> None:
        super().__init__(id, device, task, needs, after, 4)
        self.partials = partials
        self.target = target
        self.operator = operator  # program/access.py's Operator


class Fence(Instruction):
    """Hand a box of an array to the host program: `deliver` gets it as a read-only ndarray."""

    kind = "fence"
    completes = True

    def __init__(
        self,
        id: int,
        device: str,
        task: Task,
        binding: Binding,
        deliver: Callable[[Any], None],
        needs: tuple[int, ...],
        after: tuple[int, ...],
    ) -> None:
        super().__init__(id, device, task, needs, after, 3)
        self.binding = binding
        self.deliver = deliver


class Message(Instruction):
    """One box that one rank sends another. `key` is the same on both sides."""

    def __init__(
        self,
        id: int,
        task: Task,
        allocation: Allocation,
        box: Box,
        route: Route,
        needs: tuple[int, ...],
        after: tuple[int, ...],
    ) -> None:
        super().__init__(id, "network", task, needs, after, 7)
        self.allocation = allocation  # in host memory
        self.box = box
        self.route = route

    @property
    def key(self) -> tuple[int, Route]:
        """What a transport finds the other side by."""
        assert self.task is not None
        return self.task.round, self.route

    @property
    def nbytes(self) -> int:
        return 0 if self.route.grid is not None else self.box.volume * self.allocation.dtype.itemsize


class Route(NamedTuple):
    """Which message of a task it is."""

    sender: int  # ranks
    receiver: int
    argument: int
    partial: bool  # of a reduction's private array
    position: int  # among the messages that go the same way
    grid: Grid | None = None  # it only tells whether these elements are valid: they came with the box around them


class Send(Message):
    """Send a box. Issued even if what it needs has failed: the other side waits for it, and must be told."""

    kind = "send"
    tells = True


class Receive(Message):
    """Take a box that another rank sends."""

    kind = "receive"


class Join(Instruction):
    """Several instructions that stand for one: it is over when they are, and fails if one of them does."""

    kind = "join"


class Horizon(Instruction):
    """Everything before it is over once it is. Bounds what the tracking must remember."""

    kind = "horizon"
    completes = True


class Epoch(Instruction):
    """A horizon that later instructions depend on at once: start, `wait`, shutdown."""

    kind = "epoch"
    completes = True
