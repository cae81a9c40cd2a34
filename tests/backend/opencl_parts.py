"""Stand-ins for what the program stage hands to the OpenCL backend, and a driver for it in tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from coexec.backend.opencl import OpenCLBackend
from coexec.backend.opencl.probe import probe
from coexec.geometry import Box, whole
from coexec.graph.command import Chunk
from coexec.graph.instruction import Allocation, Binding, Copy, Fill, Instruction, Launch
from coexec.machine.platform import HOST, USER
from coexec.plan.candidate import Share
from coexec.program.variant import Variant
from tests.backend.driven import Driven

OWN = 2

needs_opencl = pytest.mark.skipif(not probe().devices, reason=f"no OpenCL device: {probe().unavailable}")


def Source(source: str, entry: str | None = None, **options: Any) -> Variant:
    """Return a variant from OpenCL C."""
    return Variant("opencl", "opencl", source=source, entry=entry, **options)


@dataclass
class Call:
    """What the backend reads of a task."""

    params: tuple[str, ...]
    scalars: dict[str, Any] = field(default_factory=dict)
    name: str = "test"


class Rig(Driven[OpenCLBackend]):
    """A started backend that waits for its reports."""

    def __init__(self, memory: Any = "own", **options: Any) -> None:
        super().__init__(OpenCLBackend(0, memory_id=OWN, memory=memory, **options))
        self.shared = memory == "shared"

    def host(self, data: np.ndarray, lo: tuple[int, ...] = (), memory: int = HOST) -> Allocation:
        """Return an allocation of the host's memory that is `data`."""
        lo = lo or (0,) * data.ndim
        box = whole(data.shape).translate(lo)
        allocation = Allocation(self.id(), memory, 0, box, data.dtype)
        allocation.data = data
        return allocation

    def put(self, data: Any, lo: tuple[int, ...] = ()) -> Allocation:
        """Return an allocation that kernels can use, with the contents of `data`."""
        data = np.asarray(data)
        if self.shared:
            return self.host(aligned(data), lo)
        source = self.host(np.array(data, order="C"), lo)
        target = Allocation(self.id(), OWN, 0, source.box, data.dtype)
        self.backend.allocate(target)
        self.run(self.copy(source, target, source.box))
        return target

    def get(self, allocation: Allocation) -> Any:
        """Return the contents of an allocation."""
        if allocation.memory != OWN:
            return allocation.data.copy()
        target = self.host(np.empty(allocation.box.shape, allocation.dtype), allocation.box.lo)
        self.run(self.copy(allocation, target, allocation.box))
        return target.data

    def copy(self, source: Allocation, target: Allocation, *boxes: Box) -> Instruction:
        return Instruction(self.id(), Copy("opencl:0", source, target, boxes, "coherence"), None)

    def fill(self, allocation: Allocation, value: Any, *boxes: Box) -> Instruction:
        if not isinstance(value, np.generic):
            value = allocation.dtype.type(value)
        return Instruction(self.id(), Fill("opencl:0", allocation, boxes, value), None)

    def kernel(self, source: Any, chunk: Box, arrays: dict[str, Any], **scalars: Any) -> Instruction:
        """Return a kernel; `arrays` maps names to an allocation or a Binding, in the order of the parameters."""
        bindings = tuple(
            value if isinstance(value, Binding) else Binding(name, value, value.box, None, writes=True)
            for name, value in arrays.items()
        )
        body = source if isinstance(source, Variant) else Source(source)
        task: Any = Call((*arrays, *scalars), scalars)
        step = Launch("opencl:0", Chunk("opencl:0", chunk), Share(body, None, None, None), bindings)
        return Instruction(self.id(), step, task)


def aligned(data: np.ndarray, alignment: int = 128) -> np.ndarray:
    """Return a copy whose first element lies on the alignment."""
    raw = np.empty(data.nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    copy = raw[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return copy


__all__ = ["HOST", "OWN", "USER", "Call", "Rig", "Source", "aligned", "needs_opencl"]
