"""LLVM's language for several rows written together: their loops, and results past the caches wherever rows begin.

Before: compile/llvm_sums.py, compile/together.py.  After: compile/llvm.py.  Pure text: compiles nothing.

Vectors of all rows begin at the same elements, so that rows share what they read. What goes past the caches must begin at a line
of memory, which is elsewhere in each row: such a vector is made of the last two results of its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import Assign, Line, Shape, through
from .llvm_sums import LlvmSums
from .llvm_text import scalar_type, type_text
from .streaming import LINE
from .walk import Held, Index, Nest, Strip

_WORDS: dict[str, np.dtype[Any]] = {"i32": np.dtype(np.int32), "i64": np.dtype(np.int64)}

Places = Callable[..., None]  # writes the body at some places, each an axis' `Line` by its number


class LlvmTogether(LlvmSums):
    """Writes loops over groups of rows."""

    def __init__(self, register: int) -> None:
        super().__init__(register)
        self._late: dict[Any, str] = {}  # a row of the present loop -> where its last result is kept

    def row_groups(self, shape: Shape, at: dict[int, Line], body: Places) -> None:
        """Write the loops over groups of rows, and over what is left of rows that are fewer, and of elements."""
        axis, last = len(shape) - 2, len(shape) - 1
        count, rows, high, lanes = self.together, self.size(shape[axis]), self.size(shape[last]), self.lanes
        streaming = self.streaming
        whole = self.put(f"and i64 {high}, {-lanes}")

        def group(var: str) -> None:
            beyond = self.put(f"add nsw i64 %{var}, {count}")
            full = self.put(f"icmp sle i64 {beyond}, {rows}")
            end = self._select(full, beyond, rows)
            begin = str(lanes) if streaming is not None else "0"
            if streaming is not None:
                upto = self._select(full, begin, whole)
                self.loop(
                    f"%{var}", end, lambda row: self._ends(row, upto, high, last, at | {axis: Line(0, 1, row)}, body)
                )

            def together(row: str) -> None:
                places = [at | {axis: Line(number, 1, row)} for number in range(count)]
                self.loop(
                    begin,
                    whole,
                    lambda j: body(*(here | {last: Line(0, 1, j)} for here in places)),
                    step=lanes,
                    lanes=lanes,
                )
                if streaming is not None:
                    self._finish(streaming, places, whole)

            self.loop(f"%{var}", self._select(full, end, f"%{var}"), together, step=count)
            if streaming is None:
                rest = Strip(self._select(full, whole, "0"), high, shape[last])

                def alone(row: str) -> None:
                    self.vectors(rest, lambda j: body(at | {axis: Line(0, 1, row), last: Line(0, 1, j)}))

                self.loop(f"%{var}", end, alone)

        self.loop("0", rows, group, step=count, counts=False)

    def _select(self, chosen: str, one: str, other: str) -> str:
        return self.put(f"select i1 {chosen}, i64 {one}, i64 {other}")

    def _ends(self, row: str, upto: str, high: str, last: int, here: dict[int, Line], body: Places) -> None:
        """Write the vectors of a row up to an element, and the one at its end, into the caches."""
        del row
        streaming, self.streaming = self.streaming, None
        lanes = self.lanes

        def part(which: str) -> None:
            first = self.put(f"icmp eq i64 %{which}, 0")
            low = self._select(first, "0", self.put(f"sub nsw i64 {high}, {lanes}"))
            stop = self._select(first, upto, high)
            self.loop(low, stop, lambda j: body(here | {last: Line(0, 1, j)}), step=lanes, lanes=lanes)

        self.loop("0", "2", part, counts=False)
        self.streaming = streaming

    # Results past the caches ----------------------------------------------------------------------------------------------

    def store(self, store: Assign, index: Index) -> None:
        lane = self._lane(index)
        if self.together == 1 or lane is None or store is not self.streaming:
            super().store(store, index)
            return
        at = through(store.axes, index)
        self.storing = store.value
        value = self.lifted(self.emit(store.value, index))
        words, lanes = f"<{self.lanes} x i{8 * value.dtype.itemsize}>", self.lanes
        kind = type_text(value.dtype, lanes, memory=True)
        assert lane.parent is not None
        slot, order, back = self.within(lane.parent, lambda: self._begin(store, at, lane, words))
        now = self.put(f"bitcast {kind} {value.text} to {words}")
        before = self.put(f"load {words}, ptr {slot}, align {LINE}")
        name = f"@llvm.x86.avx512.vpermi2var.{'q' if value.dtype.itemsize == 8 else 'd'}.512"
        self.helpers[name] = f"declare {words} {name}({words}, {words}, {words})"
        line = self.put(f"call {words} {name}({words} {before}, {words} {order}, {words} {now})")
        where = self.address(store.buffer, store.buffer.shape, at)
        where = self.put(f"getelementptr {scalar_type(value.dtype, memory=True)}, ptr {where}, i64 {back}")
        self.say(f"store {words} {line}, ptr {where}, align {LINE}, !nontemporal !0")
        self.say(f"store {words} {now}, ptr {slot}, align {LINE}")

    def _begin(self, store: Assign, at: Index, nest: Nest, words: str) -> tuple[str, str, str]:
        """Write what a row begins with: the result before its first vector, and how far vectors lie beyond lines of memory.

        Return where the last result is kept, the order of elements out of two, and how many elements lines are behind.
        """
        dtype, lanes, slot = store.buffer.dtype, self.lanes, self.slot(words)
        start = self.address(store.buffer, store.buffer.shape, (*at[:-1], Line(0, 1, None)))
        first = self.put(f"getelementptr inbounds {scalar_type(dtype, memory=True)}, ptr {start}, i64 {nest.bounds[0]}")
        before = self.put(f"getelementptr inbounds {scalar_type(dtype, memory=True)}, ptr {first}, i64 -{lanes}")
        self.say(
            f"store {words} {self.put(f'load {words}, ptr {before}, align {dtype.itemsize}')}, ptr {slot}, align {LINE}"
        )
        place = self.put(f"ptrtoint ptr {start} to i64")
        beyond = self.put(f"lshr i64 {self.put(f'and i64 {place}, {LINE - 1}')}, {dtype.itemsize.bit_length() - 1}")
        back, word = self.put(f"sub nsw i64 0, {beyond}"), words.rsplit(maxsplit=1)[-1].rstrip(">")
        from_two = self.put(f"sub nsw i64 {lanes}, {beyond}")
        one = from_two if word == "i64" else self.put(f"trunc i64 {from_two} to {word}")
        spread = self.lifted(Held(one, _WORDS[word], False, self.stack[-1])).text
        counting = ", ".join(f"{word} {lane}" for lane in range(lanes))
        self._late[id(store), tuple(line.key for line in at[:-1])] = slot
        return slot, self.put(f"add {words} {spread}, <{counting}>"), back

    def _finish(self, store: Assign, places: list[dict[int, Line]], whole: str) -> None:
        """Write the last vector of each row into the caches: the end of it lies beyond the last line."""
        lanes, dtype = self.lanes, store.buffer.dtype
        words = f"<{lanes} x i{8 * dtype.itemsize}>"
        for here in places:
            at = through(store.axes, (*(here[axis] for axis in range(len(here))), Line(0, 1, None)))
            slot = self._late[id(store), tuple(line.key for line in at[:-1])]
            start = self.address(store.buffer, store.buffer.shape, at)
            end = self.put(f"getelementptr inbounds {scalar_type(dtype, memory=True)}, ptr {start}, i64 {whole}")
            where = self.put(f"getelementptr inbounds {scalar_type(dtype, memory=True)}, ptr {end}, i64 -{lanes}")
            self.say(
                f"store {words} {self.put(f'load {words}, ptr {slot}, align {LINE}')}, ptr {where}, align {dtype.itemsize}"
            )
        self._late.clear()
