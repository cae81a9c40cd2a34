"""Views that share elements of one array.

Before: program/view.py, program/array.py.  After: program/ufunc.py, graph/overlaps.py, ops/.  Knows no kernel and no data.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..geometry import grids_meet, overlap
from .array import Array


def same_place(a: Array, b: Array) -> bool:
    """Tell whether two handles are of exactly the same elements in the same order."""
    return a._storage is b._storage and a._box == b._box and a._cut == b._cut


def share_elements(a: Array, b: Array) -> bool:
    """Tell whether two handles have an element in common."""
    if a._storage is not b._storage or not a.size or not b.size:
        return False
    where = overlap(a._box, b._box)
    return where is not None and grids_meet(where, a._grid, b._grid)


def entangled(value: object, outputs: Iterable[Array | None]) -> bool:
    """Tell whether computing `outputs` point by point might change elements of `value` before they are read.

    An output that is `value` itself, element by element, is none: each point reads its own element first.
    """
    return isinstance(value, Array) and any(
        out is not None and share_elements(value, out) and not same_place(value, out) for out in outputs
    )
