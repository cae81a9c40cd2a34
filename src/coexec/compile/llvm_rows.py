"""LLVM's language for rows of memory: neighbours by one load, what is asked for ahead of time, and rows in tiles.

Before: compile/llvm_memory.py, compile/neighbours.py, compile/prefetching.py.  After: compile/llvm_calls.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .graph import Assign, Buffer, Expr, Line, Read
from .host import Size
from .llvm_memory import LlvmMemory
from .llvm_text import scalar_type, type_text
from .neighbours import Row, Span, row_key, spans
from .prefetching import AHEAD, NEAR, Rows, furthest_rows, rows_of
from .streaming import LINE
from .together import rows_together
from .walk import Held, Index, Nest, Strip

TILE = 6144  # bytes of a row that are done before the next row: four rows of them are half of a first cache of 48 KB
BAND = 8  # rows that are done tile by tile: the tile beside them begins where memory was followed to


class LlvmRows(LlvmMemory):
    """Reads rows of the loops around."""

    def __init__(self, register: int) -> None:
        super().__init__(register)
        self._furthest: dict[int, Rows] = {}  # the rows furthest ahead that the present loops read of each buffer
        self._spans: dict[Row, Span] = {}  # from where to where they read each row
        self._axes_of_loops: tuple[str, ...] = ()
        self.together = 1  # rows that the present loops write at a time

    def look_at_rows(self, stores: Sequence[Assign], nodes: Sequence[Expr], *, plain: bool) -> None:
        """Note what the loops of these stores read; nothing of it matters where they are not plain vectors."""
        self._furthest = furthest_rows(stores) if plain else {}
        self.together = 1
        if self._furthest and self._register == LINE:
            self.together = rows_together(stores, nodes, self.lanes, streams=self.streaming is not None)
        self._spans = spans(stores, self.lanes, self.together) if plain else {}

    def enter_loops(self, at: Index) -> None:
        """Note the variables of the loops whose body begins."""
        self._axes_of_loops = tuple(line.axis for line in at)

    @property
    def in_tiles(self) -> bool:
        """Tell whether the present loops go through several rows a tile at a time: what they write is in no cache."""
        return self.streaming is not None and bool(self._furthest) and self.together == 1

    # Reads ------------------------------------------------------------------------------------------------------------

    def load(self, node: Read, at: Index) -> Held:
        lane = self._lane(at)
        if lane is None or lane is not self.home(at):
            return super().load(node, at)
        if id(node.buffer) in self._furthest and self._is_ahead(at, self._furthest[id(node.buffer)]):
            self._ask_ahead(node, at, lane)
        span = self._spans.get(row_key(id(node.buffer), at[:-1]))
        along = tuple(line.axis for line in at) == self._axes_of_loops
        if span is None or not along or self.lanes * node.dtype.itemsize != LINE:
            return super().load(node, at)
        return self._neighbour(node, at, lane, span)

    def _is_ahead(self, at: Index, furthest: Rows) -> bool:
        """Tell whether a read is of the row furthest ahead, for any row that is written."""
        rows = rows_of(at)
        return rows is not None and rows[:-1] == furthest[:-1] and 0 <= rows[-1] - furthest[-1] < self.together

    def _ask_ahead(self, node: Read, at: Index, nest: Nest) -> None:
        """Ask memory for what comes later, once for each vector of a row: the next row of a tile, or some lines."""
        key = "asked", id(node.buffer), tuple(line.key for line in at[:-1])
        if key in nest.memo:
            return
        nest.memo[key] = True
        self.helpers["prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        ahead = str((AHEAD if self.together == 1 else NEAR) // node.dtype.itemsize)
        ahead = self._strides(node.buffer, node.shape)[-2] if self.in_tiles else ahead
        where, element = self.address(node.buffer, node.shape, at), scalar_type(node.dtype, memory=True)
        beyond = self.put(f"getelementptr {element}, ptr {where}, i64 {ahead}", nest)
        self.say(f"call void @llvm.prefetch.p0(ptr {beyond}, i32 0, i32 3, i32 1)", nest)

    def _neighbour(self, node: Read, at: Index, nest: Nest, span: Span) -> Held:
        """Return a vector out of the furthest one of its row and of what that was one turn before."""
        key = "row", id(node.buffer), tuple(line.key for line in at[:-1])
        if key not in nest.memo:
            nest.memo[key] = self._two_vectors(node, at, nest, span)
        before, now = nest.memo[key]
        back = span[1] - int(at[-1].start)
        if not back:
            return self._as_read(now, node.dtype, nest, self.lanes)
        kind = type_text(node.dtype, self.lanes, memory=True)
        chosen = ", ".join(f"i32 {lane}" for lane in range(self.lanes - back, 2 * self.lanes - back))
        mask = f"<{self.lanes} x i32> <{chosen}>"
        return self._as_read(
            self.put(f"shufflevector {kind} {before}, {kind} {now}, {mask}", nest), node.dtype, nest, self.lanes
        )

    def _two_vectors(self, node: Read, at: Index, nest: Nest, span: Span) -> tuple[str, str]:
        """Write the load of a row's furthest vector, and keep it for the next turn; return the kept one and this one."""
        assert nest.parent is not None
        kind = type_text(node.dtype, self.lanes, memory=True)
        slot = self.slot(kind)
        self.within(nest.parent, lambda: self._before_first(node, at, nest, span, slot))
        where = self.address(node.buffer, node.shape, (*at[:-1], at[-1]._replace(start=span[1])))
        before = self.put(f"load {kind}, ptr {slot}, align {LINE}", nest)
        now = self.put(f"load {kind}, ptr {where}, align {node.dtype.itemsize}", nest)
        self.say(f"store {kind} {now}, ptr {slot}, align {LINE}", nest)
        return before, now

    def _before_first(self, node: Read, at: Index, nest: Nest, span: Span, slot: str) -> None:
        """Write the last elements of the vector before the loop's first one: those that its neighbours take of it.

        They lie between the nearest and the furthest read of some element of the row, so they are there even if the loop has no turn.
        """
        one, kind = scalar_type(node.dtype, memory=True), type_text(node.dtype, self.lanes, memory=True)
        row = self.address(node.buffer, node.shape, (*at[:-1], Line(span[0], 1, None)))
        first = self.put(f"getelementptr inbounds {one}, ptr {row}, i64 {nest.bounds[0]}")
        text, missing = "zeroinitializer", span[1] - span[0]
        for number in range(missing):
            place = self.put(f"getelementptr inbounds {one}, ptr {first}, i64 {number}")
            element = self.put(f"load {one}, ptr {place}, align {node.dtype.itemsize}")
            text = self.put(f"insertelement {kind} {text}, {one} {element}, i64 {self.lanes - missing + number}")
        self.say(f"store {kind} {text}, ptr {slot}, align {LINE}")

    # Tiles ------------------------------------------------------------------------------------------------------------

    def tiles(self, rows: Size, size: Size, buffer: Buffer, body: Callable[[str, str], None]) -> None:
        """Write the loops over bands of rows, the tiles of a band, and its rows; a body gets a row and a tile's start."""

        def band(var: str) -> None:
            end = self._least(self.put(f"add nsw i64 %{var}, {BAND}"), self.size(rows))
            each = TILE // buffer.dtype.itemsize
            self.loop("0", self.size(size), partial_rows(f"%{var}", end), step=each, counts=False)

        def partial_rows(low: str, high: str) -> Callable[[str], None]:
            return lambda tile: self.loop(low, high, lambda row: body(row, f"%{tile}"))

        self.loop("0", self.size(rows), band, step=BAND, counts=False)

    def tile(
        self, size: Size, dtype: np.dtype[np.generic], body: Callable[[str], None], first: str, start: str
    ) -> None:
        """Write the loops along a tile of a row: its vectors, and the elements before and after all vectors if it has an end.

        Vectors of a row begin at `first`, and so tiles do, each `start` further.
        """
        high, strip = self.size(size), Strip(first, self.size(size), size)
        whole = self.put(f"and i64 {self.put(f'sub nsw i64 {high}, {first}')}, {-self.lanes}")
        last = self.put(f"add nsw i64 {first}, {whole}")
        next_tile = self.put(f"add nsw i64 {start}, {TILE // dtype.itemsize}")
        low, end = (self._least(self.put(f"add nsw i64 {first}, {at}"), last) for at in (start, next_tile))
        is_first = self.put(f"icmp eq i64 {start}, 0")
        is_last = self.put(f"icmp sge i64 {next_tile}, {high}")
        self.loop("0", self.put(f"select i1 {is_first}, i64 {first}, i64 0"), body, strip=strip)
        self.loop(low, end, body, step=self.lanes, lanes=self.lanes, strip=strip)
        self.loop(self.put(f"select i1 {is_last}, i64 {last}, i64 {high}"), high, body, strip=strip)

    def _least(self, one: str, other: str) -> str:
        return self.put(f"select i1 {self.put(f'icmp slt i64 {one}, {other}')}, i64 {one}, i64 {other}")
