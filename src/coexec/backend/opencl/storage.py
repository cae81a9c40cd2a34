"""Where allocations live: in the device's own memory, or in the host's, used in place.

Before: driver.py.  After: program.py, copies.py, backend.py.  Knows nothing of queues and instructions.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import BackendError, DoesNotFit, InvariantError
from ...machine.platform import HOST, USER
from .driver import OpenCLTraits
from .program import LaunchPlace

if TYPE_CHECKING:
    from ...graph.instruction import Allocation

DENSE = None
POOLED = 8  # the part of the capacity that freed buffers may keep, as its divisor


class OpenCLStorage(Protocol):
    """One way to hold allocations."""

    memory: int
    readable: tuple[int, ...]

    def allocate(self, allocation: Allocation) -> None: ...

    def release(self, allocation: Allocation) -> None: ...

    def holds(self, allocation: Allocation) -> bool:
        """Tell whether copies reach this allocation as a buffer; if not, it is an ndarray of the host."""

    def place(self, allocation: Allocation) -> LaunchPlace:
        """Return the buffer behind an allocation; raise BackendError if kernels cannot reach it."""


class OpenCLOwnMemory:
    """Buffers apart from the host's memory."""

    readable: tuple[int, ...] = ()

    def __init__(self, name: str, memory: int, context: Any, device: OpenCLTraits, capacity: int | None = None) -> None:
        self.memory = memory
        self._name, self._context, self._device = name, context, device
        self.capacity = capacity if capacity is not None else device.capacity
        self._used = 0
        self._pool: dict[int, list[Any]] = {}  # freed buffers by size: fresh ones cost page faults
        self._pooled = 0

    def allocate(self, allocation: Allocation) -> None:
        import pyopencl as cl

        nbytes = max(1, allocation.nbytes)  # OpenCL has no buffers without bytes
        spare = self._pool.get(nbytes)
        if spare:
            allocation.data = spare.pop()
            self._pooled -= nbytes
            self._used += nbytes
            return
        if self._used + self._pooled + nbytes > self.capacity:
            self._empty_pool()
        if nbytes > self._device.largest_buffer:
            raise DoesNotFit(f"allocation {allocation}", self._name, nbytes, self._device.largest_buffer)
        if self._used + nbytes > self.capacity:
            raise DoesNotFit(f"allocation {allocation}", self._name, nbytes, self.capacity - self._used)
        try:
            allocation.data = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)
        except cl.MemoryError as error:
            raise DoesNotFit(f"allocation {allocation}", self._name, nbytes, self.capacity - self._used) from error
        except cl.Error as error:
            raise BackendError(f"{self._name} could not allocate {nbytes} bytes: {error}") from error
        self._used += nbytes

    def release(self, allocation: Allocation) -> None:
        buffer, allocation.data = allocation.data, None
        if buffer is not None:
            nbytes = max(1, allocation.nbytes)
            self._used -= nbytes
            if self._pooled + nbytes <= self.capacity // POOLED:
                self._pool.setdefault(nbytes, []).append(buffer)
                self._pooled += nbytes
            else:
                buffer.release()

    def _empty_pool(self) -> None:
        for buffers in self._pool.values():
            for buffer in buffers:
                buffer.release()
        self._pool.clear()
        self._pooled = 0

    def holds(self, allocation: Allocation) -> bool:
        return allocation.memory == self.memory

    def place(self, allocation: Allocation) -> LaunchPlace:
        if allocation.memory != self.memory or allocation.data is None:
            raise BackendError(f"{allocation} is not in the memory of {self._name}, which reads no other") from _why(
                allocation
            )
        return LaunchPlace(allocation.data, 0, DENSE)


def _why(allocation: Allocation) -> BaseException | None:
    """Return why an allocation has no memory, if it was tried."""
    return allocation.owner if isinstance(allocation.owner, BaseException) else None


class OpenCLSharedMemory:
    """The host's memory, wrapped once per allocation and never copied.

    A wrapper lives as long as the ndarray it stands for: whoever owns host memory just drops it.
    """

    memory: int = HOST
    readable: tuple[int, ...] = (HOST, USER)

    def __init__(self, name: str, context: Any, device: OpenCLTraits) -> None:
        self._name, self._context, self._alignment = name, context, device.alignment
        self._wrapped: dict[int, tuple[weakref.ref[Any], LaunchPlace]] = {}
        self._dropped: deque[int] = deque()  # a finalizer may run anywhere, so it only leaves a note here

    def allocate(self, allocation: Allocation) -> None:
        raise InvariantError(f"{self._name} has no memory of its own to put {allocation} into")

    def release(self, allocation: Allocation) -> None:
        self._wrapped.pop(id(allocation.data), None)

    def holds(self, allocation: Allocation) -> bool:
        return allocation.memory == HOST

    def place(self, allocation: Allocation) -> LaunchPlace:
        data = allocation.data
        if not isinstance(data, np.ndarray):
            raise BackendError(
                f"{allocation} is not in the host's memory, the only one that {self._name} reads"
            ) from _why(allocation)
        self._sweep()
        found = self._wrapped.get(id(data))
        if found is not None and found[0]() is data:
            return found[1]
        if any(stride % data.itemsize for stride in data.strides) or data.ctypes.data % data.itemsize:
            return self._wrap(np.ascontiguousarray(data), keep=True)  # fields of records: no stride says where they are
        key, dropped = id(data), self._dropped
        place = self._wrap(data, keep=False)
        self._wrapped[key] = weakref.ref(data, lambda _: dropped.append(key)), place
        return place

    def _sweep(self) -> None:
        while self._dropped:
            found = self._wrapped.get(key := self._dropped.popleft())
            if found is not None and found[0]() is None:
                del self._wrapped[key]

    def _wrap(self, data: np.ndarray[Any, Any], *, keep: bool) -> LaunchPlace:
        """Wrap the bytes from the first to the last element, and the few before them up to the device's alignment."""
        import pyopencl as cl

        low, high = np.lib.array_utils.byte_bounds(data)
        base = low - low % self._alignment if (low % self._alignment) % data.itemsize == 0 else low
        view = (ctypes.c_char * max(1, high - base)).from_address(base)  # no reference to `data`: it must be free to go
        try:
            buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=view)
        except cl.Error as error:
            raise BackendError(f"{self._name} cannot use {high - base} bytes of the host in place: {error}") from error
        strides = DENSE if data.flags.c_contiguous else tuple(s // data.itemsize for s in data.strides)
        return LaunchPlace(buffer, (data.ctypes.data - base) // data.itemsize, strides, data if keep else None)
