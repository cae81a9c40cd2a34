"""Host memory: aligned for every device, with what was freed kept for the next allocation of the same size.

Before: backend/launch.py.  After: backend/cpu.py.  Called under the executor's lock or, when an array is made, by the
thread that makes it: the pool has a lock of its own.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ..errors import DoesNotFit
from ..graph.instruction import Allocation
from .launch import aligned_empty, set_data

POOL_BYTES = 1 << 29  # freed memory kept for reuse: fresh pages cost more than the pass that fills them
POOL_LARGEST = 1 << 28
_BYTES: np.dtype[Any] = np.dtype(np.uint8)


class HostMemory:
    """Allocations of the host, within a limit if there is one."""

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._used = 0
        self._pool: dict[int, list[Any]] = {}
        self._pooled = 0
        self._lock = threading.Lock()

    def allocate(self, allocation: Allocation) -> None:
        """Set `allocation.data` to an uninitialised array; its pages appear on first touch."""
        nbytes = allocation.nbytes
        if self._capacity is not None and self._used + nbytes > self._capacity:
            raise DoesNotFit(f"{allocation!r}", "host", nbytes, max(0, self._capacity - self._used))
        with self._lock:
            spare = self._pool.get(nbytes)
            data = spare.pop() if spare else None
            if data is not None:
                self._pooled -= nbytes
            elif self._capacity is not None and self._used + self._pooled + nbytes > self._capacity:
                self._pool.clear()  # what is kept for later is within the limit too
                self._pooled = 0
        if data is None:
            try:
                data = aligned_empty((nbytes,), _BYTES)
            except MemoryError as error:
                raise DoesNotFit(f"{allocation!r}", "host", nbytes, 0) from error
        self._used += nbytes
        set_data(allocation, data.view(allocation.dtype).reshape(allocation.box.shape))
        allocation.owner = data

    def release(self, allocation: Allocation) -> None:
        """Give the memory back, or keep it for the next allocation of the same size."""
        nbytes, data = allocation.nbytes, allocation.owner
        allocation.data = allocation.frozen = allocation.owner = None
        if data is None or isinstance(data, BaseException):
            return
        self._used -= nbytes
        with self._lock:
            if nbytes <= POOL_LARGEST and self._pooled + nbytes <= POOL_BYTES:
                self._pool.setdefault(nbytes, []).append(data)
                self._pooled += nbytes

    def clear(self) -> None:
        """Give back what was kept."""
        with self._lock:
            self._pool.clear()
            self._pooled = 0
