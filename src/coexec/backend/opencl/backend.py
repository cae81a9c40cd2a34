"""OpenCL devices as a backend.

Before: base.py (the contract), the other files here (one concept each).  After: execute/.  Knows nothing of dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...errors import BackendError, ConfigError
from ...graph.instruction import Alloc, Copy, Fill, Free, Launch
from ...machine.cores import available_cores
from ...machine.platform import HOST, Device, Memory, usable
from ..threaded_lanes import OnLanes
from . import driver
from .copies import enqueue_copy, enqueue_fill
from .lanes import Lanes
from .program import Launcher, Programs
from .storage import OwnMemory, SharedMemory, Storage

if TYPE_CHECKING:
    from ...graph.instruction import Instruction
    from ..base import CallHelper, Finished

LANES = 8


class OpenCLBackend(OnLanes):
    """One OpenCL device.

    With memory="own" it has buffers of its own (memory `memory_id`) and copies between them and the host. With
    memory="shared" it works on the host's memory in place, where the device sees it coherently. A CPU driver's threads
    are kept on `cores`; by default they use all that the process may.
    """

    kind = "opencl"
    runs_python = False
    _storage: Storage

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
        self._context: Any = cl.Context([self._device])
        super().__init__(
            name,
            SharedMemory(name, self._context, self._traits)
            if memory == "shared"
            else OwnMemory(name, memory_id, self._context, self._traits, capacity),
        )
        self._launcher = Launcher(Programs(self._context, self._traits), self._traits, self._storage.place)
        self.devices: Sequence[Device] = (self._describe(lanes),)
        self.memories: Mapping[int, Memory] = {} if memory == "shared" else {memory_id: self._describe_memory(capacity)}

    def _describe_memory(self, capacity: int | None) -> Memory:
        return Memory(self._name, capacity or usable(self._traits.capacity), largest=self._traits.largest_buffer)

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
            software=self._traits.software,
        )

    def supports(self, dtype: Any) -> bool:
        """Tell whether kernels here can compute with `dtype`."""
        return self._traits.supports(dtype)

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        del call_helper  # its own threads do everything
        self._check_not_started()
        driver.pin_workers(self._name, self._traits, self._cores)
        self._lanes = Lanes(
            self._name, self.devices[0].lanes, self._open_queue, self._enqueue, self._complete, finished
        )

    def _open_queue(self) -> Any:
        import pyopencl as cl

        try:
            return cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        except cl.LogicError:  # a device without a profiling clock: the host's times will do
            return cl.CommandQueue(self._context)

    def _enqueue(self, queue: Any, instruction: Instruction, waits: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Hand an instruction to the driver; return its events and what must live until they are over."""
        step = instruction.step
        if isinstance(step, Launch):
            return self._launcher.launch(queue, instruction.task, step, waits)
        if isinstance(step, Copy):
            return enqueue_copy(queue, self._storage, step, waits)
        if isinstance(step, Fill):
            return enqueue_fill(queue, self._storage, self._launcher, step, waits)
        if isinstance(step, Alloc):
            self.allocate(step.allocation)
            return [], []
        if isinstance(step, Free):
            return [], []  # once everything before it is over: see _complete
        raise BackendError(f"{self._name} cannot run {step.kind!r} instructions; they belong to the host")

    def _complete(self, instruction: Instruction) -> None:
        if isinstance(instruction.step, Free):
            self.release(instruction.step.allocation)
