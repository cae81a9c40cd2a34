"""Kernels that reduce parts of an array: whole results from all of their operands, or one result per fixed block.

Before: program/kernel.py, ops/reduction_source.py.  After: ops/reduce.py.  Knows no device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..geometry import Box
from ..program.access import read, write
from ..program.body import signature
from ..program.kernel import Kernel
from ..program.mapper import Mapper
from ..program.padding import Shape
from ..program.variant import close
from .reduction_source import source

NUMERICS = close(64)
ABSENT: Any = getattr(np, "_NoValue")  # noqa: B009 - what NumPy passes for an option that was not given


class AlongReduced(Mapper):
    """The part of an operand that some results need: everything along the axes that go away.

    Per axis of the operand: the axis of the results that stands for it, or -1 if it goes away, and how many elements of
    it one point covers. An axis of length one serves every chunk.
    """

    def __init__(self, axes: tuple[int, ...], rows: int = 1, blocked: int = -1) -> None:
        self.axes = axes
        self.rows = rows
        self.blocked = blocked

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        lo, hi = [], []
        for axis, (position, extent) in enumerate(zip(self.axes, shape, strict=True)):
            rows = self.rows if axis == self.blocked else 1
            whole = position < 0 or extent == 1
            lo.append(0 if whole else min(extent, chunk.lo[position] * rows))
            hi.append(extent if whole else min(extent, chunk.hi[position] * rows))
        return Box(tuple(lo), tuple(hi))


class Request(NamedTuple):
    """What a body is to do: the ufunc, the axes that go away, and its options."""

    ufunc: Any
    axes: tuple[int, ...]
    dtype: np.dtype[Any]
    initial: Any = ABSENT
    signs: tuple[bool, bool] = (
        False,
        False,
    )  # of a zero to begin with, real and imaginary: kernels are found by equality

    def reduce(self, x: Any, mask: Any, out: Any) -> None:
        """Reduce one part of the operand into `out`."""
        options: dict[str, Any] = {} if self.initial is ABSENT else {"initial": self.initial}
        if mask is not None:
            options["where"] = mask
        if self.dtype.kind in "fc" and x.dtype != self.dtype:
            x = x.astype(self.dtype)  # NumPy would convert in pieces of its buffer, whose ends are no fixed blocks
        self.ufunc.reduce(x, axis=self.axes, dtype=self.dtype, out=out, **options)


class WholeReduction:
    """A body: reduces all of its part into the results."""

    def __init__(self, request: Request, *, masked: bool, lone: int = -1) -> None:
        self.__signature__ = signature(["x", "mask", "out"] if masked else ["x", "out"])
        self.__name__ = f"{request.ufunc.__name__}_reduce"
        self._request = request
        self._masked = masked
        self._lone = lone  # an axis along which a part with one element would be added up in another order

    def __call__(self, *values: Any) -> None:
        """Reduce one chunk."""
        x, mask, out = values if self._masked else (values[0], None, values[1])
        if self._lone < 0 or x.shape[self._lone] != 1:
            self._request.reduce(x, mask, out)
            return
        twice = np.empty((*out.shape[:-1], 2), out.dtype)
        mask = None if mask is None else np.broadcast_to(mask, x.shape).repeat(2, self._lone)
        self._request.reduce(x.repeat(2, self._lone), mask, twice)
        out[...] = twice[..., :1]


class BlockReduction:
    """A body: reduces each block of rows along one axis into its own results."""

    def __init__(self, request: Request, blocked: int, *, masked: bool) -> None:
        self.__signature__ = signature(["x", "mask", "out", "rows"] if masked else ["x", "out", "rows"])
        self.__name__ = f"{request.ufunc.__name__}_blocks"
        self._request = request
        self._blocked = blocked
        self._masked = masked

    def __call__(self, *values: Any) -> None:
        """Reduce the blocks of one chunk."""
        x, mask, out, rows = values if self._masked else (values[0], None, *values[1:])
        before = (slice(None),) * self._blocked
        done = self._at_once(x, out, rows) if mask is None else 0
        for block in range(done, len(out)):
            part = (*before, slice(block * rows, (block + 1) * rows))
            some = mask if mask is None or mask.shape[self._blocked] == 1 else mask[part]
            self._request.reduce(x[part], some, out[block, ...])

    def _at_once(self, x: Any, out: Any, rows: int) -> int:
        """Reduce the full blocks of dense data in one call, which takes the interpreter lock once; return their number."""
        full = len(x) // rows
        if self._blocked or out.ndim > 1 or full < 2 or not x.flags.c_contiguous:
            return 0
        request = self._request
        if request.initial is not ABSENT or (request.dtype.kind in "fc" and x.dtype != request.dtype):
            return 0
        request._replace(axes=(1,)).reduce(x[: full * rows].reshape(full, -1), None, out[:full])
        return full


# Kernels ------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def whole_kernel(request: Request, ndim: int, taken: np.dtype[Any], masked: bool, cut: int | None) -> Kernel:
    """Return the kernel that gives each result from all of its operands; `cut` is the kept axis it is divided along."""
    kept = [axis for axis in range(ndim) if axis not in request.axes]
    mapper = AlongReduced(tuple(kept.index(axis) if axis in kept else -1 for axis in range(ndim)))
    body = WholeReduction(request, masked=masked, lone=ndim - 1 if cut == ndim - 1 else -1)
    accesses = {"x": read(mapper), "out": write} | ({"mask": read(mapper)} if masked else {})
    split = None if cut is None else kept.index(cut)
    kernel = Kernel(body, accesses, split=split, over="out", name=body.__name__)
    text = None
    if cut is not None and not masked and request.initial is ABSENT:
        text = source(request.ufunc, taken, request.dtype, ndim, request.axes, None)
    return kernel if text is None else kernel.opencl(text, numerics=NUMERICS)


@lru_cache(maxsize=512)
def blocks_kernel(request: Request, ndim: int, taken: np.dtype[Any], masked: bool, blocked: int, rows: int) -> Kernel:
    """Return the kernel that reduces blocks along one axis, each into its own row of the results."""
    kept = [axis for axis in range(ndim) if axis not in request.axes]
    positions = tuple(kept.index(axis) + 1 if axis in kept else 0 if axis == blocked else -1 for axis in range(ndim))
    mapper = AlongReduced(positions, rows, blocked)
    body = BlockReduction(request, blocked, masked=masked)
    accesses = {"x": read(mapper), "out": write} | ({"mask": read(mapper)} if masked else {})
    kernel = Kernel(body, accesses, split=0, over="out", name=body.__name__)
    text = None
    if not masked and request.initial is ABSENT:
        text = source(request.ufunc, taken, request.dtype, ndim, request.axes, blocked)
    return kernel if text is None else kernel.opencl(text, numerics=NUMERICS)
