"""The instruction graph: its nodes, and the closed set of steps that they take.

Before: graph/command.py.  After: execute/.  Knows allocations, never what a backend puts into them.

A step says what is done: which boxes are copied, which body runs on which bindings. It never changes, so all repetitions of a
call on the same allocations share their steps. An instruction says when a step is done, and for whom: it has an id, a task and
edges, and whatever happens to it on its way through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..geometry import Box, covers, overlaps

if TYPE_CHECKING:
    import numpy as np

    from .command import Chunk
    from .task import Task

_new: Any = tuple.__new__  # of a named tuple, without its constructor


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
    """One step of one task, with its place in the order.

    `needs` are the instructions whose results this one reads: if one of them failed, this one is cancelled.
    `after` are those that must merely be over: they read what this one overwrites, or allocate what it uses.
    An id may be named more than once: to find out would cost more than it saves.
    Everything below `after` belongs to the engine, the executor and the backend that runs it. Nobody else assigns it, and only
    `failure`, `eager`, `odd`, `redone` and `source` are read elsewhere.
    """

    __slots__ = (
        "after", "dependents", "eager", "failure", "handed", "held", "id", "issued", "lane", "needs", "odd", "over", "parents",
        "poison", "readers", "redone", "source", "step", "task", "waiting"
    )  # fmt: skip

    def __init__(
        self, id: int, step: Step, task: Task | None, needs: tuple[int, ...] = (), after: tuple[int, ...] = ()
    ) -> None:
        self.id = id
        self.step = step
        self.task: Any = task  # a Task; None where it is nobody's
        self.needs = needs
        self.after = after
        self.waiting = 0  # dependencies that are not over
        self.readers: list[Instruction] | None = None  # those who need its result
        self.dependents: list[Instruction] | None = None  # those who only come after it
        self.parents: Sequence[Instruction] = ()  # what it waits for, until it is issued
        self.poison: BaseException | None = None  # why it is not to run: what it needs has failed, or it was cancelled
        self.failure: BaseException | None = None  # set: a lane must not run it, and reports it with this error
        self.lane: Any = None  # execute/lanes.py's Lane, once it is issued
        self.issued = False
        self.eager = False  # issued behind its predecessors on the same lane, before they were over
        self.handed = False  # its lane was given to a child
        self.held = False  # it was issued too early once: it waits until its parents are over
        self.over = False
        self.odd = False  # its time is not what its variant takes: it was compared with another, or one stood in for it
        self.redone = False  # its device could not run it, and the host did
        self.source = ""  # how a simulation knows how long it takes

    @property
    def kind(self) -> str:
        """What kind of step it takes, as traces call it."""
        return self.step.kind

    @property
    def device(self) -> str:
        """Whose lane runs it; "" = the executor itself, at once."""
        return self.step.device

    @property
    def nbytes(self) -> int:
        """Bytes it allocates or moves."""
        return self.step.nbytes

    def __repr__(self) -> str:
        return f"I{self.id} {self.step.kind}"


Relocate = Callable[[Allocation], Allocation]
"""Which allocation takes the place of another."""


class Step:
    """What one instruction does. Immutable, and shared by all that do the same."""

    __slots__ = ()
    kind = "step"
    completes = False  # its task is over when the last such instruction is
    tells = False  # issued even if what it needs has failed, with that failure
    device = ""  # whose lane runs it; "" = the executor itself, at once
    priority = 0  # of what is ready, the highest goes first

    @property
    def nbytes(self) -> int:
        """Bytes it allocates or moves."""
        return 0

    def on(self, where: Relocate) -> Step:
        """Return the same step on other allocations."""
        del where
        return self


class MemoryStep(Step):
    """What happens to an allocation as a whole; alloc and free."""

    __slots__ = ("allocation",)

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation

    @property
    def nbytes(self) -> int:
        return self.allocation.nbytes

    def on(self, where: Relocate) -> Step:
        return type(self)(where(self.allocation))


class Alloc(MemoryStep):
    """Back an allocation with memory."""

    __slots__ = ()
    kind = "alloc"
    priority = 1


class Free(MemoryStep):
    """Give an allocation's memory back."""

    __slots__ = ()
    kind = "free"
    priority = -1


class Fill(Step):
    """Set boxes of an allocation to one value."""

    __slots__ = ("allocation", "boxes", "device", "value")
    kind = "fill"
    priority = 6

    def __init__(self, device: str, allocation: Allocation, boxes: tuple[Box, ...], value: np.generic) -> None:
        self.device = device
        self.allocation = allocation
        self.boxes = boxes
        self.value = value

    @property
    def nbytes(self) -> int:
        return sum([box.volume for box in self.boxes]) * self.allocation.dtype.itemsize

    def on(self, where: Relocate) -> Step:
        return Fill(self.device, where(self.allocation), self.boxes, self.value)


class Copy(Step):
    """Copy boxes of one array from one allocation to another."""

    __slots__ = ("boxes", "device", "reason", "source", "target")
    kind = "copy"
    priority = 6

    def __init__(
        self, device: str, source: Allocation, target: Allocation, boxes: tuple[Box, ...], reason: str
    ) -> None:
        self.device = device
        self.source = source
        self.target = target
        self.boxes = boxes
        self.reason = reason  # coherence, resize, fence, evict

    @property
    def nbytes(self) -> int:
        return sum([box.volume for box in self.boxes]) * self.target.dtype.itemsize

    def on(self, where: Relocate) -> Step:
        return Copy(self.device, where(self.source), where(self.target), self.boxes, self.reason)


