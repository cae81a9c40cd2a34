"""OpenCL devices as a backend.

Before: base.py (the contract), the other files here (one concept each).  After: execute/.  Knows nothing of dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from ...errors import BackendError, ConfigError, InvariantError
from ...graph.instruction import Alloc, Copy, Fill, Free, Kernel
from ...graph.task import Task
from ...machine.cores import available_cores
from ...machine.platform import HOST, Device, Memory
from . import driver
from .copies import enqueue_copy, enqueue_fill
from .lanes import Lanes
from .program import Launcher, Programs
from .storage import OwnMemory, SharedMemory, Storage

if TYPE_CHECKING:
    from ...graph.instruction import Allocation, Instruction
    from ..base import CallHelper, Finished

LANES = 8


class OpenCLBackend:
    """One OpenCL device.

    With memory="own" it has buffers of its own (memory `memory_id`) and copies between them and the host. With
    memory="shared" it works on the host's memory in place, where the device sees it coherently. A CPU driver's threads
    are kept on `cores`; by default they use all that the process may.
    """

    kind = "opencl"
    runs_python = False
    helps = False

    def __init__(
        self,
        index: int = 0,
        name: str = "",
        memory_id: int = 2,
        memory: Literal["own", "shared"] = "own",
        cores: tuple[int, ...] = (),
        lanes: int = LANES,
        capacity: int | None = None,
    ) -> None:
        import pyopencl as cl

        if memory not in {"own", "shared"}:
            raise ConfigError(f"memory={memory!r} is neither 'own' nor 'shared'")
        name = name or f"opencl:{index}"
        self._device = driver.device_at(index)
        self._traits = driver.traits(self._device)
        if memory == "shared":
            driver.require_coherent(name, self._traits)
        self._cores = cores or (available_cores() if self._traits.cpu else ())
        self._name = name
        self._context: Any = cl.Context([self._device])
        self._storage: Storage = (
            SharedMemory(name, self._context, self._traits)
            if memory == "shared"
            else OwnMemory(name, memory_id, self._context, self._traits, capacity)
        )
        self._launcher = Launcher(Programs(self._context, self._traits), self._traits, self._storage.place)
        self._lanes: Lanes | None = None
        self.devices: Sequence[Device] = (self._describe(lanes),)
        self.memories: Mapping[int, Memory] = (
            {} if memory == "shared" else {memory_id: Memory(name, capacity or self._traits.capacity)}
        )

    def _describe(self, lanes: int) -> Device:
        memory = self._storage.memory
        return Device(
            name=self._name,
            kind=self.kind,
            memory=memory,
            readable=self._storage.readable,
            speed=f"opencl {self._traits.name} {'shared' if memory == HOST else 'own'} x{len(self._cores)}",
            cores=self._cores,
            lanes=lanes,
            waits_across_lanes=True,
            description=self._traits.name,
        )

    def supports(self, dtype: Any) -> bool:
        """Tell whether kernels here can compute with `dtype`."""
        return self._traits.supports(dtype)

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        del call_helper  # its own threads do everything
        if self._lanes is not None:
            raise InvariantError(f"{self._name} was started twice")
        driver.pin_workers(self._name, self._traits, self._cores)
        self._lanes = Lanes(
            self._name, self.devices[0].lanes, self._open_queue, self._enqueue, self._complete, finished
        )

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

    def _open_queue(self) -> Any:
        import pyopencl as cl

        try:
            return cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        except cl.LogicError:  # a device without a profiling clock: the host's times will do
            return cl.CommandQueue(self._context)

    def _enqueue(self, queue: Any, instruction: Instruction, waits: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Hand an instruction to the driver; return its events and what must live until they are over."""
        if isinstance(instruction, Kernel):
            return self._launcher.launch(queue, instruction, waits)
        if isinstance(instruction, Copy):
            return enqueue_copy(queue, self._storage, instruction, waits)
        if isinstance(instruction, Fill):
            return enqueue_fill(queue, self._storage, self._launcher, instruction, waits)
        if isinstance(instruction, Alloc):
            self.allocate(instruction.allocation)
            return [], []
        if isinstance(instruction, Free):
            return [], []  # once everything before it is over: see _complete
        raise BackendError(f"{self._name} cannot run {instruction.kind!r} instructions; they belong to the host")

    def _complete(self, instruction: Instruction) -> None:
        if isinstance(instruction, Free):
            self.release(instruction.allocation)
