"""Read arrays of a closed runtime: its devices are gone, what was brought to the host is still there.

Before: lower/state.py, backend/launch.py.  After: driver.py.  Knows no thread: nothing runs any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend.launch import resolve
from ..errors import RuntimeClosed
from ..graph.instruction import Binding
from ..lower.state import FILL, ArrayState
from ..machine.platform import HOST, USER
from ..program.array import Array
from ..program.view import extract


def read_closed(array: Array, failed: Mapping[int, BaseException]) -> Any:
    """Return the elements as a read-only ndarray, or raise what poisoned them."""
    storage = array._storage
    state: ArrayState | None = storage.state
    box = array._box
    if state is None and (home := storage.home) is not None:
        return _sealed(np.array(extract(home, (0,) * home.ndim, box, array._cut), order="C"))
    if state is None and storage.initial is not None:
        return _sealed(np.full(array.shape, storage.initial, array.dtype))
    if state is None:
        raise _never_computed(array)
    backing = None
    if not box.empty:
        backing = state.find(HOST if state.holds(HOST, box) else USER, box)
        if backing is None and all(mask & FILL for _, mask in state.valid.get(box)):
            return _sealed(np.full(array.shape, state.initial, array.dtype))
        if backing is None:
            raise _never_computed(array)
        writers: set[int] = set()
        backing.tracker.before_read(box, array._grid, writers)
        for id in writers & failed.keys():
            raise failed[id].with_traceback(None)
    allocation = backing.allocation if backing is not None else None
    return _sealed(np.array(resolve(Binding("", allocation, box, array._cut, writes=False, dtype=array.dtype))))


def _never_computed(array: Array) -> RuntimeClosed:
    return RuntimeClosed(
        f"{array!r} was never computed before its runtime was closed, or the host's memory could not hold it; "
        "read it earlier"
    )


def _sealed(data: Any) -> Any:
    data.flags.writeable = False
    return data
