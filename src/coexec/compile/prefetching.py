"""Rows asked for before they are wanted: which arrays a loop over rows reads several rows of, and how far ahead it looks.

Before: compile/schedule.py.  After: compile/llvm_rows.py.  Pure: compiles nothing.

A processor guesses what a loop reads next from what it has read, line after line, within a page of memory. Each row of a stencil
is a new beginning, in each of the rows that it looks at, so most of the time is spent waiting. The vector loop therefore asks for
what it will read of the lowest row, a page ahead, or one row ahead where it goes through rows in tiles; asking beyond the array's
end does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Assign, Line
from .schedule import looks

AHEAD = 4096  # bytes along a row: a page, at whose end a processor loses track
NEAR = (
    512  # bytes along each of several rows that are gone through together: so many begin at once that no guess is left
)

Rows = tuple[int, ...]  # where a read begins along each axis but the last


def rows_of(lines: Sequence[Line]) -> Rows | None:
    """Return where a read begins along all axes but the last, or None if it goes through them in some other way."""
    outer = [line.start for line in lines[:-1] if line.step == 1 and line.axis is not None and type(line.start) is int]
    return tuple(outer) if len(outer) == len(lines) - 1 else None


def furthest_rows(stores: Sequence[Assign]) -> dict[int, Rows]:
    """Return the row furthest ahead of each array that a loop reads, by the buffer's id, if it reads several rows of one."""
    found: dict[int, set[Rows]] = {}
    for store in stores:
        ndim = len(store.value.shape)
        for read, at in looks(store):
            along = at is not None and ndim > 1 and tuple(line.axis for line in at) == tuple(range(ndim))
            if at is None or not along or at[-1].step != 1 or not read.buffer.parameter:
                continue
            rows = rows_of(at)
            if rows is not None:
                found.setdefault(id(read.buffer), set()).add(rows)
    if all(len(rows) == 1 for rows in found.values()):
        return {}
    return {buffer: max(rows) for buffer, rows in found.items()}
