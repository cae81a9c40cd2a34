"""What backends share whose own threads do everything: instructions go to their lanes, memory to their storage.

Before: base.py (the contract).  After: opencl/, torch/.  Knows neither a driver nor a library.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from ..errors import InvariantError

if TYPE_CHECKING:
    from ..graph.instruction import Allocation, Instruction
    from ..graph.task import Task


class Lanes(Protocol):
    """A device's queues and the threads that serve them."""

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction]) -> None:
        """Queue an instruction."""

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that has not begun."""

    def stop(self) -> None:
        """Finish what was issued, then end the threads."""


class Storage(Protocol):
    """Where a device's allocations live."""

    def allocate(self, allocation: Allocation) -> None:
        """Set `allocation.data`."""

    def release(self, allocation: Allocation) -> None:
        """Give the memory back."""


class OnLanes:
    """The verbs of the contract that only pass things on. `start` sets `_lanes`."""

    helps = False

    def __init__(self, name: str, storage: Storage) -> None:
        self._name = name
        self._storage = storage
        self._lanes: Lanes | None = None

    def _check_not_started(self) -> None:
        if self._lanes is not None:
            raise InvariantError(f"{self._name} was started twice")

    def clock(self) -> float:
        return perf_counter()

    def allocate(self, allocation: Allocation) -> None:
        self._storage.allocate(allocation)

    def release(self, allocation: Allocation) -> None:
        self._storage.release(allocation)

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        if self._lanes is None:
            raise InvariantError(f"{instruction} was issued before {self._name} was started")
        self._lanes.issue(instruction, lane, waits)

    def withdraw(self, instruction: Instruction) -> bool:
        return self._lanes is not None and self._lanes.withdraw(instruction)

    def help(self, waiting_for: Task | None = None) -> bool:
        return False

    def left(self, *, idle: bool) -> None:
        """Do nothing: no thread but its own works here."""

    def stop(self) -> None:
        if self._lanes is not None:
            self._lanes.stop()
