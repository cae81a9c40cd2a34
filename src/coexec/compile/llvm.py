"""Groups of stores as one function in LLVM's language: their loops, and the text of the whole.

Before: compile/llvm_together.py.  After: compile/build.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from .graph import Assign, Fold, Line, Shape, nodes_of, through
from .llvm_calls import FLAGS
from .llvm_folds import FEW
from .llvm_text import Inline
from .llvm_together import LlvmTogether, Places
from .streaming import only_written, streamable
from .walk import Nest

UNROLLED = 64  # elements of constant axes that are written out instead of looped over
ENTRY = "coexec_body"


class Llvm(LlvmTogether):
    """Writes a function of all groups."""

    def __init__(self, register: int, *, free: bool = False, large: Collection[str] = ()) -> None:
        """Begin. `large` names the arrays that go past the caches if they can."""
        super().__init__(register)
        self.inline = Inline(contract=free)
        self.written = 0
        self.streams: dict[str, bool] = {}  # arrays that can go past the caches, and whether they do
        self._large = frozenset(large)
        self._only_written: frozenset[str] = frozenset()
        self._loops: list[str] = []  # variables of loops, for which the entry makes room

    def write_groups(self, groups: Sequence[Sequence[Assign]], vectors: Sequence[bool]) -> None:
        """Write the loops of all groups, by vectors or by single elements; `written` counts those that are done."""
        self.number_stores([store for group in groups for store in group])
        self._only_written = only_written([store for group in groups for store in group])
        for group, vector in zip(groups, vectors, strict=True):
            self._group(list(group), vector=vector)
            self.root.memo.clear()  # memory has changed
            self.written += 1

    def _group(self, stores: list[Assign], *, vector: bool) -> None:
        shape = stores[0].value.shape
        nodes = list(nodes_of(*(store.value for store in stores)))
        self.lanes = self.lanes_of(nodes) if vector else 1
        constant = [axis for axis, extent in enumerate(shape) if isinstance(extent, int) and extent <= FEW]
        while constant and np.prod([shape[axis] for axis in constant]) > UNROLLED:
            constant.pop(0)
        looped = [axis for axis in range(len(shape)) if axis not in constant]
        # Strips keep a few arrays in the first cache; rows that are reduced too are computed once, as a whole.
        strips = not any(isinstance(node, Fold) and self._in_a_row(node) for node in nodes)
        strips = strips and any(map(self.is_called, nodes))

        self.streaming = None
        if not constant and not strips and (candidate := streamable(stores, nodes, self._only_written, self.lanes)):
            name = candidate.buffer.name
            self.streams[name] = name in self._large
            self.streaming = candidate if self.streams[name] else None

        written = {id(store.buffer) for store in stores}
        self.look_at_rows(stores, nodes, plain=self.lanes > 1 and not strips and not constant)

        def body(*places: dict[int, Line]) -> None:
            self.stored = []
            points = [
                at | {axis: Line(number, 1, None) for axis, number in zip(constant, chosen, strict=True)}
                for at in places
                for chosen in combinations(*(range(shape[axis]) for axis in constant))
            ]
            indices = [tuple(point[axis] for axis in range(len(shape))) for point in points]
            self.enter_loops(indices[0])
            each = [(store.value, index) for index in indices for store in stores]
            self.find_siblings([value for value, _ in each], [index for _, index in each], written)
            for index in indices:
                for store in stores:
                    self.store(store, index)
                    self.stored.append((store, index))

        self._axes(looped, shape, {}, body, strips=strips)
        self.stored = []

    def _axes(
        self,
        looped: list[int],
        shape: Shape,
        at: dict[int, Line],
        body: Places,
        *,
        strips: bool,
    ) -> None:
        if not looped:
            body(at)
            return
        axis, rest = looped[0], looped[1:]
        if len(rest) == 1 and self.together > 1:
            self.row_groups(shape, at, body)
        elif len(rest) == 1 and self.in_tiles:
            self._tiles(axis, rest[0], shape, at, body)
        elif rest:
            end = self.size(shape[axis])
            self.loop("0", end, lambda var: self._axes(rest, shape, at | {axis: Line(0, 1, var)}, body, strips=strips))
        else:
            first = self._first_vector(shape, at) if self.streaming is not None else "0"
            self.row(shape[axis], lambda var: body(at | {axis: Line(0, 1, var)}), strips=strips, first=first)

    def _tiles(self, axis: int, last: int, shape: Shape, at: dict[int, Line], body: Places) -> None:
        assert self.streaming is not None
        buffer = self.streaming.buffer

        def tile(row: str, start: str) -> None:
            here = at | {axis: Line(0, 1, row)}
            first = self._first_vector(shape, here)
            self.tile(shape[last], buffer.dtype, lambda var: body(here | {last: Line(0, 1, var)}), first, start)

        self.tiles(shape[axis], shape[last], buffer, tile)

    def _first_vector(self, shape: Shape, at: dict[int, Line]) -> str:
        """Return the first element of a row at which vectors can go past the caches."""
        assert self.streaming is not None
        buffer, last = self.streaming.buffer, len(shape) - 1
        begin = tuple(at.get(axis, Line(0, 1, None)) for axis in range(len(shape)))
        where = self.address(buffer, buffer.shape, through(self.streaming.axes, begin))
        return self.until_line(where, buffer.dtype, shape[last])

    # Text -------------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the whole module."""
        entry = []
        for number, (name, passed) in enumerate(self.arguments.values()):
            entry.append(f"%p{number} = getelementptr i64, ptr %arguments, i64 {number}")
            entry.append(f"{name} = load {passed.llvm_type}, ptr %p{number}")
        lines = list(self._flat(self.root.lines))
        past_caches = any(self.streams.values())  # other threads must see what they wrote, too
        slots = [*self._slots, "%flags = alloca i32", *(f"%{var}_at = alloca i64" for var in self._loops)]
        return "\n".join(
            [
                "declare i32 @feclearexcept(i32)",
                "declare i32 @fetestexcept(i32)",
                *(["declare void @llvm.x86.sse.sfence()"] if past_caches else []),
                *self.inline.declared.values(),
                *self.helpers.values(),
                f"define i32 @{ENTRY}(ptr noalias %arguments) {{",
                "entry:",
                *slots,
                *entry,
                "store i32 0, ptr %flags",
                "%cleared = call i32 @feclearexcept(i32 61)",
                *lines,
                *(["call void @llvm.x86.sse.sfence()"] if past_caches else []),
                f"%up = call i32 @fetestexcept(i32 {FLAGS})",
                "%kept = load i32, ptr %flags",
                "%all = or i32 %up, %kept",
                "ret i32 %all",
                "}",
                *(["!0 = !{i32 1}"] if past_caches else []),
            ]
        )

    def _flat(self, lines: Sequence[Any]) -> Iterator[str]:
        for line in lines:
            if not isinstance(line, Nest):
                yield line
                continue
            var, (low, high) = line.var, line.bounds
            self._loops.append(var)
            yield f"store i64 {low}, ptr %{var}_at"
            yield f"br label %{var}_test"
            yield f"{var}_test:"
            yield f"%{var} = load i64, ptr %{var}_at"
            yield f"%{var}_goes = icmp slt i64 %{var}, {high}"
            yield f"br i1 %{var}_goes, label %{var}_body, label %{var}_end"
            yield f"{var}_body:"
            yield from self._flat(line.lines)
            yield f"%{var}_next = add nsw i64 %{var}, {line.step}"
            yield f"store i64 %{var}_next, ptr %{var}_at"
            yield f"br label %{var}_test"
            yield f"{var}_end:"
