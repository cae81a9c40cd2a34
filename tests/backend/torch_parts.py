"""A torch backend driven by hand: arrays in, one kernel, arrays out, on the host's memory or on its own."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

import numpy as np

from coexec.backend.launch import aligned_empty, set_data
from coexec.backend.torch.backend import TorchBackend
from coexec.geometry import Box, whole
from coexec.graph.command import Chunk
from coexec.graph.instruction import Allocation, Binding, Copy, Fill, Instruction, Launch
from coexec.graph.task import Task
from coexec.machine.platform import HOST, USER
from coexec.plan.candidate import Share
from coexec.program.kernel import Kernel as Definition
from coexec.program.variant import Variant, close
from tests.backend.driven import Driven

OWN = 2


def on_torch(function: Any = None) -> Variant:
    """Return the variant that lets a Python body, or a function written for torch, run there."""
    name = "python on torch" if function is None else "torch function"
    return Variant(name, "torch", function=function, numerics=close(4))


def back_on_host(allocation: Allocation) -> None:
    set_data(allocation, aligned_empty(allocation.box.shape, allocation.dtype))


class Rig(Driven[TorchBackend]):
    """A started backend that waits for its reports."""

    def __init__(self, memory: Any = "", **options: Any) -> None:
        super().__init__(TorchBackend(memory=memory, memory_id=OWN, **options))
        self.own = self.backend.devices[0].memory == OWN
        self.name = self.backend.devices[0].name

    def host(self, data: Any, memory: int = HOST) -> Allocation:
        """Return an allocation of the host that is `data` itself."""
        allocation = Allocation(self.id(), memory, 0, whole(data.shape), data.dtype)
        set_data(allocation, data)
        return allocation

    def put(self, data: Any) -> Allocation:
        """Return an allocation that kernels can use, with a copy of `data`."""
        source = self.host(np.array(data, order="C"))
        if not self.own:
            return source
        target = Allocation(self.id(), OWN, 0, source.box, source.dtype)
        self.backend.allocate(target)
        self.run(self.copy(source, target))
        return target

    def get(self, allocation: Allocation) -> Any:
        if allocation.memory != OWN:
            return allocation.data.copy()
        target = self.host(np.empty(allocation.box.shape, allocation.dtype))
        self.run(self.copy(allocation, target))
        return target.data

    def copy(self, source: Allocation, target: Allocation, *boxes: Box) -> Instruction:
        step = Copy(self.name, source, target, boxes or (source.box,), "coherence")
        return Instruction(self.id(), step, None)

    def fill(self, allocation: Allocation, value: Any) -> Instruction:
        step = Fill(self.name, allocation, (allocation.box,), allocation.dtype.type(value))
        return Instruction(self.id(), step, None)

    def kernel(
        self,
        kernel: Definition,
        bindings: dict[str, Binding],
        chunk: Box,
        variant: Variant | None = None,
        pieces: tuple[Box, ...] = (),
        **scalars: Any,
    ) -> Instruction:
        """Return an instruction that runs `kernel` on `chunk`."""
        task = Task(0, kernel.name, kernel, None)
        task.scalars, task.body, task.accesses, task.open = scalars, kernel.body(), kernel.array_params, 1
        task.extents, task.domain, task.context = chunk.shape, chunk, copy_context()
        task.shapes = [binding.box.shape for binding in bindings.values()]
        share = Share(variant or on_torch(), None, None, None)
        part = Chunk(self.name, chunk)._replace(pieces=pieces)
        return Instruction(self.id(), Launch(self.name, part, share, tuple(bindings.values()), 0), task)

    def call(self, kernel: Definition, *arrays: Any, variant: Variant | None = None, **scalars: Any) -> list[Any]:
        """Run a kernel whole on copies of `arrays`, in the order of its array parameters; return what they hold then."""
        held = [self.put(array) for array in arrays]
        params = kernel.array_params
        bindings = {
            p.name: Binding(p.name, a, a.box, None, p.access.writes, None, a.dtype)
            for p, a in zip(params, held, strict=True)
        }
        space = next((a for p, a in zip(params, held, strict=True) if p.access.writes), held[0]).box
        self.run(self.kernel(kernel, bindings, space, variant, **scalars))
        return [self.get(a) for a in held]


__all__ = ["HOST", "OWN", "USER", "Rig", "back_on_host", "on_torch"]
