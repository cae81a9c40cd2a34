"""Streaming stores: which results go past the caches into memory, for nobody reads them before they would be gone from there.

Before: compile/graph.py, machine/cores.py.  After: compile/llvm.py, compile/entering.py.  Pure: compiles nothing.

An ordinary store first reads the line that it changes. A result that is never read by the body and is larger than the last
cache is written without that, which saves a quarter to a third of a plain formula's traffic. A form streams or it does not: calls
on the other side of the limit are served by another form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..machine.cores import last_cache_bytes
from .graph import Apply, Assign, Constant, Convert, Counting, Expr, Read, Scalar, View, nodes_of

CACHES = 2  # a result of so many last caches is gone from there before anyone could read it again
ROW = 1024  # bytes of a row, at least: its ends are written element by element
LINE = 64  # bytes that memory is written in; the widest vectors are as long
LEAST = 16  # bytes of the shortest vector that x86 streams

PLAIN = (Apply, Constant, Convert, Counting, Read, Scalar, View)
"""Values that are computed alike for each element, in registers."""


def worth_streaming(array: Any) -> bool:
    """Tell whether an array that is only written should go past the caches."""
    if not isinstance(array, np.ndarray) or not array.ndim:
        return False
    return array.nbytes >= CACHES * last_cache_bytes() and array.shape[-1] * array.itemsize >= ROW


def only_written(stores: Sequence[Assign]) -> frozenset[str]:
    """Return the names of parameters that one store writes, and nothing reads."""
    read = {id(node.buffer) for node in nodes_of(*(store.value for store in stores)) if isinstance(node, Read)}
    seen: dict[str, int] = {}
    for store in stores:
        if store.buffer.parameter and id(store.buffer) not in read and store.buffer.shape:
            seen[store.buffer.name] = seen.get(store.buffer.name, 0) + 1
    return frozenset(name for name, count in seen.items() if count == 1)


def streamable(group: Sequence[Assign], nodes: Sequence[Expr], names: frozenset[str], lanes: int) -> Assign | None:
    """Return the store of a loop that may go past the caches: one at most, for its vectors begin at lines of memory.

    Values must be computed alike by single elements and by vectors, which may begin anywhere in a row.
    """
    if lanes == 1 or not all(isinstance(node, PLAIN) for node in nodes):
        return None
    for store in group:
        last = store.axes[-1] if store.axes else None
        along = len(store.value.shape) - 1
        elsewhere = any(line.axis == along for line in store.axes[:-1])
        if (
            last is not None
            and store.buffer.name in names
            and (last.axis, last.step) == (along, 1)
            and not elsewhere
            and LEAST <= lanes * store.buffer.dtype.itemsize <= LINE
        ):
            return store
    return None
