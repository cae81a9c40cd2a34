"""Where allocations live: in tensors of the device, or in the host's memory, used in place.

Before: driver.py, handover.py, launch.py.  After: backend.py.  Knows nothing of lanes, bodies and streams' names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from ...errors import BackendError, DoesNotFit, InvariantError
from ...machine.platform import HOST, USER
from ...program.view import extract
from ..launch import resolve, run
from .driver import TorchDriver
from .handover import cut_out, shares, to_numpy, to_tensor, torch_dtype

if TYPE_CHECKING:
    from ...geometry import Box
    from ...graph.instruction import Allocation, Binding, Copy, Fill

Then = Callable[[], None] | None
"""What remains to be done on the host once the device is done."""


class SeenTensor(NamedTuple):
    """What a parameter of a body sees; if it is a copy of what the body writes, how to put it back."""

    tensor: Any
    back: Callable[[], Any] | None = None


class TorchStorage(Protocol):
    """One way to hold allocations."""

    memory: int
    readable: tuple[int, ...]

    def allocate(self, allocation: Allocation) -> None: ...

    def release(self, allocation: Allocation) -> None: ...

    def see(self, binding: Binding, xp: Any) -> SeenTensor:
        """Return a parameter as a tensor of the device."""

    def copy(self, step: Copy) -> Then:
        """Begin a copy instruction."""

    def fill(self, step: Fill) -> None:
        """Begin a fill instruction."""


class TorchSharedMemory:
    """The host's memory: arrays are handed over as tensors, and nothing is copied."""

    memory: int = HOST
    readable: tuple[int, ...] = (HOST, USER)

    def __init__(self, name: str) -> None:
        self._name = name

    def allocate(self, allocation: Allocation) -> None:
        raise InvariantError(f"{self._name} has no memory of its own to put {allocation} into")

    def release(self, allocation: Allocation) -> None:
        """Do nothing: the host's memory is its owner's business."""

    def see(self, binding: Binding, xp: Any) -> SeenTensor:
        allocation = binding.allocation
        if (
            allocation is not None
            and allocation.data is not None
            and allocation.memory == HOST  # dense
            and binding.box is allocation.box
            and binding.cut is None
            and binding.pad is None
        ):
            return SeenTensor(torch.from_numpy(allocation.data))
        array = resolve(binding)
        tensor = to_tensor(array)
        if not binding.writes or shares(array):
            return SeenTensor(tensor)
        return SeenTensor(tensor, lambda: np.copyto(array, to_numpy(tensor)))

    def copy(self, step: Copy) -> Then:
        run(None, step)
        return None

    def fill(self, step: Fill) -> None:
        run(None, step)


class TorchOwnMemory:
    """Tensors of the device, apart from the host's memory."""

    readable: tuple[int, ...] = ()

    def __init__(self, name: str, memory: int, driver: TorchDriver, capacity: int | None = None) -> None:
        self.memory = memory
        self._name, self._driver = name, driver
        self._capacity = capacity if capacity is not None else driver.traits.capacity
        self._used = 0

    def allocate(self, allocation: Allocation) -> None:
        nbytes = allocation.nbytes
        left = None if self._capacity is None else self._capacity - self._used
        if left is not None and nbytes > left:
            raise DoesNotFit(f"allocation {allocation}", self._name, nbytes, left)
        try:
            dtype = torch_dtype(allocation.dtype)
            allocation.data = torch.empty(allocation.box.shape, dtype=dtype, device=self._driver.device)
        except RuntimeError as error:  # out of memory is one of these on every device
            raise DoesNotFit(f"allocation {allocation}", self._name, nbytes, left or 0) from error
        self._used += nbytes

    def release(self, allocation: Allocation) -> None:
        if allocation.data is not None:
            self._used -= allocation.nbytes
            allocation.data = None

    def see(self, binding: Binding, xp: Any) -> SeenTensor:
        allocation = binding.allocation
        if allocation is None:
            return SeenTensor(to_tensor(resolve(binding)).to(self._driver.device))
        if binding.pieces is not None:
            parts = [
                (piece.seen, _forwards(self._cut(piece.allocation, piece.box, binding))) for piece in binding.pieces
            ]
            return SeenTensor(binding.pad.gather(parts, xp))
        view, backwards = self._cut(allocation, binding.box, binding)
        if binding.pad is not None:
            return SeenTensor(binding.pad.apply(_forwards((view, backwards)), xp))
        if not backwards:
            return SeenTensor(view)
        flipped = torch.flip(view, backwards)
        return SeenTensor(flipped, (lambda: view.copy_(torch.flip(flipped, backwards))) if binding.writes else None)

    def _cut(self, allocation: Allocation, box: Box, binding: Binding) -> tuple[Any, tuple[int, ...]]:
        return cut_out(self._tensor(allocation), allocation.box.lo, box, binding.cut)

    def copy(self, step: Copy) -> Then:
        source, target = step.source, step.target
        inside = (source.memory == self.memory, target.memory == self.memory)
        if inside == (False, False):
            raise BackendError(f"neither {source} nor {target} is in a memory of {self._name}")
        if inside == (True, True):
            for box in step.boxes:
                self._part(target, box).copy_(self._part(source, box), non_blocking=True)
            return None
        if inside[1]:
            for box in step.boxes:
                self._send(_host_part(source, box), self._part(target, box))
            return None
        landed = [(self._fetch(self._part(source, b)), _host_part(target, b)) for b in step.boxes]
        return lambda: _land(landed)

    def fill(self, step: Fill) -> None:
        for box in step.boxes:
            self._part(step.allocation, box).fill_(np.asarray(step.value).item())

    def _tensor(self, allocation: Allocation) -> Any:
        if allocation.memory != self.memory or allocation.data is None:
            why = allocation.owner if isinstance(allocation.owner, BaseException) else None
            raise BackendError(f"{allocation} is not in the memory of {self._name}, which reads no other") from why
        return allocation.data

    def _part(self, allocation: Allocation, box: Box) -> Any:
        return self._tensor(allocation)[(*box.slices(allocation.box.lo), ...)]

    def _send(self, array: np.ndarray[Any, Any], part: Any) -> None:
        staging = self._staging(part)
        np.copyto(staging.numpy(), array)
        part.copy_(staging, non_blocking=True)  # torch keeps pinned memory until the copy is over

    def _fetch(self, part: Any) -> Any:
        staging = self._staging(part)
        staging.copy_(part, non_blocking=True)
        return staging

    def _staging(self, part: Any) -> Any:
        """Return host memory that the device copies from and to by itself, where there is such a thing."""
        return torch.empty(part.shape, dtype=part.dtype, pin_memory=self._driver.pins)


def _forwards(cut: tuple[Any, tuple[int, ...]]) -> Any:
    """Return the elements of a view in its own order."""
    view, backwards = cut
    return torch.flip(view, backwards) if backwards else view


def _land(landed: list[tuple[Any, Any]]) -> None:
    for staging, array in landed:
        np.copyto(array, staging.numpy())


def _host_part(allocation: Allocation, box: Box) -> Any:
    data: Any = allocation.data
    if not isinstance(data, np.ndarray):
        raise BackendError(f"{allocation} is not in the host's memory")
    return extract(data, allocation.box.lo, box, None)
