"""The contract every backend keeps: a small set of asynchronous verbs.

Before: graph/instruction.py and machine/.  After: execute/.  Knows nothing of dependencies: whatever is issued may run.

A backend owns one or more devices and memories. The executor issues instructions to lanes; a lane is an in-order
queue of one device. `issue` never blocks. An instruction whose `failure` is set is not run, but reported with it. Each issued instruction is reported exactly once through `finished`, from
any thread, in any order between lanes and in order within one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..graph.instruction import Allocation, Instruction
    from ..graph.task import Task
    from ..machine.platform import Device


class Ran(NamedTuple):
    """What the backend measured about one instruction. Times in seconds on the backend's clock."""

    instruction: Instruction
    device: str  # the device that ran it; may differ from the one it was issued to when work was taken over
    lane: int
    start: float
    stop: float
    waited: float = 0.0  # part of stop - start spent waiting for the interpreter lock, where known
    error: BaseException | None = None


class Postponed(Exception):
    """An instruction did nothing, because one that it comes after has failed: the executor issues it again, or not."""


Finished = Callable[[Ran], None]
CallHelper = Callable[[], bool]
"""Wakes a user thread that waits, so that it calls `help`; False if none waits."""


class Backend(Protocol):
    """Devices as the executor sees them."""

    kind: str
    """The backend's name in the table; equals `Device.kind` of its devices."""
    runs_python: bool
    """Whether Python bodies run here, on arrays that speak NumPy's language."""
    helps: bool
    """Whether `help` can run issued work on the calling thread."""

    @property
    def devices(self) -> Sequence[Device]:
        """The devices it drives."""

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        """Begin to accept work. `finished` is called once per issued instruction, without any lock held."""

    def clock(self) -> float:
        """Return the time in seconds that `Ran` refers to."""

    def supports(self, dtype: Any) -> bool:
        """Tell whether its devices can hold and compute with elements of `dtype`."""

    def allocate(self, allocation: Allocation) -> None:
        """Set `allocation.data`. Quick: memory may appear on first touch. Raise DoesNotFit or BackendError."""

    def release(self, allocation: Allocation) -> None:
        """Give the memory back and clear `allocation.data`."""

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> Ran | None:
        """Queue an instruction on a lane. Never blocks. Returns what became of it if it is over already.

        `waits` are earlier instructions on other lanes of the same device, not yet finished; only devices that
        declare `waits_across_lanes` are ever given any.
        """

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an issued instruction that has not begun; it is then not reported. False if it has begun."""

    def help(self, waiting_for: Task | None = None) -> bool:
        """Run one issued instruction on the calling thread, or return False.

        A thread that waits for one task runs no other host task's body: nobody knows how long that takes.
        """

    def left(self, *, idle: bool) -> None:
        """Note that a waiting thread goes back to its program; what it left is the backend's own to run.

        `idle` tells that nothing is open at all. Only called where `helps`.
        """

    def stop(self) -> None:
        """Finish what was issued and end every thread. Idempotent."""


class Unavailable(NamedTuple):
    """A device that exists but is not used, and why."""

    name: str
    reason: str
    remedy: str = ""


def describe_failure(error: BaseException) -> str:
    """Return the error in one line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
