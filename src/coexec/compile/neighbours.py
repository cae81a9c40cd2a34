"""Neighbours along a row: which arrays a loop reads at several places of one row, so that one load serves them all.

Before: compile/schedule.py.  After: compile/llvm_rows.py.  Pure: compiles nothing.

A vector as long as a line of memory lies across two lines wherever it does not begin with one, and then takes two accesses. A
stencil reads three such vectors of a row, which overlap. The furthest one alone has to be loaded: the others are made of it and of
the one before it, which the loop still has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph import Assign, Axes, Line
from .host import size_key
from .schedule import looks

Row = tuple[int, Any]  # a buffer's id, and where its row lies in terms of the loops around
Span = tuple[int, int]  # where the nearest and the furthest read of a row begin


def row_key(buffer: int, outer: Sequence[Line]) -> Row:
    """Return what is equal for reads of one row; the axes of the loops go with the buffer's."""
    return buffer, tuple((size_key(line.start), line.step) for line in outer)


def shifted(outer: Sequence[Line], row: int) -> Sequence[Line]:
    """Return where the row lies that is read for a result so many rows below."""
    if not row:
        return outer
    last = outer[-1]
    return (*outer[:-1], last._replace(start=last.start + last.step * row))


def spans(stores: Sequence[Assign], lanes: int, together: int = 1) -> dict[Row, Span]:
    """Return from where to where a loop reads each row, if at several places that one vector and the next one hold.

    Of a loop that writes several rows `together`, one reads what others read as well.
    """
    written = {id(store.buffer) for store in stores}
    found: dict[Row, set[int]] = {}
    for store in stores:
        for read, at in looks(store):
            start = _start(at, len(store.value.shape))
            if at is not None and start is not None and read.buffer.parameter and id(read.buffer) not in written:
                for row in range(together):
                    found.setdefault(row_key(id(read.buffer), shifted(at[:-1], row)), set()).add(start)
    kept = {row: (min(starts), max(starts)) for row, starts in found.items() if len(starts) > 1}
    return {row: (first, last) for row, (first, last) in kept.items() if last - first <= lanes}


def _start(at: Axes | None, ndim: int) -> int | None:
    """Return where a read begins in its row, if it goes along all axes as the loops do."""
    if not at or tuple(line.axis for line in at) != tuple(range(ndim)):
        return None
    last = at[-1]
    return last.start if type(last.start) is int and last.step == 1 else None
