"""What can happen to a scheduler, and what it answers: a closed set of events, and batches of instructions.

Before: graph/, program/.  After: every layer of schedule/, and whoever drives a scheduler.  Plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..backend.base import Ran
    from ..graph.instruction import Instruction
    from ..graph.task import Task
    from ..plan.plan import Plan
    from ..plan.planned import Planned
    from ..program.array import Array
    from ..program.fuse import Line, Operation
    from ..program.storage import Storage


class Made(NamedTuple):
    """The program made an array."""

    storage: Storage
    memory: int | None  # where its first contents are; None: nowhere yet


class Crowded(NamedTuple):
    """The program is about to make an array whose first contents must fit into the host's memory."""

    storage: Storage


class Operated(NamedTuple):
    """The program used an operator or a ufunc, which may become one kernel with its neighbours."""

    operation: Operation
    context: Context
    errors: Mapping[str, Any]  # what NumPy does about divisions by zero and the like
    line: Line


class Called(NamedTuple):
    """The program called a kernel."""

    task: Task
    births: int = 0  # of a call that waits to be planned: arrays that had been made when it came


class Read(NamedTuple):
    """The program wants to see an array."""

    task: Task
    array: Array
    deliver: Callable[[Any], None]  # takes the elements
    readers: Sequence[int] | None = None  # ranks; None: all


class Dropped(NamedTuple):
    """The last handle of an array is gone."""

    array: int


class Mark(NamedTuple):
    """A horizon or an epoch, which comes after everything so far."""

    task: Task
    failed: Collection[int] = ()  # instructions; what they should have written stays poisoned
    horizon: bool = False


class Over(NamedTuple):
    """An epoch is over: it stands for everything before it."""

    task: Task
    failed: Collection[int] = ()


class Finished(NamedTuple):
    """A device has finished an instruction."""

    ran: Ran


class Failed(NamedTuple):
    """A device could not run an instruction: the batch, if there is one, does it elsewhere."""

    ran: Ran


class Queued(NamedTuple):
    """A kernel that the caller was asked to run was given to its device after all."""

    planned: Planned


class Adopted(NamedTuple):
    """Plans are to be followed from now on, by every call that is not planned yet."""

    plans: Sequence[Plan]


class StepTold(NamedTuple):
    """The program says how often what it does next will come: it waits, to be planned as a whole before any of it runs."""

    times: int  # 0: the step is over


CHAIN, PLANNED, GROWING, HELD, ALL = 1, 2, 3, 4, 5
"""What is let go, beside a chain of operators: nothing; what waits to be planned until devices need it; what is held because
allocations may grow; both; and also what is handed out on demand."""


class Settle(NamedTuple):
    """Somebody wants to see what is held back."""

    depth: int = ALL
    task: Task | None = None  # no more than everything up to this one
    round: int = 0  # no more than what was dealt to ranks up to this number; 0: everything


Event = (
    Adopted
    | StepTold
    | Made
    | Crowded
    | Operated
    | Called
    | Read
    | Dropped
    | Mark
    | Over
    | Finished
    | Failed
    | Queued
    | Settle
)


class Refusal(NamedTuple):
    """A task that could not be lowered."""

    id: int  # of an instruction that never runs, and stands for what the task would have written
    failure: BaseException


class Batch(NamedTuple):
    """Instructions that are handed over together, in topological order, and what they are for."""

    instructions: list[Instruction]
    task: Task | None = None  # whose they are
    planned: Planned | None = None  # of a kernel: who computes what
    arrays: Sequence[Array] = ()  # of a kernel that the caller may run itself
    again: bool = False  # nothing of it was planned or analysed anew
    more: bool = False  # further batches of its task follow
    refused: Refusal | None = None  # its task has failed
