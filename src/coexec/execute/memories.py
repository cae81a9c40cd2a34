"""Allocate and free in the backends' memories; what does not fit yet is tried again when something was freed.

Before: backend/, execute/engine.py.  After: execute/executor.py.  Called under the program's lock.

The lowering keeps allocations within each memory's budget. That one does not fit all the same has to do with the world
outside: memory in pieces too small, another process. Then frees that the budget did not ask it to wait for may help.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..backend.base import Backend
from ..errors import CoexecError, DoesNotFit
from ..graph.instruction import Allocation, Free, Instruction
from .engine import Engine


class Memories:
    """The memories of all backends."""

    def __init__(self, backends: Mapping[int, Backend], engine: Engine) -> None:
        self._backends = backends
        self._engine = engine
        self._put_off: list[Instruction] = []

    def allocate(self, allocation: Allocation) -> None:
        """Back an allocation."""
        self._backends[allocation.memory].allocate(allocation)

    def alloc(self, instruction: Instruction, allocation: Allocation) -> tuple[bool, BaseException | None]:
        """Carry out an alloc; return whether it is over, and its error. If not, `again` will have it."""
        try:
            self.allocate(allocation)
        except CoexecError as error:
            if isinstance(error, DoesNotFit) and self._frees_before(instruction, allocation.memory):
                self._put_off.append(instruction)
                return False, None
            allocation.owner = error
            return True, error
        return True, None

    def free(self, allocation: Allocation) -> None:
        """Carry out a free."""
        self._backends[allocation.memory].release(allocation)

    def again(self) -> list[Instruction]:
        """Return what was put off, once: something was freed."""
        again, self._put_off = self._put_off, []
        return again

    def _frees_before(self, alloc: Instruction, memory: int) -> bool:
        """Tell whether a memory is about to get something back that cannot wait for `alloc` itself."""
        earlier = [i.step for i in (*self._engine.waiting(), *self._engine.issued()) if i.id < alloc.id]
        return any(isinstance(step, Free) and step.allocation.memory == memory for step in earlier)
