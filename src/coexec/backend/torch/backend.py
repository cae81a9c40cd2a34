"""Torch devices as a backend.

Before: base.py (the contract), the other files here (one concept each).  After: execute/.  Knows nothing of dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Literal

import torch

from ...errors import BackendError, ConfigError
from ...graph.instruction import Alloc, Copy, Fill, Free, Launch
from ...machine.cores import available_cores, pin_thread, sharpen_timers
from ...machine.platform import Device, Memory, usable
from ...program.session import in_kernel
from ..threaded_lanes import OnLanes
from .body import Translator, Watched, call, parts, place, returned
from .check import FirstUse
from .driver import Driver
from .lanes import Lanes, Launched
from .namespace import Namespace
from .storage import OwnMemory, Seen, SharedMemory, Storage

if TYPE_CHECKING:
    from ...graph.instruction import Instruction
    from ...graph.task import Task
    from ..base import CallHelper, Finished

LANES = 8


class TorchBackend(OnLanes):
    """One torch device.

    The CPU shares the host's memory: arrays are handed over, nothing is copied. Every other device has a memory of its
    own (`memory_id`), and memory="own" gives the CPU one, too. Its thread, and torch's threads, keep to `cores`.
    """

    kind = "torch"
    runs_python = True  # as a variant of this kind, which is checked on first use
    _storage: Storage

    def __init__(
        self,
        driver: Driver | None = None,
        name: str = "torch:cpu",
        memory_id: int = 2,
        memory: Literal["own", "shared", ""] = "",
        cores: tuple[int, ...] = (),
        capacity: int | None = None,
        *,
        debug: bool = False,
    ) -> None:
        self._driver = driver = driver or Driver()
        if memory == "shared" and driver.type != "cpu":
            raise ConfigError(f"{name} does not work in the host's memory; leave memory= out, or say 'own'")
        self._cores = cores or (available_cores() if driver.type == "cpu" else ())
        own = driver.type != "cpu" or memory == "own"
        super().__init__(name, OwnMemory(name, memory_id, driver, capacity) if own else SharedMemory(name))
        self._debug = debug
        self._xp = Namespace(driver.device)
        self._translator = Translator(self._xp)
        self._first_use = FirstUse(self._xp, self._translator, driver.device)
        self.devices: Sequence[Device] = (self._describe(own=own),)
        self.memories: Mapping[int, Memory] = (
            {memory_id: Memory(name, capacity or usable(driver.traits.capacity))} if own else {}
        )

    def _describe(self, *, own: bool) -> Device:
        traits = self._driver.traits
        return Device(
            name=self._name,
            kind=self.kind,
            memory=self._storage.memory,
            readable=self._storage.readable,
            speed=f"torch {traits.name} {'own' if own else 'shared'} x{len(self._cores)}",
            cores=self._cores,
            lanes=LANES,
            waits_across_lanes=own,
            eager=own,
            description=traits.name,
            software=traits.software,
        )

    def supports(self, dtype: Any) -> bool:
        """Tell whether torch computes with `dtype` as NumPy does."""
        return self._driver.supports(dtype)

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        del call_helper  # its own thread does everything
        self._check_not_started()
        torch.get_num_threads()  # the first call in a thread fixes its number, so not after the device's own
        self._lanes = Lanes(self._name, LANES, self._driver, self._prepare, self._begin, finished)

    # On the device's thread ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Set up the calling thread: torch's number of threads, its cores and its gradients are the thread's own."""
        if self._cores:
            pin_thread(*self._cores)
        if self._driver.type == "cpu":
            torch.set_num_threads(len(self._cores))
        torch.set_grad_enabled(False)
        sharpen_timers()

    def _begin(self, instruction: Instruction) -> Launched:
        start = perf_counter()
        step = instruction.step
        if isinstance(step, Launch):
            return self._kernel(instruction.task, step)
        if isinstance(step, Copy):
            return Launched(start, self._storage.copy(step))
        if isinstance(step, Fill):
            self._storage.fill(step)
        elif isinstance(step, Alloc):
            self.allocate(step.allocation)
        elif isinstance(step, Free):
            allocation = step.allocation
            return Launched(start, lambda: self.release(allocation))  # once everything before it is over
        else:
            raise BackendError(f"{self._name} cannot run {step.kind!r} instructions; they belong to the host")
        return Launched(start)

    def _kernel(self, task: Task, step: Launch) -> Launched:
        """Run a body in the caller's context."""
        kernel = task.kernel
        assert kernel is not None
        if (task.space is not None or 0 in task.extents) and step.chunk.box.empty:
            return Launched(perf_counter())  # no point to visit
        context = task.context
        if context is None or task.open > 1:  # sibling chunks run at the same time
            context = context.copy() if context is not None else copy_context()
        in_kernel.name = task.name
        try:
            return context.run(self._call, task, step)
        finally:
            in_kernel.name = ""

    def _call(self, task: Task, step: Launch) -> Launched:
        seen = {binding.name: self._storage.see(binding, self._xp) for binding in step.bindings}
        values = {name: entry.tensor for name, entry in seen.items()}
        body = self._body(task, step, values)
        start, cpu = perf_counter(), thread_time()
        for box, part in parts(task, step, values):
            watched = Watched(task, step, part) if self._debug else None
            place(task, part, returned(task, call(task, body, box, part, self._xp)))
            if watched is not None:
                watched.check()
        _put_back(seen)
        waited = perf_counter() - start - (thread_time() - cpu)
        one_thread = self._driver.type == "cpu" and len(self._cores) == 1
        return Launched(start, waited=max(0.0, waited) if one_thread else 0.0)

    def _body(self, task: Task, step: Launch, values: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the function to call: one written for torch, or the Python body, once it was found to agree."""
        variant = step.body
        if variant.kind != "python" and variant.function is not None:
            function: Callable[..., Any] = variant.function
            return function
        box, part = next(parts(task, step, values))
        key = self._first_use.due(task, step, box, part)
        if key is not None:
            self._first_use.check(key, task, step, box, part)
        assert task.body is not None
        return self._translator.translate(task.body)


def _put_back(seen: Mapping[str, Seen]) -> None:
    for entry in seen.values():
        if entry.back is not None:
            entry.back()
