"""The task graph's nodes, which are also the handles that calls return.

Before: program/.  After: graph/task_graph.py, plan/, lower/.  Names no device. Waiting is the owner's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import NoValues, Reported, TaskFailed
from ..geometry import Box

if TYPE_CHECKING:
    from ..program.array import Array
    from ..program.call import Key, Options
    from ..program.kernel import ArrayParam, Kernel
    from .command import Deal
    from .shape import CallShape, SameCall


class Owner(Protocol):
    """Whoever runs a task."""

    checks: bool  # debug mode: look at what the user's functions answer

    def wait_for(self, task: Any, timeout: float | None = None) -> bool:
        """Block until `task` is over; return False on time-out."""

    def cancel(self, task: Any) -> bool:
        """Cancel `task` unless it has begun."""


def mark_reported(failure: BaseException | None) -> None:
    """Note that the program has seen a failure."""
    if isinstance(failure, TaskFailed):
        failure.told = failure.told or Reported()
        failure.told.yes = True


def raise_unseen(failures: Sequence[BaseException]) -> None:
    """Raise failures that the program has not looked at yet, as a group, if there are any."""
    for failure in failures:
        mark_reported(failure)
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} task{'s' * (len(failures) > 1)} failed", failures)


def seen(failure: BaseException) -> BaseException:
    """Return a failure as a program that reads what it spoiled sees it; from then on it is reported."""
    mark_reported(failure)
    if isinstance(failure.__cause__, NoValues):  # nothing has failed: only the program's own line matters
        return NoValues(*failure.__cause__.args)
    return failure.with_traceback(None)


class Handle:
    """What a call returns to the program: what becomes of its task while it runs. The rest of a task is assigned once."""

    # Class-level defaults: a task is made for every call, and most of these are never set.
    open = 0  # instructions that are not over
    finished = False
    failure: BaseException | None = None
    waiters: list[Callable[[], None]] | None = None
    told: Reported | None = None  # set once it matters whether the program knows of a failure
    submitted = 0.0  # seconds, by the driver's clock
    scheduling = 0.0  # seconds that recording it took, without those of a body that ran in the caller
    studied = False  # what its scheduling cost is known to whoever watches the pace
    why = ""  # it is computed where it is, as its plan says

    def __init__(self, id: int, name: str, owner: Owner | None) -> None:
        self.id = id  # 0 until the task graph gives it a number
        self.name = name
        self._owner = owner

    def done(self) -> bool:
        """Tell whether the task is over: finished, failed or cancelled."""
        return self.finished

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for this task alone; return False on time-out. Does not raise its error."""
        return self.finished or self._owner is None or self._owner.wait_for(self, timeout)

    def result(self, timeout: float | None = None) -> None:
        """Wait for this task alone and raise its error, if any."""
        if not self.wait(timeout):
            raise TimeoutError(f"T{self.id} {self.name} is not over after {timeout} s")
        if self.failure is not None:
            mark_reported(self.failure)
            raise self.failure.with_traceback(None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for this task alone and return its error, or None."""
        if not self.wait(timeout):
            raise TimeoutError(f"T{self.id} {self.name} is not over after {timeout} s")
        mark_reported(self.failure)
        return self.failure

    def cancel(self) -> bool:
        """Cancel the task unless it has begun. What it would have written raises when read."""
        return not self.finished and self._owner is not None and self._owner.cancel(self)

    def __repr__(self) -> str:
        state = "failed" if self.failure is not None else "done" if self.finished else "pending"
        return f"<T{self.id} {self.name} {state}>"


class Task(Handle):
    """What must happen: a kernel, the arrays it touches, and the tasks it comes after.

    Each attribute is assigned once, by the stage that the comment above it names; a test watches that. Arrays and context are let
    go when they are not needed any more.
    """

    # The call says (graph/call.py):
    accesses: Sequence[ArrayParam] = ()
    arrays: Sequence[Array] = ()
    options: Options | None = None  # among ranks, the deal leaves this rank's devices of those that it names
    scalars: Mapping[str, Any] = MappingProxyType({})
    body: Callable[..., Any] | None = None
    context: Context | None = None
    call = ""  # the calling file
    line = 0
    extents: tuple[int, ...] = ()  # of the index space, per axis
    domain: Box = Box((), ())  # what is visited of the index space, whether or not arrays arrive whole
    key: Key | None = None  # the arrays' shapes, for predictions
    once = False  # every array is touched by one parameter only
    same: SameCall | None = None  # what is known of calls on the same views
    # The task graph says (graph/task_graph.py, schedule/link.py), beside its number:
    after: tuple[int, ...] = ()
    marks = False  # a horizon or an epoch: it comes after everything
    shape: CallShape | None = None  # what it shares with calls like it; None: nothing is remembered
    # The deal among ranks says (cluster/table.py):
    deal: Deal | None = None  # what of it is this rank's; None: everything, there is one rank
    round = 0  # how many tasks were dealt to ranks before it, and itself: the same number on all of them
    stamp = 0  # of all calls up to it, among ranks in processes of their own: the same number on all of them
    # The plan says (plan/, schedule/plan.py):
    starved = False  # nothing else was under way when it was planned
    grain: tuple[int, int] | None = None  # axis and rows of the blocks it is made of, if bits must not depend on cuts
    # The call, or the first who maps it part by part (`map_parts`):
    space: Box | None = None  # what is visited of the index space; None: everything, and every array whole
    shapes: Sequence[tuple[int, ...]] = ()  # of the arrays, for bodies that ask for their chunk

    def __init__(self, id: int, name: str, kernel: Kernel | None, owner: Owner | None) -> None:
        self.id = id
        self.name = name
        self._owner = owner
        self.kernel = kernel  # None for horizons, epochs and host reads

    @property
    def mine(self) -> Box:
        """What of the index space this rank computes."""
        deal = self.deal
        return self.domain if deal is None or deal.box is None else deal.box

    @property
    def granule(self) -> int:
        """Of how many rows its parts are multiples."""
        if self.grain is not None:
            return self.grain[1]
        return self.kernel.granule if self.kernel is not None else 1

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes along which it may be cut."""
        if self.grain is not None:
            return self.grain[:1]
        return self.kernel.split if self.kernel is not None else ()

    @property
    def params(self) -> tuple[str, ...]:
        """The body's parameters, in order, without those that coexec fills in."""
        return self.kernel.passed if self.kernel is not None else ()

    def array_ids(self) -> tuple[int, ...]:
        """Return the numbers of its arrays, which it has not let go of."""
        same = self.same
        return same.ids if same is not None else tuple([array._storage.id for array in self.arrays])

    def map_parts(self) -> None:
        """Be mapped part by part from now on, even where each array arrives whole."""
        if self.space is None:
            self.space = self.domain
        if not self.shapes:
            self.shapes = [array.shape for array in self.arrays]

    def let_go(self) -> None:
        """Hold no array any more: it is lowered, and its instructions know where they are."""
        self.arrays = ()
        if self.kernel is not None and len(self.accesses) > len(self.kernel.array_params):
            bound = {param[0] for param in self.accesses}  # 0-d arrays among the scalars are read where they are bound
            self.scalars = {name: None if name in bound else value for name, value in self.scalars.items()}


USUAL = (
    "id", "name", "_owner", "kernel", "options", "scalars", "extents", "domain", "key", "once", "accesses", "arrays", "same", "shapes",
    "space", "body", "context", "call", "line", "submitted", "shape", "after", "starved", "why", "open", "scheduling", "finished",
    "studied", "waiters"
)  # fmt: skip
"""What most tasks are given, 29 names. CPython keeps attributes without a dictionary of their own, a fifth of the memory, if they are
among the first 29 that objects of the class were given. So these are given to one before all others."""


def _share_keys() -> None:
    first = Task(0, "", None, None)
    for name in USUAL:
        setattr(first, name, getattr(first, name))


_share_keys()
