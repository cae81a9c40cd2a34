"""The executor of a simulated machine: what it submits costs virtual time, and the program brings contents of its own.

Before: execute/executor.py, backend/simulated/.  After: assembly.py.  Everything else is as with real devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..backend.base import Backend
from ..backend.simulated import SimulatedBackend
from ..graph.instruction import Allocation, Instruction
from .engine import Engine
from .executor import Executor


class VirtualExecutor(Executor):
    """Drives the engine against a virtual clock."""

    def __init__(
        self,
        engine: Engine,
        lanes: Mapping[str, Backend],
        memories: Mapping[int, Backend],
        lock: Any,
        simulation: SimulatedBackend,
    ) -> None:
        self._simulation = simulation
        super().__init__(engine, lanes, memories, lock)

    def submit(self, batch: Sequence[Instruction]) -> None:
        """Take instructions, which costs the interpreter time, and start what can start. Locked."""
        self._simulation.charge(len(batch))
        super().submit(batch)

    def allocate(self, allocation: Allocation) -> None:
        """Back an allocation at once, for contents that the program brings."""
        self._simulation.given(allocation)
