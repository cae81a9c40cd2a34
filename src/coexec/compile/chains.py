"""NumPy's own functions on arrays, and chains of them, as OpenCL C: known before any call, by types and patterns alone.

Before: compile/opencl.py, program/fuse.py.  After: plan/candidate.py, which offers the variant.  Knows no device.

Their bodies are formulas that are traced like any other. What they compute is NumPy's, whatever the numbers are, so one text
serves all calls with operands of these types, and is compared with NumPy by tests instead of at its first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..program.variant import Variant, close, exact
from .opencl import EXTENT, Statements, statements
from .opencl_text import LOGICAL
from .refused import Untraceable
from .trace import FEW, trace

if TYPE_CHECKING:
    from ..program.fuse import Operand
    from ..program.kernel import Kernel

TYPES = frozenset({"float32", "float64", "int32", "int64", "bool"})
"""The types whose texts were compared with NumPy for every function; every other runs in NumPy."""
WORD = re.compile(r"[a-z]\w*")
GROUP = (64,)
"""Work-items of a group where each computes a vector."""


@cache
def work_items(width: int) -> tuple[Callable[[tuple[int, ...]], tuple[int, ...]] | None, tuple[int, ...] | None]:
    """Return the work-items of a chunk, in OpenCL's order with at most three axes, and of a group; none if one per point."""
    if width == 1:
        return None, None

    def of_chunk(shape: tuple[int, ...]) -> tuple[int, ...]:
        items = -(-shape[-1] // width)
        return (items, *shape[-2::-1]) if len(shape) <= 3 else (items, shape[-2], prod(shape[:-2]))

    return of_chunk, GROUP


def chain_variant(kernel: Kernel) -> Variant:
    """Return the OpenCL variant of a ufunc or a chain; it is off, with the reason, if only NumPy can."""
    try:
        found = _statements(kernel)
    except Untraceable as reason:
        variant = Variant("opencl", "opencl")
        variant.off = f"it has no OpenCL C: {reason}"
        return variant
    items, group = work_items(found.width)
    numerics = close(found.ulp) if found.ulp else exact
    return Variant("opencl", "opencl", source=found.source, global_size=items, local_size=group, numerics=numerics)


def _statements(kernel: Kernel) -> Statements:
    operands: dict[str, Operand] = kernel.operands
    for operand in operands.values():
        _check_type(operand)
    if any(operand.dtype is float for operand in operands.values()) and LOGICAL & set(kernel.name.split("+")):
        raise Untraceable("a Python float might be zero in the arrays' type")
    given = {name: _stand_in(operand) for name, operand in operands.items()}
    traced = trace(kernel.function, given, [name for name in given if name.startswith("out")], free=True)
    decided = [text for text in traced.guards.answers if not _of_extents(text)]
    decided += [text for text in traced.guards.least if not EXTENT.search(text)]
    if decided:
        raise Untraceable(f"it depends on {decided[0]}")
    return statements(traced, name_numbers=False, vectors=True)


def _of_extents(guard: str) -> bool:
    """Tell whether a guard asks for extents only, which go together by the operands' patterns."""
    return all("__" in word for word in WORD.findall(guard.removeprefix("bool")))


def _check_type(operand: Operand) -> None:
    if isinstance(operand.dtype, type):
        if operand.dtype is complex:
            raise Untraceable("complex numbers are not compiled")
    elif operand.dtype.name not in TYPES:
        raise Untraceable(f"elements of type {operand.dtype.name} are not compiled here")


def _stand_in(operand: Operand) -> Any:
    """Return an argument like those of the calls: no elements, extents that are unlike, numbers of which nothing is known."""
    if operand.ones:
        shape = tuple(1 if one else FEW + 1 + axis for axis, one in enumerate(operand.ones[::-1]))
        return np.broadcast_to(np.empty((), operand.dtype), shape[::-1])
    if operand.dtype is bool:
        return np.bool_(1)
    return operand.dtype(1) if isinstance(operand.dtype, type) else operand.dtype.type(1)
