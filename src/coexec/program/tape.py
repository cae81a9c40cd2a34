"""A session that computes nothing: it writes down which bodies would run on which memory, so that they can be run again and again.

Before: program/kernel.py, program/array.py.  After: models/whole.py.  Knows NumPy memory, no device and no scheduler.

Calls that are made while a tape is the current session are undivided and in order, so nothing has to be found out about them any
more: a step is a body with its arguments, which are views of memory of the tape. Memory of arrays that are gone is used again for
later ones, as the steps' order allows. What needs a value, or more than memory and a body, raises `NotTaped`: then the calls
have to be made as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import UnsupportedError
from .array import Array
from .chunk import ChunkInfo
from .fuse import Operation
from .kernel import Kernel
from .mapper import All, Same
from .storage import HandleEnd, Storage
from .value import Value
from .view import extract

Memory = np.ndarray[Any, Any]
IMAGE = 4
"""Axes of images: number, channel, row, column."""
ALIGNMENT = 128
"""Bytes: what vector instructions and cache lines like to begin at."""


class NotTaped(UnsupportedError):
    """Raised for what cannot be written down."""


class TapeStep(NamedTuple):
    """A body and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    kernel: Kernel | None  # None: memory is filled


class CallTape:
    """Writes calls down. Arrays that are made meanwhile are its own."""

    closed = False

    def __init__(self) -> None:
        self.steps: list[TapeStep] = []
        self._memory: dict[int, Memory] = {}
        self._fixed: set[int] = set()  # arrays whose contents were given: nobody may write them
        self._given: dict[int, Memory] = {}  # these by where they begin; held, so that nothing else ever begins there
        self._free: list[Memory] = []  # bytes of arrays that are gone
        self._raw: dict[int, Memory] = {}  # bytes of arrays whose memory may be used again
        self._last = 0
        self.channels_last = False  # arrays of four axes, which are images, have their second one innermost in memory

    # What arrays ask ----------------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Give a new array its memory."""
        self._last += 1
        storage.id, storage.end = self._last, HandleEnd(self, self._last)
        if data is not None:
            self._memory[storage.id] = memory = data if borrowed else np.array(data, order="C")
            self._fixed.add(storage.id)
            self._given[memory.__array_interface__["data"][0]] = memory
            return
        size = prod(storage.shape) * storage.dtype.itemsize
        self._raw[storage.id] = raw = self._taken(size)
        memory = raw[:size].view(storage.dtype)
        if self.channels_last and len(storage.shape) == IMAGE:
            images, channels, rows, columns = storage.shape
            memory = memory.reshape(images, rows, columns, channels).transpose(0, 3, 1, 2)
        else:
            memory = memory.reshape(storage.shape)
        self._memory[storage.id] = memory
        if storage.initial is not None:
            self.steps.append(TapeStep(memory.fill, (storage.initial,), None))

    def dropped(self, storage_id: int) -> None:
        """Use the memory of an array that is gone again: no call to come can name it."""
        self._memory.pop(storage_id, None)
        if (raw := self._raw.pop(storage_id, None)) is not None:
            self._free.append(raw)

    def memory(self, array: Array) -> Memory:
        """Return the elements of an array or view: those of the last run of the steps."""
        storage = array._storage
        if storage.session is not self:
            raise NotTaped("an array of another runtime is used")
        found: Memory = extract(self._memory[storage.id], storage.box.lo, array._box, array._cut)
        return found

    def given(self, memory: Memory) -> bool:
        """Tell whether memory is that of an array whose contents were given: it never changes."""
        return memory.__array_interface__["data"][0] in self._given

    def lie_channels_last(self, found: Iterable[Array]) -> bool:
        """Tell whether one of some arrays is an image with its channels innermost in memory."""
        images = [self.memory(array) for array in found if array.ndim == IMAGE]
        return any(image.shape[1] > 1 and image.strides[1] == image.itemsize for image in images)

    def keep(self, array: Array) -> None:
        """Never use the memory of an array again."""
        self._raw.pop(array._storage.id, None)

    def _taken(self, size: int) -> Memory:
        """Return so many bytes at least: the smallest that are free and not twice as many, or new ones."""
        fitting = [at for at, raw in enumerate(self._free) if size <= raw.size <= 2 * size]
        if fitting:
            return self._free.pop(min(fitting, key=lambda at: self._free[at].size))
        raw = np.empty(size + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size]

    # What calls ask -----------------------------------------------------------------------------------------------------

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Any) -> Any:
        """Write a call down."""
        del options  # where it would run, and in how many parts
        if kernel.reduces or kernel.returns.names or kernel.host or kernel.keyword_only:
            raise NotTaped(f"kernel {kernel.name!r} is no body on arrays alone")
        arrays, scalars = kernel.bind(
            tuple([value.plain() if type(value) is Value else value for value in args]), kwargs
        )
        scalars = {name: self._number(kernel, value) for name, value in scalars.items()}
        extents, domain, _ = kernel.space(arrays, scalars)
        if domain.empty:
            return None
        named: dict[str, Any] = {"xp": np, **scalars}
        parts = {}
        for param, array in zip(kernel.array_params, arrays, strict=True):
            mapper = param.access.mapper
            if mapper.pad(domain, array.shape) is not None:
                raise NotTaped(f"kernel {kernel.name!r} sees padding")
            if param.access.writes and array._storage.id in self._fixed:
                raise NotTaped(f"kernel {kernel.name!r} changes an array that was given")
            data: Any = self.memory(array)
            if not kernel.simple or type(mapper) not in (Same, All):
                box = mapper.box(domain, extents, array.shape)
                parts[param.name] = box
                data = data[(*box.slices((0,) * box.ndim), ...)]
            named[param.name] = data
        if kernel.takes_chunk:
            named["chunk"] = ChunkInfo(domain, domain, parts)
        self.steps.append(TapeStep(kernel.body(), tuple([named[name] for name in kernel.params]), kernel))
        return None

    def _number(self, kernel: Kernel, value: Any) -> Any:
        """Return what is passed by value: a number as it is, or the one of an array that was given."""
        if not isinstance(value, Array):
            return value
        if value._storage.session is not self or value._storage.id not in self._fixed:
            raise NotTaped(f"kernel {kernel.name!r} takes a value that is computed")
        return self.memory(value)[()]

    def fuse(self, operation: Operation) -> bool:
        """Hold nothing back."""
        del operation
        return False

    def quiet(self) -> bool:
        """Deny it: arrays are this tape's own."""
        return False

    def read(self, array: Array) -> Any:
        """Refuse: nothing is computed."""
        raise NotTaped(f"an array of shape {array.shape} is read, and nothing is computed yet")

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Any) -> Any:
        """Refuse: nobody divides what is written down."""
        raise NotTaped(f"a call of {kernel.name!r} is written down and not planned")

    def begin_step(self, times: int = 0) -> Any:
        """Refuse: steps are a scheduler's."""
        raise NotTaped("calls are written down and no step")

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """Refuse: steps are a scheduler's."""
        raise NotTaped("calls are written down and no step")

    def wait(self) -> None:
        """Refuse: nothing is computed."""
        raise NotTaped("calls are written down and not computed")

    def flush(self) -> None:
        """Do nothing."""
