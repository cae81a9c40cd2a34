"""Rows together: how many rows of a stencil one loop writes at a time, so that what they share is loaded and computed once.

Before: compile/streaming.py, compile/prefetching.py.  After: compile/llvm_together.py.  Pure: compiles nothing.

A row of a stencil is read for the rows above and below it, too, and comes from a slower cache each time. A loop over a few rows
at once reads it once for all of them but the two outer ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Apply, Assign, Expr
from .streaming import LINE, PLAIN

MOST = 8  # rows: more would not stay in registers
SHUFFLED = 4  # bytes of the least element of which any order out of two vectors is one instruction
OPERATIONS = 160  # of one turn: what is written out takes time to compile


def rows_together(stores: Sequence[Assign], nodes: Sequence[Expr], lanes: int, *, streams: bool) -> int:
    """Return how many rows the loop of these stores writes at a time, vector by vector; one if nothing is gained by more.

    The caller has found that it reads several rows of an array.
    """
    widths = {lanes * node.dtype.itemsize for node in nodes if node.dtype.kind != "b"}
    if widths != {LINE} or not all(isinstance(node, PLAIN) for node in nodes):
        return 1
    if streams and (
        len(stores) > 1 or LINE // lanes < SHUFFLED
    ):  # what is computed twice must not have changed meanwhile
        return 1
    operations = sum(isinstance(node, Apply) for node in nodes)
    most = MOST
    while most > 1 and most * operations > OPERATIONS:
        most //= 2
    return most