class SeenPiece(NamedTuple):
    """A part of what a parameter sees, in an allocation of its own: a border that wraps shows both ends of an axis."""

    allocation: Allocation
    box: Box  # base coordinates
    seen: Box  # the same in the coordinates of the view that was passed


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
    pieces: tuple[SeenPiece, ...] | None = (
        None  # where the hull is, if it is not in one allocation; then there is a pad
    )

    def places(self) -> tuple[tuple[Allocation, Box], ...]:
        """Return the allocations in which the parameter is found, and what of each belongs to it."""
        if self.pieces is not None:
            return tuple([(piece.allocation, piece.box) for piece in self.pieces])
        return () if self.allocation is None else ((self.allocation, self.box),)

    def touched(self) -> list[tuple[Allocation, Box]]:
        """Return what a body touches, box by box."""
        if self.boxes is None:
            return list(self.places())
        return [(there, box) for there, around in self.places() for box in self.boxes if covers(around, box)]


def overlapping(a: Binding, b: Binding) -> bool:
    """Tell whether two parameters are found in one memory, inside each other's hulls."""
    if a is b:
        return False
    return any(here is there and overlaps(box, other) for here, box in a.places() for there, other in b.places())


def bound(binding: Binding, where: Relocate) -> Binding:
    """Return a binding that finds its parameter in other allocations."""
    allocation, pieces = binding.allocation, binding.pieces
    if pieces is not None:
        moved = tuple([SeenPiece(where(piece.allocation), piece.box, piece.seen) for piece in pieces])
        return binding._replace(allocation=moved[0].allocation, pieces=moved)
    return binding if allocation is None else _new(Binding, (binding[0], where(allocation), *binding[2:]))


class Launch(Step):
    """Run one chunk of a task's body on a device."""

    __slots__ = (
        "bindings", "body", "chunk", "device", "model", "more", "predicted", "priority", "scratch", "together", "work"
    )  # fmt: skip
    kind = "kernel"
    completes = True

    def __init__(
        self,
        device: str,
        chunk: Chunk,
        share: Any,
        bindings: tuple[Binding, ...],
        priority: int = 4,
        scratch: tuple[int, int] | None = None,
        more: bool | None = None,
    ) -> None:
        self.device = device
        self.chunk = chunk
        # Of plan/candidate.py's Share: the Variant that runs, the model that learns from it, the Work that predictions
        # are made from, the seconds it should take if known, and whether other devices compute other parts meanwhile.
        self.body, self.model, self.work, self.predicted, self.together = share[:5]
        self.bindings = bindings
        self.priority = priority
        self.scratch = scratch  # the memory and bytes of its temporaries, where that memory is limited
        self.more = more  # further parts of its chunk follow: it is computed in rounds, to fit; None: it is not

    def on(self, where: Relocate) -> Step:
        return self.by(where, (self.body, self.model, self.work, self.predicted, self.together))

    def by(self, where: Relocate, share: Any) -> Step:
        """Return the same step on other allocations, with another share."""
        bindings = tuple([bound(binding, where) for binding in self.bindings])
        return type(self)(self.device, self.chunk, share, bindings, self.priority, self.scratch, self.more)


class HostLaunch(Launch):
    """Run a host task's body. Any thread that waits may run it."""

    __slots__ = ()
    kind = "host task"


class Reduce(Step):
    """Combine a reduction's partial results, in block order, into its array."""

    __slots__ = ("operator", "partials", "target")
    kind = "reduce"
    completes = True
    device = "host"
    priority = 4

    def __init__(self, partials: Binding, target: Binding, operator: Any) -> None:
        self.partials = partials
        self.target = target
        self.operator = operator  # program/access.py's Operator

    def on(self, where: Relocate) -> Step:
        return Reduce(bound(self.partials, where), bound(self.target, where), self.operator)


class IfComputed:
    """Where a read's elements go, if anybody computes them: a simulation without values leaves it empty, and that is no failure."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __call__(self, elements: Any) -> None:
        self.found.append(elements)


class Fence(Step):
    """Hand a box of an array to the host program: `deliver` gets it as a read-only ndarray. Made anew for every read."""

    __slots__ = ("binding", "deliver")
    kind = "fence"
    completes = True
    device = "host"
    priority = 3

    def __init__(self, binding: Binding, deliver: Callable[[Any], None]) -> None:
        self.binding = binding
        self.deliver = deliver

    def on(self, where: Relocate) -> Step:
        return Fence(bound(self.binding, where), self.deliver)


class Join(Step):
    """Several instructions that stand for one: it is over when they are, and fails if one of them does."""

    __slots__ = ()
    kind = "join"


class Horizon(Step):
    """Everything before it is over once it is. Bounds what the tracking must remember."""

    __slots__ = ()
    kind = "horizon"
    completes = True
    priority = 5


class Epoch(Step):
    """A horizon that later instructions depend on at once: start, `wait`, shutdown."""

    __slots__ = ()
    kind = "epoch"
    completes = True
    priority = 5
